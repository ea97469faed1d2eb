"""Recorded calls as problems of the microbenchmark, to compare them alone and in the step."""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
        shapes: list[Any] = []
        dtypes, concrete = [], []
        for argument in self.call.arguments:
            shape: list[Any] = []
            dtype, value = "", None
            if isinstance(argument, TensorArgument):
                shape, dtype = list(argument.shape), argument.dtype
            elif isinstance(argument, TensorList):
                shape = [list(tensor.shape) for tensor in argument.tensors]
            elif isinstance(argument, Value):
                value = json.loads(json.dumps(argument.value))
            shapes.append(shape)
            dtypes.append(dtype)
            concrete.append(value)
        return work(self.call.op, shapes, dtypes, concrete) if shapes else UNKNOWN

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
        inputs = [tensor for tensor in results_of(arguments) if tensor is not None]
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

    def with_family(self, family: CallFamily) -> ReplaySweep:
        """The sweep for the calls of a further layer too."""
        layer, layers = family.largest.layer, self.sweep.layers
        if layer is not None and layer not in layers:
            layers = (*layers, layer)
        return ReplaySweep(replace(self.sweep, layers=layers), (*self.families, family))

    def in_step_ns(self, batch: int) -> float | None:
        """Mean time of one call in the recorded step, ns; None if the batch size was
        not recorded.
        """
        count, total_ns = 0, 0
        for same in self.families:
            call = same.calls.get(batch)
            if call is not None and call.duration_ns is not None:
                count += call.calls
                total_ns += call.duration_ns
        return total_ns / count if count else None

    def calls(self, batch: int) -> int:
        """Number of these calls in one step, at the nearest recorded batch size."""
        total = 0
        for same in self.families:
            nearest = min(same.calls, key=lambda size: abs(size - batch))
            total += same.calls[nearest].calls
        return total

    def kernels(self, batch: int) -> tuple[str, ...] | None:
        """Names of the kernels that the recorded calls ran; None if unknown."""
        for same in self.families:
            call = same.calls.get(batch)
            if call is not None and call.kernels:
                return call.kernels
        return None


@dataclass(frozen=True)
class LeftOut:
    """A call that is not replayed."""

    call: RecordedCall  # the call, at one batch size
    reason: str
    batch: int | None = None  # the batch size; None for all of them


@dataclass
class ReplayPlan:
    """The calls to replay, and the others."""

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
    """Choose the calls to replay; without batch sizes, at each call's recorded ones.

    The calls with most time are replayed until they make this share of the time of all; 1 for all
    calls.
    """
    kept, minor_share = take_longest(families, share, lambda family: family.duration_ns)
    plan = ReplayPlan([], minor=len(families) - len(kept), minor_share=minor_share)
    alike: dict[object, ReplaySweep] = {}
    for candidate in sorted(kept, key=lambda family: family.largest.position):
        problems = _problems(candidate, batches, precision, plan.left_out)
        if not problems:
            continue
        call = candidate.largest
        texts = [(b, encode_arguments(p.call.arguments)) for b, p in problems.items()]
        key = (call.op, call.phase, tuple(texts))
        if key in alike:
            alike[key] = alike[key].with_family(candidate)
        else:
            names = (f"{call.position:05d}", call.layer, call.phase, call.op)
            label = " ".join(filter(None, names))
            sweep = Sweep(label, "batch", problems, phase=call.phase)
            alike[key] = ReplaySweep(sweep, ()).with_family(candidate)
    plan.sweeps += alike.values()
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
    times = kernels.groupby(["batch", "name"], observed=True)["duration_ns"].sum()
    names: dict[int, list[str]] = defaultdict(list)
    for batch, name in times.sort_values(ascending=False).index:
        names[int(batch)].append(name)
    return names
