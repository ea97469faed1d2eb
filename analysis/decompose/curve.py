"""The cost curve T(b) of a recording: the time per step of its unprofiled steps, with intervals.

T(b) is the time of all steps of the undisturbed visits over their number, in whole periods of the
program. T = pace + slow steps: the pace is the mean of the faster half, which a few slow steps do
not move, and has a curve of its own. Protocols that repeat published measurements have their
statistic for both.

T(b) is of the complete rounds, which visited every condition. A sweep may also make focused rounds,
which visit only the conditions of one functional. A functional is evaluated over all rounds that
visited all its conditions, and over no others: in each of them its conditions met the same state of
the machine.

Where fewer than three rounds visited all of them, each condition's own rounds count instead. What
these do not share widens the interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pandas as pd

from ...base.errors import CurvescopeError
from ...profiling.attribution.step_pattern import (
    are_material,
    find_patterns,
    in_whole_periods,
)
from ...profiling.recording.disturbed import LEAST_DISTURBED, SET_ASIDE, with_set_aside
from ...profiling.recording.schema import OPERATOR_MODE
from ...profiling.recording.store import STEP
from .averaged_steps import samples_of_time
from .functionals import Condition, Functional
from .pace import scale_to_pace
from .slow_sizes import SEEN, Bar, Unseen
from .statistics import (
    ALL_STEPS,
    FASTER_HALF,
    LEVEL,
    MATERIAL,
    STATISTICS,
    Estimate,
    Floats,
    Ints,
    effective_rounds,
    estimate,
    mean_correlation,
    normal_estimate,
    replicate,
    resample_rounds,
    spread_of,
    sum_estimate,
    time_estimate,
    widen,
    with_unseen,
)

_MS_PER_S = 1e3
_NONE: Floats = np.empty(0)
MODELLED = "modelled"  # the statistic of modelled curves
UNSTABLE_SPREAD = 0.02  # published benchmarks call a result with more variation unstable

_LEAST_TOGETHER = 3  # rounds; with fewer each condition is known better from its own rounds
_LEAST_APART = 2  # rounds of a condition, of which it has a spread of its own
UNKNOWN = "unknown"  # condition of steps whose batch size no one knows
NO_CURVE = (
    "This recording has no timed step, nor profiled steps of two batch sizes: there is no curve to "
    "explain. `curvescope breakdown` says where its time goes. For a curve, import one profile per "
    "batch size with `--as sweep`, or measure a step with `curvescope diagnose`."
)


def known_batch(condition: Condition) -> int | None:
    """The batch size of a condition; None if no one knows it."""
    return None if condition == UNKNOWN else condition


@dataclass(frozen=True)
class Point:
    """One condition of the curve."""

    condition: Condition  # the batch size in a sweep, samples in a step
    time_ms: Estimate  # T with its interval
    spread: float | None  # interquartile range over T; None for a single step
    n: int  # number of timed steps that T uses
    rounds: int  # number of their rounds
    # whether slow steps were seen, more than once, that are 3 % of T or more
    has_slow_steps: bool = False

    @property
    def stable(self) -> bool | None:
        """Whether the spread is within 2 %; None for a single step."""
        if self.spread is None:
            return None
        return self.spread <= UNSTABLE_SPREAD


@dataclass(frozen=True, kw_only=True)
class Curve:
    """T at every measured condition, and the replicates that give intervals to
    functionals of it.
    """

    points: tuple[Point, ...]  # increasing in batch size; some of more rounds than all share
    # bootstrap replicates of T, shape (replicates, points), with the same rounds for all points
    replicates_ms: Floats
    rounds: int  # number of rounds in which every batch size was measured
    statistic: str  # name of one of `STATISTICS`, or modelled
    # the curve of the pace, of the same steps; None where T is its own pace
    pace: Curve | None = None
    # stated or published standard error of each T(b), shape (points,); None if the replicates give
    # it
    errors_ms: Floats | None = None
    profiled: bool = False  # whether the steps were profiled, e.g. in a sweep of imported profiles
    # correlation of the errors of two rounds, the largest of any condition; 0 if the order is
    # unknown
    round_correlation: float = 0.0
    # curves over some of the conditions, each from more rounds than this one
    focused: tuple[Curve, ...] = ()
    unit: str = STEP  # what the times are of, see `Recording.unit`
    # neighbouring conditions between which a sweep found a jump, see `profiling.measure.probing`
    jumps: tuple[tuple[Condition, Condition], ...] = ()
    least: float = MATERIAL  # share of a step; a smaller deviation is no anomaly
    unseen: Unseen = SEEN  # spread of a time that the rounds do not show
    # the same points of the rounds that all share, which functionals are of; empty if all are
    of_shared_rounds: tuple[Point, ...] = ()

    @property
    def paces(self) -> Curve:
        """The curve of the pace, which slow steps do not move."""
        return self if self.pace is None else self.pace

    def has_slow_steps(self, functional: Functional) -> bool:
        """Whether slow steps are part of T at a condition of a functional, so that its pace does
        not speak for it.
        """
        return any(self.at(condition).has_slow_steps for condition in functional.conditions)

    def judging(self, functional: Functional) -> Curve:
        """The curve that answers for a functional: the pace, which speaks for T where no slow steps
        were seen; where some were, T if the functional of it is surely not 0.
        """
        if self.pace is None or not self.has_slow_steps(functional):
            return self.paces
        if self.evaluate(functional).p < LEVEL:
            return self
        return self.paces

    @property
    def joint(self) -> tuple[Point, ...]:
        """The points that functionals are of: all of the same rounds."""
        return self.of_shared_rounds or self.points

    def with_bar(self, bar: Bar) -> Curve:
        """The curve, and those behind it, that call a size slow by a bar."""
        pace = None if self.pace is None else self.pace.with_bar(bar)
        focused = tuple(curve.with_bar(bar) for curve in self.focused)
        return replace(self, pace=pace, focused=focused, least=bar.least, unseen=bar.unseen)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The measured conditions, batch sizes increasing."""
        return tuple(p.condition for p in self.points)

    @cached_property
    def _position(self) -> dict[Condition, int]:
        return {point.condition: position for position, point in enumerate(self.points)}

    def at(self, condition: Condition) -> Point:
        """The point of a measured condition."""
        return self.points[self._position[condition]]

    @cached_property
    def times_ms(self) -> dict[Condition, float]:
        """T at each condition."""
        return {point.condition: point.time_ms.value for point in self.points}

    @property
    def precision(self) -> float:
        """The widest half interval of any batch size, as a share of its T(b)."""
        return max((p.time_ms.high - p.time_ms.value) / p.time_ms.value for p in self.points)

    def behind(self, functional: Functional) -> Curve:
        """The curve that a functional is evaluated on: this one, or a focused one from
        more rounds.
        """
        able = (
            curve for curve in self.focused if curve._position.keys() >= set(functional.conditions)
        )
        return max(able, key=lambda curve: curve.rounds, default=self)

    def source(self, condition: Condition) -> Curve:
        """The curve that a point is of: this one, or a focused one of more rounds.

        A sweep visits a size that it found late in its last rounds alone; the other points do not
        lose their first rounds for it. Where only a few conditions have more rounds, their points
        stay those of the rounds of all: else a machine that became slower would bend the curve.
        """
        wide = max(self.focused, key=lambda curve: (len(curve.points), curve.rounds), default=self)
        if 2 * len(wide.points) <= len(self.points):
            return self
        if condition in wide.conditions:
            return wide
        able = [curve for curve in self.focused if condition in curve.conditions]
        return max(able, key=lambda curve: curve.rounds, default=self)

    def evaluate(self, functional: Functional) -> Estimate:
        """The functional of T with its interval, in the functional's unit."""
        curve = self.behind(functional)
        if curve is not self:
            return curve.evaluate(functional)
        # Only the points with a coefficient: a table has thousands of points and as many
        # functionals.
        places, weights = self._parts(functional)
        points = [self.points_of(functional)[place] for place in places]
        values = np.array([point.time_ms.value for point in points])
        errors = None if self.errors_ms is None else self.errors_ms[places]
        replicates = self.replicates_ms[:, places]
        if functional.of_rate:
            # Steps per second; the error of 1/T is that of T over T².
            if errors is not None:
                errors = _MS_PER_S * errors / values**2
            values = _MS_PER_S / values
            replicates = _MS_PER_S / replicates
        if errors is not None:
            error = np.hypot.reduce(weights * errors)
            return normal_estimate(float(weights @ values), float(error))
        if self._is_better_apart(functional):
            counts = [point.rounds for point in points]
            rounds: float = min(counts)
            seen = sum_estimate([point.time_ms for point in points], weights, counts)
        else:
            rounds, scale = self.rounds_behind(functional), float(np.abs(weights * values).max())
            value, varied = float(weights @ values), replicates @ weights
            seen = estimate(value, varied, rounds, scale, of_mean=self.pace is not None)
        return with_unseen(
            seen, rounds - 1, self.unseen.step * float(np.linalg.norm(weights * values))
        )

    def points_of(self, functional: Functional) -> tuple[Point, ...]:
        """The points whose times a functional adds up."""
        return self.points if self._is_better_apart(functional) else self.joint

    def _is_better_apart(self, functional: Functional) -> bool:
        """Whether the rounds of each condition say more than the rounds that visited all."""
        if functional.of_rate or self.statistic == MODELLED or self.rounds >= _LEAST_TOGETHER:
            return False
        rounds = [self.at(size).rounds for size in functional.conditions]
        return min(rounds) >= _LEAST_APART and max(rounds) > self.rounds

    def rounds_behind(self, functional: Functional) -> float:
        """Effective number of rounds behind a functional of this curve; a modelled one has no
        rounds of points.
        """
        if self.statistic == MODELLED:
            return self.rounds
        places, weights = self._parts(functional)
        points = [self.joint[place] for place in places]
        sizes = weights * [point.time_ms.value for point in points]
        return min(effective_rounds([point.rounds for point in points], sizes), self.rounds)

    def _parts(self, functional: Functional) -> tuple[list[int], Floats]:
        """The positions of the points with a coefficient, increasing, and their coefficients."""
        weights: dict[int, float] = {}
        for condition, weight in functional.coefficients:
            place = self._position[condition]
            weights[place] = weights.get(place, 0.0) + weight
        places = sorted(weights)
        return places, np.array([weights[place] for place in places])


def coefficients(functional: Functional, conditions: Sequence[Condition]) -> Floats:
    """The functional's coefficients over the given conditions; 0 where it has none."""
    position = {condition: i for i, condition in enumerate(conditions)}
    weights = np.zeros(len(conditions))
    for condition, weight in functional.coefficients:
        weights[position[condition]] += weight
    return weights


def native(condition: Condition) -> Condition:
    """The condition as a Python value; tables hold NumPy numbers."""
    if isinstance(condition, np.generic):
        return condition.item()
    return condition


def _group_visits(steps: pd.DataFrame, by: str) -> dict[int, frozenset[Condition]]:
    visited: dict[int, set[Condition]] = {}
    for round_, condition in zip(steps["round"].tolist(), steps[by].tolist(), strict=True):
        visited.setdefault(int(round_), set()).add(condition)
    return {round_: frozenset(conditions) for round_, conditions in visited.items()}


def list_shared_rounds(steps: pd.DataFrame, by: str = "batch") -> list[int]:
    """Rounds in which every condition was measured, set aside or not, increasing; replicates draw
    from them.
    """
    visited = _group_visits(steps, by)
    every = frozenset().union(*visited.values())
    return sorted(round_ for round_, conditions in visited.items() if conditions == every)


def list_focused_rounds(
    steps: pd.DataFrame, by: str = "batch"
) -> list[tuple[tuple[Condition, ...], list[int]]]:
    """Sets of two or more conditions that more rounds visited than visited every condition, with
    these rounds.

    A benchmark of operators has none: it ends the visits of each problem once its time is known,
    and all of them count. The steps are of one kind, e.g. the unprofiled ones.
    """
    if "mode" in steps and (steps["mode"] == OPERATOR_MODE).all():
        return []
    visited = _group_visits(steps, by)
    every = frozenset().union(*visited.values())
    complete = sum(conditions == every for conditions in visited.values())
    focuses = []
    for together in sorted(set(visited.values()) - {every}, key=sorted):
        rounds = sorted(round_ for round_, conditions in visited.items() if conditions >= together)
        if len(together) > 1 and len(rounds) > max(complete, 1):
            focuses.append((tuple(sorted(together)), rounds))
    return focuses


def steps_in_rounds(
    steps: pd.DataFrame, conditions: Sequence[Condition], rounds: Sequence[int], by: str
) -> pd.DataFrame:
    """The steps of some conditions in some rounds."""
    return steps[are_in_rounds(steps, conditions, rounds, by)]


def are_in_rounds(
    steps: pd.DataFrame, conditions: Sequence[Condition], rounds: Sequence[int], by: str
) -> pd.Series:
    """Whether each step is one of some conditions in some rounds."""
    return steps[by].isin(conditions) & steps["round"].isin(rounds)


def cost_curve(
    steps: pd.DataFrame, statistic: str = "median", noise: float | None = None, by: str = "batch"
) -> Curve:
    """Compute the curve of the unprofiled steps; CurvescopeError if no step was timed, or its batch
    size is unknown.

    A round that left out a condition, e.g. by an interruption, counts only for functionals of the
    conditions that it visited; if there are fewer than two complete rounds, it counts for the
    medians too. Visits that are set aside count for no value; a drawn round adds nothing to a
    condition whose visit is set aside in it.

    Times are at the mean pace of the machine where a reference tells it, see `pace`.

    `noise` is the standard error of every T(b) as a share of it, for steps that were not repeated;
    the published spread of a row over the root of its averaged steps has precedence. Repeated steps
    have precedence over both.
    """
    timed = with_set_aside(steps)
    timed = timed[~timed["profiled"].astype(bool)]
    if timed.empty:
        raise CurvescopeError(NO_CURVE)
    if timed[by].isna().any():
        raise CurvescopeError(
            "Steps of this recording have no batch size; give it with --batch when importing."
        )
    timed = scale_to_pace(samples_of_time(timed), by)
    shared = list_shared_rounds(timed, by)
    focused = []
    for conditions, numbers in list_focused_rounds(timed, by):
        together = steps_in_rounds(timed, conditions, numbers, by)
        focused.append(cost_curve(together, statistic, by=by))
    if focused and len(shared) > 1:
        timed = timed[timed["round"].isin(shared)]
    timed = timed[~timed[SET_ASIDE]]
    visits = _rows_of_visits(timed, by)
    drawn = resample_rounds(max(len(shared), 1))
    correlation = _round_correlation(timed, visits)
    make = partial(_curve_of, shared=shared, drawn=drawn, correlation=correlation)
    pace_focused = tuple(curve.paces for curve in focused)
    pace = make(_by_condition(timed, visits), statistic, focused=pace_focused)
    if noise is not None and len(shared) < 2:
        pace = _with_stated_errors(pace, timed, noise)
    if statistic != FASTER_HALF:
        return _with_shown_points(replace(pace, focused=tuple(focused)))
    quiet = timed[timed[LEAST_DISTURBED]]
    grouped = _by_condition(quiet, _rows_of_visits(quiet, by))
    times_ms = {}
    for condition, rounds in grouped.items():
        times_ms[condition] = np.concatenate(list(rounds.values())), _visit_of(rounds)
    patterns = find_patterns(times_ms)
    paid = {}
    for condition, rounds in grouped.items():
        paid[condition] = _in_whole_periods(rounds, patterns[condition].period)
    curve = make(paid, ALL_STEPS, focused=tuple(focused))
    if noise is not None and len(shared) < 2:
        curve = _with_stated_errors(curve, timed, noise)
    points = []
    for point in curve.points:
        values, _ = times_ms[point.condition]
        has_slow = are_material(values, patterns[point.condition].slow)
        points.append(replace(point, has_slow_steps=has_slow))
    curve = replace(curve, points=tuple(points), pace=_with_shown_points(pace))
    return _with_shown_points(curve)


Rounds = Mapping[int, Floats]  # times of the steps of one condition, ms, by round


def _rows_of_visits(timed: pd.DataFrame, by: str) -> dict[tuple[Condition, int], Ints]:
    """The rows of every visit, by condition and round."""
    visits = {}
    for (condition, round_), rows in timed.groupby([by, "round"]).indices.items():
        visits[native(condition), int(round_)] = rows
    return visits


def _by_condition(
    timed: pd.DataFrame, visits: Mapping[tuple[Condition, int], Ints]
) -> dict[Condition, dict[int, Floats]]:
    """Times of the steps of every visit, ms, by condition and round, both increasing."""
    times_ms = timed["duration_ns"].to_numpy(np.float64) / 1e6
    grouped: dict[Condition, dict[int, Floats]] = {}
    for condition, round_ in sorted(visits):
        grouped.setdefault(condition, {})[round_] = times_ms[visits[condition, round_]]
    return grouped


def _curve_of(
    grouped: Mapping[Condition, Rounds],
    statistic: str,
    *,
    shared: Sequence[int],
    drawn: Ints,
    correlation: Mapping[Condition, float],
    focused: tuple[Curve, ...],
) -> Curve:
    """The curve of one statistic over all rounds; its replicates are of the shared ones."""
    points, replicates = [], []
    for condition, rounds in grouped.items():
        values = np.concatenate(list(rounds.values()))
        center = float(STATISTICS[statistic](values))
        used = sum(round_ in rounds for round_ in shared)
        if used:
            drawn_times = replicate(
                [rounds.get(round_, _NONE) for round_ in shared], drawn, statistic
            )
            if statistic == FASTER_HALF:
                drawn_times = widen(drawn_times, center, used)
        else:
            drawn_times = np.full(len(drawn), center)
        time = time_estimate(
            center,
            drawn_times,
            used,
            correlation.get(condition, 0.0),
            of_mean=statistic == ALL_STEPS,
        )
        points.append(Point(condition, time, spread_of(values, center), len(values), len(rounds)))
        replicates.append(drawn_times)
    return Curve(
        points=tuple(points),
        replicates_ms=np.column_stack(replicates),
        rounds=len(shared),
        statistic=statistic,
        round_correlation=max(correlation.values(), default=0.0),
        focused=focused,
    )


def _with_shown_points(curve: Curve) -> Curve:
    """The curve with each point from the most rounds; functionals keep the shared rounds."""
    if not curve.focused:
        return curve
    shown = tuple(curve.source(condition).at(condition) for condition in curve.conditions)
    return replace(curve, points=shown, of_shared_rounds=curve.points)


def _visit_of(rounds: Rounds) -> Ints:
    """The round of every step."""
    sizes = [len(values) for values in rounds.values()]
    return np.repeat(np.array(list(rounds), np.int64), sizes)


def _in_whole_periods(rounds: Rounds, period: int | None) -> Rounds:
    if period is None:
        return rounds
    kept = in_whole_periods(_visit_of(rounds), period)
    sizes = [len(values) for values in rounds.values()]
    kept_by_round = np.split(kept, np.cumsum(sizes)[:-1])
    whole = {}
    for (round_, values), inside in zip(rounds.items(), kept_by_round, strict=True):
        whole[round_] = values[inside]
    return whole


def _round_correlation(
    timed: pd.DataFrame, visits: Mapping[tuple[Condition, int], Ints]
) -> dict[Condition, float]:
    """Correlation of the errors of two rounds, by condition, from the correlation of consecutive
    visits.
    """
    if (
        "start_ns" not in timed
        or timed["start_ns"].isna().any()
        or (timed["duration_ns"] <= 0).any()
    ):
        return {}
    start_ns = timed["start_ns"].to_numpy(np.int64)
    duration_ns = timed["duration_ns"].to_numpy(np.int64)
    began_ns = np.array([start_ns[rows].min() for rows in visits.values()])
    order = np.argsort(began_ns)
    if not np.diff(began_ns[order]).all():
        return {}
    medians_ns = np.array([np.median(duration_ns[rows]) for rows in visits.values()])
    logs = np.log(medians_ns[order])
    conditions = [condition for condition, _ in visits]
    positions: dict[Condition, list[int]] = {}
    for position, visit in enumerate(order):
        positions.setdefault(conditions[visit], []).append(position)
    errors = logs.copy()
    for of_condition in positions.values():
        errors[of_condition] -= np.median(logs[of_condition])
    correlations = {}
    for condition, of_condition in positions.items():
        correlations[condition] = mean_correlation(errors, np.array(of_condition))
    return correlations


def _with_stated_errors(curve: Curve, timed: pd.DataFrame, noise: float) -> Curve:
    points, errors_ms = [], []
    rows_of = timed.groupby("batch").indices
    for point in curve.points:
        relative = _read_published_error(timed.iloc[rows_of[point.condition]])
        error_ms = point.time_ms.value * (noise if relative is None else relative)
        points.append(replace(point, time_ms=normal_estimate(point.time_ms.value, error_ms)))
        errors_ms.append(error_ms)
    return replace(curve, points=tuple(points), errors_ms=np.array(errors_ms))


def _read_published_error(rows: pd.DataFrame) -> float | None:
    """Relative standard error of the only row of a batch size; None if none is published."""
    if len(rows) != 1 or "relative_spread" not in rows or rows["relative_spread"].isna().all():
        return None
    spread = float(rows["relative_spread"].iloc[0])
    averaged = rows["averaged_steps"].iloc[0]
    if pd.isna(averaged):
        return spread
    return float(spread / float(averaged) ** 0.5)
