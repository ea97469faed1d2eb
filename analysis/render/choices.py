"""The map of a library's choices as text and as documents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...base.counted import counted
from ...base.numbers import duration
from ..change import Change
from ..choices import ComparedSize, MappedProblem, NeighbourTime, compare_for_work
from .tables import TextTable, table

_NS_PER_MS = 1e6


@dataclass(frozen=True, kw_only=True)
class MapDocument:
    """The problems of a step among their neighbouring sizes: `bench gemm --around` and `conv`."""

    recordings: str  # folder with a recording of each problem
    time_ms: float  # time of all calls of these problems in a step
    saves_ms: float  # what the better neighbours save of it
    problems: Sequence[MappedProblem]  # what saves most first
    left_out: Sequence[str]  # what was not measured, and why, as sentences


@dataclass(frozen=True, kw_only=True)
class MapsDocument:
    """Maps of a library's choices, compared with the first: `compare` of two of them."""

    maps: Sequence[str]  # their folders
    sizes: Sequence[ComparedSize]  # the largest change first


def make_document(
    folder: str, problems: Sequence[MappedProblem], left_out: Sequence[str]
) -> MapDocument:
    """The document of a map."""
    return MapDocument(
        recordings=folder,
        time_ms=sum(problem.time_ms for problem in problems),
        saves_ms=sum(problem.saves_ms for problem in problems),
        problems=problems,
        left_out=left_out,
    )


def render_map(document: MapDocument) -> Iterator[str | TextTable]:
    """What to change, then every time."""
    problems = document.problems
    better = [problem for problem in problems if problem.better is not None]
    for problem in better:
        yield _advice(problem)
    all_problems = counted(len(problems), "problem")
    if better:
        time = duration(_NS_PER_MS * document.time_ms)
        saved = duration(_NS_PER_MS * document.saves_ms)
        sizes = f"{len(better)} of {all_problems} should have another size"
        yield f"{sizes}: {saved} less of {time} in a step."
    elif problems:
        yield f"No neighbour of {all_problems} takes 5 % less."
    if problems:
        yield _table_of_times(problems)
    for problem in problems:
        if len(problem.kernels) > 1:
            yield f"{problem.label}: {_describe_kernels(problem)}."
    yield from document.left_out


def _advice(problem: MappedProblem) -> str:
    """The neighbour to take, as a sentence."""
    assert problem.better is not None
    time = problem.at(problem.better)
    assert time.change is not None
    if time.size > problem.size:
        pad = f"pad {problem.axis} {problem.size} to {time.size}"
        return f"{problem.label}: {pad}, {describe_change(time.change)}."
    take = f"take {problem.axis} {time.size} for {problem.size}"
    share, low, high = compare_for_work(problem, time)
    ends = f"({low:+.0%} … {high:+.0%})"
    return f"{problem.label}: {take}, {share:+.0%} {ends} for as much work."


def describe_change(change: Change | None) -> str:
    """A growth with its interval."""
    if change is None:
        return ""
    low, high = change.bounds_of_growth
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{change.growth:+.0%} (no interval is known)"
    return f"{change.growth:+.0%} ({low:+.0%} … {high:+.0%})"


def _table_of_times(problems: Sequence[MappedProblem]) -> TextTable:
    rows = table("problem", "size", "time", "±", "n", "to the step's", left=("problem",))
    for problem in problems:
        label = problem.label
        for time in problem.sizes:
            size = f"{problem.axis} {time.size}"
            if time.size == problem.size:
                size += " *"
            rows.add_row(
                label,
                size,
                duration(_NS_PER_MS * time.time_ms),
                _half_width(time),
                str(time.n),
                describe_change(time.change),
            )
            label = ""
    return rows


def _half_width(time: NeighbourTime) -> str:
    width_ms = time.high_ms - time.low_ms
    share = width_ms / 2 / time.time_ms
    return f"{share:.1%}" if math.isfinite(share) else "?"


def _describe_kernels(problem: MappedProblem) -> str:
    parts = []
    for region in problem.kernels:
        sizes = str(region.first)
        if region.last != region.first:
            sizes += f" to {region.last}"
        parts.append(f"{sizes} {region.kernel or '?'}")
    regions = ", ".join(parts)
    return f"{problem.axis} {regions}"


def render_compared(document: MapsDocument, most: int | None) -> Iterator[str | TextTable]:
    """The number of sizes that differ, and a row for each, the largest change first."""
    sizes = document.sizes
    differ = sum(line.differs for line in sizes)
    yield f"A change of 5 % or more at {differ} of {counted(len(sizes), 'size')}."
    heads = ("problem", "size", *document.maps, "change", "kernel")
    rows = table(*heads, left=("problem", "kernel"))
    for line in sizes[:most]:
        times = [duration(_NS_PER_MS * ms) for ms in line.times_ms]
        changes = [describe_change(change) for change in line.changes]
        kernels = [kernel or "?" for kernel in dict.fromkeys(line.kernels)]
        rows.add_row(
            line.label,
            f"{line.axis} {line.size}",
            *times,
            "; ".join(changes),
            " → ".join(kernels),
        )
    yield rows
    if most is not None and len(sizes) > most:
        yield f"{len(sizes) - most} further; --all shows them."
