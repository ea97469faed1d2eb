"""Records a command and all its processes, or a part of this one, through the collector in `native/`.

NVTX and the CUDA driver load the collector into each process by the environment; each process leaves one chunk file,
and the files become one recording.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..command_line import without_secrets
from ..errors import CurvescopeError
from ..host import describe_host, describe_versions
from ..native import library_path, record_start, record_stop
from ..readers import Options
from ..readers.assemble import Profile, assemble
from ..remote import AnyPath, RemotePath, as_path
from ..store import Recording, RecordingWriter, new_recording_path, open_recording
from .chunks import ProcessChunks, read_chunks
from .cupti import ProcessColumns, Texts
from .nvtx import RangeCounts, empty_ranges, to_ranges

FOLDER_VARIABLE = "CURVESCOPE_CHUNK_FOLDER"
NVTX_VARIABLE = "NVTX_INJECTION64_PATH"
CUDA_VARIABLE = "CUDA_INJECTION64_PATH"
_PROBE = "curvescope.probe"  # a domain: where its name arrives, NVTX is attached
_LOST_SENTENCES = {
    "nvtx_dropped": "Ranges and marks came faster than they could be written; each was dropped whole.",
    "nvtx_unnamed": "Events whose name had no room (a million names or 64 MiB).",
    "nvtx_unwritten": "Events that the disk did not take, or that no memory was left for.",
    "nvtx_unclosed": "Ranges whose end was not recorded: the process was killed, or left them open.",
    "nvtx_unopened": "Ends of ranges whose begin was not recorded, as of those open when the process was forked.",
    "torn_bytes": "Bytes of chunks cut off in the middle, as a kill inside a write leaves them.",
    "cupti_dropped": "GPU records that CUPTI dropped: they came faster than they could be written.",
}


def record_command(command: Sequence[str], path: AnyPath, options: Options | None = None) -> int:
    """Run the command with the collector in it and record it; what is whole is kept on Ctrl-C.

    Args:
        command: program and arguments.
        path: folder of the recording to create.
        options: batch size and meaning of range names, where the user gave them.

    Returns:
        The command's exit code; 128 + the signal where one ended it, as shells report it.

    Raises:
        CurvescopeError: the program cannot be run, or the recording not be made.
    """
    if shutil.which(command[0]) is None:
        raise CurvescopeError(f"{command[0]} is not a program that can be run; check its spelling and PATH.")
    library = str(library_path())
    meta = {**_meta(), "argv": without_secrets(command)}
    with RecordingWriter(path, meta) as writer, tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        environment = {**os.environ, NVTX_VARIABLE: library, CUDA_VARIABLE: library, FOLDER_VARIABLE: folder}
        try:
            process = subprocess.Popen(list(command), env=environment)  # noqa: S603 - the user's own command
        except OSError as error:
            raise CurvescopeError(f"{command[0]} cannot be run ({error.strerror}).") from error
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # The terminal interrupts the command too; it is given time to end by itself.
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            merge_chunks(Path(folder), writer, options)
            raise
        merge_chunks(Path(folder), writer, options)
    return code if code >= 0 else 128 - code


@contextmanager
def record(
    path: str | os.PathLike[str] | RemotePath | None = None,
    *,
    batch: int | None = None,
    range_pattern: str | None = None,
) -> Iterator[Recording]:
    """Record this process while the block runs: NVTX ranges of all its threads, and all GPU work.

    The recording can be read when the block has ended; `recording.meta["collectors"]` says what was recorded and what
    could not be. Without a GPU it holds the ranges. A library that used NVTX before the first recording of this process
    has turned its ranges off for good: then run the program under `curvescope record` instead.

    Args:
        path: folder or URL of the recording to create; dated, in `runs/`, by default.
        batch: samples per step; read from names of ranges if not given.
        range_pattern: a regular expression with groups named layer, phase, step, op or batch, for the names of ranges;
            known habits if not given.

    Raises:
        CurvescopeError: this process is being recorded already, or the recording cannot be made.
    """
    import nvtx

    options = Options(batch, range_pattern)
    options.names  # noqa: B018 - a wrong pattern is refused before anything is made
    if path is None:
        path = new_recording_path("record")
    folder = path if isinstance(path, RemotePath) else as_path(path)
    with RecordingWriter(folder, _meta()) as writer, tempfile.TemporaryDirectory(prefix="curvescope-") as chunks:
        recording = Recording(folder, {})
        before = os.environ.get(NVTX_VARIABLE)
        os.environ[NVTX_VARIABLE] = str(library_path())
        try:
            if not record_start(Path(chunks)):
                raise CurvescopeError(
                    "This process is being recorded already: end that recording first, or leave out "
                    "`curvescope record`."
                )
            nvtx.get_domain(_PROBE)
            try:
                yield recording
            finally:
                record_stop()
                merge_chunks(Path(chunks), writer, options, os.getpid())
        finally:
            if before is None:
                del os.environ[NVTX_VARIABLE]
            else:
                os.environ[NVTX_VARIABLE] = before
    recording.meta.update(open_recording(folder).meta)


def _meta() -> dict[str, Any]:
    about = {"kind": "profile", "network": None, "device": None, "batches": None, "protocol": None}
    return {**about, "recorder": "cupti", "host": describe_host(), "versions": describe_versions()}


def merge_chunks(
    folder: Path, writer: RecordingWriter, options: Options | None = None, probed_process: int | None = None
) -> None:
    """Join the work of every process that left chunks in `folder` to its ranges, write it, and count what was lost.

    Args:
        folder: where the chunk files are.
        writer: of the recording.
        options: batch size and meaning of range names, where the user gave them.
        probed_process: the process, if any, that named a domain to find out whether its NVTX reaches the collector.
    """
    processes = [read_chunks(path) for path in sorted(folder.glob("*.chunks"))]
    texts = Texts(processes)
    columns = [ProcessColumns(process, texts) for process in processes]
    counts = RangeCounts()
    ranges = [table for process in processes for table in to_ranges(process, counts)]
    profile = Profile(
        "cupti",
        pa.concat_tables([empty_ranges(), *ranges]),
        lambda needed: chain.from_iterable(one.launches(needed) for one in columns),
        lambda needed: chain.from_iterable(one.kernels(needed) for one in columns),
        lambda needed: chain.from_iterable(one.memory(needed) for one in columns),
        sum(one.count for one in columns),
    )
    if not any(process.table("calls").rows for process in processes) and profile.count:
        writer.update(missing={"launches": "no CUDA call was recorded: kernels cannot be joined to ranges"})
    built = assemble(profile, writer, options or Options())
    collectors: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    for process, one in zip(processes, columns, strict=True):
        for table in one.allocations():
            writer.write("memory", table)
        for table in one.clocks():
            writer.write("clocks", table)
        collector = {**one.facts(), **_thread_names(process)}
        if process.process == probed_process and _PROBE not in process.names:
            collector["nvtx_status"] = (
                "NVTX was used before the first recording of this process, and takes no tool after that: its ranges "
                "were not recorded. Record earlier, or run the program under `curvescope record`."
            )
        collectors.append(collector)
        devices += [device for device in one.devices() if device not in devices]
        _count_lost(process, writer)
    writer.count_lost("nvtx_unclosed", counts.unclosed, _LOST_SENTENCES["nvtx_unclosed"])
    writer.count_lost("nvtx_unopened", counts.unopened, _LOST_SENTENCES["nvtx_unopened"])
    found: dict[str, Any] = {"device": devices[0], "devices": devices} if devices else {}
    if built.before_launch[0]:
        # No kernel can begin before the call that launches it: what CUPTI's own conversion is off at least.
        found["kernels_before_launch"], found["kernel_before_launch_ns"] = built.before_launch
    writer.update(collectors=collectors, **found)


def _count_lost(process: ProcessChunks, writer: RecordingWriter) -> None:
    lost = dict(zip(("nvtx_dropped", "nvtx_unnamed", "nvtx_unwritten"), process.lost, strict=True))
    for name, count in (lost | {"torn_bytes": process.torn_bytes}).items():
        writer.count_lost(name, count, _LOST_SENTENCES[name])
    for name, count in _lost_records(process):
        sentence = _LOST_SENTENCES.get(
            name, "Records that could not be read, or that the disk did not take; where it is full, at least so many."
        )
        writer.count_lost(name, count, sentence)


def _lost_records(process: ProcessChunks) -> Iterator[tuple[str, int]]:
    for what, count in process.rows("lost"):
        yield process.names[what], count


def _thread_names(process: ProcessChunks) -> dict[str, Any]:
    rows = process.rows("numbers")
    threads = {str(number): process.names[name] for what, _, number, name in rows if process.names[what] == "thread"}
    return {"threads": threads} if threads else {}
