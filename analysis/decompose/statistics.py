"""Intervals and tests for statistics of steps that were taken in rounds.

Steps of one round share the state of the machine, so a replicate draws rounds with replacement, the
same for every batch size, and takes all steps of each: to draw steps inside as well would count
their noise twice. The spread of the central replicates, times √(R/(R−1)) for R rounds, is the
standard error of Student's t with R−1 degrees of freedom. Source of the scheme: Davison and
Hinkley, Bootstrap Methods and their Application (1997), sections 2.4 and 3.8.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...profiling.attribution.step_pattern import faster_half

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_Name = TypeVar("_Name", bound=Hashable)

CONFIDENCE = 0.95
LEVEL = 0.05  # of tests, per family
MATERIAL = 0.02  # of a step's time; a smaller effect is no anomaly, however significant it is
REPLICATES = 2000
_SEED = 0
_TAIL = 0.1  # share of the replicates left out at each end for their spread
# The same for a time: medians of single steps in few rounds have few distinct values, and more of
# them are needed.
_TAIL_OF_TIMES = 0.05
_MOST_FREEDOM = 1e6  # beyond it Student's t is normal
LARGEST_LOG = 700.0  # whose exponential is a number
# A spread below this share of the values is rounding.
RELATIVE_ROUNDING = 1e-9


@dataclass(frozen=True)
class Estimate:
    """A value with its interval."""

    value: float  # the estimate, from all the data
    low: float  # lower end of the 95 % interval
    high: float  # upper end
    p: float  # two-sided p-value of the value being 0


@cache
def resample_rounds(rounds: int, replicates: int = REPLICATES) -> Ints:
    """Round numbers of every replicate, shape (replicates, rounds); read-only."""
    generator = np.random.default_rng(_SEED)
    drawn = generator.integers(0, rounds, size=(replicates, rounds))
    drawn.setflags(write=False)
    return drawn


def counts_of(drawn: Ints, size: int) -> Floats:
    """How often each of `size` numbers is drawn in each replicate, shape (replicates, size)."""
    counts = np.zeros((len(drawn), size))
    if size:
        replicate = np.arange(len(drawn))[:, None]
        np.add.at(counts, (replicate, drawn), 1.0)
    return counts


@cache
def round_counts(rounds: int) -> Floats:
    """How often each round is drawn in each replicate, as `resample_rounds` draws them."""
    return counts_of(resample_rounds(max(rounds, 1)), rounds)


def group_equal(names: Sequence[_Name]) -> tuple[list[_Name], Floats]:
    """The different names, and a matrix that adds up what has the same one, shape (names,
    different).
    """
    different = list(dict.fromkeys(names))
    member = np.zeros((len(names), len(different)))
    for place, name in enumerate(names):
        member[place, different.index(name)] = 1.0
    return different, member


def medians(values: Floats, axis: int = -1) -> Any:
    """Medians without the NaN; every row holds a number. np.nanmedian gives the same in ten times
    the time.
    """
    ordered = np.moveaxis(np.sort(values, axis=axis), axis, -1)  # NaN last
    counts = np.count_nonzero(~np.isnan(ordered), axis=-1)
    counts = counts[..., None]
    below = np.take_along_axis(ordered, (counts - 1) // 2, -1)
    above = np.take_along_axis(ordered, counts // 2, -1)
    return ((below + above) / 2)[..., 0]


def median_by_group(values: Floats, group: Ints, groups: int) -> Floats:
    """Medians of each group, from values without NaN and the number of the group of each; NaN of
    none. np.median of one group after another gives the same in far more time.
    """
    counts = np.bincount(group, minlength=groups)
    is_filled = counts > 0
    ordered = values[np.lexsort((values, group))]
    first = (np.cumsum(counts) - counts)[is_filled]
    counts = counts[is_filled]
    below = ordered[first + (counts - 1) // 2]
    above = ordered[first + counts // 2]
    medians = np.full(groups, np.nan)
    medians[is_filled] = (below + above) / 2
    return medians


def widen(replicates: Floats, value: Any, rounds: int) -> Any:
    """Replicates of the faster half, moved away from its value by √((R+2)/R) for R rounds.

    Of few rounds they vary too little, though estimates allow for √(R/(R−1)): without this, 95 %
    intervals of the difference of two faster halves of 4 to 20 normal values held it in 92 to 95 of
    100 cases.
    """
    factor = np.sqrt((rounds + 2) / rounds)
    return value + (replicates - value) * factor


FASTER_HALF, MEDIAN = "mean of the faster half", "median"
ALL_STEPS = "mean of all steps"  # T, where the mean of the faster half is the pace
STATISTICS: dict[str, Callable[..., Any]] = {
    MEDIAN: medians,
    "mean": np.nanmean,
    FASTER_HALF: faster_half,
    ALL_STEPS: np.nanmean,
}


def spread_of(values: Floats, center: float) -> float | None:
    """Interquartile range of values over their center; None for a single one."""
    low, high = np.percentile(values, [25, 75])
    if len(values) > 1:
        return float((high - low) / center)
    return None


def replicate(rounds: Sequence[Floats], drawn: Ints, statistic: str = "median") -> Floats:
    """A statistic of all steps of one batch size in the drawn rounds, by replicate; some round has
    values.
    """
    compute = STATISTICS[statistic]
    longest = max(map(len, rounds))
    padded = np.full((len(rounds), longest), np.nan)
    for i, values in enumerate(rounds):
        padded[i, : len(values)] = values
    drawn_values = padded[drawn].reshape(len(drawn), -1)
    if not all(map(len, rounds)):
        drawn_values = fill_gaps(drawn_values, compute(np.concatenate(rounds)))
    return np.asarray(compute(drawn_values, axis=1))


def fill_gaps(drawn: Floats, value: Any) -> Floats:
    """Values of replicates, shape (replicates, values, ...), changed in place: a replicate without
    any gets the value of all.
    """
    is_empty = np.isnan(drawn).all(axis=1)
    drawn[:, 0] = np.where(is_empty, value, drawn[:, 0])
    return drawn


def _central_range(values: Floats, tail: float) -> float:
    """How far values reach without a share of them at each end; NaN with a NaN among them.
    np.percentile gives the same ends in eight times the time.
    """
    last = len(values) - 1
    low, high = tail * last, (1 - tail) * last
    below_low, below_high = int(low), int(high)
    above_low = min(below_low + 1, last)
    above_high = min(below_high + 1, last)
    places = {below_low, above_low, below_high, above_high, last}
    ordered = np.partition(values, sorted(places))
    if np.isnan(ordered[last]):
        return float("nan")

    def interpolate(place: float, below: int, above: int) -> float:
        step = ordered[above] - ordered[below]
        return float(ordered[below] + (place - below) * step)

    return interpolate(high, below_high, above_high) - interpolate(low, below_low, above_low)


def estimate(
    value: float, replicates: Floats, rounds: float, scale: float, *, of_mean: bool = False
) -> Estimate:
    """An interval and a p-value of a statistic of all the data, from bootstrap replicates of it.

    With one round the spread is unknown: the interval is infinite, p is 1. A spread far below
    `scale`, the size of the numbers behind the statistic, is rounding. A mean has all the spread of
    its replicates: one slow step in six moves it, too.
    """
    if rounds < 2:
        return Estimate(value, -np.inf, np.inf, 1.0)
    # Not their standard deviation: one disturbed step in six moves a few replicates far, though not
    # the estimate. Not less than the central 80 % either: medians of few steps have too few
    # distinct values inside it.
    error = _central_error(replicates, _TAIL)
    if of_mean:
        error = max(error, float(np.std(replicates)))
    error *= np.sqrt(rounds / (rounds - 1))
    return block_estimate(value, error, rounds - 1, scale)


def _central_error(replicates: Floats, tail: float) -> float:
    """Standard deviation of normal replicates with the same central range."""
    from scipy.special import ndtri

    half = _central_range(replicates, tail) / 2
    return half / float(ndtri(1 - tail))


def _student(freedom: Any) -> Any:
    """Half the 95 % interval of Student's t, in standard errors."""
    from scipy.special import stdtrit

    return stdtrit(freedom, (1 + CONFIDENCE) / 2)


def mean_error(blocks: Floats) -> float:
    """Standard error of the mean of independent values; 0 of a single one."""
    if len(blocks) > 1:
        return float(np.std(blocks, ddof=1) / np.sqrt(len(blocks)))
    return 0.0


def block_estimate(value: float, error: float, freedom: float, scale: float) -> Estimate:
    """Student's interval of a mean of independent values, from its standard error and the degrees
    of freedom.

    With less than one of them the spread is unknown: the interval is infinite, p is 1. `scale` is
    as of `estimate`.
    """
    if freedom < 1:
        return Estimate(value, -np.inf, np.inf, 1.0)
    from scipy.special import stdtr

    rounding = RELATIVE_ROUNDING * abs(scale)
    error = max(error, rounding, np.finfo(float).tiny)
    half = float(_student(freedom)) * error
    tail = stdtr(freedom, -abs(value) / error)
    return Estimate(value, value - half, value + half, float(2 * tail))


def with_unseen(seen: Estimate, freedom: float, error: float) -> Estimate:
    """An estimate of some degrees of freedom whose interval holds a spread of a known standard
    error, too, which the data behind it do not show.

    The degrees of freedom are as of `sum_estimate`: a known error has all of them.
    """
    if not error or not np.isfinite(seen.high):
        return seen
    shown = (seen.high - seen.low) / 2 / float(_student(freedom))
    whole = float(np.hypot(shown, error))
    together = freedom * (whole / max(shown, RELATIVE_ROUNDING * error)) ** 4
    return block_estimate(seen.value, whole, min(together, _MOST_FREEDOM), seen.value)


def at_most(estimate: Estimate, most: float, freedom: float) -> float:
    """One-sided p of a value of at most `most`, from a symmetrical interval of Student's t."""
    if freedom < 1 or not np.isfinite(estimate.high):
        return 1.0
    from scipy.special import stdtr

    half = (estimate.high - estimate.low) / 2
    error = half / float(_student(freedom))
    return float(stdtr(freedom, -(estimate.value - most) / error))


def time_estimate(
    value: float,
    replicates: Floats,
    rounds: int,
    round_correlation: float = 0.0,
    *,
    of_mean: bool = False,
) -> Estimate:
    """A time with its interval on a logarithmic scale, which never reaches 0; else as `estimate`.

    Correlated rounds count as the number of independent ones that gives a mean of the same
    variance, both in the standard error and in Student's t; as two at least.
    """
    if rounds < 2 or value <= 0 or replicates.min() <= 0:
        return estimate(value, replicates, rounds, value, of_mean=of_mean)
    free = (rounds - 1) * (1 - round_correlation)
    freedom = max(free / (1 + (rounds - 1) * round_correlation), 1.0)
    logs = np.log(replicates)
    error = max(_central_error(logs, _TAIL_OF_TIMES), RELATIVE_ROUNDING)
    if of_mean:
        error = max(error, float(np.std(logs)))
    error *= np.sqrt(rounds / freedom)
    half = float(_student(freedom)) * error
    low = value * float(np.exp(-half))
    high = value * float(np.exp(half))
    return Estimate(value, low, high, 0.0)


def sum_estimate(times: Sequence[Estimate], weights: Floats, rounds: Sequence[int]) -> Estimate:
    """A weighted sum of times that are known from rounds of their own, two or more each.

    The degrees of freedom are as Welch and Satterthwaite count them, see `effective_rounds`.
    """
    freedom = np.array(rounds, np.float64) - 1
    values = np.array([time.value for time in times])
    halves = np.log([time.high / time.value for time in times])
    errors = np.abs(weights) * values * halves / _student(freedom)
    variances = errors**2
    whole = variances.sum()
    together = float(whole**2 / (variances**2 / freedom).sum())
    scale = float(np.abs(weights * values).max())
    value = float(weights @ values)
    error = float(np.sqrt(whole))
    return block_estimate(value, error, together, scale)


def effective_rounds(rounds: npt.ArrayLike, sizes: npt.ArrayLike) -> float:
    """Effective number of rounds behind a sum whose parts have different sizes and numbers of
    rounds.

    The degrees of freedom are as Welch and Satterthwaite count them (Biometrics Bulletin 2, 1946),
    with noise proportional to the sizes, and at most as many as one part has. A part of size 0 does
    not count; if all are 0, the fewest rounds do.
    """
    free = np.asarray(rounds, np.float64) - 1
    variances = np.asarray(sizes, np.float64) ** 2
    if variances.any():
        counts = variances > 0
        free = free[counts]
        variances = variances[counts] / variances.sum()
    if free.min() < 1 or not variances.any():
        return float(free.min()) + 1
    together = 1 / (variances**2 / free).sum()
    return 1 + float(min(together, free.max()))


_LEAST_ROWS = 3  # whose spreads tell what is usual
# degrees of freedom that the usual spread has at most: rows of a round vary alike
_MOST_PRIOR = 12.0
_LEAST_OF_USUAL = 1e-4  # of the usual variance; rows below it are alike by chance


def moderate(
    estimates: Sequence[Estimate],
    rounds: Sequence[float],
    sizes: Sequence[float],
    unseen: float = 0.0,
) -> list[Estimate]:
    """Estimates of many rows, whose relative spreads tell each other the usual one. Each varies by
    `unseen` of its size besides, see `with_unseen`.

    Few rounds may be alike by chance, so the variance of a row, over its size, is averaged with
    the usual one, by degrees of freedom, and is not less than the usual one. Source of the usual
    one: Smyth, Linear Models and Empirical Bayes Methods, Statist. Appl. Genet. Mol. Biol. 3
    (2004), section 6.2.
    """
    listed = []
    for value, count, size in zip(estimates, rounds, sizes, strict=True):
        listed.append(with_unseen(value, count - 1, unseen * size))
    high = np.array([value.high for value in estimates])
    low = np.array([value.low for value in estimates])
    free = np.asarray(rounds, np.float64) - 1
    scale = np.asarray(sizes, np.float64)
    bounded = np.flatnonzero(np.isfinite(high) & (free > 0) & (scale > 0))
    if len(bounded) < _LEAST_ROWS:
        return listed
    free = free[bounded]
    scale = scale[bounded]
    half = (high[bounded] - low[bounded]) / 2
    variances = (half / _student(free) / scale) ** 2
    variances = np.maximum(variances, _LEAST_OF_USUAL * np.median(variances))
    usual, prior = _usual_variance(variances, free)
    together = prior + free
    averaged = (prior * usual + free * variances) / together
    errors = np.sqrt(np.maximum(averaged, usual)) * scale
    for place, error, freedom in zip(bounded.tolist(), errors, together, strict=True):
        mean, size = listed[place].value, sizes[place]
        alike = block_estimate(mean, float(error), float(freedom), size)
        listed[place] = with_unseen(alike, float(freedom), unseen * size)
    return listed


def _usual_variance(variances: Floats, free: Floats) -> tuple[float, float]:
    """The variance that rows vary around, and its degrees of freedom, by moments of logarithms."""
    from scipy.special import digamma, polygamma

    if not variances.any():
        return 0.0, _MOST_PRIOR
    halves = free / 2
    logs = np.log(variances) - digamma(halves) + np.log(halves)
    expected = np.mean(polygamma(1, halves))
    beyond = float(np.var(logs, ddof=1) - expected)
    priors = np.geomspace(0.1, _MOST_PRIOR, 200)
    distances = np.abs(polygamma(1, priors / 2) - beyond)
    prior = float(priors[np.argmin(distances)])
    half = prior / 2
    log = np.mean(logs) + digamma(half) - np.log(half)
    return float(np.exp(log)), prior


def fieller(
    values: tuple[float, float],
    varied: tuple[Floats, Floats],
    spread: Callable[[float, Floats], Estimate],
) -> Estimate:
    """The ratio of two statistics, with its interval, infinite where the denominator may be 0.

    `varied` has the values of both in the same blocks or replicates, from which `spread` gives an
    interval. p is the numerator's p of being 0. Source: Fieller, Some Problems in Interval
    Estimation, J. Royal Statist. Soc. B 16 (1954).
    """
    top, bottom = values
    tops, bottoms = varied
    ratio = top / bottom if bottom else np.nan
    p = spread(top, tops).p

    def error(blocks: Floats) -> float:
        interval = spread(0.0, blocks)
        return (interval.high - interval.low) / 2

    top_error, bottom_error = error(tops), error(bottoms)
    if not (bottom and np.isfinite(top_error)):
        return Estimate(ratio, -np.inf, np.inf, p)
    tops, bottoms = tops / top_error, bottoms / bottom_error
    sum_variance = error(tops + bottoms) ** 2
    difference_variance = error(tops - bottoms) ** 2
    correlation = (sum_variance - difference_variance) / 4
    correlation = min(max(correlation, -1.0), 1.0)
    # The ratios r for which top - r·bottom cannot be distinguished from 0 lie between the roots of
    # a·r² - 2·b·r + c.
    a = bottom**2 - bottom_error**2
    b = top * bottom - correlation * top_error * bottom_error
    c = top**2 - top_error**2
    if a <= 0:
        return Estimate(ratio, -np.inf, np.inf, p)
    root = float(np.sqrt(max(b**2 - a * c, 0.0)))
    return Estimate(ratio, (b - root) / a, (b + root) / a, p)


_LEAST_FREEDOM_ALONE = 3  # of a spread that is known from other groups only


def share_estimate(logs: Floats, pooled: tuple[float, float], *, alone: bool = False) -> Estimate:
    """The share of a time that a change saves, from the logarithms of its ratios in independent
    starts of processes.

    `pooled` is the variance of such logarithms inside groups like this one, and its degrees of
    freedom; with 0 of them nothing is known of it, and the interval is infinite. So it is with one
    start, which says nothing of others, unless `alone` lets it vary as the groups do.
    """
    variance, freedom = pooled
    if len(logs) > 1:
        # A group that varies more than the others has its own variance.
        variance = max(variance, float(np.var(logs, ddof=1)))
    has_spread = len(logs) > 1 or (alone and freedom >= _LEAST_FREEDOM_ALONE)
    if not has_spread:
        freedom = 0.0
    error = float(np.sqrt(variance / len(logs)))
    log = block_estimate(float(np.mean(logs)), error, freedom, 1.0)
    if freedom < 1:
        return Estimate(share_saved(log.value), -np.inf, np.inf, 1.0)
    return share_of_log(log)


def share_of_log(log: Estimate) -> Estimate:
    """The share of a time that is saved, from the logarithm of its ratio with its interval."""
    least, most = share_saved(log.high), share_saved(log.low)
    return Estimate(share_saved(log.value), least, most, log.p)


def share_saved(log: float) -> float:
    """The share of a time that is saved, from the logarithm of its ratio; -inf where that is beyond
    all numbers.
    """
    if log < LARGEST_LOG:
        return 1 - float(np.exp(log))
    return -np.inf


def pool_variance(groups: Sequence[Floats]) -> tuple[float, float]:
    """Variance inside groups, and its degrees of freedom; (0, 0) if no group has two values."""
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return 0.0, 0.0
    squares = 0.0
    for group in groups:
        squares += float(np.var(group)) * len(group)
    return squares / freedom, float(freedom)


def mean_correlation(errors: Floats, positions: Ints) -> float:
    """Mean correlation of the errors at some positions of a complete first-order autoregressive
    series.
    """
    size = float(errors @ errors)
    if len(errors) < 3 or len(positions) < 2 or size == 0:
        return 0.0
    neighbours = float(errors[1:] @ errors[:-1]) / size
    neighbours = min(max(neighbours, 0.0), 1.0)
    distances = np.abs(np.subtract.outer(positions, positions))
    apart = distances[np.triu_indices(len(positions), 1)]
    return float(np.mean(neighbours**apart))


def normal_estimate(value: float, error: float) -> Estimate:
    """An interval and a p-value from a known standard error."""
    from scipy.special import ndtr, ndtri

    half = float(ndtri((1 + CONFIDENCE) / 2)) * error
    p = float(value == 0)
    if error > 0:
        p = float(2 * ndtr(-abs(value) / error))
    return Estimate(value, value - half, value + half, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that the chance of any false rejection in the family stays under the
    level.

    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statist. 6
    (1979).
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(order):
        untested = len(p_values) - rank
        largest = max(largest, min(1.0, untested * p_values[i]))
        adjusted[i] = largest
    return adjusted
