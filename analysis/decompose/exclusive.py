"""Exclusive time: each instant of a step is shared among the kernels running in it, so their times
sum to the step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .statistics import Floats


def exclusive_ns(
    start_ns: npt.ArrayLike, duration_ns: npt.ArrayLike, window_start_ns: int, window_ns: int
) -> tuple[Floats, float]:
    """Share the window among the intervals: their exclusive times, and the idle time; together they
    are `window_ns`.

    An instant in which n intervals run gives each of them 1/n; an instant in which none runs is
    idle. What lies outside the window is cut off, and durations below 0 are 0. O(n log n), with a
    relative rounding of 1e-12.
    """
    levels = np.zeros(np.shape(start_ns), dtype=np.int64)
    return share_by_layer_ns(start_ns, duration_ns, levels, window_start_ns, window_ns)


def share_by_layer_ns(
    start_ns: npt.ArrayLike,
    duration_ns: npt.ArrayLike,
    levels: npt.ArrayLike,
    window_start_ns: int,
    window_ns: int,
) -> tuple[Floats, float]:
    """Share the window as `exclusive_ns`, the lowest level, from 0, first.

    An instant belongs in equal shares to the intervals of the lowest level that run in it;
    intervals of higher levels get nothing.
    """
    # Relative to the window, so that float64 holds nanoseconds of any clock without rounding.
    begin = np.asarray(start_ns, dtype=np.int64) - window_start_ns
    stop = begin + np.asarray(duration_ns, dtype=np.int64)
    start = np.clip(begin, 0, window_ns)
    end = np.maximum(np.clip(stop, 0, window_ns), start)
    edges = np.unique(np.concatenate([start, end, [0, window_ns]]))
    first = np.searchsorted(edges, start)
    last = np.searchsorted(edges, end)
    free = np.diff(edges).astype(np.float64)
    exclusive = np.zeros(len(start))
    level = np.asarray(levels, dtype=np.int64)
    for number in np.unique(level):
        of_level = level == number
        changes = np.zeros(len(edges), dtype=np.int64)
        np.add.at(changes, first[of_level], 1)
        np.add.at(changes, last[of_level], -1)
        running = np.cumsum(changes)[:-1]
        share = np.divide(free, running, out=np.zeros_like(free), where=running > 0)
        until = np.append(0.0, np.cumsum(share))
        exclusive[of_level] = until[last[of_level]] - until[first[of_level]]
        free[running > 0] = 0.0
    return exclusive, float(free.sum())
