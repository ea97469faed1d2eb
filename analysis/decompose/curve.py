"""The cost curve T(b) of a recording: medians of the steps no profiler watched, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...profiling.errors import CurvescopeError
from .functionals import Condition, Functional
from .statistics import (
    STATISTICS,
    Estimate,
    estimate,
    likeness,
    normal_estimate,
    replicate,
    resample_rounds,
    time_estimate,
)

Floats = npt.NDArray[np.float64]

MODELLED = "modelled"  # the statistic where nothing was measured
UNSTABLE_SPREAD = 0.02  # the published benchmarks call a result with more variation than this not stable


@dataclass(frozen=True)
class Point:
    """One condition of the curve.

    Attributes:
        condition: for a sweep the batch size, samples in a step.
        time_ms: T with its interval.
        spread: interquartile range over T.
        n: timed steps.
        rounds: rounds they were taken in.
    """

    condition: Condition
    time_ms: Estimate
    spread: float
    n: int
    rounds: int

    @property
    def stable(self) -> bool:
        """Whether the spread is within 2 %."""
        return self.spread <= UNSTABLE_SPREAD


@dataclass(frozen=True)
class Curve:
    """T at every measured condition, and the replicates that give intervals to functionals of it.

    Attributes:
        points: increasing in batch size.
        replicates_ms: bootstrap replicates of T, shape (replicates, points), rounds drawn alike for all points.
        rounds: rounds that every batch size was measured in.
        statistic: median, mean or modelled.
        errors_ms: standard error of each T(b), shape (points,), where it was stated or published; null where the
            replicates tell.
        profiled: whether the steps were profiled, e.g. in a sweep of imported profiles.
        round_correlation: correlation of the errors of two rounds, the largest of any condition; 0 where the order is
            not known.
    """

    points: tuple[Point, ...]
    replicates_ms: Floats
    rounds: int
    statistic: str
    errors_ms: Floats | None = None
    profiled: bool = False
    round_correlation: float = 0.0

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The measured conditions, batch sizes increasing."""
        return tuple(p.condition for p in self.points)

    def at(self, condition: Condition) -> Point:
        """The point of a measured condition."""
        return next(p for p in self.points if p.condition == condition)

    @property
    def precision(self) -> float:
        """The widest half interval of any batch size, as a share of its T(b)."""
        return max((p.time_ms.high - p.time_ms.value) / p.time_ms.value for p in self.points)

    def evaluate(self, functional: Functional) -> Estimate:
        """The functional of T with its interval, in the functional's unit."""
        weights = coefficients(functional, self.conditions)
        times = np.array([p.time_ms.value for p in self.points])
        if self.errors_ms is not None:
            return normal_estimate(float(weights @ times), float(np.hypot.reduce(weights * self.errors_ms)))
        scale = float(np.abs(weights * times).max())
        return estimate(float(weights @ times), self.replicates_ms @ weights, self.rounds, scale)


def coefficients(functional: Functional, conditions: Sequence[Condition]) -> Floats:
    """The functional's coefficients over the given conditions; 0 where it has none."""
    position = {condition: i for i, condition in enumerate(conditions)}
    weights = np.zeros(len(conditions))
    for condition, weight in functional.coefficients:
        weights[position[condition]] += weight
    return weights


def native(condition: Condition) -> Condition:
    """The condition as Python has it, where a table holds it as a number of NumPy's."""
    return condition.item() if isinstance(condition, np.generic) else condition


def shared_rounds(steps: pd.DataFrame, by: str = "batch") -> list[int]:
    """Rounds in which every condition was measured, increasing: those that replicates draw from."""
    rounds = [set(of_condition.astype(int)) for _, of_condition in steps.groupby(by)["round"]]
    return sorted(set.intersection(*rounds)) if rounds else []


def cost_curve(steps: pd.DataFrame, statistic: str = "median", noise: float | None = None, by: str = "batch") -> Curve:
    """The curve of the unprofiled steps.

    Rounds that an interruption left without some condition serve the others' medians, but not the intervals.

    Args:
        steps: the `steps` table.
        statistic: what stands for T(b): median, or mean where a protocol asks for it.
        noise: standard error of every T(b) as a share of it, for steps that were not repeated; where a row has a
            published spread, that over the root of its averaged steps is taken instead. Repeats overrule both.
        by: column of the condition.

    Raises:
        CurvescopeError: no step was timed, or steps have no batch size.
    """
    timed = steps[~steps["profiled"].astype(bool)]
    if timed.empty:
        raise CurvescopeError(
            "This recording has no timed step, nor profiled steps of two batch sizes: there is no curve to explain. "
            "Record it again, or import one profile per batch size with `--as sweep`."
        )
    if timed[by].isna().any():
        raise CurvescopeError("Steps of this recording have no batch size; give it with --batch when importing.")
    grouped = {
        native(condition): {
            int(r): g["duration_ns"].to_numpy(np.float64) / 1e6 for r, g in of_condition.groupby("round")
        }
        for condition, of_condition in timed.groupby(by)
    }
    shared = shared_rounds(timed, by)
    drawn = resample_rounds(max(len(shared), 1))
    correlation = _round_correlation(timed, by)
    points, replicates = [], []
    for condition, rounds in sorted(grouped.items()):
        values = np.concatenate(list(rounds.values()))
        center = float(STATISTICS[statistic](values))
        if shared:
            drawn_times = replicate([rounds[r] for r in shared], drawn, statistic)
        else:
            drawn_times = np.full(len(drawn), center)
        low, high = np.percentile(values, [25, 75])
        time = time_estimate(center, drawn_times, len(shared), correlation.get(condition, 0.0))
        points.append(Point(condition, time, float((high - low) / center), len(values), len(rounds)))
        replicates.append(drawn_times)
    largest = max(correlation.values(), default=0.0)
    curve = Curve(tuple(points), np.column_stack(replicates), len(shared), statistic, round_correlation=largest)
    return curve if noise is None or len(shared) > 1 else _with_stated_errors(curve, timed, noise)


def _round_correlation(timed: pd.DataFrame, by: str) -> dict[Condition, float]:
    """Correlation of the errors of two rounds, by condition, from how visits resemble the ones just before them."""
    if "start_ns" not in timed or timed["start_ns"].isna().any() or (timed["duration_ns"] <= 0).any():
        return {}
    visits = timed.groupby([by, "round"]).agg(start_ns=("start_ns", "min"), duration_ns=("duration_ns", "median"))
    if not visits["start_ns"].is_unique:
        return {}
    visits = visits.sort_values("start_ns")
    logs = np.log(visits["duration_ns"].astype(np.float64))
    errors = (logs - logs.groupby(by).transform("median")).to_numpy()
    places = pd.Series(np.arange(len(visits)), visits.index)
    return {native(condition): likeness(errors, of_it.to_numpy()) for condition, of_it in places.groupby(by)}


def _with_stated_errors(curve: Curve, timed: pd.DataFrame, noise: float) -> Curve:
    points, errors_ms = [], []
    for point in curve.points:
        rows = timed[timed["batch"] == point.condition]
        relative = _published_error(rows)
        error_ms = point.time_ms.value * (noise if relative is None else relative)
        points.append(replace(point, time_ms=normal_estimate(point.time_ms.value, error_ms)))
        errors_ms.append(error_ms)
    return replace(curve, points=tuple(points), errors_ms=np.array(errors_ms))


def _published_error(rows: pd.DataFrame) -> float | None:
    """Relative standard error of the one row of a batch size; null where none is published."""
    if len(rows) != 1 or "relative_spread" not in rows or rows["relative_spread"].isna().all():
        return None
    averaged = rows["averaged_steps"].iloc[0]
    return float(rows["relative_spread"].iloc[0]) / (1.0 if pd.isna(averaged) else float(averaged) ** 0.5)
