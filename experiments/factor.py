"""What a factor is: one change of the operator calls of a term, of complete steps, or of both, described as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..profiling.measure.configuration import Configuration
from ..profiling.measure.stopping import StepRow
from ..profiling.measure.visit import Steps
from ..profiling.recording.experiments import FactorFacts, Scope
from .replay.operator_kinds import on_cuda
from .replay.recorded_call import CallFamily
from .replay.runnable import Runnable

USUAL_SETUP_S = 2.0


class Caches(Enum):
    """What the caches have of the operands when a run begins."""

    AS_IN_STEP = "what the step leaves there"
    COLD = "nothing"
    WARM = "what the run before left there"


@dataclass(frozen=True, kw_only=True)
class TermChange:
    """How a factor changes the operator calls of a term; without an entry nothing.

    Attributes:
        how: instructions to set it for one layer; None if it is an experiment only.
        how_training: the same for steps that compute gradients; None if `how` is for these too.
        screen: its place in a screen without evidence; None to come after all that have one.
        needs_evidence: whether a screen has it only where its cause explains some of the term.
        reason_against: the reason why it cannot be changed for a call, as a clause; None if it can.
        around: function that makes the context of all runs of a visit.
        call: function that returns the changed call, from the call and the increasing batch sizes of the experiment.
            It raises `CannotReplay` with the reason if this call cannot be changed, or returns the same object if the
            change leaves it unmodified.
        piece: takes the calls of a term and the batch sizes of the experiment; gives the batch size of the pieces in
            which the term runs larger batch sizes, or None if there is nothing to divide.
        caches: content of the caches when a run begins.
        discarded: number of runs to discard in a visit.
        same_work: whether the operators do the same in every case, so that their results need no comparison.
    """

    how: str | None = None
    how_training: str | None = None
    screen: int | None = None
    needs_evidence: bool = False
    reason_against: Callable[[CallFamily], str | None] = lambda _: None
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    call: Callable[[Runnable, tuple[int, ...]], Runnable] | None = None
    piece: Callable[[Sequence[CallFamily], Sequence[int]], int | None] | None = None
    caches: Caches = Caches.AS_IN_STEP
    discarded: int = 1
    same_work: bool = False

    @property
    def only_chooses(self) -> bool:
        """Whether it changes nothing but the library's choice of kernels."""
        return self.call is None and self.piece is None and not self.same_work


@dataclass(frozen=True)
class Target:
    """The steps that an experiment runs.

    Attributes:
        configuration: network or step, and how it runs, as in the recording.
        batches: batch sizes of the experiment, increasing.
        memory_shares: by batch size, the peak memory of its steps as a share of that of the largest batch size of the
            experiment; empty if unknown.
        phases: phases of the recorded operators; empty if unknown.
        operators: names of the recorded operators; empty if unknown.
        lowest_clock_hz: lowest SM clock of the recorded steps at these batch sizes; None if unknown.
        weights: names of the parameters that recorded products multiply by; empty if unknown.
    """

    configuration: Configuration
    batches: tuple[int, ...]
    memory_shares: Mapping[int, float] = field(default_factory=dict)
    phases: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()
    lowest_clock_hz: int | None = None
    weights: tuple[str, ...] = ()

    @property
    def computes_gradients(self) -> bool:
        """Whether the steps are known to have a backward pass."""
        return "backward" in self.phases or self.configuration.mode in ("training", "forward+backward")


@dataclass(frozen=True, kw_only=True)
class StepChange:
    """How a factor changes complete steps, in a worker process of its own; without an entry nothing.

    Attributes:
        how: instructions to set it for the complete step, or these by kind of device; None if it is an experiment only.
        variables: function that returns the same as variables of the environment of a process; none if they cannot set
            it, or are those of `environment`.
        screen: its place in a screen without evidence; None to be left out of it.
        screen_on: kinds of devices whose screens have it.
        common: its place among what commonly helps, which every step is screened for; None if it is not one of these.
        setup_s: expected seconds until the changed steps run.
        reason_against: the reason why these steps cannot be changed, as far as is known before a worker starts; None if
            they can.
        changed_results: what the change does to the results by its nature, beyond rounding; with None, the results of
            the first steps are compared.
        prepare: changes the worker process before the steps are built. It raises `CurvescopeError` with the reason if
            this machine or installation does not allow the change.
        change: changes the built steps, a workload of the target's configuration. It raises `CurvescopeError` with the
            reason if they do not allow the change.
        environment: variables with which the worker process starts; then it loads its libraries anew.
        around: function that makes the context of each visit, in the process of the experiment. It raises
            `CurvescopeError` as `prepare` does.
        without_effect: the reason why the change did not take effect, as a clause; None if it did, or if nothing shows
            it. It takes the rows of the table `experiments` of the unmodified and of the changed steps.
    """

    how: str | Mapping[str, str] | None = None
    variables: Callable[[], Mapping[str, str]] = dict
    screen: int | None = None
    screen_on: tuple[str, ...] = ("cpu", "cuda")
    common: int | None = None
    setup_s: float = USUAL_SETUP_S
    reason_against: Callable[[Target], str | None] = lambda _: None
    changed_results: Callable[[Target], str | None] = lambda _: None
    prepare: Callable[[Target], object] = lambda _: None
    change: Callable[[Any, Target], Steps] = lambda workload, _: workload
    environment: Mapping[str, str] = field(default_factory=dict)
    around: Callable[[Target], AbstractContextManager[object]] = lambda _: nullcontext()
    without_effect: Callable[[Sequence[StepRow], Sequence[StepRow]], str | None] = lambda _, __: None


@dataclass(frozen=True, kw_only=True)
class Factor:
    """One thing that an experiment changes, described in a file of `experiments/factors/`.

    Attributes:
        what: the change as a clause, see `FactorFacts`.
        remedy: an instruction with {where} for the layer or the step; None if the change is an experiment only.
        refuses: the reason by kind of device (cpu, cuda), for those on which nothing can be changed.
        term: change of the operators of a term; None if no term can be changed alone.
        step: change of complete steps; None if they cannot be changed.
        levels: see `FactorFacts`.
        brings_about: see `FactorFacts`.
        partial: see `FactorFacts`.
        by_size: see `FactorFacts`.
        sets: what it sets, e.g. threads: of factors that set the same, only one can be changed at a time; None if it
            excludes no other.
    """

    name: str
    what: str
    remedy: str | None = None
    refuses: Mapping[str, str] = field(default_factory=dict)
    term: TermChange | None = None
    step: StepChange | None = None
    levels: bool = False
    brings_about: bool = False
    partial: bool = False
    by_size: bool = False
    sets: str | None = None

    def refusal(self, device: str) -> str | None:
        """The reason why nothing can be changed on a device, `cpu` or `cuda:N`; None if something can."""
        return self.refuses.get(_kind(device))

    def facts(self, scope: str, device: str = "cpu") -> FactorFacts:
        """What a recording says of the factor.

        Args:
            scope: see `Scope`; the factor has a change of it.
            device: `cpu` or `cuda:N`, where instructions differ.
        """
        change = self.term if scope == Scope.TERM else self.step
        assert change is not None
        how = change.how if change.how is None or isinstance(change.how, str) else change.how[_kind(device)]
        return FactorFacts(
            name=self.name,
            what=self.what,
            remedy=self.remedy,
            how=how,
            how_training=change.how_training if isinstance(change, TermChange) else None,
            levels=self.levels,
            brings_about=self.brings_about,
            partial=self.partial,
            by_size=self.by_size,
        )


def together(name: str, factors: Sequence[Factor]) -> Factor:
    """Several factors of complete steps, changed together; they are changed in their order.

    Args:
        name: name of all of them, see `profiling.recording.experiments.members`.
        factors: the factors.
    """
    changes = [factor.step for factor in factors if factor.step is not None]

    def change(workload: Any, target: Target) -> Any:
        for change in changes:
            workload = change.change(workload, target)
        return workload

    @contextmanager
    def around(target: Target) -> Iterator[None]:
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(change.around(target))
            yield

    def first(reasons: Iterable[str | None]) -> str | None:
        return next((reason for reason in reasons if reason is not None), None)

    step = StepChange(
        setup_s=max(one.setup_s for one in changes),
        reason_against=lambda target: first(one.reason_against(target) for one in changes),
        changed_results=lambda target: first(one.changed_results(target) for one in changes),
        prepare=lambda target: [one.prepare(target) for one in changes],
        change=change,
        environment={name: value for one in changes for name, value in one.environment.items()},
        around=around,
        without_effect=lambda before, after: first(one.without_effect(before, after) for one in changes),
    )
    refuses = {device: why for factor in factors for device, why in factor.refuses.items()}
    whole = len(changes) == len(factors)
    return Factor(
        name=name,
        what=" and ".join(factor.what for factor in factors),
        refuses=refuses,
        step=step if whole else None,
    )


def _kind(device: str) -> str:
    return "cuda" if on_cuda(device) else "cpu"
