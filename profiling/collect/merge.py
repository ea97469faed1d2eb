"""Merges the chunk files and windows of all processes of a command into one recording."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...base.errors import BackendMissingError, CurvescopeError
from ..attribution.assemble import assemble
from ..attribution.profile import Options, Profile
from ..attribution.range_names import RangeNames
from ..attribution.sampled_stacks import function_rows, own_times
from ..attribution.steps import MARKS
from ..attribution.timeline import Timeline
from ..hardware.ceilings import entry_for
from ..hardware.cuda_driver import CudaDriver
from ..hardware.host import cpu_name
from ..recording.inside import is_own_file
from ..recording.lost import LOSSES
from ..recording.store import RecordingWriter
from .chunks import ProcessChunks, check_rows, read_chunks
from .cupti import ProcessColumns, Texts
from .noted_steps import NotedSteps, read_noted_steps
from .nvtx import RangeCounts, empty_ranges, to_ranges
from .sampled_functions import read_samples
from .shared_memory import STILL_RUNS, ProcessEnd, drain_processes
from .torch_events import TorchProcess, read_processes

_OF_ANOTHER = "data that a collector of another version counted as lost"
PROBE = "curvescope.probe"  # a domain: if its name arrives, NVTX is attached


def merge_chunks(
    folder: Path,
    writer: RecordingWriter,
    options: Options | None = None,
    probed_process: int | None = None,
    *,
    ends: Sequence[ProcessEnd] | None = None,
) -> None:
    """Join the work of all processes to their ranges, write it, and count lost data; the files stay
    there.

    Args:
        folder: folder of chunk files and windows.
        writer: writer of the recording.
        options: how names of ranges are read.
        probed_process: process that named the domain `PROBE`, to test whether NVTX reaches the
            collector.
        ends: how the processes ended, which were drained; by default they are drained here, also
            those that still run: what they write from then on is not in the recording.

    Raises:
        CurvescopeError: a table cannot be written.
    """
    options = options or Options()
    ends = drain_processes(folder) if ends is None else ends
    processes, unreadable = _read_all(folder)
    on_gpu = {process.process for process in processes if process.table("kernels").rows}
    read = read_processes(folder)
    # If kernels run on a GPU, the host's operators only launch them.
    torch = [
        process
        for process in read.processes
        if process.process not in on_gpu or not process.kernels
    ]
    noted, unreadable_notes = read_noted_steps(folder)
    samples, unreadable_samples = read_samples(folder)
    worked = on_gpu | {process.process for process in torch if process.kernels}
    alone = _own_times_but(worked, samples)
    noted = [_choose_sampled(steps, alone) for steps in noted]
    names = [process.names for process in torch]
    names += [table["name"].unique().to_pylist() for table in alone]
    texts = Texts(processes, chain.from_iterable(names))
    columns = [ProcessColumns(process, texts) for process in processes]
    counts = RangeCounts()
    ranges, used = _all_ranges(
        [table for process in processes for table in to_ranges(process, counts)],
        torch,
        noted,
        options.names,
    )
    # Before the tables, so that they are known if there is no room for those.
    _count_lost(processes, ends, writer)
    if probed_process is None:  # of a block only what happens before its end is wanted
        outlived = sum(end.ended == STILL_RUNS for end in ends)
        writer.count_lost("processes_outlived", outlived)
    writer.count_lost("nvtx_unclosed", counts.unclosed)
    writer.count_lost("nvtx_unopened", counts.unopened)
    writer.count_lost("chunk_files_unreadable", unreadable)
    writer.count_lost("torch_windows_unreadable", read.unreadable)
    writer.count_lost("step_notes_unreadable", unreadable_notes)
    writer.count_lost("samples_unreadable", unreadable_samples)
    for table in samples:
        writer.write("functions", function_rows(table))
    built = assemble(_profile(ranges, columns, torch, alone, texts), writer, options)
    for process in columns:
        for table in process.allocations():
            writer.write("memory", table)
        for table in process.clocks():
            writer.write("clocks", table)
    facts = {
        "collectors": _collectors(processes, columns, torch, ends, probed_process),
        **_devices(columns, torch, processes if probed_process is not None else []),
        **_count_early_kernels(built),
    }
    writer.check(**facts)
    writer.update(**facts)
    if used and built.steps_from == MARKS:
        writer.update(steps_from="; ".join(sorted({steps.marked_by for steps in used})))
    if on_gpu and not any(process.table("calls").rows for process in processes):
        writer.update(
            missing={"api_calls": "no CUDA call was recorded: kernels cannot be joined to ranges"}
        )
    if alone and not worked:
        writer.update(missing={"device": "no work of a device: times are of sampled functions"})


def _own_times_but(worked: Collection[int], samples: Sequence[pa.Table]) -> list[pa.Table]:
    """The own times of sampled functions of each process, but of those whose work is known."""
    tables = []
    for table in samples:
        if table["process"][0].as_py() not in worked:
            tables.append(own_times(table))
    return tables


def _choose_sampled(steps: NotedSteps, alone: Sequence[pa.Table]) -> NotedSteps:
    """The steps in which functions were sampled, where nothing else is known of their process."""
    ranges = steps.ranges
    for table in alone:
        if table["process"][0].as_py() == steps.process:
            begun = pc.greater_equal(ranges["start_ns"], pc.min(table["start_ns"]))
            ended = pc.less_equal(ranges["end_ns"], pc.max(table["end_ns"]))
            ranges = ranges.filter(pc.and_(begun, ended))
    return steps._replace(ranges=ranges)


def _read_all(folder: Path) -> tuple[list[ProcessChunks], int]:
    """The chunk files of a folder, and how many could not be read."""
    processes = []
    unreadable = 0
    for path in sorted(folder.glob("*.chunks")):
        if not is_own_file(path):  # e.g. a pipe that a program put there
            unreadable += 1
            continue
        try:
            processes.append(read_chunks(path))
        except (OSError, ValueError):
            unreadable += 1
    try:
        check_rows(processes)
    except CurvescopeError as error:
        raise CurvescopeError(f"{folder}: {error}") from error
    return processes, unreadable


def _profile(
    ranges: pa.Table,
    columns: Sequence[ProcessColumns],
    torch: Sequence[TorchProcess],
    alone: Sequence[pa.Table],
    texts: Texts,
) -> Profile:
    def encode_names(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        return (table.set_column(0, "name", texts.encode(table["name"])) for table in tables)

    def launches() -> Iterator[pa.Table]:
        for of_process in columns:
            yield from of_process.launches()
        for torch_process in torch:
            yield from encode_names(torch_process.launches)

    def kernels(needed: Sequence[str] | None) -> Iterator[pa.Table]:
        for of_process in columns:
            yield from of_process.kernels(needed)
        for torch_process in torch:
            yield from encode_names(torch_process.kernels)
        yield from encode_names(alone)

    def memory(needed: Sequence[str] | None) -> Iterator[pa.Table]:
        for of_process in columns:
            yield from of_process.memory(needed)
        for torch_process in torch:
            yield from (table.drop_columns(["name"]) for table in torch_process.memory)

    tables = [table for process in torch for table in (*process.launches, *process.kernels)]
    tables += [table for process in torch for table in process.memory]
    tables += alone
    count = sum(process.count for process in columns) + sum(table.num_rows for table in tables)
    return Profile("cupti", ranges, launches, kernels, memory, count)


def _all_ranges(
    nvtx: Sequence[pa.Table],
    torch: Sequence[TorchProcess],
    noted: Sequence[NotedSteps],
    names: RangeNames,
) -> tuple[pa.Table, list[NotedSteps]]:
    """All ranges, with marks of steps where the program has none, and the noted steps that all of
    these are of; empty if others mark steps too.
    """
    tables = [empty_ranges(), *nvtx, *(table for process in torch for table in process.ranges)]
    marked = {process for table in tables for process in _find_marked_processes(table, names)}
    of_torch = [process for process in torch if process.process not in marked and process.steps]
    tables += [process.steps_table() for process in of_torch]
    others = marked | {process.process for process in of_torch}
    used = [steps for steps in noted if steps.process not in others]
    tables += [steps.ranges for steps in used]
    return pa.concat_tables(tables, promote_options="default"), [] if others else used


def _find_marked_processes(table: pa.Table, names: RangeNames) -> set[int]:
    keys = [key for key in ("name", "domain", "role", "process") if key in table.column_names]
    distinct = table.group_by(keys).aggregate([]).to_pylist()
    return {
        row["process"]
        for row in distinct
        if names.read(row["name"], row.get("domain"), row.get("role")).step
    }


def _collectors(
    processes: Sequence[ProcessChunks],
    columns: Sequence[ProcessColumns],
    torch: Sequence[TorchProcess],
    ends: Sequence[ProcessEnd],
    probed_process: int | None,
) -> list[dict[str, Any]]:
    by_process = {process.process: process.facts() for process in torch}
    ended = {(end.process, end.started_ns): {"ended": end.ended} for end in ends}
    collectors = []
    for process, of_process in zip(processes, columns, strict=True):
        collector = {
            **of_process.facts(),
            **_thread_names(process),
            **by_process.pop(process.process, {}),
        }
        collector |= ended.get((process.process, process.started_ns), {})
        if process.process == probed_process and PROBE not in process.names:
            collector["nvtx_status"] = (
                "NVTX was used before the first recording of this process and cannot be recorded "
                "any more: its ranges are missing. Record earlier, or run the program under "
                "`curvescope record`."
            )
        collectors.append(collector)
    return [*collectors, *({"process": process, **facts} for process, facts in by_process.items())]


def _devices(
    columns: Sequence[ProcessColumns], torch: Sequence[TorchProcess], here: Sequence[ProcessChunks]
) -> dict[str, Any]:
    """The devices; those that this process used are read from the driver where CUPTI did not
    describe them.

    CUPTI does so when CUDA is initialised, which a block of this process may begin after.
    """
    devices: list[dict[str, Any]] = []
    for process in columns:
        devices += [device for device in process.devices() if device not in devices]
    if not devices:
        tables = (process.table("kernels") for process in here)
        used = sorted(
            {device for table in tables if table.rows for device in table["device"].tolist()}
        )
        with suppress(BackendMissingError):
            devices = [CudaDriver().describe(index) for index in used]
    if devices:
        return {"device": devices[0], "devices": devices, "ceilings": entry_for(devices[0])}
    threads = [process.cpu_threads for process in torch if process.kernels and not process.launches]
    if not threads:
        return {}
    device = {"kind": "cpu", "name": cpu_name(), "threads": threads[0]}
    return {"device": device, "ceilings": entry_for(device)}


def _count_early_kernels(built: Timeline) -> dict[str, Any]:
    count, most_ns = built.before_launch
    # No kernel begins before its launch: this is a lower bound of the error of CUPTI's own
    # conversion.
    return {"kernels_before_launch": count, "kernel_before_launch_ns": most_ns} if count else {}


def _count_lost(
    processes: Sequence[ProcessChunks], ends: Sequence[ProcessEnd], writer: RecordingWriter
) -> None:
    """Count the data that the processes reported as lost, or recorded but did not write before they
    ended.
    """
    for chunks in processes:
        writer.count_lost("nvtx_unnamed", chunks.lost[1])
        writer.count_lost("torn_bytes", chunks.torn_bytes)
        for what, count in chunks.rows("lost"):
            name = chunks.names[what]
            writer.count_lost(name, max(count, 0), None if name in LOSSES else _OF_ANOTHER)
    # Sums by process id: a process that calls exec has files of several programs.
    for process in {chunks.process for chunks in processes} | {end.process for end in ends}:
        programs = [chunks for chunks in processes if chunks.process == process]
        counts = [end for end in ends if end.process == process]
        # The shared counts of a killed process are newer than its last chunk.
        dropped = max(
            sum(chunks.lost[0] for chunks in programs), sum(end.dropped for end in counts)
        )
        unwritten = max(
            sum(chunks.lost[2] for chunks in programs), sum(end.unwritten for end in counts)
        )
        written = sum(chunks.begun for chunks in programs)
        writer.count_lost("nvtx_dropped", dropped)
        writer.count_lost("nvtx_unwritten", unwritten)
        writer.count_lost(
            "nvtx_unsaved", max(0, sum(end.begun for end in counts) - written - unwritten)
        )
        writer.count_lost("cupti_unsaved", sum(end.gpu_buffers for end in counts))
        writer.count_lost("cupti_unwritten", sum(end.unsaid for end in counts))


def _thread_names(process: ProcessChunks) -> dict[str, Any]:
    numbers = process.numbers
    threads = {
        str(number): process.names[name]
        for what, _, number, name in numbers
        if process.names[what] == "thread"
    }
    return {"threads": threads} if threads else {}
