"""Which steps of one size are slow, and the period after which their times repeat.

A step is compared with the quick steps of its own visit, so that a slow machine makes no slow step.
Slow steps lie beyond a gap in the times, or far outside the spread of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Size = TypeVar("Size", bound=Hashable)

SLOW_SHARE = 0.03  # of T; slow steps that take more are part of the answer
_GAP = np.log(1.3)  # between the slowest usual step and the fastest slow one, at least
_GAP_DEVIATIONS = 3.0  # the same, in standard deviations of the usual steps
_LEAST_USUAL = 8  # one step in as many is a usual one, at least
_FAR = np.log(1.5)  # without a gap a slow step takes 1.5 times the usual one, or more
_FAR_DEVIATIONS = 8.0
_LEAST_BETWEEN = 0.2  # of the time of all far steps, in which those before a gap are slow too
_QUARTILES = 1.349  # standard deviations between the quartiles of normal values
_SPREAD = 0.35  # of T beyond the pace: some steps are slow, though no gap sets them apart
_LEAST_STEPS = 4  # of a size, of which one can be slow
_LEAST_TOGETHER = 0.5  # of the slow steps have a usual one in their own visit
_LEAST_STRETCHES, _LONG_STRETCH = 3, 8  # fewer and longer ones: the machine was slow for a while
_ALIKE = np.log(1.25)  # times of steps one period apart differ by less
_LEAST_ALIKE = 0.9  # of the pairs of steps one period apart, one of which is slow
_LEAST_P = 0.01  # of a period by chance


@dataclass(frozen=True)
class Pattern:
    """Which steps of one size are slow."""

    slow: Bools  # shape (steps,)
    period: int | None  # number of steps after which the times repeat; None without a period


def find_pattern(times_ms: Floats, visits: Ints) -> Pattern:
    """Find the slow steps of one size and their period.

    Args:
        times_ms: times of the steps, in the order in which they ran.
        visits: the visit of each step, any number; steps of one visit follow each other.
    """
    slow = _find_slow(times_ms, visits)
    return Pattern(slow, _find_period(times_ms, visits, slow) if slow.any() else None)


def find_patterns(sizes: Mapping[Size, tuple[Floats, Ints]]) -> dict[Size, Pattern]:
    """Find the slow steps of several sizes of one program, each with the arguments of
    `find_pattern`.

    A size that was measured too briefly to show a period shares the period of the others, if its
    own slow steps keep it.
    """
    patterns = {size: find_pattern(*steps) for size, steps in sizes.items()}
    periods = Counter(pattern.period for pattern in patterns.values() if pattern.period is not None)
    if not periods:
        return patterns
    ((period, _),) = periods.most_common(1)
    for size, pattern in patterns.items():
        if pattern.period is None and pattern.slow.any():
            pairs, alike = _count_pairs(_different_visits(*sizes[size], pattern.slow), period)
            if pairs and alike >= _LEAST_ALIKE * pairs:
                patterns[size] = Pattern(pattern.slow, period)
    return patterns


def _find_slow(times_ms: Floats, visits: Ints) -> Bools:
    none = np.zeros(len(times_ms), bool)
    if len(times_ms) < _LEAST_STEPS or times_ms.min() <= 0:
        return none
    _, visit, sizes = np.unique(visits, return_inverse=True, return_counts=True)
    logs = np.log(times_ms)
    if sizes.min() > 1:
        for own in range(len(sizes)):
            inside = visit == own
            logs[inside] -= np.percentile(logs[inside], 25, method="lower")
    slow = logs > _threshold(logs)
    if sizes.min() > 1:
        usual_in_visit = np.bincount(visit, ~slow, minlength=len(sizes))[visit] > 0
        if np.count_nonzero(slow & usual_in_visit) < _LEAST_TOGETHER * np.count_nonzero(slow):
            return none
    if _is_a_while(slow):
        return none
    pace_ms = float(faster_half(times_ms))
    mean_ms = float(times_ms.mean())
    beyond_ms = float((times_ms - pace_ms)[slow].sum()) / len(times_ms)
    if mean_ms - pace_ms >= _SPREAD * mean_ms and beyond_ms < (mean_ms - pace_ms) / 2:
        return np.asarray(np.log(times_ms / pace_ms) > _FAR, bool)
    return slow


def _is_a_while(slow: Bools) -> bool:
    """Whether the slow steps follow each other in one or two long stretches: a slower machine."""
    begins = ~slow[:-1] & slow[1:]
    starts = int(slow[0]) + np.count_nonzero(begins)
    if not 0 < starts < _LEAST_STRETCHES:
        return False
    return bool(slow.sum() >= _LONG_STRETCH * starts)


def _threshold(logs: Floats) -> float:
    """The logarithm above which a time is slow; infinite without a slow step."""
    ordered = np.sort(logs)
    gaps = np.diff(ordered)
    gaps[: max(len(ordered) // _LEAST_USUAL - 1, 0)] = 0.0
    at = int(np.argmax(gaps))
    threshold = np.inf
    if gaps[at] >= max(_GAP, _GAP_DEVIATIONS * _quartile_range(ordered[: at + 1]) / _QUARTILES):
        threshold = float(ordered[at] + ordered[at + 1]) / 2
    middle = np.percentile(ordered, 50)
    far = float(middle + max(_FAR, _FAR_DEVIATIONS * _quartile_range(ordered) / _QUARTILES))
    more = np.exp(ordered) - np.exp(middle)
    beyond = ordered > far
    between_ms = float(more[beyond & (ordered <= threshold)].sum())
    if between_ms < _LEAST_BETWEEN * float(more[beyond].sum()):
        return threshold  # what lies between the two is noise
    return min(threshold, far)


def _quartile_range(values: Floats) -> float:
    low, high = np.percentile(values, [25, 75])
    return float(high - low)


def _find_period(times_ms: Floats, visits: Ints, slow: Bools) -> int | None:
    """The smallest number of steps after which nearly all times repeat; None if there is none, or
    if chance explains it.
    """
    different = _different_visits(times_ms, visits, slow)
    longest = max(len(logs) for logs, _ in different)
    share = float(slow.mean())
    by_chance = share / (2 - share)  # a step and the one a period later are both slow, if one is
    candidates = range(2, longest // 2 + 1)
    for period in candidates:
        pairs, alike = _count_pairs(different, period)
        if pairs and alike >= _LEAST_ALIKE * pairs:
            from scipy.special import bdtrc

            if float(bdtrc(alike - 1, pairs, by_chance)) * len(candidates) < _LEAST_P:
                return period
    return None


def _different_visits(times_ms: Floats, visits: Ints, slow: Bools) -> list[tuple[Floats, Bools]]:
    """The logarithms of the times of each visit, and its slow steps.

    Visits with the same slow steps, e.g. of processes that start anew, count once.
    """
    logs = np.log(times_ms)
    different: dict[bytes, tuple[Floats, Bools]] = {}
    for visit in np.unique(visits):
        inside = visits == visit
        different.setdefault(slow[inside].tobytes(), (logs[inside], slow[inside]))
    return list(different.values())


def _count_pairs(visits: Sequence[tuple[Floats, Bools]], period: int) -> tuple[int, int]:
    """Pairs of steps a period apart of which one is slow, and those that take alike."""
    pairs = alike = 0
    for logs, is_slow in visits:
        either = is_slow[:-period] | is_slow[period:]
        near = np.abs(logs[:-period] - logs[period:]) < _ALIKE
        pairs += int(either.sum())
        alike += int((either & near).sum())
    return pairs, alike


def have_slow_steps(times: Floats, visits: Floats) -> bool:
    """Whether slow steps were seen, more than once, and are 3 % of the time of all steps or more;
    arguments as of `find_pattern`, in any unit.
    """
    return are_material(times, _find_slow(times, visits.astype(np.int64)))


def are_material(times: Floats, slow: Bools) -> bool:
    """Whether slow steps are part of the answer, by the times of all steps."""
    return bool(slow.any()) and is_material(int(slow.sum()), slow_share(times, slow))


def is_material(slow: int, share: float) -> bool:
    """Whether slow steps are part of the answer: seen more than once, and 3 % of T or more."""
    return slow > 1 and share >= SLOW_SHARE


def slow_share(times: Floats, slow: Bools) -> float:
    """What the slow steps take beyond the mean of the others, as a share of the time of all."""
    beyond = times[slow] - times[~slow].mean()
    return float(beyond.sum() / times.sum())


def share_beyond_pace(times: Floats) -> float:
    """What the time of all steps has beyond their pace, as a share of it."""
    return 1 - float(faster_half(times)) / float(times.mean())


def in_whole_periods(visits: Ints, period: int | None) -> Bools:
    """Which steps lie in the whole periods of their visit; all of a visit shorter than one."""
    kept = np.ones(len(visits), bool)
    if period is None:
        return kept
    for visit in np.unique(visits):
        inside = np.flatnonzero(visits == visit)
        if len(inside) >= period:
            kept[inside[len(inside) // period * period :]] = False
    return kept


def faster_half(values: Floats, axis: int = -1) -> Any:
    """Mean of the faster half of times along an axis, rounded up, without the NaN; every row holds
    a number.

    It is the pace of a step, not its cost: what the slower half takes beyond it is a term of its
    own. On a machine that is slower by a third in 30 % of the visits, the median jumps to the slow
    state in some sweeps; this only where more than half of the visits are slow. It lies below the
    median by 0.8 standard deviations of a step's time, at all conditions alike. Source for lower
    order statistics: Chen and Revels, Robust Benchmarking in Noisy Environments (2016),
    arXiv:1608.04295.
    """
    ordered = np.moveaxis(np.sort(values, axis=axis), axis, -1)  # NaN last
    counts = np.count_nonzero(~np.isnan(ordered), axis=-1)[..., None]
    sums = np.nancumsum(ordered, axis=-1)
    faster = (counts + 1) // 2
    return (np.take_along_axis(sums, faster - 1, -1) / faster)[..., 0]
