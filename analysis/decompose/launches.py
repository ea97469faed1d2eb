"""Kernels that wait for their own launches, on a device that is never idle.

Where streams overlap, a step may run small kernels one by one as the host launches them, and some
kernel runs at every instant. Two facts tell: the kernel begins within microseconds of the end of
its own launch, and its grid fills few of the multiprocessors. Kernels that wait in a queue begin
later. Full streams would take the sum of the durations over their number: the rest is the host's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...profiling.recording.store import Recording
from .idle import host_spans
from .kernel_times import device_work, exclusive_and_gaps, kernels_of

PACED_LATE_US = 5.0  # most, from the end of a launch to the begin of its kernel
_EARLIEST_US = -1000.0  # a kernel begins while its launch returns; what is earlier is not its own
_MOST_OF_DEVICE = 0.5  # of the multiprocessors, by the blocks of a grid
_LEAST_CALLS, _LEAST_OF_TERM = 20, 0.5  # of the kernels of a term, in a step
_PLACE = ["step", "layer", "phase"]
_GRID = ["grid_x", "grid_y", "grid_z"]
_COLUMNS = (
    *("step", "start_ns", "duration_ns", "layer", "phase", "stream", "device", "process"),
    *("correlation_id", *_GRID),
)


@dataclass(frozen=True)
class Paced:
    """Kernels that begin as soon as the host has launched them, per step."""

    calls: float
    share: float  # of the kernels of their terms
    late_us: float  # median from the end of a launch to the begin of its kernel
    blocks: float  # of the largest grid
    time_ms: float  # exclusive
    full_ms: float  # what they would take with their streams full, at most the exclusive time

    @property
    def waits_ms(self) -> float:
        """The part of their time that is the host's."""
        return self.time_ms - self.full_ms


def find_paced_kernels(
    recording: Recording, profiled: pd.DataFrame, sm_count: int | None
) -> pd.DataFrame:
    """By step, layer and phase the kernels that wait for their launches, where most of a term's do.

    The columns are fields of `Paced`, and step, layer, phase; empty where grids, launches or the
    device are not known.
    """
    empty = pd.DataFrame(columns=[*_PLACE, *Paced.__annotations__])
    calls = not recording.on_host and recording.count_rows("api_calls")
    if not sm_count or not calls or profiled.empty:
        return empty
    number = profiled["step"].to_numpy(np.int64)
    start = profiled["start_ns"].to_numpy(np.int64)
    window = profiled["duration_ns"].to_numpy(np.int64)
    work = device_work(recording)
    exclusive, _ = exclusive_and_gaps(work, number, start, window)
    rows = kernels_of(work, number, _COLUMNS)
    if rows.empty:
        return empty
    launched_ns, _ = host_spans(recording)[0].launches_of(rows)
    late_us = (rows["start_ns"].to_numpy(np.int64) - launched_ns) / 1e3
    blocks = rows[_GRID].astype("float64").prod(axis=1, skipna=False)
    paced = (late_us > _EARLIEST_US) & (late_us < PACED_LATE_US)
    paced &= (blocks <= _MOST_OF_DEVICE * sm_count).to_numpy(bool)
    rows = rows.assign(paced=paced, late_us=late_us, blocks=blocks, exclusive_ms=exclusive / 1e6)
    by_place = rows.groupby(_PLACE, dropna=False, observed=True)
    share = by_place["paced"].transform("mean")
    number_of = by_place["paced"].transform("sum")
    mine = rows[rows["paced"] & (share >= _LEAST_OF_TERM) & (number_of >= _LEAST_CALLS)]
    if mine.empty:
        return empty
    mine = mine.assign(share=share, own_ms=mine["duration_ns"] / 1e6)
    terms = mine.groupby(_PLACE, dropna=False, observed=True).agg(
        calls=("paced", "sum"),
        share=("share", "first"),
        late_us=("late_us", "median"),
        blocks=("blocks", "max"),
        time_ms=("exclusive_ms", "sum"),
        own_ms=("own_ms", "sum"),
        streams=("stream", "nunique"),
    )
    at_once = np.minimum(terms["streams"], sm_count // terms["blocks"])
    full_ms = terms["own_ms"] / at_once.clip(lower=1)
    terms["full_ms"] = np.minimum(full_ms, terms["time_ms"])
    return terms.reset_index()[list(empty.columns)]


def mean_paced(rows: pd.DataFrame, steps: int) -> Paced:
    """The mean over some steps of rows of `find_paced_kernels`."""
    calls = float(rows["calls"].sum())

    def weigh(column: str) -> float:
        weighted = rows[column] * rows["calls"]
        return float(weighted.sum()) / calls

    time_ms = float(rows["time_ms"].sum())
    full_ms = float(rows["full_ms"].sum())
    return Paced(
        calls=calls / steps,
        share=weigh("share"),
        late_us=weigh("late_us"),
        blocks=float(rows["blocks"].max()),
        time_ms=time_ms / steps,
        full_ms=full_ms / steps,
    )
