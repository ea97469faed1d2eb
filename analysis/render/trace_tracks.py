"""Tracks of a trace that no row of a recording is: layers with their operators, idle time with its
place, counters.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from ...profiling.recording.export import Drawn
from ...profiling.recording.rank_info import META_KEY
from ...profiling.recording.store import Recording
from ..decompose.kernel_times import (
    device_work,
    exclusive_and_gaps,
    of_steps,
    select_profiled_steps,
)
from ..decompose.statistics import Ints
from ..decompose.terms import IDLE, KERNELS, Key

_PLACE = ["device", "stream", "layer", "phase", "op"]
_NO_KERNEL = "no kernel runs"
_COUNTERS = {  # of the table `clocks`: title and divisor
    "sm_clock_hz": ("clock, MHz", 1e6),
    "memory_clock_hz": ("memory clock, MHz", 1e6),
    "power_w": ("power, W", 1.0),
    "temperature_c": ("temperature, °C", 1.0),
}


def title_of(recording: Recording, position: int) -> str:
    """How a further recording is called in a trace: by its rank, else by its name and position."""
    info = recording.meta.get(META_KEY) or {}
    rank = info.get("rank")
    if rank is None:
        return f"{position}: {recording.path.name}"
    return f"rank {rank}"


def tracks(recording: Recording) -> Iterator[Drawn]:
    """Everything that a viewer shows beside the rows: of a recording of any length, a part file at
    a time.
    """
    yield from _counters(recording)
    steps = select_profiled_steps(recording.frame("steps"))
    work = device_work(recording)
    number = steps["step"].to_numpy(np.int64)
    start = steps["start_ns"].to_numpy(np.int64)
    window = steps["duration_ns"].to_numpy(np.int64)
    step_ends = start + window
    _, gaps = exclusive_and_gaps(work, number, start, window)
    first = 0
    last_ns = start.copy()  # end of the work of each step so far
    for piece in work(["step", "start_ns", "duration_ns", *_PLACE]):
        inside, position = of_steps(piece, number)
        rows = inside.to_pandas()
        end = first + len(position)
        rows["gap_ns"] = gaps[first:end]
        first = end
        start_ns = rows["start_ns"].to_numpy(np.int64)
        rows["end_ns"] = rows["start_ns"] + rows["duration_ns"]
        np.maximum.at(last_ns, position, rows["end_ns"].to_numpy(np.int64))
        yield from _layers(rows)
        # A gap ends with the step at the latest.
        rows["gap_end_ns"] = np.minimum(start_ns, step_ends[position])
        for row in rows[rows["gap_ns"] > 0].itertuples():
            key = Key.of(row.layer, row.phase, IDLE)
            gap_start_ns = row.gap_end_ns - row.gap_ns
            yield Drawn(IDLE, _NO_KERNEL, key.label, gap_start_ns, row.gap_ns)
    label = f"{IDLE} at the end of the step"
    for until, step_end in zip(last_ns.tolist(), step_ends.tolist(), strict=True):
        if step_end > until:
            yield Drawn(IDLE, _NO_KERNEL, label, until, step_end - until)


def _layers(rows: pd.DataFrame) -> Iterator[Drawn]:
    """Slices of kernels that follow each other on a stream: of a layer and phase, and inside it of
    an operator.
    """
    for (device, stream), of_stream in rows.groupby(["device", "stream"], dropna=False, sort=False):
        if pd.isna(stream):
            stream = 0
        process, track = f"layers of device {device}", f"stream {stream}"
        if pd.isna(device):
            process, track = "layers", f"thread {stream}"
        ordered = of_stream.sort_values("start_ns", kind="stable")
        for keys in (["step", "layer", "phase"], ["step", "layer", "phase", "op"]):
            for row in _slices(ordered, keys).itertuples():
                label = row.op
                if keys[-1] == "phase":
                    key = Key.of(row.layer, row.phase, KERNELS)
                    label = key.label
                if not pd.isna(label):
                    length_ns = row.until_ns - row.start_ns
                    yield Drawn(process, track, str(label), row.start_ns, length_ns)


def _slices(ordered: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The first row of each run of equal keys, with the last end in it; none without a name."""
    first = _changes(ordered, keys)
    ends = ordered["end_ns"].to_numpy(np.int64)
    until = ends[:0]
    if len(first):
        until = np.maximum.reduceat(ends, first)
    heads = ordered.iloc[first].assign(until_ns=until)
    named = heads[keys[-1]].notna() | heads["layer"].notna()
    return heads[named]


def _changes(rows: pd.DataFrame, keys: list[str]) -> Ints:
    """Positions of the rows at which a key differs from the row before."""
    groups = rows.groupby(keys, dropna=False, sort=False)
    code = groups.ngroup().to_numpy(np.int64)
    return np.flatnonzero(np.diff(code, prepend=-1))


def _counters(recording: Recording) -> Iterator[Drawn]:
    clocks = recording.frame("clocks", ["start_ns", "device", *_COUNTERS])
    for column, (title, divisor) in _COUNTERS.items():
        known = clocks[clocks[column].notna()]
        for device, rows in known.groupby("device", dropna=False):
            name = title if pd.isna(device) else f"{title}, device {device}"
            yield from _counter(name, rows["start_ns"], rows[column] / divisor)
    steps = recording.frame("steps", ["start_ns", "peak_memory_bytes"]).dropna()
    memory_mb = steps["peak_memory_bytes"] / 1e6
    yield from _counter("peak memory, MB", steps["start_ns"], memory_mb)


def _counter(name: str, start_ns: pd.Series, values: pd.Series) -> Iterator[Drawn]:
    for at, value in zip(start_ns.tolist(), values.tolist(), strict=True):
        yield Drawn("counters", name, name, int(at), None, float(value))
