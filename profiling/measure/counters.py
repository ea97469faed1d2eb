"""Counts the kernels of a recording's steps: runs a step of each batch size again, by CUPTI or
under Nsight Compute.

Kernels run one at a time, at the clocks as they are, without flushing caches. CUPTI repeats the
step, so a kernel finds in the caches what the one before it left; Nsight Compute repeats each
kernel, which finds its own data there.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ...base.errors import BackendMissingError, CurvescopeError
from ..attribution.counted_kernels import GEOMETRY, align, has_geometry, launch_keys
from ..collect.nvidia_tools import NCU_CONDITIONS, Request, find_tool, record_with
from ..hardware.cuda_driver import count_gpus
from ..recording.named_code import check_recorded_code
from ..recording.remote_store import AnyPath
from ..recording.schema import KERNELS
from ..recording.store import Recording, RecordingWriter, as_frame, open_recording
from . import counted_step
from .configuration import Configuration, configuration_of
from .machine import check_same_machine

CUPTI = "cupti"
NCU = "ncu"
TOOLS = (CUPTI, NCU)
REPLAYED = {CUPTI: "step", NCU: "kernel"}  # what each repeats until everything is counted
COUNTED = (
    "dram_bytes",
    "l2_bytes",
    "l1_bytes",
    "flops_executed",
    "sm_cycles",
    "achieved_occupancy",
    "tensor_pipe_use",
)
_LIMIT_S = 600  # for a process that counts itself: some ten steps one kernel at a time
_TENSOR_CORES = "tensor cores"  # part of the FLOPs, by `readers/metrics.toml`
_TYPES = {column.name: column.dtype for column in KERNELS.columns}


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The counts at one batch size; the entry of `counters` in `recording.json`."""

    batch: int
    kernels: int  # that the tool counted in one step
    unused: int  # those of them that join no recorded kernel of any step
    steps: int  # recorded profiled steps that the counts are joined to
    recorded: int  # kernels of all these steps
    joined: int  # those of them that have counts now
    by_geometry: bool  # whether grid and block were compared too; the recording may lack them
    tool: str = NCU


def list_counted(recording: Recording) -> list[Counted]:
    """The batch sizes of a recording that have been counted, in order."""
    return [Counted(**entry) for entry in (recording.meta.get("counters") or {}).get("batches", ())]


def find_tools(tool: str | None = None) -> list[str]:
    """The tools to try, in order: by default CUPTI, then Nsight Compute; an error if
    none is here.
    """
    if tool == CUPTI and not count_gpus():
        raise BackendMissingError(
            "CUPTI counts on a GPU, and no CUDA device is usable here (`curvescope doctor`)."
        )
    tools = [name for name in TOOLS if name != CUPTI or count_gpus()] if tool is None else [tool]
    if tools == [NCU]:
        find_tool(NCU)
    return tools


def check_countable(recording: Recording, run_its_code: bool = False) -> None:
    """Check, before anything runs, that the steps of a recording can be counted here,
    and may run.
    """
    if recording.meta.get("recording_type") == "model":
        raise CurvescopeError(
            f"{recording.path} is modelled: no kernel ran that could be counted. "
            "`curvescope diagnose`, then `curvescope counters`, measure and count on a GPU."
        )
    if (imported := recording.meta.get("imported_from")) is not None:
        raise CurvescopeError(
            f"{recording.path} was imported from {imported}, so its steps cannot run again. "
            "`curvescope record --with ncu -- COMMAND` counts the kernels of a command."
        )
    if configuration_of(recording.meta).device == "cpu":
        raise CurvescopeError(
            f"{recording.path} ran on the CPU: only kernels of a GPU have these counters."
        )
    check_recorded_code(recording.path, recording.meta, run_its_code)
    check_same_machine(recording.meta)


def count_kernels(
    path: AnyPath,
    batches: Sequence[int] | None = None,
    report: Callable[[str], object] = lambda _: None,
    tool: str | None = None,
    run_its_code: bool = False,
) -> list[Counted]:
    """Count the kernels of a recording's steps, smallest batch size first, and add the counts to
    the recording.

    By default all batch sizes that were profiled and not counted yet. `report` receives a line
    before each, why one could not be counted, and why CUPTI could not, so that Nsight Compute goes
    on. Returns the counts of now; if the first size could not be counted, that is an error.
    """
    recording = open_recording(path)
    check_countable(recording, run_its_code)
    tools = find_tools(tool)
    done: list[Counted] = []
    with RecordingWriter.extend(path) as writer:
        for batch in _choose_batches(recording, batches):
            report(f"counting one step of {batch}")
            try:
                counted = _count(recording, batch, tools, report)
            except CurvescopeError as error:
                if not done:
                    raise
                report(f"{batch} could not be counted: {error}")
                continue
            done.append(_join(recording, writer, batch, counted, tools[0]))
            entries = sorted([*list_counted(recording), *done], key=lambda entry: entry.batch)
            used = sorted({entry.tool for entry in entries})
            writer.update(
                counters={
                    "tool": ", ".join(used),
                    "replay": ", ".join(REPLAYED[entry] for entry in used),
                    **NCU_CONDITIONS,
                    "batches": [asdict(entry) for entry in entries],
                }
            )
    return done


def _choose_batches(recording: Recording, batches: Sequence[int] | None) -> list[int]:
    steps = recording.frame("steps")
    profiled = sorted(
        int(batch) for batch in steps.loc[steps["profiled"].astype(bool), "batch"].dropna().unique()
    )
    done = {entry.batch for entry in list_counted(recording)}
    if batches is None:
        wanted = [batch for batch in profiled if batch not in done]
    else:
        wanted = sorted(set(batches))
    if missing := [batch for batch in wanted if batch not in profiled]:
        listed = ", ".join(map(str, profiled)) or "none"
        raise CurvescopeError(f"Batch {missing[0]} was not profiled; the recording has {listed}.")
    if again := [batch for batch in wanted if batch in done] or (not wanted and profiled):
        raise CurvescopeError(
            f"{recording.path} has the counters of {', '.join(map(str, again))} already."
        )
    if not wanted:
        raise CurvescopeError(
            f"{recording.path} has no profiled step, so there are no kernels to join counters to."
        )
    return wanted


def _count(
    recording: Recording, batch: int, tools: list[str], report: Callable[[str], object]
) -> pd.DataFrame:
    """The kernels of one step in the order of their launches, with their counts; drops tools that
    cannot count.
    """
    configuration = configuration_of(recording.meta)
    capability = (recording.meta.get("device") or {}).get("compute_capability")
    if tools[0] == CUPTI:
        try:
            return _count_in_process(configuration, batch, capability)
        except CurvescopeError as error:
            if len(tools) == 1:
                raise
            tools.pop(0)
            report(f"CUPTI cannot count here, so Nsight Compute does: {error}")
    return _count_with_ncu(configuration, batch, capability)


def _count_in_process(
    configuration: Configuration, batch: int, capability: str | None
) -> pd.DataFrame:
    if configuration.graphed:
        raise CurvescopeError(
            "CUPTI's range profiler takes a CUDA graph for one kernel; use --with ncu."
        )
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        file = Path(folder) / "counted.json"
        command = counted_step.command(configuration, batch, capability or "", str(file))
        try:
            ended = subprocess.run(  # noqa: S603 - our own module
                command, stderr=subprocess.PIPE, text=True, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise CurvescopeError(f"its process did not end within {_LIMIT_S} s.") from error
        if ended.returncode:
            said = ended.stderr.strip().splitlines()
            raise CurvescopeError(
                said[-1] if said else f"its process ended with exit code {ended.returncode}."
            )
        counted = json.loads(file.read_text())
    columns = ["name", *GEOMETRY, *COUNTED]
    kernels = pd.DataFrame(counted["kernels"], columns=columns).convert_dtypes()
    return _without_partial_flops(kernels, counted["flops_counted"])


def _count_with_ncu(
    configuration: Configuration, batch: int, capability: str | None
) -> pd.DataFrame:
    request = Request(nvtx_range=counted_step.RANGE, capability=capability)
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        command = counted_step.command(configuration, batch)
        code, imported = record_with(NCU, command, Path(folder) / "counted", request=request)
        if code:
            raise CurvescopeError(
                f"the step ended with exit code {code} under {NCU}; see its output above."
            )
        counted = open_recording(imported.path)
        return _without_partial_flops(
            counted.frame("kernels"), counted.meta.get("flops_counted") or ()
        )


def _without_partial_flops(kernels: pd.DataFrame, parts: Sequence[str]) -> pd.DataFrame:
    """Without the FLOPs of kernels whose products of tensor cores were not counted: they are not
    their work.
    """
    if _TENSOR_CORES not in parts:
        kernels.loc[(kernels["tensor_pipe_use"] > 0).fillna(False), "flops_executed"] = pd.NA
    return kernels


def _join(
    recording: Recording, writer: RecordingWriter, batch: int, counted: pd.DataFrame, tool: str
) -> Counted:
    steps = recording.frame("steps")
    profiled = set(steps.loc[(steps["batch"] == batch) & steps["profiled"].astype(bool), "step"])
    columns = ["name", *GEOMETRY, "step", "start_ns", "correlation_id"]
    recorded = []
    sizes = []
    for number, part in enumerate(recording.parts("kernels")):
        rows = as_frame(recording.arrow("kernels", columns, [part]))
        sizes.append(len(rows))
        rows = rows.assign(part=number, row=np.arange(len(rows)))
        recorded.append(rows[rows["step"].isin(profiled)])
    rows = pd.concat(
        recorded or [pd.DataFrame(columns=[*columns, "part", "row"])], ignore_index=True
    )
    by_geometry = has_geometry(rows) and has_geometry(counted)
    counterparts = _counterparts(rows, counted, by_geometry)
    rows = rows.assign(counted=counterparts)[counterparts >= 0]
    parts = recording.parts("kernels")
    for number, of_part in rows.groupby("part"):
        values = {name: _column(name, of_part, counted, sizes[int(number)]) for name in COUNTED}
        writer.fill("kernels", parts[int(number)], values)
    writer.count_lost("kernels_without_counters", len(counterparts) - len(rows))
    return Counted(
        batch=batch,
        kernels=len(counted),
        unused=len(counted) - rows["counted"].nunique(),
        steps=len(profiled),
        recorded=len(counterparts),
        joined=len(rows),
        by_geometry=by_geometry,
        tool=tool,
    )


def _counterparts(
    rows: pd.DataFrame, counted: pd.DataFrame, by_geometry: bool
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The position in `counted` of each row's counterpart; -1 for none.

    Steps are joined one by one.
    """
    # Launches are in the order of their correlation ids; kernels of several streams start in
    # another one.
    if rows["correlation_id"].notna().all():
        order = ["step", "correlation_id", "start_ns"]
    else:
        order = ["step", "start_ns"]
    ordered = rows.sort_values(order, kind="stable")
    keys = launch_keys(counted, by_geometry)
    aligned: dict[tuple[object, ...], list[int | None]] = {}
    counterparts = np.full(len(rows), -1, np.int64)
    for _, step in ordered.groupby("step", sort=False):
        launches = tuple(launch_keys(step, by_geometry))
        if launches not in aligned:
            aligned[launches] = align(launches, keys)
        counterparts[step.index] = [
            -1 if position is None else position for position in aligned[launches]
        ]
    return counterparts


def _column(name: str, rows: pd.DataFrame, counted: pd.DataFrame, size: int) -> pa.Array:
    """Values of one column for all rows of a part; null for rows that are not joined."""
    values: list[Any] = [None] * size
    for row, value in zip(rows["row"], counted[name].iloc[rows["counted"]], strict=True):
        values[row] = None if pd.isna(value) else value
    return pa.array(values, _TYPES[name])
