"""A factor: one change of the operator calls of a term, of complete steps, or of both, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from ..profiling.measure.configuration import Configuration
from ..profiling.measure.visits import StepRow
from ..profiling.recording.experiments import FactorFacts, Scope
from ..profiling.workload.steps import Steps
from .replay.operator_kinds import on_cuda
from .replay.recorded_call import CallFamily
from .replay.runnable import Runnable

USUAL_SETUP_S = 2.0
ON_GPU = {"cuda": "the work runs on the GPU"}  # where only a CPU's work can be changed
_FACTS = ("name", "what", "remedy", "levels", "brings_about", "partial", "by_size")


class Caches(Enum):
    """What the caches have of the operands when a run begins."""

    AS_IN_STEP = "what the step leaves there"
    COLD = "nothing"
    WARM = "what the run before left there"


@dataclass(frozen=True, kw_only=True)
class TermChange:
    """How a factor changes the operator calls of a term; without an entry nothing."""

    how: str | None = None  # instructions to set it for one layer; None if it is an experiment only
    # the same for steps that compute gradients; None if `how` is for these too
    how_training: str | None = None
    # its place in a screen without evidence; None to come after all that have one
    screen: int | None = None
    # whether a screen has it only where its cause explains some of the term
    needs_evidence: bool = False
    # why a call cannot be changed, as a clause
    reason_against: Callable[[CallFamily], str | None] = lambda _: None
    # the context of all runs of a visit
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    # The changed call, from the call and the increasing batch sizes of the experiment: the same
    # object if the change leaves it unmodified. It raises `CannotReplay` with the reason if this
    # call cannot be changed.
    call: Callable[[Runnable, tuple[int, ...]], Runnable] | None = None
    # The batch size of the pieces in which the term runs larger ones, from its calls and the batch
    # sizes of the experiment; None if there is nothing to divide.
    piece: Callable[[Sequence[CallFamily], Sequence[int]], int | None] | None = None
    caches: Caches = Caches.AS_IN_STEP
    discarded: int = 1  # number of runs to discard in a visit
    # whether its visits run in a thread of their own, with what PyTorch keeps by thread
    own_thread: bool = False
    # whether the operators do the same in every case, so that their results need no comparison
    same_work: bool = False

    @property
    def only_chooses(self) -> bool:
        """Whether it changes nothing but the library's choice of kernels."""
        return self.call is None and self.piece is None and not self.same_work


@dataclass(frozen=True)
class Target:
    """The steps that an experiment runs."""

    configuration: Configuration  # network or step, and how it runs, as in the recording
    batches: tuple[int, ...]
    # peaks by batch size, of that of the largest
    memory_shares: Mapping[int, float] = field(default_factory=dict)
    phases: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()  # names of the recorded operators; empty if unknown
    # of the recorded products, by the names of their kernels; empty if unknown
    precisions: frozenset[str] = frozenset()
    # lowest SM clock of the recorded steps at these batch sizes; None if unknown
    lowest_clock_hz: int | None = None
    # names of the parameters that recorded products multiply by; empty if unknown
    weights: tuple[str, ...] = ()
    # what recorded steps ran of torch.compile's code, by batch size, see `collect.compilations`
    compiled_code: Mapping[int, str] = field(default_factory=dict)
    # further batch sizes for which the recorded process compiled before, in their order
    compiled_before: tuple[int, ...] = ()

    @property
    def may_convolve(self) -> bool:
        """Whether a recorded operator is a convolution, or the operators are unknown."""
        return not self.operators or any("conv" in name for name in self.operators)

    @property
    def computes_gradients(self) -> bool:
        """Whether the steps are known to have a backward pass."""
        trains = self.configuration.mode in ("training", "forward+backward")
        return trains or "backward" in self.phases


@dataclass(frozen=True, kw_only=True)
class StepChange:
    """How a factor changes complete steps, in a worker process of its own; without an entry
    nothing.
    """

    # Instructions to set it for the complete step, or these by kind of device; None if it is an
    # experiment only.
    how: str | Mapping[str, str] | None = None
    # The same as variables of the environment of a process; none if they cannot set it, or are
    # those of `environment`.
    variables: Callable[[], Mapping[str, str]] = dict
    screen: int | None = None  # its place in a screen without evidence; None to be left out of it
    screen_on: tuple[str, ...] = ("cpu", "cuda")  # kinds of devices whose screens have it
    # its place among what commonly helps, which every step is screened for
    common: int | None = None
    phase: str | None = None  # of the step, whose time it saves at most; None: of all of it
    setup_s: float = USUAL_SETUP_S  # expected seconds until the changed steps run
    # whether that is the compilation of a step that is compiled without the change, too, whose
    # time is recorded
    compiles_again: bool = False
    reason_against: Callable[[Target], str | None] = lambda _: None  # known before a worker starts
    # by its nature, not to be compared
    changed_results: Callable[[Target], str | None] = lambda _: None
    # Changes the worker process before the steps are built; this and the next raise
    # `CurvescopeError` with the reason if the machine, the installation or the steps do not allow
    # the change.
    prepare: Callable[[Target], object] = lambda _: None
    change: Callable[[Any, Target], Steps] = lambda workload, _: workload  # changes the built steps
    # with which the worker loads its libraries anew
    environment: Mapping[str, str] = field(default_factory=dict)
    # of each visit; it raises too
    around: Callable[[Target], AbstractContextManager[object]] = lambda _: nullcontext()
    # Why the change did not take effect, as a clause, from the rows of the unmodified and of the
    # changed steps; None if it did, or if nothing shows it.
    without_effect: Callable[[Sequence[StepRow], Sequence[StepRow]], str | None] = lambda _, __: (
        None
    )


def set_by(variables: Mapping[str, str]) -> str:
    """Instructions for a change that variables of the environment make."""
    settings = " ".join(map("=".join, variables.items()))
    return f"{settings} in the environment of the process"


def change_environment(variables: Mapping[str, str], **others: Any) -> StepChange:
    """A change of complete steps that variables of the environment make."""
    return StepChange(how=set_by(variables), environment=variables, **others)


@dataclass(frozen=True, kw_only=True)
class Factor:
    """One thing that an experiment changes, described in a file of `experiments/factors/`."""

    name: str
    what: str  # the change as a clause, see `FactorFacts`
    # an instruction with {where} for the layer or the step; None: an experiment only
    remedy: str | None = None
    # reasons by kind of device on which nothing changes
    refuses: Mapping[str, str] = field(default_factory=dict)
    # change of the operators of a term; None if no term can be changed alone
    term: TermChange | None = None
    step: StepChange | None = None  # change of complete steps; None if they cannot be changed
    levels: bool = False  # this and the next three: see `FactorFacts`
    brings_about: bool = False
    partial: bool = False
    by_size: bool = False
    # whether `startup/program_changes.py` makes it in a program's process
    is_made_in_programs: bool = False
    # whether it changes only programs: a step by itself has nothing that it could change
    only_in_programs: bool = False
    # whether it changes complete steps of every framework; else only PyTorch's
    any_framework: bool = False
    # Adapters' names of the frameworks whose complete steps alone it changes; none: see
    # `any_framework`
    frameworks: tuple[str, ...] = ()
    # e.g. threads: of factors that set the same, only one can be changed at a time
    sets: str | None = None

    def refusal(self, device: str) -> str | None:
        """The reason why nothing can be changed on a device, `cpu` or `cuda:N`; None if something
        can.
        """
        return self.refuses.get(_kind(device))

    def fits(self, scope: str, framework: str | None) -> bool:
        """Whether it can change steps of frameworks, names joined by `and`; None is PyTorch."""
        if framework is None:
            return not self.frameworks
        named = set(framework.split(" and ")) & set(self.frameworks)
        return scope == Scope.STEP and (self.any_framework or bool(named))

    def facts(self, scope: str, device: str = "cpu") -> FactorFacts:
        """The factor as a recording describes it, with its change of the scope; instructions
        differ by device.
        """
        change = self.term if scope == Scope.TERM else self.step
        assert change is not None
        how = change.how
        if isinstance(how, Mapping):
            how = how[_kind(device)]
        return FactorFacts(
            **{name: getattr(self, name) for name in _FACTS},
            how=how,
            how_training=change.how_training if isinstance(change, TermChange) else None,
        )


def together(name: str, factors: Sequence[Factor]) -> Factor:
    """Several factors of complete steps, changed together in their order; for the name see
    `members`.
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

    def first(question: str, *arguments: Any) -> str | None:
        """The first reason that a change gives."""
        for change in changes:
            reason: str | None = getattr(change, question)(*arguments)
            if reason is not None:
                return reason
        return None

    step = StepChange(
        setup_s=max(change.setup_s for change in changes),
        reason_against=partial(first, "reason_against"),
        changed_results=partial(first, "changed_results"),
        prepare=lambda target: [change.prepare(target) for change in changes],
        change=change,
        environment=_merge(change.environment for change in changes),
        variables=lambda: _merge(change.variables() for change in changes),
        around=around,
        without_effect=partial(first, "without_effect"),
    )
    frameworks = [framework for factor in factors for framework in factor.frameworks]
    return Factor(
        name=name,
        what=" and ".join(factor.what for factor in factors),
        refuses=_merge(factor.refuses for factor in factors),
        step=step if len(changes) == len(factors) else None,
        any_framework=all(factor.any_framework for factor in factors),
        frameworks=tuple(dict.fromkeys(frameworks)),
    )


def _merge(mappings: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """All entries; the last one of a name counts."""
    merged: dict[str, str] = {}
    for mapping in mappings:
        merged.update(mapping)
    return merged


def _kind(device: str) -> str:
    return "cuda" if on_cuda(device) else "cpu"
