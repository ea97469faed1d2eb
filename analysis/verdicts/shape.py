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
    each = zip(_jumps(batches, times.value), _jumps(batches, times.varied).T, strict=True)
    jumps = [estimate(float(value), varied, rounds, scale) for value, varied in each]
    adjusted = holm([jump.p for jump in jumps])
    sizes = {
        batch: jump.value
        for batch, jump, p in zip(outcome.batches[1:], jumps, adjusted, strict=True)
        if p < LEVEL and abs(jump.value) >= _LEAST_JUMP * scale
    }
    behind = list(sizes)
    if not behind:
        line = bend(outcome.batches[0], outcome.batches[len(batches) // 2], outcome.batches[-1])
        weights = np.array([dict(line.coefficients).get(b, 0.0) for b in outcome.batches])
        bent = estimate(float(times.value @ weights), times.varied @ weights, rounds, scale)
        if bent.p < LEVEL and abs(bent.value) >= _LEAST_JUMP * scale:
            return Shape("curve", None, None, "Its cost bends gradually.")
        return Shape("straight", None, None, "Its cost is a straight line over the grid.")
    periods = set(np.diff(behind).tolist())
    if len(behind) > 2 and len(periods) == 1 and min(sizes.values()) > 0:
        period = int(periods.pop())
        return Shape(
            "staircase",
            None,
            period,
            f"Its cost is a staircase with a jump every {period} {axis.unit}.",
        )
    at, size = max(sizes.items(), key=lambda item: abs(item[1]))
    if abs(size) >= _ONE_JUMP * sum(map(abs, sizes.values())):
        return Shape(
            "jump",
            at,
            None,
            f"Its cost {'jumps up' if size > 0 else 'falls'} by {abs(size):.3g} ms at {at}.",
        )
    return Shape(
        "curve",
        None,
        None,
        f"Its cost changes in several places: at {', '.join(map(str, behind))}.",
    )


def _jumps(batches: Floats, times: Floats) -> Floats:
    """What each step of a grid costs beyond the usual slope; batch sizes along the last axis."""
    slopes = np.diff(times, axis=-1) / np.diff(batches)
    return np.asarray((slopes - np.median(slopes, axis=-1, keepdims=True)) * np.diff(batches))
