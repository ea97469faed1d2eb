"""Times of a product under the candidates of its library: whether it could do better.

A candidate is compared with the default as any version that was measured beside it: by `compare`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.counted import counted
from ..base.numbers import number
from ..profiling.recording.store import open_recording
from .change import Change
from .compare import Comparison, compare
from .side import prepare_sides


@dataclass(frozen=True)
class Checked:
    """Whether a candidate's results are right."""

    name: str  # of the candidate, or `default`
    outcome: str  # one of `kernels.method.BenchOutcome`
    detail: str  # a sentence if it is not ok
    timed: bool  # whether it is timed


@dataclass(frozen=True, kw_only=True)
class CandidateTime:
    """The time of one product under one candidate."""

    name: str  # of the candidate, or `default`
    how: str | None  # how to set it; null for the default
    kernel: str | None  # kernel or library call with most time; null if no step was profiled
    time_ms: float  # time of a product
    low_ms: float  # lower end of its 95 % interval
    high_ms: float  # upper end
    n: int  # number of timed products
    change: Change | None  # compared with the default; null for the default


@dataclass(frozen=True, kw_only=True)
class ProductCandidates:
    """One product by default and under the candidates."""

    value: int  # value on the sweep's axis
    processes: int  # number of processes of each, the unit of resampling
    times: Sequence[CandidateTime]  # the default first
    answer: str  # whether the library could do better, as a sentence


@dataclass(frozen=True, kw_only=True)
class CandidatesSweep:
    """The candidates of one sweep of products."""

    recordings: str  # folder with a recording of each candidate, by its name
    label: str  # its problem, with the axis as a letter
    axis: str  # axis of the problems
    checked: Sequence[Checked]  # outcome of each candidate
    products: Sequence[ProductCandidates]  # one per value


def products_of(
    names: Sequence[str], paths: Sequence[Path], hows: dict[str, str], axis: str
) -> list[ProductCandidates]:
    """Compare the recordings of candidates with the default, which is the first."""
    recordings = [open_recording(path) for path in paths]
    comparison = compare(prepare_sides(names, recordings))
    return [_product(comparison, index, hows, axis) for index in range(len(comparison.steps))]


def _product(
    comparison: Comparison, index: int, hows: dict[str, str], axis: str
) -> ProductCandidates:
    line = comparison.steps[index]
    value, times = int(line.label), []
    for side, change in zip(comparison.sides, (None, *line.changes), strict=True):
        point = side.curve.at(value)
        times.append(
            CandidateTime(
                name=side.name,
                how=hows.get(side.name),
                kernel=side.longest_kernel(value),
                time_ms=point.time_ms.value,
                low_ms=point.time_ms.low,
                high_ms=point.time_ms.high,
                n=point.n,
                change=change,
            )
        )
    processes = min(side.curve.at(value).rounds for side in comparison.sides)
    return ProductCandidates(
        value=value,
        processes=processes,
        times=times,
        answer=answer(f"{axis} = {value}", times, processes),
    )


def answer(where: str, times: Sequence[CandidateTime], processes: int) -> str:
    """Whether the library could do better for a product, as a sentence."""
    measured = f"{counted(processes, 'process', 'processes')} each"
    others = [(timed, timed.change) for timed in times[1:] if timed.change is not None]
    best, change = max(others, key=lambda pair: pair[1].speedup)
    if change.real and change.speedup > 1:
        lead = f"At {where} the default takes {ratio(change)} times as long as the best"
        return f"{lead} of {len(times)}, {best.how} ({measured})."
    if all(change.real for _, change in others):
        lead = f"At {where} the default is the best of {len(times)}"
        slower = number(1 / change.speedup, 3)
        low, high = number(1 / change.high, 3), number(1 / change.low, 3)
        ends = f"{low} … {high}"
        takes = f"takes {slower} times as long ({ends}; {measured})"
        return f"{lead}; next is {best.how}, which {takes}."
    nothing = f"At {where} no candidate is significantly faster than the default"
    takes = f"it takes {ratio(change)} times as long as {best.how} ({measured})"
    return f"{nothing} ({len(others)} timed): {takes}."


def ratio(change: Change) -> str:
    """The default's time over a candidate's, with its interval, as text."""
    if not (math.isfinite(change.low) and math.isfinite(change.high)):
        return f"{number(change.speedup, 3)} (no interval is known)"
    return f"{number(change.speedup, 3)} ({number(change.low, 3)} … {number(change.high, 3)})"
