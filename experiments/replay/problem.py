"""Recorded calls as problems of the microbenchmark, and what their times alone are
compared with.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...kernels.backends import Prepared, UnsupportedError
from ...kernels.problem import Array, Error
from ...kernels.sweeps import Sweep
from ...profiling.attribution.kernel_names import HELPER, LAYOUT, family
from ...profiling.attribution.operation import UNKNOWN, Work
from ...profiling.attribution.operator_work import work
from ...profiling.recording.operators import TensorArgument, TensorList, Value, encode_arguments
from .rebuild import rebuild
from .recorded_call import CallFamily, CannotReplay, RecordedCall
from .results import results_of

if TYPE_CHECKING:
    from ...profiling.recording.store import Recording


T = TypeVar("T")
_OPERATOR = re.compile(r"\w+::\w+")  # the host's own work has the name of its operator


@dataclass(frozen=True)
class ReplayProblem:
    """A recorded call to run alone. It has no reference: its results are not checked."""

    call: RecordedCall
    precision: str = "fp32"
    # arguments that depend on the batch size, which the step has just written
    inputs: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        return self.call.label

    @property
    def work(self) -> Work:
        """FLOPs of the direct algorithm and compulsory bytes; unknown for operators
        without a rule.
        """
        arguments = self.call.arguments
        shapes = [
            list(argument.shape)
            if isinstance(argument, TensorArgument)
            else [list(tensor.shape) for tensor in argument.tensors]
            if isinstance(argument, TensorList)
            else []
            for argument in arguments
        ]
        dtypes = [
            argument.dtype if isinstance(argument, TensorArgument) else "" for argument in arguments
        ]
        concrete = [
            json.loads(json.dumps(argument.value)) if isinstance(argument, Value) else None
            for argument in arguments
        ]
        return work(self.call.op, shapes, dtypes, concrete) if arguments else UNKNOWN

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:  # noqa: ARG002
        """None: the backend creates tensors like the recorded ones."""
        return ()

    def error(self, operands: tuple[Array, ...], result: Array) -> Error | None:  # noqa: ARG002
        """None: there is no reference."""
        return None

    def prepare(self, device: str) -> Prepared:
        """The call on a device.

        Each sample first reads what the step has just written, and frees the last result.
        """
        try:
            replayed = rebuild(self.call, device)
        except CannotReplay as error:
            raise UnsupportedError(str(error)) from error
        arguments = [replayed.arguments[index] for index in self.inputs]
        inputs = [
            tensor
            for argument in arguments
            for tensor in results_of([argument])
            if tensor is not None
        ]
        kept = deque[Any](maxlen=1)

        def before() -> None:
            kept.clear()
            for tensor in inputs:
                tensor.sum()

        def run() -> None:
            kept.append(replayed.run())

        def no_result() -> None:
            """A call has no result to verify."""

        return Prepared(run, no_result, self.call.op, before=before)


@dataclass(frozen=True)
class ReplaySweep:
    """Equal calls of one or several layers over batch sizes."""

    sweep: Sweep
    families: tuple[CallFamily, ...]

    def in_step_ns(self, batch: int) -> float | None:
        """Mean time of one call in the recorded step, ns; None if the batch size was
        not recorded.
        """
        calls = [family.calls[batch] for family in self.families if batch in family.calls]
        timed = [call for call in calls if call.duration_ns is not None]
        count = sum(call.calls for call in timed)
        return sum(call.duration_ns or 0 for call in timed) / count if count else None

    def calls(self, batch: int) -> int:
        """Number of these calls in one step; at batch sizes that were not recorded, that of the
        nearest one.
        """
        return sum(
            family.calls[min(family.calls, key=lambda size: abs(size - batch))].calls
            for family in self.families
        )

    def kernels(self, batch: int) -> tuple[str, ...] | None:
        """Names of the kernels that the recorded calls ran; None if unknown."""
        kernels = [family.calls[batch].kernels for family in self.families if batch in family.calls]
        return next((names for names in kernels if names), None)


@dataclass(frozen=True)
class LeftOut:
    """A call that is not replayed."""

    call: RecordedCall  # the call, at one batch size
    reason: str
    batch: int | None = None  # the batch size; None for all of them


@dataclass
class ReplayPlan:
    """What is replayed, and what is not."""

    sweeps: list[ReplaySweep]  # the calls to replay, in the order of the step
    left_out: list[LeftOut] = field(default_factory=list)
    minor: int = 0  # number of families that are left out because they take little time
    minor_share: float = 0.0  # their share of the time of all selected calls


def plan_replay(
    families: Sequence[CallFamily],
    batches: Sequence[int] | None,
    share: float,
    precision: str = "fp32",
) -> ReplayPlan:
    """Choose the calls to replay; without batch sizes, those recorded of each call.

    The calls with most time are replayed until they make this share of the time of all; 1 for all
    calls.
    """
    kept, rest = take_longest(families, share, lambda family: family.duration_ns)
    plan = ReplayPlan([], minor=len(families) - len(kept), minor_share=rest)
    alike: dict[object, list[tuple[CallFamily, dict[int, ReplayProblem]]]] = {}
    for candidate in sorted(kept, key=lambda family: family.largest.position):
        problems = _problems(candidate, batches, precision, plan.left_out)
        if problems:
            texts = tuple(
                (batch, encode_arguments(p.call.arguments)) for batch, p in problems.items()
            )
            alike.setdefault((candidate.largest.op, candidate.largest.phase, texts), []).append(
                (candidate, problems)
            )
    for same in alike.values():
        call, problems = same[0][0].largest, same[0][1]
        layers = tuple(
            dict.fromkeys(
                family.largest.layer for family, _ in same if family.largest.layer is not None
            )
        )
        label = " ".join(filter(None, (f"{call.position:05d}", call.layer, call.phase, call.op)))
        sweep = Sweep(label, "batch", problems, layers, call.phase)
        plan.sweeps.append(ReplaySweep(sweep, tuple(family for family, _ in same)))
    return plan


def take_longest(
    items: Sequence[T], share: float, time: Callable[[T], float]
) -> tuple[list[T], float]:
    """The items with most time that make this share of the time of all, the longest first, and the
    share of the rest; all of them for 1.
    """
    total = sum(map(time, items))
    kept: list[T] = []
    reached = 0.0
    for candidate in sorted(items, key=time, reverse=True):
        if share < 1 and kept and reached >= share * total:
            break
        kept.append(candidate)
        reached += time(candidate)
    return kept, 1 - reached / total if total else 0.0


def _problems(
    family: CallFamily, batches: Iterable[int] | None, precision: str, left_out: list[LeftOut]
) -> dict[int, ReplayProblem]:
    problems = {}
    inputs = tuple(family.batch_dimensions())
    for batch in family.calls if batches is None else batches:
        try:
            problems[batch] = ReplayProblem(family.at(batch), precision, inputs)
        except CannotReplay as error:
            left_out.append(LeftOut(family.largest, str(error), batch))
    return problems


def compare_kernels(recorded: Sequence[str] | None, replayed: Sequence[str] | None) -> str:
    """Compare the kernels of a call in the step and alone, by their families: same, other or
    unknown.

    Operators' own names, which stand for the work of the host itself, count only where no library
    is called. Copies and helpers do not count.
    """
    if not recorded or not replayed:
        return "unknown"
    ours, theirs = _families(recorded), _families(replayed)
    if ours or theirs:
        return "same" if ours == theirs else "other"
    return "same" if recorded[0] in replayed else "other"


def _families(names: Iterable[str]) -> set[str]:
    return {family(name) for name in names if not _OPERATOR.fullmatch(name)} - {LAYOUT, HELPER}


def list_replayed_kernels(recording: Recording) -> Mapping[int, list[str]]:
    """By batch size, names of the kernels in the profiled calls of a recorded replay, longest
    first.
    """
    steps = recording.frame("steps", ["step", "batch"])
    kernels = recording.frame("kernels", ["name", "step", "duration_ns"]).merge(steps, on="step")
    times = (
        kernels.groupby(["batch", "name"], observed=True)["duration_ns"]
        .sum()
        .sort_values(ascending=False)
    )
    layers: dict[int, list[str]] = {}
    for batch, name in times.index:
        layers.setdefault(int(batch), []).append(name)
    return layers
