"""Edges in the cost of a server's steps: numbers of requests beyond which a step takes longer at
once.

Nobody chose in which order the sizes ran, and the machine, the cache and the context drift. So an
edge is looked for between steps that are neighbours in time: inside windows of the log that hold
sizes on both sides of it, steps behind it are compared with those before it, less what the slope of
the curve makes of their different sizes. Windows vary independently, which gives the interval.
A log that climbs once has too few of them. Then every other change of the size in it is a change of
the time that no edge made, and the edge is held against those.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .decompose.statistics import (
    LEVEL,
    MATERIAL,
    Estimate,
    Floats,
    Ints,
    block_estimate,
    holm,
    median_by_group,
)

WINDOW = 64  # steps of the log, in which drift is small
LEAST_WINDOWS = 4.0  # effective number of windows, and of other changes of size
_LEAST_RUN, _RUN = 2, 20  # steps before and behind a change of the size
_SLOPE_SIZES = 40  # sizes before an edge whose times tell what a request adds
# sizes on either side of an edge that the log does not name, and behind one that it names
_NEAR = 8
_LEAST_SIZES, _LEAST_WORK = 4, 3  # sizes for a slope, and different numbers of computed requests
MATERIAL_UNKNOWN = 0.05  # of a step; an edge whose cause the log does not name may have many
_NO_SIZES: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class DecodeSteps:
    """Decode steps in the order of the log."""

    sizes: Ints  # running requests, shape (steps,)
    work: Floats  # requests that are computed: the captured size; as sizes where none is known
    times_ms: Floats  # times

    def select(self, inside: npt.NDArray[np.bool_]) -> DecodeSteps:
        """Some of the steps."""
        return DecodeSteps(self.sizes[inside], self.work[inside], self.times_ms[inside])


@dataclass(frozen=True)
class Edge:
    """A size beyond which a step takes longer at once."""

    at: int  # the last size before the edge
    last: int  # the largest size behind it
    extra_ms: Estimate  # what a step behind it takes more
    p_adjusted: float  # p of 0, over all sizes that were tested
    known: bool  # whether the log names it as the largest captured size
    captured: bool  # whether the log names it as a captured size
    steps: int  # steps of the log behind it
    share: float  # of the decode steps of the log


def find_edges(
    steps: DecodeSteps,
    curve: tuple[Ints, Floats],
    limit: int | None,
    captured: Ints = _NO_SIZES,
) -> tuple[tuple[Edge, ...], Estimate | None]:
    """The edge at the largest captured size and other ones, the largest loss of time first.

    Below and behind that size one edge is looked for: at captured sizes first, which are few and
    each begin another graph, then at all.

    Second is the time that a step beyond the largest captured size takes more, edge or not; None if
    the log does not tell.

    Args:
        steps: decode steps of the log.
        curve: sizes with their median times, ms, increasing.
        limit: the largest size with a graph; None if unknown, 0 without graphs.
        captured: captured sizes, increasing.
    """
    edges: list[Edge] = []
    value: Estimate | None = None
    sizes, _ = curve
    parts = [sizes]
    if limit:
        parts = [sizes[sizes <= limit], sizes[sizes > limit]]
        value = measure_edge(steps, curve, limit, _SLOPE_SIZES)
        if value and value.p < LEVEL and value.value >= MATERIAL * _time_at(curve, limit):
            ends = (limit, int(steps.sizes.max()))
            edges.append(_edge(steps, value, value.p, ends, known=True, captured=True))
    for part in parts:
        named = part[np.isin(part, captured)]
        at_captured = _find_edge(steps, curve, part, named, captured=True)
        edges += at_captured or _find_edge(steps, curve, part, part, captured=False)
    return tuple(sorted(edges, key=lambda edge: -edge.extra_ms.value * edge.steps)), value


def _find_edge(
    steps: DecodeSteps,
    curve: tuple[Ints, Floats],
    sizes: Ints,
    tried: Ints,
    *,
    captured: bool,
) -> list[Edge]:
    """The most significant edge of some sizes, behind one of those to try, if there is one.

    Behind a captured size the slope is that over the captured sizes before it: between two of them
    a step costs the same.
    """
    before = _SLOPE_SIZES if captured else _NEAR
    kept = np.isin(curve[0], sizes)
    part = (curve[0][kept], curve[1][kept])
    inside = np.isin(steps.sizes, sizes)
    own = steps.select(inside)
    places, values = [], []
    # Before fewer sizes there is no slope, and a bent curve looks like an edge.
    able_sizes = sizes[_LEAST_SIZES - 1 : -1]
    for at in able_sizes[np.isin(able_sizes, tried)].tolist():
        value = measure_edge(own, part, at, before)
        if value is not None:
            places.append(at)
            values.append(value)
    edges = []
    for at, value, p in zip(places, values, holm([value.p for value in values]), strict=True):
        is_material = value.value >= MATERIAL_UNKNOWN * _time_at(part, at)
        if p < LEVEL and is_material and _is_in_curve(own, part, at, value.value, before):
            edges.append((p, -value.value, at, value))
    if not edges:
        return []
    p, _, at, value = min(edges, key=lambda edge: edge[:2])
    return [_edge(steps, value, p, (at, int(sizes[-1])), known=False, captured=captured)]


def _is_in_curve(
    steps: DecodeSteps, curve: tuple[Ints, Floats], at: int, extra_ms: float, before: int
) -> bool:
    """Whether the times behind a size lie above the line through those before it, by half of an
    edge. A curve that bends down between them looks like one by the mean slope of both sides.
    """
    sizes, times_ms = curve
    small, large = _near(sizes, at, before)
    slope, _ = _slope(steps, curve, small, large[:0])
    levels = times_ms - slope * _work_at(steps, sizes)
    above = levels[np.isin(sizes, large)]
    below = levels[np.isin(sizes, small)]
    rise_ms = np.median(above) - np.mean(below)
    return bool(rise_ms >= extra_ms / 2)


def _work_at(steps: DecodeSteps, sizes: Ints) -> Floats:
    """The work of a step of each size."""
    work_of = dict(zip(steps.sizes.tolist(), steps.work.tolist(), strict=True))
    return np.array([work_of[size] for size in sizes.tolist()])


def _edge(
    steps: DecodeSteps,
    value: Estimate,
    p: float,
    ends: tuple[int, int],
    *,
    known: bool,
    captured: bool,
) -> Edge:
    at, last = ends
    is_behind = (steps.sizes > at) & (steps.sizes <= last)
    behind = int(np.count_nonzero(is_behind))
    share = behind / len(steps.sizes)
    return Edge(at, last, value, p, known, captured, behind, share)


def _time_at(curve: tuple[Ints, Floats], at: int) -> float:
    sizes, times_ms = curve
    return float(np.interp(at, sizes, times_ms))


def measure_edge(
    steps: DecodeSteps, curve: tuple[Ints, Floats], at: int, before: int
) -> Estimate | None:
    """The further time of a step behind a size, ms; None where the log has too few changes across
    it.

    Args:
        steps: decode steps of the log.
        curve: sizes with their median times, ms, increasing.
        at: the last size before the edge.
        before: number of sizes before it that are used.
    """
    sizes, _ = curve
    small, large = _near(sizes, at, before)
    if not len(small) or not len(large):
        return None
    near = (steps.sizes >= small[0]) & (steps.sizes <= large[-1])
    behind = large if before == _NEAR else large[:0]
    slope, error = _slope(steps, curve, small, behind)
    differences = []
    for tried_slope in (slope, slope + error):
        levels = steps.times_ms - tried_slope * steps.work
        near_levels = np.where(near, levels, np.nan)
        differences.append(_difference(near_levels, steps.sizes, at))
    value, steeper = differences
    if value is None or steeper is None:
        return None
    return _with_error(value, abs(steeper.value - value.value))


def _near(sizes: Ints, at: int, before: int) -> tuple[Ints, Ints]:
    """The sizes just before an edge, so many, and those just behind it."""
    small = sizes[sizes <= at]
    large = sizes[sizes > at]
    return small[-before:], large[:_NEAR]


def _difference(level: Floats, sizes: Ints, at: int) -> Estimate | None:
    """What steps behind a size take more than those before it, near them in time."""
    value = _in_windows(level, sizes > at)
    if value is None:
        return _against_other_changes(level, sizes, at)
    return value


def _slope(
    steps: DecodeSteps, curve: tuple[Ints, Floats], small: Ints, large: Ints
) -> tuple[float, float]:
    """The time that a request adds to a step near an edge, ms, and its standard error.

    With too few sizes before the edge it lies between nothing and what proportional cost adds.
    """
    sizes, times_ms = curve
    slopes = []
    for side in (small, large):
        work = _work_at(steps, side)
        if len(work) < _LEAST_SIZES or len(np.unique(work)) < _LEAST_WORK:
            continue
        times = times_ms[np.searchsorted(sizes, side)]
        away = work - work.mean()
        squares = away @ away
        slope = float(away @ times) / float(squares)
        rest = times - times.mean() - slope * away
        variance = rest @ rest / (len(side) - 2)
        error = float(np.sqrt(variance / squares))
        slopes.append((slope, error))
    if not slopes:
        times = times_ms[np.searchsorted(sizes, small)]
        most = float(times.mean() / _work_at(steps, small).mean())
        return most / 2, most / 2
    slope, error = np.mean(slopes, axis=0)
    return float(slope), float(error)


def _in_windows(level: Floats, behind: npt.NDArray[np.bool_]) -> Estimate | None:
    """The difference of both sides inside windows; None if too few windows hold both."""
    windows = -(-len(level) // WINDOW)
    has_level = ~np.isnan(level)
    side = 2 * (np.arange(len(level)) // WINDOW) + behind
    own, values = side[has_level], level[has_level]
    counts = np.bincount(own, minlength=2 * windows)
    before, after = counts.reshape(windows, 2).T
    medians = median_by_group(values, own, 2 * windows)
    both = (before > 0) & (after > 0)
    if not both.any():
        return None
    d = (medians[1::2] - medians[::2])[both]
    w = (before * after)[both] / (before + after)[both]
    effective = float(w.sum() ** 2 / (w @ w))
    if effective < LEAST_WINDOWS:
        return None
    value = float(w @ d / w.sum())
    spread = np.sqrt(w**2 @ (d - value) ** 2) / w.sum()
    unbiased = np.sqrt(len(w) / (len(w) - 1))
    largest = float(np.abs(d).max())
    return block_estimate(value, float(spread * unbiased), effective - 1, largest)


def _against_other_changes(level: Floats, sizes: Ints, at: int) -> Estimate | None:
    """Changes of the size across an edge against all others; None with fewer than five others."""
    behind = sizes > at
    across = _changes(level, behind.astype(np.int64))
    ends = np.flatnonzero(np.diff(behind)) + 1
    others = _changes(level, sizes, ends)
    if not len(across) or len(others) <= LEAST_WINDOWS:
        return None
    value = float(across.mean() - others.mean())
    spread = float(np.std(others, ddof=1))
    error = spread * float(np.sqrt(1 / len(across) + 1 / len(others)))
    largest = float(np.nanmax(np.abs(level)))
    return block_estimate(value, error, len(others) - 1, largest)


def _changes(level: Floats, values: Ints, left_out: Ints | None = None) -> Floats:
    """How the level changes where a value does, as of a rise of it; some positions may
    be left out.
    """
    ends = np.flatnonzero(np.diff(values)) + 1
    if not len(ends):
        return np.empty(0)
    place = np.arange(len(values))
    run = np.searchsorted(ends, place, side="right")
    firsts = np.append(0, ends)
    stops = np.append(ends, len(values))
    has_level = ~np.isnan(level)
    # the last steps of each run are before a change, and its first ones behind the change before it
    is_before = has_level & (stops[run] - place <= _RUN)
    is_behind = has_level & (place - firsts[run] < _RUN)
    before = median_by_group(level[is_before], run[is_before], len(stops))[:-1]
    after = median_by_group(level[is_behind], run[is_behind], len(stops))[1:]
    n_before = np.bincount(run[is_before], minlength=len(stops))[:-1]
    n_after = np.bincount(run[is_behind], minlength=len(stops))[1:]
    kept = np.minimum(n_before, n_after) >= _LEAST_RUN
    if left_out is not None:
        kept &= ~np.isin(ends, left_out)
    sign = np.where(values[ends] > values[ends - 1], 1, -1)
    changes: Floats = (sign * (after - before))[kept]
    return changes


def _with_error(value: Estimate, error: float) -> Estimate:
    """The estimate with a further, independent error of its slope; the same degrees of freedom."""
    half = value.high - value.value
    if error <= 0 or not np.isfinite(half) or half <= 0:
        return value
    wider = float(np.hypot(half, 2 * error))
    # Student's t shrinks as the interval widens; p is that of a normal one of this width, or
    # larger.
    from scipy.special import ndtr

    p = float(2 * ndtr(-1.96 * abs(value.value) / wider))
    low, high = value.value - wider, value.value + wider
    return Estimate(value.value, low, high, max(value.p, p))
