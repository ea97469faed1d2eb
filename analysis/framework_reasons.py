"""Why a network takes longer in one framework than in another: the layers of the difference, and
their kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from ..base.errors import CurvescopeError
from ..base.numbers import number
from ..profiling.recording.store import Recording
from .compare import ComparedLine, Comparison, compare
from .conditions import framework_name, is_of_a_network
from .side import prepare_sides

_ROWS = 3  # layers of each pair


def reasons(recordings: Sequence[Recording]) -> list[str]:
    """A sentence for each pair of frameworks that ran one network in one mode and precision.

    E.g. `alexnet training at batch 4: jax takes 900 ms, torch 500 ms. Of 400 ms more: pool1
    backward +57 (29 → 86 ms); …`. The times of steps are unprofiled; the times of layers are
    profiled. No interval is known for them.
    """
    groups: dict[tuple[object, ...], list[Recording]] = {}
    for recording in recordings:
        if is_of_a_network(recording.meta):
            what = tuple(recording.meta.get(key) for key in ("network", "mode", "precision"))
            groups.setdefault(what, []).append(recording)
    sentences = []
    for (network, mode, _), group in groups.items():
        for pair in combinations(group, 2):
            sentences += [f"{network} {mode} at batch {sentence}" for sentence in _of_pair(pair)]
    return sentences


def _of_pair(pair: Sequence[Recording]) -> Iterator[str]:
    names = [framework_name(recording.meta) for recording in pair]
    if names[0] == names[1]:
        return
    try:
        sides = prepare_sides(names, pair)
        comparison = compare(sides)
    except CurvescopeError:  # nothing was measured in both: the table says why
        return
    if not comparison.steps:
        return
    line = comparison.steps[-1]
    for step in comparison.steps:
        if step.label == str(comparison.batch):
            line = step
    first, second = line.times_ms
    if first is None or second is None:
        return
    slow = int(second > first)
    least, most = sorted((first, second))
    times = f"{names[slow]} takes {number(most)} ms, {names[1 - slow]} {number(least)} ms"
    single = []
    for name, side in zip(names, sides, strict=True):
        if side.curve.at(int(line.label)).rounds == 1:
            single.append(name)
    repeats = ""
    if single:
        repeats = f" Whether it repeats is unknown: {' and '.join(single)} ran in one process."
    yield f"{line.label}: {times}.{_layers(comparison, slow, most - least)}{repeats}"


def _layers(comparison: Comparison, slow: int, more_ms: float) -> str:
    def growth_ms(row: ComparedLine) -> float:
        return (row.times_ms[slow] or 0.0) - (row.times_ms[1 - slow] or 0.0)

    largest = sorted(comparison.rows, key=growth_ms, reverse=True)[:_ROWS]
    grown = [row for row in largest if growth_ms(row) > 0]
    if not grown:
        return " No layer was recorded in both."
    rows = [_name_sides(row, slow, growth_ms(row)) for row in grown]
    named = "; ".join(rows)
    return f" Of {number(more_ms)} ms more: {named}."


def _name_sides(row: ComparedLine, slow: int, growth_ms: float) -> str:
    """A layer with its times, and its kernels where both are known."""
    both = (row.times_ms[1 - slow], row.times_ms[slow])
    before, after = ("none" if time is None else f"{number(time)} ms" for time in both)
    kernels = [family for family in row.families if family not in (None, "unknown")]
    names = ""
    if len(kernels) == 2:
        names = f", {kernels[1 - slow]} → {kernels[slow]}"
    return f"{row.label} +{number(growth_ms)} ({before} → {after}{names})"
