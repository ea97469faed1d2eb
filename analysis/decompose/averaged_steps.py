"""The steps that an estimate averages: those that a statistic takes, without the disturbed ones
where it needs that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...base.numbers import number
from .statistics import FASTER_HALF, MEDIAN, STATISTICS, Floats, Ints

# A step is far if it lies farther from the median than 4 standard deviations of normal steps
# (1.4826 times the median absolute deviation), and than 5 %: three quiet steps may agree far more
# closely than a fourth one.
_FAR = 4 * 1.4826
_LEAST_FAR = 0.05
_LEAST_FOR_ALONE = 8  # steps, of which one that stands alone is set aside
_NAMED = 4  # steps in a sentence
_ALIKE = 1.5  # ratio of times below which a slow first step is as slow as later ones, so no warm-up


def is_marked(timed: pd.DataFrame) -> pd.Series:
    """Whether unprofiled steps are marked ones."""
    if "marked" not in timed:
        return pd.Series(False, index=timed.index)
    return timed["marked"].astype("boolean").fillna(False).astype(bool)


def samples_of_time(timed: pd.DataFrame) -> pd.DataFrame:
    """The unprofiled steps that T is of: of a visit with marked ones these, whose terms
    are known.
    """
    marked = is_marked(timed)
    if not marked.any():
        return timed
    visits = timed.groupby(["batch", "round"], dropna=False, sort=False).ngroup()
    return timed[marked | ~visits.isin(visits[marked])]


@dataclass(frozen=True)
class Samples:
    """Steps of one condition whose parts are known."""

    times_ms: Floats  # time of every term in every step, shape (steps, terms)
    rounds: Ints  # round of every step, shape (steps,)
    # positions of the steps to average; those that are not disturbed if None
    used: Ints | None = None


def mean_parts(sample: Samples, statistic: str) -> Floats:
    """The statistic of whole steps as the mean of their parts, shape (terms,)."""
    used = fastest_first(sample, statistic)
    return np.asarray((weights_of(np.ones((1, len(used))), statistic) @ sample.times_ms[used])[0])


def averaged(walls_ms: Floats, statistic: str | None) -> Ints:
    """Positions of the steps that `mean_parts` averages, increasing; without a statistic the
    undisturbed ones.
    """
    used = fastest_first(Samples(walls_ms[:, None], np.zeros(len(walls_ms), np.int64)), statistic)
    return np.sort(used[weights_of(np.ones((1, len(used))), statistic)[0] > 0])


def fastest_first(sample: Samples, statistic: str | None) -> Ints:
    """Positions of the steps that may be averaged, the fastest first."""
    walls = sample.times_ms.sum(axis=1)
    used = sample.used
    if used is None:
        used = np.arange(len(walls)) if statistic in STATISTICS else undisturbed(walls)
    return np.asarray(used[np.argsort(walls[used], kind="stable")], np.int64)


def weights_of(counts: Floats, statistic: str | None) -> Floats:
    """Weights of steps, the fastest first, in a mean that takes what the statistic takes; they add
    up to 1.

    The median has no weights of its own: the mean of the middle half stands for it. Counts, how
    often each step was drawn, and weights have the shape (replicates, steps).
    """
    total, upto = counts.sum(axis=1, keepdims=True), np.cumsum(counts, axis=1)
    if statistic == FASTER_HALF:
        low, high = 0 * total, (total + 1) // 2
    elif statistic == MEDIAN:
        low, high = total // 4, total - total // 4
    else:
        low, high = 0 * total, total
    taken = np.clip(np.minimum(upto, high) - np.maximum(upto - counts, low), 0, None)
    return np.asarray(taken / np.maximum(high - low, 1))


def undisturbed(times: Floats, size: float | None = None) -> Ints:
    """Positions of the steps, in order of time, that an estimate uses.

    Set aside are first steps far from the median, which are a warm-up, and of eight steps or more
    one that stands alone far above or far below it. What recurs is the program: several slow steps
    are used, as are first ones that later ones resemble. Of fewer steps a lone slow one is as
    likely the program: one in two or three. The limit of 5 % is of `size`, by default the median of
    the times.
    """
    if len(times) < 3:
        return np.arange(len(times))
    middle = float(np.median(times))
    distance = np.abs(times - middle)
    far = distance > max(
        _FAR * float(np.median(distance)), _LEAST_FAR * abs(middle if size is None else size)
    )
    first = int(np.argmin(far))  # the number of far steps before the first other one
    apart: list[int] = []
    for side in (far & (times > middle), far & (times < middle)):
        later = times[first:][side[first:]]
        early = [at for at in range(first) if side[at] and not _resembles(times[at], later)]
        # One later step that a first one resembles stands not alone.
        alone = len(later) == 1 and len(early) == np.count_nonzero(side[:first])
        alone = alone and len(times) >= _LEAST_FOR_ALONE
        apart += [*early, *(np.flatnonzero(side)[-1:].tolist() if alone else [])]
    return np.delete(np.arange(len(times)), apart)


def _resembles(time: float, others: Floats) -> bool:
    """Whether a time is within a factor of one of others."""
    low, high = np.minimum(np.abs(others), abs(time)), np.maximum(np.abs(others), abs(time))
    return bool((high < _ALIKE * low).any())


def set_aside_sentence(durations_ms: Floats) -> str | None:
    """The profiled steps of one condition that an estimate leaves out, with their times; None
    without one.
    """
    used = undisturbed(durations_ms)
    numbers = np.delete(np.arange(len(durations_ms)), used)
    if not len(numbers):
        return None
    kept = durations_ms[used]
    named = ", ".join(f"{number(durations_ms[at])} ms (number {at + 1})" for at in numbers[:_NAMED])
    return (
        f"{len(numbers)} of {len(durations_ms)} profiled steps set aside, far from the median, as "
        f"a warm-up at the start or alone: {named}{', …' if len(numbers) > _NAMED else ''}; those "
        f"used take {number(kept.min())} to {number(kept.max())} ms. With them all steps take "
        f"{number(durations_ms.sum())} ms."
    )


def undisturbed_steps(kernel_times: pd.DataFrame) -> list[int]:
    """Numbers of the profiled steps that an estimate of one batch size uses: the `averaged` ones,
    if they are known.
    """
    if "averaged" in kernel_times:
        return sorted(
            int(step) for step in kernel_times.loc[kernel_times["averaged"], "step"].unique()
        )
    walls = kernel_times.groupby("step")["exclusive_ms"].sum()
    return [int(walls.index[i]) for i in undisturbed(walls.to_numpy(np.float64))]
