"""Reads the files of `startup/step_notes.py` as ranges that mark steps."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from ..attribution.range_names import ANNOTATION, STEP_RANGE
from ..recording.inside import is_own_file
from .chunks import ProcessId, ThreadId


class _About(msgspec.Struct):
    """The first line of a file."""

    version: Literal[1]
    process: ProcessId
    thread: ThreadId
    source: str | None = None
    mark: str | None = None


class NotedSteps(NamedTuple):
    """The steps of a process: from one mark to the next."""

    process: int
    marked_by: str  # e.g. `calls of a function of JAX or TensorFlow (update)`
    ranges: pa.Table  # input of `assemble`


def read_noted_steps(folder: Path) -> tuple[list[NotedSteps], int]:
    """The steps of each process that noted some, and how many files could not be read."""
    notes = []
    unreadable = 0
    for path in sorted(folder.glob("*.marks")):
        try:
            notes.append(_read(path))
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError):
            unreadable += 1
    return [steps for steps in notes if steps.ranges.num_rows], unreadable


def _read(path: Path) -> NotedSteps:
    about, *lines = path.read_text().splitlines(keepends=True) if is_own_file(path) else []
    facts = msgspec.json.decode(about, type=_About)
    # a line without an end was cut off by a kill or a full disk
    moments = [int(line) for line in lines if line.endswith("\n")]
    process = facts.process
    thread = facts.thread
    where = {"process": process, "thread": thread, "thread_key": (process << 32) + thread}
    kind = {"kind": "start_end", "role": ANNOTATION, "source": "python"}
    rows = [
        {"name": f"{STEP_RANGE}:{n}", "start_ns": start, "end_ns": end, **where, **kind}
        for n, (start, end) in enumerate(pairwise(moments))
        if end > start
    ]
    marked_by = f"{facts.source} ({facts.mark})" if facts.mark else str(facts.source)
    return NotedSteps(process, marked_by, _table(rows))


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    texts = ("name", "kind", "role", "source")
    numbers = ("start_ns", "end_ns", "process", "thread", "thread_key")
    fields = [*((name, pa.string()) for name in texts), *((name, pa.int64()) for name in numbers)]
    return pa.Table.from_pylist(rows, pa.schema(fields))
