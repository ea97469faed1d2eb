"""The steps that an estimate averages, as a statistic takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from .statistics import FASTER_HALF, MEDIAN, Floats, Ints


def durations_ms(steps: pd.DataFrame) -> Floats:
    """How long each of the steps took."""
    times_ms: Floats = steps["duration_ns"].to_numpy(np.float64) / 1e6
    return times_ms


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


def mean_parts(sample: Samples, statistic: str) -> Floats:
    """The statistic of whole steps as the mean of their parts, shape (terms,)."""
    used = fastest_first(sample)
    weights = weights_of(np.ones((1, len(used))), statistic)
    mean: Floats = (weights @ sample.times_ms[used])[0]
    return mean


def pick_averaged(walls_ms: Floats, statistic: str | None) -> Ints:
    """Positions of the steps that `mean_parts` averages, increasing; all without a statistic."""
    used = np.argsort(walls_ms, kind="stable")
    (weights,) = weights_of(np.ones((1, len(used))), statistic)
    return np.sort(used[weights > 0])


def fastest_first(sample: Samples) -> Ints:
    """Positions of the steps, the fastest first."""
    return np.asarray(np.argsort(sample.times_ms.sum(axis=1), kind="stable"), np.int64)


def weights_of(counts: Floats, statistic: str | None) -> Floats:
    """Weights of steps, the fastest first, in a mean that takes what the statistic takes; they add
    up to 1.

    The median has no weights of its own: the mean of the middle half stands for it. Counts, how
    often each step was drawn, and weights have the shape (replicates, steps).
    """
    total = counts.sum(axis=1, keepdims=True)
    low, high = 0 * total, total
    if statistic == FASTER_HALF:
        low, high = 0 * total, (total + 1) // 2
    elif statistic == MEDIAN:
        low, high = total // 4, total - total // 4
    upto = np.cumsum(counts, axis=1)
    inside = np.minimum(upto, high) - np.maximum(upto - counts, low)
    weights: Floats = np.clip(inside, 0, None) / np.maximum(high - low, 1)
    return weights


def list_used_steps(kernel_times: pd.DataFrame) -> list[int]:
    """The profiled steps that an estimate uses, by number: if known, the `averaged` ones."""
    averages = kernel_times["averaged"] if "averaged" in kernel_times else slice(None)
    return sorted(map(int, kernel_times.loc[averages, "step"].unique()))
