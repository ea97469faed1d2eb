"""The shape of a term's curve between the batch sizes of a sweep, from an experiment on a finer
grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...profiling.recording.axis import Axis
from ...profiling.recording.disturbed import with_set_aside
from ..decompose.functionals import bend
from ..decompose.statistics import LEVEL, Floats, estimate, holm
from .measurement import Measurement, Side, count_used, times_of

_LEAST_JUMP = 0.02  # of the middle time of the grid; a smaller jump is not named
_ONE_JUMP = 0.7  # share of all jumps that one of them makes where the curve is called a jump


@dataclass(frozen=True)
class Shape:
    """The shape of a term's curve between the batch sizes of the sweep, from a finer grid."""

    kind: str  # jump, staircase, curve, straight or undecided
    at: int | None  # first batch size behind a jump; None for other kinds
    # number of samples from one jump of a staircase to the next; None for other kinds
    period: int | None
    sentence: str  # the shape in one sentence


def shape(outcome: Measurement, rows: pd.DataFrame, axis: Axis) -> Shape:
    """The shape of a curve on a finer grid, from a measurement without a factor and the rows of its
    experiment.
    """
    side = Side(with_set_aside(rows[rows["factor"].isna()]))
    table = side.round_times(outcome.batches)
    is_whole = ~np.isnan(table).any(axis=1)
    batches = np.array(outcome.batches, np.float64)
    if len(batches) < 4 or is_whole.sum() < 2:
        return Shape("undecided", None, None, f"The grid has too few {axis.values} or rounds.")
    used = side.without_aside(table, outcome.batches)[is_whole]
    times, rounds = times_of(used), int(count_used(used).min())
    scale = float(np.median(times.value))
    values, varied = _jumps(batches, times.value), _jumps(batches, times.varied)
    jumps = []
    for place, value in enumerate(values.tolist()):
        jumps.append(estimate(value, varied[:, place], rounds, scale))
    adjusted = holm([jump.p for jump in jumps])
    sizes = {}
    for batch, jump, p in zip(outcome.batches[1:], jumps, adjusted, strict=True):
        if p < LEVEL and abs(jump.value) >= _LEAST_JUMP * scale:
            sizes[batch] = jump.value
    behind = list(sizes)
    if not behind:
        middle = outcome.batches[len(batches) // 2]
        line = dict(bend(outcome.batches[0], middle, outcome.batches[-1]).coefficients)
        weights = np.array([line.get(batch, 0.0) for batch in outcome.batches])
        bent = estimate(float(times.value @ weights), times.varied @ weights, rounds, scale)
        if bent.p < LEVEL and abs(bent.value) >= _LEAST_JUMP * scale:
            return Shape("curve", None, None, "Its cost bends gradually.")
        return Shape("straight", None, None, "Its cost is a straight line over the grid.")
    periods = set(np.diff(behind).tolist())
    if len(behind) > 2 and len(periods) == 1 and min(sizes.values()) > 0:
        period = int(periods.pop())
        sentence = f"Its cost is a staircase with a jump every {period} {axis.unit}."
        return Shape("staircase", None, period, sentence)
    at, size = max(sizes.items(), key=lambda item: abs(item[1]))
    if abs(size) >= _ONE_JUMP * sum(map(abs, sizes.values())):
        verb = "jumps up" if size > 0 else "falls"
        return Shape("jump", at, None, f"Its cost {verb} by {abs(size):.3g} ms at {at}.")
    places = ", ".join(map(str, behind))
    return Shape("curve", None, None, f"Its cost changes in several places: at {places}.")


def _jumps(batches: Floats, times: Floats) -> Floats:
    """The cost of each step of a grid beyond the usual slope; batch sizes along the last axis."""
    slopes = np.diff(times, axis=-1) / np.diff(batches)
    usual = np.median(slopes, axis=-1, keepdims=True)
    return np.asarray((slopes - usual) * np.diff(batches))
