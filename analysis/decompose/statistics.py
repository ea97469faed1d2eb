"""Intervals and tests for statistics of steps that were taken in rounds.

Steps of one round share the state of the machine, so the round is the unit of resampling: a replicate draws rounds with
replacement, the same for every batch size (which keeps what they have in common), then steps inside each. The spread
of the central replicates gives a standard error; with few rounds it is too small by √(R/(R−1)) and is mended by that
factor, and Student's t with R−1 degrees of freedom stands for the normal distribution.
Source of the scheme: Davison and Hinkley, Bootstrap Methods and their Application (1997), sections 2.4 and 3.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr, stdtrit

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
LEVEL = 0.05  # of tests, over their family
REPLICATES = 2000
_SEED = 0
_TAIL = 0.1  # of the replicates, left out at each end when their spread is taken
# The same for a time: medians of single steps in few rounds fall on few values, and more of them have to be seen.
_TAIL_OF_TIMES = 0.05
# Below this share of the values' own size a spread is the rounding of the arithmetic.
_RELATIVE_ROUNDING = 1e-9


@dataclass(frozen=True)
class Estimate:
    """A value with its interval.

    Attributes:
        value: the estimate, from all the data.
        low: lower end of the 95 % interval.
        high: upper end.
        p: two-sided p-value of the value being 0.
    """

    value: float
    low: float
    high: float
    p: float


def resample_rounds(rounds: int, replicates: int = REPLICATES) -> npt.NDArray[np.int64]:
    """Round numbers of every replicate, shape (replicates, rounds)."""
    return np.random.default_rng(_SEED).integers(0, rounds, size=(replicates, rounds))


STATISTICS: dict[str, Callable[..., Any]] = {"median": np.nanmedian, "mean": np.nanmean}


def replicate(rounds: Sequence[Floats], drawn: npt.NDArray[np.int64], statistic: str = "median") -> Floats:
    """Medians or means over the resampled steps of one batch size.

    Args:
        rounds: the values of each round, at least one in each.
        drawn: rounds of each replicate, shape (replicates, rounds).
        statistic: median or mean.

    Returns:
        Shape (replicates,).
    """
    generator = np.random.default_rng(_SEED + 1)
    counts = np.array([len(values) for values in rounds])
    padded = np.full((len(rounds), counts.max()), np.nan)
    for place, values in enumerate(rounds):
        padded[place, : len(values)] = values
    inside = generator.random((*drawn.shape, counts.max()))
    chosen = (inside * counts[drawn][..., None]).astype(np.int64)
    values = padded[drawn[..., None], chosen]
    # A round of fewer steps contributes that many: the rest of its row is not there.
    values[np.arange(counts.max()) >= counts[drawn][..., None]] = np.nan
    return np.asarray(STATISTICS[statistic](values.reshape(len(drawn), -1), axis=1))


def estimate(value: float, replicates: Floats, rounds: float, scale: float) -> Estimate:
    """An interval and a p-value from bootstrap replicates.

    Args:
        value: the statistic of all the data.
        replicates: the statistic of each replicate.
        rounds: how many rounds there were, in effect; with one nothing is known of the spread: the interval is
            infinite, p is 1.
        scale: size of the numbers the statistic is made of; a spread far below it is rounding.
    """
    if rounds < 2:
        return Estimate(value, -np.inf, np.inf, 1.0)
    # Not their standard deviation: one disturbed step in six makes a few replicates jump far, though the estimate
    # itself does not follow it. Nor less than the central 80 %: medians of few steps take too few values inside it.
    low, high = np.percentile(replicates, [100 * _TAIL, 100 * (1 - _TAIL)])
    error = float(high - low) / 2 / float(ndtri(1 - _TAIL)) * np.sqrt(rounds / (rounds - 1))
    error = max(error, _RELATIVE_ROUNDING * abs(scale), np.finfo(float).tiny)
    half = float(stdtrit(rounds - 1, (1 + CONFIDENCE) / 2)) * error
    p = float(2 * stdtr(rounds - 1, -abs(value) / error))
    return Estimate(value, value - half, value + half, p)


def time_estimate(value: float, replicates: Floats, rounds: int, alike: float = 0.0) -> Estimate:
    """A time with its interval, which is taken on a logarithmic scale: it never reaches 0.

    Rounds that are alike tell less than independent ones: they stand for as many as would give a mean of the same
    variance, both in the standard error and in Student's t. At least two are taken to be independent.

    Args:
        value: the statistic of all the data.
        replicates: the statistic of each replicate.
        rounds: how many rounds there were; with one nothing is known of the spread: the interval is infinite, p is 1.
        alike: mean correlation of the errors of two rounds.
    """
    if rounds < 2 or value <= 0 or replicates.min() <= 0:
        return estimate(value, replicates, rounds, value)
    freedom = max((rounds - 1) * (1 - alike) / (1 + (rounds - 1) * alike), 1.0)
    low, high = np.log(np.percentile(replicates, [100 * _TAIL_OF_TIMES, 100 * (1 - _TAIL_OF_TIMES)]))
    error = max(float(high - low) / 2 / float(ndtri(1 - _TAIL_OF_TIMES)), _RELATIVE_ROUNDING) * np.sqrt(
        rounds / freedom
    )
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return Estimate(value, value * float(np.exp(-half)), value * float(np.exp(half)), 0.0)


def likeness(errors: Floats, places: npt.NDArray[np.int64]) -> float:
    """Mean correlation between what was measured at some places of a series whose errors resemble their neighbours'.

    Taken to fall with the distance as in a first-order autoregressive process.

    Args:
        errors: of the whole series, in order of time.
        places: of what is compared, positions in the series.
    """
    size = float(errors @ errors)
    if len(errors) < 3 or len(places) < 2 or size == 0:
        return 0.0
    neighbours = min(max(float(errors[1:] @ errors[:-1]) / size, 0.0), 1.0)
    apart = np.abs(np.subtract.outer(places, places))[np.triu_indices(len(places), 1)]
    return float(np.mean(neighbours**apart))


def normal_estimate(value: float, error: float) -> Estimate:
    """An interval and a p-value from a standard error that is known, not estimated from repeats."""
    half = float(ndtri((1 + CONFIDENCE) / 2)) * error
    p = float(2 * ndtr(-abs(value) / error)) if error > 0 else float(value == 0)
    return Estimate(value, value - half, value + half, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted so that the chance of any false rejection in the family stays under the level.

    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statist. 6 (1979).
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
