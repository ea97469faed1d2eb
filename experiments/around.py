"""The products and convolutions of a recorded step, each among its neighbouring sizes.

Libraries choose their kernels by the extents of a problem, so one more row, or a padded extent, may
take another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

from ..base.counted import counted
from ..base.errors import CurvescopeError
from ..kernels.conv import Conv
from ..kernels.gemm import Gemm
from ..kernels.sweeps import Around, Sweep, along
from ..profiling.attribution.products import read_product
from ..profiling.recording.store import Recording
from .replay.convolutions import read_convolutions
from .replay.operator_kinds import is_convolution, is_product
from .replay.problem import take_longest
from .replay.recorded_call import CallFamily, RecordedCall, families, read_calls

MULTIPLES = (2, 8, 16, 64, 128)  # extents that kernels have tiles or vector instructions for
Kind: TypeAlias = "type[Gemm] | type[Conv]"


def list_neighbours(size: int) -> list[int]:
    """A size, those beside it, and the next multiples of `MULTIPLES`, increasing."""
    sizes = {size, size + 1}
    if size > 1:
        sizes.add(size - 1)
    for multiple in MULTIPLES:
        sizes.add(-(-size // multiple) * multiple)
    return sorted(sizes)


@dataclass
class StepProblem:
    """A problem of a recorded step, and an extent of it to vary."""

    problem: Gemm | Conv
    axis: str
    layers: list[str] = field(default_factory=list)
    phase: str | None = None
    calls: int = 0  # in one step
    duration_ns: float = 0.0  # of all of them

    def add(self, call: RecordedCall) -> None:
        """Count a recorded call of this problem."""
        self.calls += call.calls
        self.duration_ns += call.duration_ns or 0
        self.phase = self.phase or call.phase
        if call.layer is not None and call.layer not in self.layers:
            self.layers.append(call.layer)

    def sweep(self) -> Sweep:
        """The problem among its neighbours."""
        size = getattr(self.problem, self.axis)
        problems = {}
        for neighbour in list_neighbours(size):
            changed: dict[str, Any] = {self.axis: neighbour}
            try:
                problems[neighbour] = replace(self.problem, **changed)
            except CurvescopeError:  # e.g. channels that groups do not divide
                continue
        made = along(self.axis, problems)
        label = " ".join([*self.layers[:1], made.label, f"around {size}"])
        around = Around(size, self.calls)
        return replace(
            made, label=label, layers=tuple(self.layers), phase=self.phase, around=around
        )


@dataclass
class StepProblems:
    """The problems of a recorded step."""

    kept: list[StepProblem]  # longest first
    # number of calls without a problem, by the reason
    left_out: Mapping[str, int]
    rest: float  # share of the time of problems that take little of it, and are not kept

    def describe_rest(self) -> list[str]:
        """What is not measured, and why, as sentences."""
        lines = [
            f"{counted(count, 'call')} left out: {why}." for why, count in self.left_out.items()
        ]
        if self.rest > 0:
            lines.append(f"Problems with the last {self.rest:.0%} of the time are left out.")
        return lines


def list_problems(
    recording: Recording,
    kind: Kind,
    batch: int | None = None,
    extents: Sequence[str] = (),
    share: float = 1.0,
) -> StepProblems:
    """The problems of a kind in the recorded step of a batch size, by default the largest.

    `extents` are those to vary; by default those that follow the batch size. Problems with most
    time are kept until they make a share of the time of all.
    """
    calls = read_calls(recording)
    batches = sorted({call.batch for call in calls if call.batch is not None})
    if not batches:
        raise CurvescopeError(
            f"{recording.path} has no operators with a batch size. `curvescope sweep` and "
            "`diagnose` record them."
        )
    batch = batches[-1] if batch is None else batch
    if batch not in batches:
        recorded = ", ".join(map(str, batches))
        raise CurvescopeError(f"--batch {batch} was not recorded: choose from {recorded}.")
    _check_extents(kind, extents)
    name = kind.__name__.lower()
    is_kind = is_product if kind is Gemm else is_convolution
    chosen = [call for call in calls if is_kind(call)]
    precision = recording.meta.get("precision")
    problems: dict[Any, StepProblem] = {}
    left_out: dict[str, int] = {}
    for family in families(chosen):
        call = family.calls.get(batch)
        if call is None:
            continue
        made = read_problems(call, kind, precision)
        why = None if made else f"{call.op} of this form is no problem of `bench {name}`"
        for position, problem in enumerate(made):
            axes = extents or _list_moving_extents(family, position, kind, precision)
            for axis in axes:
                problems.setdefault((problem, axis), StepProblem(problem, axis)).add(call)
            if not axes:
                why = "no extent follows the batch size (name one by --extent)"
        if why is not None:
            left_out[why] = left_out.get(why, 0) + call.calls
    kept, rest = take_longest(list(problems.values()), share, lambda each: each.duration_ns)
    return StepProblems(kept, left_out, rest)


def read_problems(call: RecordedCall, kind: Kind, precision: str | None) -> list[Gemm | Conv]:
    """The problems of a call: one, or the two gradients of a backward convolution."""
    problems: list[Gemm | Conv] = []
    if kind is Conv:
        problems += read_convolutions(call.op, call.arguments)
    elif (product := read_product(call.op, call.arguments)) is not None:
        problems.append(Gemm(**product._asdict()))
    if precision == "tf32":  # tensors of fp32, whose products round them
        return [replace(problem, precision=precision) for problem in problems]
    return problems


def _list_extents(kind: Kind) -> list[str]:
    numbers = [each.name for each in fields(kind) if each.type == "int"]
    return [name for name in numbers if name not in ("groups", "batch")]


def _check_extents(kind: Kind, extents: Sequence[str]) -> None:
    allowed = _list_extents(kind)
    for name in extents:
        if name not in allowed:
            raise CurvescopeError(
                f"--extent {name}: the extents of a {kind.__name__.lower()} are "
                f"{', '.join(allowed)}."
            )


def _list_moving_extents(
    family: CallFamily, position: int, kind: Kind, precision: str | None
) -> list[str]:
    """The extents that follow the batch size; of a single recorded size those that usually do."""
    each = []
    for call in family.calls.values():
        made = read_problems(call, kind, precision)
        if position < len(made):
            each.append(made[position])
    first, last = each[0], each[-1]
    if len(each) > 1:
        extents = _list_extents(kind)
        return [name for name in extents if getattr(first, name) != getattr(last, name)]
    # The gradient of weights sums over the samples, and reads its second operand by columns.
    return ["k"] if isinstance(last, Gemm) and last.transpose[1] == "T" else ["n"]
