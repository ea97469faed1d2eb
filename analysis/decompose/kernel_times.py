"""Exclusive time of every kernel of the profiled steps, memcpy and memset among them, and the idle time beside it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...profiling.recording.store import Recording
from .exclusive import exclusive_ns
from .terms import IDLE

_PART_COLUMNS = (
    *("layer", "phase", "op", "name", "source", "flops", "bytes_compulsory"),
    *("dram_bytes", "l2_bytes", "l1_bytes", "flops_executed"),
    *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread", "shared_memory_bytes"),
)
# What the analysis reads of the `kernels` table; the rest need not be loaded.
WORK_COLUMNS = (*_PART_COLUMNS, "start_ns", "duration_ns", "step", "process", "device", "stream")


def device_work(recording: Recording) -> pd.DataFrame:
    """The kernels, and the copies and sets of the device as kernels of those names: while one runs, nothing is idle.

    Args:
        recording: whose they are.

    Returns:
        Rows of `kernels` with `WORK_COLUMNS`.
    """
    kernels, memory = recording.frame("kernels", WORK_COLUMNS), recording.frame("memory")
    moved = memory[memory["kind"].isin(["copy", "set"]) & memory["duration_ns"].notna()]
    if moved.empty:
        return kernels
    name = (moved["kind"] + " " + moved["copy_kind"].fillna("")).str.strip()
    rows = moved.assign(name=name).reindex(columns=kernels.columns).astype(kernels.dtypes)
    return pd.concat([kernels, rows], ignore_index=True) if len(kernels) else rows


def step_parts(kernels: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Every kernel of the profiled steps with its exclusive time, and one idle row per step.

    Args:
        kernels: the `kernels` table; rows outside profiled steps or without time are passed over.
        steps: the `steps` table.

    Returns:
        Columns batch, step, exclusive_ms and, as in the schema, name, layer, phase, op, source, work and launch
        geometry. Per step, exclusive_ms sums to the step's wall time.
    """
    profiled = steps[steps["profiled"].astype(bool)]
    timed = np.flatnonzero((kernels["duration_ns"].notna() & kernels["step"].notna()).to_numpy(bool))
    of_step = kernels["step"].iloc[timed].to_numpy(np.int64)
    order = np.argsort(of_step, kind="stable")
    timed, of_step = timed[order], of_step[order]
    start = kernels["start_ns"].iloc[timed].to_numpy(np.int64)
    duration = kernels["duration_ns"].iloc[timed].to_numpy(np.int64)
    wanted = profiled["step"].to_numpy(np.int64)
    first, last = np.searchsorted(of_step, wanted, "left"), np.searchsorted(of_step, wanted, "right")
    rows, exclusive, idle = [], [], []
    windows = zip(first, last, profiled["start_ns"], profiled["duration_ns"], strict=True)
    for low, high, window_start, window in windows:
        shares, rest = exclusive_ns(start[low:high], duration[low:high], int(window_start), int(window))
        rows.append(timed[low:high])
        exclusive.append(shares)
        idle.append(rest)
    counts, batch = last - first, profiled["batch"].reset_index(drop=True)
    columns = [column for column in _PART_COLUMNS if column in kernels.columns]
    parts = kernels[columns].iloc[np.concatenate(rows)] if rows else kernels[columns].iloc[:0]
    parts = parts.assign(
        exclusive_ms=np.concatenate(exclusive) / 1e6 if rows else np.zeros(0),
        step=np.repeat(wanted, counts),
        batch=batch.repeat(counts).array,
    )
    rest_rows = pd.DataFrame({"name": IDLE, "exclusive_ms": np.array(idle) / 1e6, "step": wanted, "batch": batch})
    return pd.concat([parts, rest_rows], ignore_index=True) if rows else parts.reset_index(drop=True)
