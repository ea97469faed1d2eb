"""The steps that an estimate averages: those that a statistic takes, without the disturbed ones where it needs that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...base.numbers import number
from .statistics import FASTER_HALF, MEDIAN, STATISTICS, Floats, Ints

# A step is disturbed if it lies farther from the median than 4 standard deviations of normal steps (1.4826 times the
# median absolute deviation), and than 5 %: three quiet steps may agree far more closely than a fourth one.
_FAR = 4 * 1.4826
_LEAST_FAR = 0.05
_NAMED = 4  # steps in a sentence
_OTHER_KIND = 2.0  # ratio of times from which several steps are not disturbed, but others


@dataclass(frozen=True)
class Samples:
    """Steps of one condition whose parts are known."""

    times_ms: Floats  # time of every term in every step, shape (steps, terms)
    rounds: Ints  # round of every step, shape (steps,)
    used: Ints | None = None  # positions of the steps to average; those that are not disturbed if None


def mean_parts(sample: Samples, statistic: str) -> Floats:
    """The statistic of whole steps as the mean of their parts, shape (terms,)."""
    used = fastest_first(sample, statistic)
    return np.asarray((weights_of(np.ones((1, len(used))), statistic) @ sample.times_ms[used])[0])


def averaged(walls_ms: Floats, statistic: str | None) -> Ints:
    """Positions of the steps that `mean_parts` averages, increasing; without a statistic the undisturbed ones."""
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
    """Weights of steps, the fastest first, in a mean that takes what the statistic takes; they add up to 1.

    The median has no weights of its own: the mean of the middle half stands for it. Counts, how often each step was
    drawn, and weights have the shape (replicates, steps).
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
    """Positions of the steps that an estimate uses: all but those far from the median.

    The limit of 5 % is of `size`, by default the median of the times.
    """
    if len(times) < 3:
        return np.arange(len(times))
    middle = float(np.median(times))
    distance = np.abs(times - middle)
    far = max(_FAR * float(np.median(distance)), _LEAST_FAR * abs(middle if size is None else size))
    return np.flatnonzero(distance <= far)


def set_aside_sentence(durations_ms: Floats) -> str | None:
    """The profiled steps of one condition that an estimate leaves out, with their times; None without one."""
    used = undisturbed(durations_ms)
    apart = np.sort(np.delete(durations_ms, used))
    if not len(apart):
        return None
    kept = durations_ms[used]
    times = f"{', '.join(number(ms) for ms in apart[:_NAMED])}{', …' if len(apart) > _NAMED else ''} ms"
    sentence = (
        f"{len(apart)} of {len(durations_ms)} profiled steps set aside, far from the median: {times}; those used take "
        f"{number(kept.min())} to {number(kept.max())} ms."
    )
    middle = float(np.median(kept))
    if np.count_nonzero((apart >= _OTHER_KIND * middle) | (_OTHER_KIND * apart <= middle)) > 1:
        sentence += " So different, several steps are of another kind: a warm-up, an evaluation, or another path."
    return sentence


def undisturbed_steps(kernel_times: pd.DataFrame) -> list[int]:
    """Numbers of the profiled steps that an estimate of one batch size uses: the `averaged` ones, if they are known."""
    if "averaged" in kernel_times:
        return sorted(int(step) for step in kernel_times.loc[kernel_times["averaged"], "step"].unique())
    walls = kernel_times.groupby("step")["exclusive_ms"].sum()
    return [int(walls.index[i]) for i in undisturbed(walls.to_numpy(np.float64))]
