"""One step as spans on lanes, for drawing: spans too short for a screen are merged and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...profiling.attribution.kernel_names import short_name
from ..decompose.kernel_times import Work, kernels_of

# A screen is about 2000 pixels wide: a span shorter than half a pixel is merged with its neighbour.
_FINEST = 1 / 4000
MOST_LANES = 8
_COLUMNS = ("step", "start_ns", "duration_ns", "name", "layer", "phase", "process", "device", "stream")


def timeline(work: Work, steps: pd.DataFrame, used: Sequence[int], batch: int) -> dict[str, Any]:
    """Spans of the profiled step whose time is nearest to the median.

    Args:
        work: device work, from `kernel_times.device_work`.
        steps: the `steps` table.
        used: profiled steps to choose from.
        batch: their batch size; 0 for unknown.

    Returns:
        batch, step_us, lanes (labels), spans (lane, start and duration in µs, index in names, number of kernels), names
        (name, layer, phase), hidden (number of kernels on lanes that are not drawn).
    """
    rows = steps[steps["step"].isin(used) & steps["profiled"].astype(bool)]
    durations = rows["duration_ns"].to_numpy(np.float64)
    chosen = rows.iloc[int(np.argmin(np.abs(durations - np.median(durations))))]
    start_ns, step_us = int(chosen["start_ns"]), int(chosen["duration_ns"]) / 1e3
    mine = kernels_of(work, int(chosen["step"]), _COLUMNS)
    begin = (mine["start_ns"].to_numpy(np.int64) - start_ns) / 1e3
    length = mine["duration_ns"].to_numpy(np.int64) / 1e3
    streams = _streams(mine)
    busiest = pd.Series(length).groupby(streams).sum().sort_values(ascending=False)
    lanes = sorted(busiest.index[:MOST_LANES])
    labels = [[None if pd.isna(v) else str(v) for v in mine[c]] for c in ("name", "layer", "phase")]
    names: dict[tuple[str | None, ...], int] = {}
    spans: list[list[float]] = []
    for lane, stream in enumerate(lanes):
        inside = np.flatnonzero(streams == stream)
        inside = inside[np.argsort(begin[inside], kind="stable")]
        for first, last, longest, count in _merged(begin[inside], length[inside], step_us * _FINEST):
            at = inside[longest]
            key = tuple(column[at] for column in labels)
            index = names.setdefault(key, len(names))
            spans.append([lane, round(first, 3), round(last - first, 3), index, count])
    return {
        "batch": batch or None,
        "step_us": step_us,
        "lanes": [f"stream {index}" for index, _ in enumerate(lanes)],
        "spans": spans,
        "names": [[short_name(name or ""), layer, phase] for name, layer, phase in names],
        "kernels": len(mine),
        "hidden": int((~np.isin(streams, lanes)).sum()),
    }


def _streams(rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    """A number per device and stream, in order of appearance."""
    return np.asarray(rows.groupby(["process", "device", "stream"], dropna=False, sort=False).ngroup())


def _merged(
    begin: np.ndarray[Any, Any], length: np.ndarray[Any, Any], finest: float
) -> list[tuple[float, float, int, int]]:
    """Start, end, index of the longest kernel and number of kernels of every span of a lane, in order of start."""
    drawn: list[tuple[float, float, int, int]] = []
    for index, (start, duration) in enumerate(zip(begin.tolist(), length.tolist(), strict=True)):
        end = start + duration
        if drawn:
            first, last, longest, count = drawn[-1]
            fine = duration < finest or last - first < finest
            if fine and start - last < finest and end - first < 8 * finest:
                longest = index if duration > length[longest] else longest
                drawn[-1] = (first, max(last, end), longest, count + 1)
                continue
        drawn.append((start, end, index, 1))
    return drawn
