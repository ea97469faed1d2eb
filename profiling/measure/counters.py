"""Counts the kernels of a recording's steps: runs one step of each batch size again under Nsight Compute.

The counts are joined to the kernels of all profiled steps of the batch size (`attribution.counted_kernels`). The tool
runs kernels one at a time and several times each, at the clocks as they are and without flushing caches: a kernel finds
in the caches what it left there itself, not what the kernel before it left.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..attribution.counted_kernels import GEOMETRY, align, has_geometry, launch_keys
from ..collect.nvidia_tools import NCU_CONDITIONS, Request, find_tool, record_with
from ..errors import CurvescopeError
from ..recording.remote_store import AnyPath
from ..recording.schema import KERNELS
from ..recording.store import Recording, RecordingWriter, open_recording
from . import counted_step
from .configuration import configuration_of
from .machine import check_same_machine

TOOL = "ncu"
COUNTED = ("dram_bytes", "l2_bytes", "l1_bytes", "flops_executed", "sm_cycles", "achieved_occupancy", "tensor_pipe_use")
_TENSOR_CORES = "tensor cores"  # part of the FLOPs, by `readers/metrics.toml`
_TYPES = {column.name: column.dtype for column in KERNELS.columns}


@dataclass(frozen=True)
class Counted:
    """What was counted at one batch size; the entry of `counters` in `recording.json`.

    Attributes:
        batch: batch size.
        kernels: kernels that the tool counted in one step.
        unused: those of them that join no recorded kernel of any step.
        steps: recorded profiled steps that the counts are joined to.
        recorded: kernels of all these steps.
        joined: those of them that have counts now.
        by_geometry: whether grid and block were compared too; the recording may lack them.
    """

    batch: int
    kernels: int
    unused: int
    steps: int
    recorded: int
    joined: int
    by_geometry: bool


def counted_of(recording: Recording) -> list[Counted]:
    """The batch sizes of a recording that have been counted, in order."""
    return [Counted(**entry) for entry in (recording.meta.get("counters") or {}).get("batches", ())]


def check_countable(recording: Recording) -> None:
    """Check, before anything runs, that the steps of a recording can be counted here.

    Raises:
        CurvescopeError: the steps ran on a CPU, cannot be built again, or ran on another device; or the tool is
            missing.
    """
    if configuration_of(recording.meta).device == "cpu":
        raise CurvescopeError(f"{recording.path} ran on the CPU: only kernels of a GPU have these counters.")
    check_same_machine(recording.meta)
    find_tool(TOOL)


def count_kernels(
    path: AnyPath, batches: Sequence[int] | None = None, report: Callable[[str], object] = lambda _: None
) -> list[Counted]:
    """Count the kernels of a recording's steps, smallest batch size first, and add the counts to the recording.

    Args:
        path: folder of the recording.
        batches: batch sizes; None for all that were profiled and not counted yet.
        report: receives one line before each batch size, and why one could not be counted.

    Returns:
        What was counted now, by batch size.

    Raises:
        CurvescopeError: see `check_countable`; a batch size was not profiled or is counted already; or the first
            one could not be counted.
    """
    recording = open_recording(path)
    check_countable(recording)
    done: list[Counted] = []
    with RecordingWriter.extend(path) as writer:
        for batch in _chosen(recording, batches):
            report(f"counting one step of {batch}")
            try:
                counted = _count(recording, batch)
            except CurvescopeError as error:
                if not done:
                    raise
                report(f"{batch} could not be counted: {error}")
                continue
            done.append(_join(recording, writer, batch, counted))
            entries = [asdict(one) for one in sorted([*counted_of(recording), *done], key=lambda one: one.batch)]
            writer.update(counters={"tool": TOOL, "replay": "kernel", **NCU_CONDITIONS, "batches": entries})
    return done


def _chosen(recording: Recording, batches: Sequence[int] | None) -> list[int]:
    steps = recording.frame("steps")
    profiled = sorted(int(batch) for batch in steps.loc[steps["profiled"].astype(bool), "batch"].dropna().unique())
    done = {one.batch for one in counted_of(recording)}
    wanted = [batch for batch in profiled if batch not in done] if batches is None else sorted(set(batches))
    if missing := [batch for batch in wanted if batch not in profiled]:
        listed = ", ".join(map(str, profiled)) or "none"
        raise CurvescopeError(f"Batch {missing[0]} was not profiled; the recording has {listed}.")
    if again := [batch for batch in wanted if batch in done] or (not wanted and profiled):
        raise CurvescopeError(f"{recording.path} has the counters of {', '.join(map(str, again))} already.")
    if not wanted:
        raise CurvescopeError(f"{recording.path} has no profiled step, so there are no kernels to join counters to.")
    return wanted


def _count(recording: Recording, batch: int) -> pd.DataFrame:
    """The kernels of one step in the order of their launches, with their counts."""
    capability = (recording.meta.get("device") or {}).get("compute_capability")
    request = Request(nvtx_range=counted_step.RANGE, capability=capability)
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        command = counted_step.command(configuration_of(recording.meta), batch)
        code, imported = record_with(TOOL, command, Path(folder) / "counted", request=request)
        if code:
            raise CurvescopeError(f"the step ended with exit code {code} under {TOOL}; see its output above.")
        counted = open_recording(imported.path)
        kernels = counted.frame("kernels")
        if _TENSOR_CORES not in (counted.meta.get("flops_counted") or ()):
            # Without the products of tensor cores, the FLOPs of a kernel that uses them are not its work.
            kernels.loc[(kernels["tensor_pipe_use"] > 0).fillna(False), "flops_executed"] = pd.NA
        return kernels


def _join(recording: Recording, writer: RecordingWriter, batch: int, counted: pd.DataFrame) -> Counted:
    steps = recording.frame("steps")
    profiled = set(steps.loc[(steps["batch"] == batch) & steps["profiled"].astype(bool), "step"])
    parts, recorded = recording.parts("kernels"), []
    columns = ["name", *GEOMETRY, "step", "start_ns", "correlation_id"]
    sizes = []
    for number, piece in enumerate(recording.pieces("kernels", columns)):
        sizes.append(piece.num_rows)
        rows = piece.to_pandas(types_mapper={pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}.get)
        rows = rows.assign(part=number, row=np.arange(len(rows)))
        recorded.append(rows[rows["step"].isin(profiled)])
    rows = pd.concat(recorded or [pd.DataFrame(columns=[*columns, "part", "row"])], ignore_index=True)
    by_geometry = has_geometry(rows) and has_geometry(counted)
    found = _counterparts(rows, counted, by_geometry)
    rows = rows.assign(counted=found)[found >= 0]
    for number, of_part in rows.groupby("part"):
        values = {name: _column(name, of_part, counted, sizes[int(number)]) for name in COUNTED}
        writer.fill("kernels", parts[int(number)], values)
    writer.count_lost("kernels_without_counters", len(found) - len(rows))
    used = rows["counted"].nunique()
    return Counted(batch, len(counted), len(counted) - used, len(profiled), len(found), len(rows), by_geometry)


def _counterparts(rows: pd.DataFrame, counted: pd.DataFrame, by_geometry: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The position in `counted` of each row's counterpart; -1 for none. Steps are joined one by one."""
    # Launches are in the order of their correlation ids; kernels of several streams start in another one.
    order = ["step", "correlation_id", "start_ns"] if rows["correlation_id"].notna().all() else ["step", "start_ns"]
    ordered = rows.sort_values(order, kind="stable")
    keys = launch_keys(counted, by_geometry)
    known: dict[tuple[object, ...], list[int | None]] = {}
    found = np.full(len(rows), -1, np.int64)
    for _, step in ordered.groupby("step", sort=False):
        own = tuple(launch_keys(step, by_geometry))
        if own not in known:
            known[own] = align(own, keys)
        found[step.index] = [-1 if position is None else position for position in known[own]]
    return found


def _column(name: str, rows: pd.DataFrame, counted: pd.DataFrame, size: int) -> pa.Array:
    """Values of one column for all rows of a part; null for rows that are not joined."""
    values: list[Any] = [None] * size
    source = counted[name].tolist()
    for row, position in zip(rows["row"], rows["counted"], strict=True):
        value = source[position]
        values[row] = None if pd.isna(value) else value
    return pa.array(values, _TYPES[name])
