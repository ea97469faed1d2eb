"""What `startup/torch_windows.py` wrote of a command's processes, as the columns that `attribution.assemble` joins.

An operator's own time is a kernel that the host ran itself. Operators place kernels as ranges do: they carry autograd's
numbers, so that a backward node finds the layer of its forward operator, whether a module or an NVTX range named it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..attribution.library_calls import own_time
from ..attribution.nesting import nest
from ..attribution.range_names import (
    ANNOTATION,
    COLLECTIVES,
    LAYER_RANGE,
    MODULE_CALL,
    NODE_PREFIX,
    OPERATOR,
    OPTIMIZER,
    STEP_RANGE,
    scrub,
)
from ..errors import CurvescopeError

_VERSION = 1
_USER_SCOPE = 7  # c10's RecordScope
_PLACE = [("process", pa.int64()), ("thread", pa.int64()), ("thread_key", pa.int64())]
_TIMES = [("name", pa.string()), ("start_ns", pa.int64()), ("end_ns", pa.int64())]
_ARGUMENTS = ("shapes", "concrete", "dtypes")
_RANGES = pa.schema(
    [
        *_TIMES,
        *_PLACE,
        ("kind", pa.string()),
        ("role", pa.string()),
        ("shown", pa.bool_()),
        ("source", pa.string()),
        ("sequence", pa.int64()),
        ("forward_thread", pa.int64()),
        *((name, pa.string()) for name in _ARGUMENTS),
    ]
)
_KERNELS = pa.schema([*_TIMES, *_PLACE, ("stream", pa.int64()), ("source", pa.string())])


@dataclass
class TorchProcess:
    """What torch ran on the CPU of one process.

    Attributes:
        process: its id.
        cpu_threads: what torch computes with.
        thread: whose marks its steps are: the first that had a step, for they follow each other whoever has them.
        status: why nothing more was recorded; null where all was.
        windows: how many there are.
        ranges: ranges as `attribution.assemble` takes them, the program's own and those that only place work.
        steps: its steps, as marks; not among `ranges`.
        kernels: what ran, window by window.
    """

    process: int
    cpu_threads: int | None = None
    thread: int = 0
    status: str | None = None
    windows: int = 0
    ranges: list[pa.Table] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[pa.Table] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of its kernels, each once."""
        return list({name for table in self.kernels for name in table["name"].unique().to_pylist()})

    def steps_table(self) -> pa.Table:
        """The steps as ranges."""
        return pa.Table.from_pylist(self.steps, _RANGES)

    def facts(self) -> dict[str, Any]:
        """What `recording.json` says of it."""
        return {"torch_status": self.status or "recorded", "torch_windows": self.windows}


def read_processes(folder: Path) -> list[TorchProcess]:
    """Every process that left windows in the folder; the files are read one by one."""
    found: dict[int, TorchProcess] = {}
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_bytes())
        if document.get("version") != _VERSION:
            raise CurvescopeError(f"{path} is of version {document.get('version')}, not {_VERSION}.")
        process = found.setdefault(document["process"], TorchProcess(document["process"]))
        if "status" in document:
            process.status = document["status"]
        else:
            _add_window(document, process)
    return list(found.values())


def _add_window(window: dict[str, Any], process: TorchProcess) -> None:
    process.windows += 1
    process.cpu_threads = window["cpu_threads"]
    process.thread = process.thread or window["thread"]
    ranges = _ranges(window, process.process)
    process.ranges.append(ranges)
    process.kernels.append(_kernels(ranges))
    own = (
        end
        for end, thread in zip(ranges["end_ns"].to_pylist(), ranges["thread"].to_pylist(), strict=True)
        if thread == window["thread"]
    )
    last_ns = max(own, default=window["window_ns"][0])
    for start, end, batch in _steps(window["boundaries"], window["window_ns"][0], last_ns):
        name = f"{STEP_RANGE}:{len(process.steps)}" + ("" if batch is None else f", batch_size={batch}")
        mark = {"name": name, "start_ns": start, "end_ns": end, "process": process.process, "role": ANNOTATION}
        place = {"thread": process.thread, "thread_key": (process.process << 32) + process.thread}
        process.steps.append({**mark, **place, "kind": "start_end", "shown": True, "source": "torch"})


def _steps(boundaries: Sequence[Any], first_ns: int, last_ns: int) -> Iterator[tuple[int, int, int | None]]:
    """Start, end and samples of a window's steps: up to the optimizer's end each, or from call to call between them."""
    if any(kind == "optimizer" for _, kind, _ in boundaries):
        start, samples = first_ns, []
        called: tuple[int, int | None] | None = None  # a call between two steps, as of an evaluation
        for moment, kind, batch in boundaries:
            if called is not None and kind != "optimizer":
                yield called[0], moment, called[1]
                start, called = moment, None
            if kind == "training":
                samples.append(batch)
            elif kind == "optimizer":
                yield start, moment, None if None in samples or not samples else sum(samples)
                start, samples, called = moment, [], None
            elif not samples:
                called = (moment, batch)
        if called is not None and last_ns > called[0]:
            yield called[0], last_ns, called[1]
        return
    following = [moment for moment, _, _ in boundaries[1:]] + [last_ns] * bool(boundaries)
    for (start, _, batch), end in zip(boundaries, following, strict=True):
        if end > start:
            yield start, end, batch


def _ranges(window: dict[str, Any], process: int) -> pa.Table:
    """Operators and ranges of a window, with what the operators were called with."""
    rows = []
    for event in window["events"]:
        name, start, duration, thread, scope, forward_thread, sequence, *arguments = event
        start -= window["clock_offset_ns"]
        role: str | None = OPERATOR
        if name.startswith(LAYER_RANGE):
            role = MODULE_CALL
        elif scope == _USER_SCOPE and name.startswith(OPTIMIZER):
            role = ANNOTATION
        elif scope == _USER_SCOPE and not name.startswith(COLLECTIVES):
            role = None
        row = {"name": name, "start_ns": start, "end_ns": start + duration, "process": process, "thread": thread}
        row |= {"thread_key": (process << 32) + thread, "kind": "push_pop", "source": "torch"}
        row |= {"role": role, "shown": role is None}
        if role == OPERATOR:
            row |= {"sequence": sequence if sequence >= 0 else None, "forward_thread": forward_thread}
            if arguments[0]:
                row |= {name: json.dumps(argument) for name, argument in zip(_ARGUMENTS, arguments, strict=True)}
        rows.append(row)
    return pa.Table.from_pylist(rows, _RANGES)


def _kernels(ranges: pa.Table) -> pa.Table:
    """What the operators did themselves."""
    thread, start, end = (ranges[name].to_numpy() for name in ("thread_key", "start_ns", "end_ns"))
    works = np.array([role == OPERATOR for role in ranges["role"].to_pylist()], np.bool_)
    start, end, span = own_time(nest(thread, start, end), works)
    rows = ranges.select(["name", "process", "thread", "thread_key", "source"]).take(pa.array(span))
    names = [scrub(name.removeprefix(NODE_PREFIX)) for name in rows["name"].to_pylist()]
    columns = {"name": names, "start_ns": start, "end_ns": end, "stream": rows["thread"]}
    columns |= {name: rows[name] for name in ("process", "thread", "thread_key", "source")}
    return pa.Table.from_pydict(columns, _KERNELS)
