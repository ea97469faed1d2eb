"""NVTX ranges of any command and all its processes, through the collector that NVTX loads into each of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import CurvescopeError
from ..host import describe_host, describe_versions
from ..native import library_path
from ..store import RecordingWriter
from .nvtx_chunks import EVENT, MARK, POP, POP_UNMATCHED, PUSH, ProcessEvents, read_chunks

FOLDER_VARIABLE = "CURVESCOPE_CHUNK_FOLDER"
_LOST_SENTENCES = {
    "nvtx_dropped": "Ranges and marks came faster than they could be written; each was dropped whole.",
    "nvtx_unnamed": "Events whose name had no room (a million names or 64 MiB).",
    "nvtx_unwritten": "Events that the disk did not take, or that no memory was left for.",
    "nvtx_unclosed": "Ranges whose end was not recorded: the process was killed, or left them open.",
    "nvtx_unopened": "Ends of ranges whose begin was not recorded, as of those open when the process was forked.",
    "nvtx_torn_bytes": "Bytes of chunks cut off in the middle, as a kill inside a write leaves them.",
}


def record_command(command: Sequence[str], path: Path) -> int:
    """Run the command with the collector in it and record its ranges; what is whole is kept on Ctrl-C.

    Args:
        command: program and arguments.
        path: folder of the recording to create.

    Returns:
        The command's exit code; 128 + the signal where one ended it, as shells report it.

    Raises:
        CurvescopeError: the program cannot be run, or the recording not be made.
    """
    if shutil.which(command[0]) is None:
        raise CurvescopeError(f"{command[0]} is not a program that can be run; check its spelling and PATH.")
    library = library_path()
    meta = {
        "argv": list(command),
        "recorder": "nvtx",
        "host": describe_host(),
        "versions": describe_versions(),
        "protocol": None,
    }
    with RecordingWriter(path, meta) as writer, tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        environment = {**os.environ, "NVTX_INJECTION64_PATH": str(library), FOLDER_VARIABLE: folder}
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
            merge_chunks(Path(folder), writer)
            raise
        merge_chunks(Path(folder), writer)
    return code if code >= 0 else 128 - code


def merge_chunks(folder: Path, writer: RecordingWriter) -> None:
    """Write the ranges of every process that left chunks in `folder`, and count what was lost."""
    for path in sorted(folder.glob("*.chunks")):
        events = read_chunks(path)
        lost = dict(zip(("nvtx_dropped", "nvtx_unnamed", "nvtx_unwritten"), events.lost, strict=True))
        lost["nvtx_torn_bytes"] = events.torn_bytes
        lost["nvtx_unclosed"] = lost["nvtx_unopened"] = 0
        for thread, of_thread in events.threads.items():
            table, unclosed, unopened = to_ranges(events, thread, of_thread)
            writer.write("ranges", table)
            lost["nvtx_unclosed"] += unclosed
            lost["nvtx_unopened"] += unopened
        for name, count in lost.items():
            writer.count_lost(name, count, _LOST_SENTENCES[name])


def to_ranges(process: ProcessEvents, thread: int, events: npt.NDArray[np.void]) -> tuple[pa.Table, int, int]:
    """One thread's events as rows of `ranges`, with the numbers of pushes without pop and pops without push."""
    begins, ends = match_push_pop(events)
    marks = np.flatnonzero(events["kind"] == MARK)
    rows = np.concatenate([begins, marks])
    stops = np.concatenate([ends, marks])
    order = np.argsort(rows)
    rows, stops = rows[order], stops[order]
    first, last = events[rows], events[stops]
    names = pa.array(process.names, pa.string())
    domain = first["domain"].astype(np.int64)
    table = pa.table(
        {
            "name": names.take(pa.array(first["name"].astype(np.int64))),
            "start_ns": first["time_ns"],
            "duration_ns": last["time_ns"] - first["time_ns"],
            "process": np.full(len(rows), process.process),
            "thread": np.full(len(rows), thread),
            "domain": names.take(pa.array(domain, mask=domain == 0)),
            "kind": pa.array(["push_pop", "mark"]).take(pa.array((first["kind"] == MARK).astype(np.int8))),
            "color_argb": pa.array(first["color_argb"].astype(np.int64), mask=first["has_color"] == 0),
            "source": pa.repeat("nvtx", len(rows)),
        }
    )
    unclosed = int(np.count_nonzero(events["kind"] == PUSH)) - len(begins)
    return table, unclosed, int(np.count_nonzero(events["kind"] == POP_UNMATCHED))


def match_push_pop(events: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Indices of each push and of its pop, in a thread's events (dtype `EVENT`); NVTX keeps one stack per domain.

    At one depth of one stack pushes and pops alternate, so that after a stable sort by both each pop follows its push.
    """
    assert events.dtype == EVENT
    at = np.flatnonzero((events["kind"] == PUSH) | (events["kind"] == POP))
    at = at[np.argsort(events["domain"][at], kind="stable")]
    domain = events["domain"][at].astype(np.int64)
    is_push = events["kind"][at] == PUSH
    depth = np.cumsum(np.where(is_push, 1, -1))
    # The running sum goes on from the domain before it, whose open ranges lift this one by a constant: harmless.
    depth = np.where(is_push, depth, depth + 1)
    order = np.lexsort((np.arange(len(at)), depth, domain))
    at, domain, depth, is_push = at[order], domain[order], depth[order], is_push[order]
    pair = is_push[:-1] & ~is_push[1:] & (domain[:-1] == domain[1:]) & (depth[:-1] == depth[1:])
    where = np.flatnonzero(pair)
    return at[where], at[where + 1]
