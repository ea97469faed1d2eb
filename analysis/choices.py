"""The map of a library's choices: each problem of a recorded step beside its neighbouring sizes,
and maps beside each other.

All sizes of a problem are visited in turn in one process, so a ratio of two times is of the same
rounds. What one process has in memory moves a time by some percent, so less than 5 % is no choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import CurvescopeError
from ..profiling.recording.remote_store import AnyPath
from ..profiling.recording.store import META_FILE, open_recording
from .change import Change, adjust_changes
from .compare import compare_points
from .curve_shapes import MATERIAL
from .side import Side, prepare_sides


@dataclass(frozen=True, kw_only=True)
class NeighbourTime:
    """The time of one size of a problem."""

    size: int  # value of the extent
    time_ms: float  # time of a call
    low_ms: float  # lower end of its 95 % interval
    high_ms: float  # upper end
    n: int  # number of timed samples
    kernel: str | None  # kernel or library call with most time; null if no call was profiled
    change: Change | None  # compared with the size of the step; null for that size


@dataclass(frozen=True, kw_only=True)
class KernelRegion:
    """Neighbouring sizes that run one kernel."""

    first: int  # the smallest
    last: int  # the largest
    kernel: str | None  # its name; null if no call was profiled


@dataclass(frozen=True, kw_only=True)
class MappedProblem:
    """A problem of a recorded step among its neighbouring sizes."""

    recording: str  # recording of its times
    label: str  # the problem, with the extent as *
    axis: str  # the extent that varies
    layers: Sequence[str]  # layers that have it
    phase: str | None  # their phase
    calls: int  # calls in a step
    size: int  # value of the extent in the step
    sizes: Sequence[NeighbourTime]  # that were timed, increasing
    kernels: Sequence[KernelRegion]  # kernels by size
    better: int | None  # neighbour to take instead; null without one
    saves_ms: float  # what it saves in a step, for as much work; 0 without one

    def at(self, size: int) -> NeighbourTime:
        """The time of a size."""
        return next(time for time in self.sizes if time.size == size)

    @property
    def time_ms(self) -> float:
        """The time of all its calls in a step."""
        return self.calls * self.at(self.size).time_ms


@dataclass(frozen=True, kw_only=True)
class ComparedSize:
    """One size of a problem on several maps."""

    label: str  # the problem, with the extent as *
    axis: str  # the extent that varies
    size: int  # its value
    times_ms: Sequence[float]  # one per map
    changes: Sequence[Change | None]  # one per map after the first
    kernels: Sequence[str | None]  # one per map

    # whether one is significant, and 5 % or more
    differs: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "differs", self.largest > MATERIAL)

    @property
    def largest(self) -> float:
        """The largest growth or fall that is significant; 0 without one."""
        real = [abs(change.growth) for change in self.changes if change and change.real]
        return max(real, default=0.0)


class _Measured(NamedTuple):
    path: AnyPath
    meta: Mapping[str, Any]
    side: Side

    @property
    def label(self) -> str:
        return str(self.meta["network"])

    @property
    def axis(self) -> str:
        return str(self.meta["batch_axis"])


def find_maps(path: AnyPath) -> list[Path]:
    """The recordings of a map on a disk: the path itself, or the folders in it; empty of anything
    else.
    """
    if not isinstance(path, Path):
        return []
    if (path / META_FILE).is_file():
        folders = [path]
    else:
        folders = sorted(entry.parent for entry in path.glob(f"*/{META_FILE}"))
    return [folder for folder in folders if open_recording(folder).meta.get("around")]


def read_map(paths: Iterable[AnyPath]) -> list[MappedProblem]:
    """The problems of a map, what saves most first; without those whose own size was not timed."""
    problems = [_compare_sizes(measured) for measured in _open(paths)]
    changes = [time.change for problem in problems for time in problem.sizes]
    adjusted = adjust_changes(changes)
    mapped = []
    for problem in problems:
        sizes = [replace(time, change=next(adjusted)) for time in problem.sizes]
        mapped.append(_with_advice(replace(problem, sizes=sizes)))
    return sorted(mapped, key=lambda problem: -problem.saves_ms)


def compare_maps(maps: Sequence[Sequence[AnyPath]]) -> list[ComparedSize]:
    """The sizes that all maps have, the largest change first; CurvescopeError without one."""
    read = [{each.label: each for each in _open(paths)} for paths in maps]
    common = [label for label in read[0] if all(label in other for other in read[1:])]
    compared = []
    for label in common:
        each = [problems[label] for problems in read]
        curves = [measured.side.curve for measured in each]
        for size in curves[0].conditions:
            if not all(size in curve.conditions for curve in curves):
                continue
            points = [(curve, size) for curve in curves]
            times, changes = compare_points(points, [False] * (len(points) - 1))
            compared.append(
                ComparedSize(
                    label=label,
                    axis=each[0].axis,
                    size=size,
                    times_ms=times,
                    changes=changes,
                    kernels=[measured.side.longest_kernel(size) for measured in each],
                )
            )
    if not compared:
        raise CurvescopeError(
            "The maps have no problem in common. Map recordings of one network at one batch size."
        )
    adjusted = adjust_changes([change for line in compared for change in line.changes])
    lines = [replace(line, changes=[next(adjusted) for _ in line.changes]) for line in compared]
    return sorted(lines, key=lambda line: -line.largest)


def compare_for_work(problem: MappedProblem, time: NeighbourTime) -> tuple[float, float, float]:
    """The time of a size beyond that in proportion to the step's, as a share, and its interval."""
    assert time.change is not None
    scale = problem.size / time.size
    low, high = time.change.bounds_of_growth
    growths = (time.change.growth, low, high)
    value, low, high = (scale * (1 + growth) - 1 for growth in growths)
    return value, low, high


def _open(paths: Iterable[AnyPath]) -> Iterator[_Measured]:
    """The recordings whose problem of the step was timed."""
    for path in paths:
        recording = open_recording(path)
        steps = recording.frame("steps")
        own = recording.meta["around"]["size"]
        if own in steps["batch"].unique():
            (side,) = prepare_sides([str(path)], [recording], [steps])
            yield _Measured(path, recording.meta, side)


def _compare_sizes(measured: _Measured) -> MappedProblem:
    """A problem whose changes are not adjusted yet."""
    meta, side = measured.meta, measured.side
    own, curve = meta["around"]["size"], side.curve
    others = [size for size in curve.conditions if size != own]
    points = [(curve, size) for size in (own, *others)]
    _, changed = compare_points(points, [True] * len(others))
    changes = dict(zip(others, changed, strict=True))
    sizes = []
    for point in curve.points:
        size = int(point.condition)
        sizes.append(
            NeighbourTime(
                size=size,
                time_ms=point.time_ms.value,
                low_ms=point.time_ms.low,
                high_ms=point.time_ms.high,
                n=point.n,
                kernel=side.longest_kernel(size),
                change=changes.get(size),
            )
        )
    return MappedProblem(
        recording=str(measured.path),
        label=measured.label,
        axis=measured.axis,
        layers=list(meta.get("layers") or ()),
        phase=meta.get("phase"),
        calls=meta["around"]["calls"],
        size=own,
        sizes=sizes,
        kernels=_regions(sizes),
        better=None,
        saves_ms=0.0,
    )


def _regions(sizes: Sequence[NeighbourTime]) -> list[KernelRegion]:
    regions = []
    for kernel, times in groupby(sizes, key=lambda time: time.kernel):
        inside = [time.size for time in times]
        regions.append(KernelRegion(first=inside[0], last=inside[-1], kernel=kernel))
    return regions


def _with_advice(problem: MappedProblem) -> MappedProblem:
    """The problem with the neighbour to take: a larger one that takes less time, else a smaller one
    that takes less for as much work.
    """
    real = [time for time in problem.sizes if time.change is not None and time.change.real]
    padded = [time for time in real if time.size > problem.size and _growth(time) < -MATERIAL]
    if padded:
        least_ms = min(time.time_ms for time in padded)
        # the least padding that is about as fast
        better = next(time for time in padded if time.time_ms < (1 + MATERIAL) * least_ms)
        return _take(problem, better, better.time_ms)
    smaller = [time for time in real if time.size < problem.size and _is_cheap(problem, time)]
    if not smaller:
        return problem
    better = min(smaller, key=lambda time: time.time_ms / time.size)
    return _take(problem, better, better.time_ms * problem.size / better.size)


def _growth(time: NeighbourTime) -> float:
    return 0.0 if time.change is None else time.change.growth


def _is_cheap(problem: MappedProblem, time: NeighbourTime) -> bool:
    value, _, high = compare_for_work(problem, time)
    return value < -MATERIAL and high < 0


def _take(problem: MappedProblem, better: NeighbourTime, time_ms: float) -> MappedProblem:
    saves_ms = problem.calls * (problem.at(problem.size).time_ms - time_ms)
    return replace(problem, better=better.size, saves_ms=saves_ms)
