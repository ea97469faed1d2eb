"""Tests the curves of a table of times, each alone, and names their shapes.

The error of a time comes from its repeats or its published spread, else the stated one; else, from
five sizes on, what `curve_pieces` finds for it beside the jumps. Fewer sizes show none, so it is
assumed, and what follows only may be. All tests of all curves are one family (Holm).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from ..base.words import Word
from .curve_pieces import LEAST_NOISE, Fit, fit_pieces, fit_sizes_alone
from .curve_shapes import Event, Named, find_events, find_saw, judge, list_rest, name_shapes
from .decompose.curve import Curve, cost_curve
from .decompose.statistics import Floats, holm

ASSUMED_NOISE = 0.05  # of curves too short to show their own
LEAST_SIZES = 5  # that show it
_OF_MEDIAN = 1.25  # standard error of a median over that of a mean


class NoiseOrigin(Word):
    """Where the error of single times is from."""

    REPEATS = "repeats"
    PUBLISHED = "published"
    STATED = "stated"
    ESTIMATED = "estimated"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class TimedCurve:
    """One curve of a table, tested."""

    problem: str | None  # name of the problem; None if the table has no names
    device_name: str | None  # name of the device; None if unknown
    rows: pd.DataFrame  # its steps
    statistic: str  # name of the statistic of the times
    noise: float  # relative standard error of a time, the median over the sizes
    noise_origin: str  # see `NoiseOrigin`
    fit: Fit  # its pieces
    events: tuple[Event, ...]  # its edges and slow sizes, of any certainty
    shapes: tuple[Named, ...]  # the words for it

    @cached_property
    def curve(self) -> Curve:
        """Its points with their intervals."""
        return cost_curve(self.rows, self.statistic, self.noise)


def explain_curves(
    steps: pd.DataFrame, noise: float | None = None, statistic: str = "median"
) -> tuple[TimedCurve, ...]:
    """Every curve of a `steps` table with problems; `noise` is the stated error of a time."""
    grouped = steps.groupby(["problem", "device_name"], dropna=False, sort=False)
    fits = [(names, rows, *_fit(rows, noise)) for names, rows in grouped]
    tests = 0
    for _, _, fit, _ in fits:
        tests += len(fit.sizes) - 1
    alone = [find_events(fit, 1) for _, _, fit, _ in fits]
    p_values = [event.p_adjusted for of_curve in alone for event in of_curve]
    for (_, _, fit, _), of_curve in zip(fits, alone, strict=True):
        p_values += list_rest(fit, of_curve)
    undecided = max(tests - len(p_values), 0)
    adjusted = iter(holm([*p_values, *[1.0] * undecided]))
    curves = []
    for ((problem, device_name), rows, fit, origin), of_curve in zip(fits, alone, strict=True):
        assumed = origin == NoiseOrigin.ASSUMED
        events = tuple(judge(event, next(adjusted), assumed) for event in of_curve)
        saw = find_saw(fit)
        shapes = name_shapes(fit, events) if saw is None else (saw,)
        error = float(np.median(fit.errors))
        named = None if pd.isna(problem) else str(problem)
        device = None if pd.isna(device_name) else str(device_name)
        curve = TimedCurve(
            named,
            device,
            rows,
            statistic,
            error,
            origin,
            fit,
            events if saw is None else (),
            shapes,
        )
        curves.append(curve)
    return tuple(curves)


def _fit(rows: pd.DataFrame, noise: float | None) -> tuple[Fit, str]:
    """The pieces of one curve, and where the error of its times is from."""
    by_size = rows.groupby("batch")
    times_ms = by_size.duration_ns.median().sort_index() / 1e6
    sizes = times_ms.index.to_numpy(np.float64)
    times = times_ms.to_numpy(np.float64)
    errors, origin = _errors(rows, times_ms, noise)
    if errors is not None and len(sizes) < LEAST_SIZES:
        return fit_sizes_alone(sizes, times, errors), origin
    return fit_pieces(sizes, times, errors), origin


def _errors(
    rows: pd.DataFrame, times_ms: pd.Series, noise: float | None
) -> tuple[Floats | None, str]:
    """The relative error of each size's time, where it is known, and its origin."""
    counts = rows.groupby("batch").size().reindex(times_ms.index).to_numpy()
    relative = rows.duration_ns / 1e6 / rows.batch.map(times_ms) - 1
    own = np.full(len(times_ms), np.nan)
    origin = NoiseOrigin.STATED if noise is not None else NoiseOrigin.ASSUMED
    if (counts > 1).any():
        squares = (relative**2).groupby(rows.batch).sum().reindex(times_ms.index).to_numpy()
        repeated = counts > 1
        freedom = (counts[repeated] - 1).sum()
        single = np.sqrt(squares[repeated].sum() / freedom)
        own = single * np.where(repeated, _OF_MEDIAN / np.sqrt(counts), 1.0)
        origin = NoiseOrigin.REPEATS
    elif "relative_spread" in rows and rows.relative_spread.notna().any():
        averaged = rows.averaged_steps.fillna(1).astype(float)
        published = rows.relative_spread.astype(float) / np.sqrt(averaged)
        own = published.groupby(rows.batch).mean().reindex(times_ms.index).to_numpy(copy=True)
        origin = NoiseOrigin.PUBLISHED
        own[np.isnan(own)] = np.nanmax(own) if noise is None else noise
    elif noise is not None:
        own = np.full(len(times_ms), noise)
    elif len(times_ms) >= LEAST_SIZES:
        return None, NoiseOrigin.ESTIMATED
    else:
        own = np.full(len(times_ms), ASSUMED_NOISE)
    return np.maximum(own, LEAST_NOISE), origin
