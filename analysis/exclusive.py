"""Exclusive time: each instant of a step is shared among the kernels running in it, so the parts sum to the whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def exclusive_ns(
    start_ns: npt.ArrayLike, duration_ns: npt.ArrayLike, window_start_ns: int, window_ns: int
) -> tuple[Floats, float]:
    """Share the window among the intervals.

    An instant in which n intervals run gives each of them 1/n; an instant in which none runs is idle. What lies
    outside the window is cut off. O(n log n).

    Args:
        start_ns: int, shape (n,): starts of the intervals.
        duration_ns: int, shape (n,): their durations; zero or negative ones get nothing.
        window_start_ns: start of the step.
        window_ns: its wall time.

    Returns:
        The intervals' exclusive times, shape (n,), and the idle time; together they are `window_ns` exactly up to
        float rounding (relative 1e-12).
    """
    # Relative to the window, so that float64 holds nanoseconds of any clock without rounding.
    start = np.clip(np.asarray(start_ns, dtype=np.int64) - window_start_ns, 0, window_ns)
    end = np.asarray(start_ns, dtype=np.int64) + np.asarray(duration_ns, dtype=np.int64) - window_start_ns
    end = np.maximum(np.clip(end, 0, window_ns), start)
    edges = np.unique(np.concatenate([start, end, [0, window_ns]]))
    first, last = np.searchsorted(edges, start), np.searchsorted(edges, end)
    running = np.zeros(len(edges) + 1, dtype=np.int64)
    np.add.at(running, first, 1)
    np.add.at(running, last, -1)
    running = np.cumsum(running)[: len(edges) - 1]
    length = np.diff(edges).astype(np.float64)
    share = np.divide(length, running, out=np.zeros_like(length), where=running > 0)
    until = np.concatenate([[0.0], np.cumsum(share)])
    idle = float(length[running == 0].sum())
    return until[last] - until[first], idle
