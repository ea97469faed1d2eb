"""Reads the files of `startup/torch_windows.py` as columns for `attribution.assemble`.

An operator's own time is a kernel of the host. Operators attribute kernels like ranges: they carry
autograd's sequence numbers, so that a backward node finds the layer of its forward operator, named
by a module or by an NVTX range.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..attribution.cupti_names import (
    GPU_COPIES,
    LAUNCH_SHAPE,
    host_memory_of_copy,
    kind_of_copy,
)
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
from ..recording.inside import is_own_file
from .chunks import ProcessId, ThreadId
from .kineto_metadata import metadata_columns

_USER_SCOPE = 7  # c10's RecordScope
_THREAD = [("process", pa.int64()), ("thread", pa.int64()), ("thread_key", pa.int64())]
_TIMES = [("name", pa.string()), ("start_ns", pa.int64()), ("end_ns", pa.int64())]
_ARGUMENTS = ("shapes", "concrete", "dtypes", "strides")
_RANGES = pa.schema(
    [
        *_TIMES,
        *_THREAD,
        ("kind", pa.string()),
        ("role", pa.string()),
        ("category", pa.string()),  # class of a module
        ("shown", pa.bool_()),
        ("source", pa.string()),
        ("sequence", pa.int64()),
        ("forward_thread", pa.int64()),
        *((name, pa.string()) for name in _ARGUMENTS),
    ]
)
_KERNELS = pa.schema([*_TIMES, *_THREAD, ("stream", pa.int64()), ("source", pa.string())])
_CALLS = pa.schema([*_TIMES, *_THREAD, ("correlation_id", pa.int64()), ("source", pa.string())])
_NUMBERS = ("process", "device", "stream", "correlation_id")
_WORK = [*_TIMES, *((name, pa.int64()) for name in _NUMBERS), ("source", pa.string())]
_SHAPE = (*LAUNCH_SHAPE, "shared_memory_bytes", "graph_id", "group_size", "message_bytes")
_GPU_KERNELS = pa.schema(
    [*_WORK, *((name, pa.int64()) for name in _SHAPE), ("collective", pa.string())]
)
_COPIED = ("kind", "memcpy_kind", "host_memory")
_MEMORY = pa.schema([*_WORK, ("bytes", pa.int64()), *((name, pa.string()) for name in _COPIED)])


class _About(msgspec.Struct):
    """The facts of a file besides its events."""

    version: Literal[2]
    process: ProcessId
    status: str | None = None
    thread: ThreadId | None = None
    cpu_threads: int | None = None
    clock_offset_ns: int = 0
    layer_classes: dict[str, str] = {}


@dataclass
class TorchProcess:
    """What torch ran on the CPU of one process."""

    process: int
    cpu_threads: int | None = None  # number of threads that torch computes with
    thread: int = 0  # id of the thread of all step marks: the first thread that ran a step
    status: str | None = None  # reason why recording stopped early; None if it did not
    windows: int = 0
    ranges: list[pa.Table] = field(default_factory=list)  # input of `assemble`
    steps: list[dict[str, Any]] = field(default_factory=list)  # marks of steps; not among `ranges`
    kernels: list[pa.Table] = field(default_factory=list)  # kernels of each window
    # of each window on a GPU: calls of CUDA, and memcpys and memsets
    launches: list[pa.Table] = field(default_factory=list)
    memory: list[pa.Table] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The distinct names of the kernels, and of the calls of CUDA."""
        tables = (*self.kernels, *self.launches)
        return list({name for table in tables for name in table["name"].unique().to_pylist()})

    def steps_table(self) -> pa.Table:
        """The steps as ranges."""
        return pa.Table.from_pylist(self.steps, _RANGES)

    def facts(self) -> dict[str, Any]:
        """Facts for `recording.json`."""
        return {"torch_status": self.status or "recorded", "torch_windows": self.windows}


class TorchProcesses(NamedTuple):
    """What torch ran in a folder's processes, and how many of its files could not be read."""

    processes: list[TorchProcess]
    unreadable: int


def read_processes(folder: Path) -> TorchProcesses:
    """All processes with windows or a status in the folder."""
    processes: dict[int, TorchProcess] = {}
    # a kill or a full disk stopped their writing
    unreadable = len(list(folder.glob("*.json.part")))
    for path in sorted(folder.glob("*.json")):
        try:
            document = json.loads(path.read_bytes()) if is_own_file(path) else {}
            _add(document, processes)
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ):
            # cut off, of another version, or of something else; the others are read
            unreadable += 1
    return TorchProcesses(list(processes.values()), unreadable)


def _add(document: dict[str, Any], processes: dict[int, TorchProcess]) -> None:
    about = msgspec.convert(document, _About)
    process = processes.get(about.process) or TorchProcess(about.process)
    if "status" in document:
        process.status = document["status"]
    else:
        _add_window(document, process)
    processes[process.process] = process


def _add_window(window: dict[str, Any], process: TorchProcess) -> None:
    """Add a window to its process; one that cannot be read changes nothing."""
    thread = process.thread or window["thread"]
    first_ns, last_ns = window["window_ns"]
    ranges = kernels = None
    if window["events"]:  # else kernels run on a GPU, and ranges come from NVTX
        ranges = _ranges(window, process.process)
        kernels = _kernels(ranges) if "device_work" not in window else None
        last_ns = (
            pc.max(ranges.filter(pc.field("thread") == window["thread"])["end_ns"]).as_py()
            or first_ns
        )
    steps: list[dict[str, Any]] = []
    for start, end, batch in _steps(window["boundaries"], first_ns, last_ns):
        number = len(process.steps) + len(steps)
        name = f"{STEP_RANGE}:{number}" + ("" if batch is None else f", batch_size={batch}")
        mark = {
            "name": name,
            "start_ns": start,
            "end_ns": end,
            "process": process.process,
            "role": ANNOTATION,
        }
        where = {"thread": thread, "thread_key": (process.process << 32) + thread}
        steps.append({**mark, **where, "kind": "start_end", "shown": True, "source": "torch"})
    process.cpu_threads = window["cpu_threads"]
    process.windows += 1
    process.thread = thread
    process.steps += steps
    if ranges is not None:
        process.ranges.append(ranges)
    if kernels is not None:
        process.kernels.append(kernels)
    elif "device_work" in window:
        on_gpu = _device_work(window, process.process)
        for tables, table in zip(
            (process.launches, process.kernels, process.memory), on_gpu, strict=True
        ):
            tables.append(table)


def _steps(
    boundaries: Sequence[Any], first_ns: int, last_ns: int
) -> Iterator[tuple[int, int, int | None]]:
    """Start, end and samples of the steps of a window: up to an optimizer's end, or else from call
    to call.
    """
    if any(kind == "optimizer" for _, kind, _ in boundaries):
        start = first_ns
        samples = []
        called: tuple[int, int | None] | None = None  # a call between two steps, e.g. an evaluation
        for moment, kind, batch in boundaries:
            if called is not None and kind != "optimizer":
                yield called[0], moment, called[1]
                start = moment
                called = None
            if kind == "training":
                samples.append(batch)
            elif kind == "optimizer":
                yield start, moment, None if None in samples or not samples else sum(samples)
                start = moment
                samples = []
                called = None
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
    rows = []
    classes = window.get("layer_classes", {})
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
        row = {
            "name": name,
            "start_ns": start,
            "end_ns": start + duration,
            "process": process,
            "thread": thread,
        }
        row |= {"thread_key": (process << 32) + thread, "kind": "push_pop", "source": "torch"}
        row |= {"role": role, "shown": role is None}
        if role == MODULE_CALL:
            row["category"] = classes.get(name.removeprefix(LAYER_RANGE))
        if role == OPERATOR:
            row |= {
                "sequence": sequence if sequence >= 0 else None,
                "forward_thread": forward_thread,
            }
            if arguments[0]:
                row |= {
                    name: json.dumps(argument)
                    for name, argument in zip(_ARGUMENTS, arguments, strict=True)
                }
        rows.append(row)
    return pa.Table.from_pylist(rows, _RANGES)


def _kernels(ranges: pa.Table) -> pa.Table:
    thread, start, end = (ranges[name].to_numpy() for name in ("thread_key", "start_ns", "end_ns"))
    is_operator = pc.fill_null(pc.equal(ranges["role"], OPERATOR), False).to_numpy()
    start, end, span = own_time(nest(thread, start, end), is_operator)
    rows = ranges.select(["name", "process", "thread", "thread_key", "source"]).take(pa.array(span))
    names = [scrub(name.removeprefix(NODE_PREFIX)) for name in rows["name"].to_pylist()]
    columns = {"name": names, "start_ns": start, "end_ns": end, "stream": rows["thread"]}
    columns |= {name: rows[name] for name in ("process", "thread", "thread_key", "source")}
    return pa.Table.from_pydict(columns, _KERNELS)


def _device_work(window: dict[str, Any], process: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The calls of CUDA of a window, its kernels, and its memcpys and memsets."""
    calls: list[dict[str, Any]] = []
    for name, start, duration, thread, correlation in window["api_calls"]:
        where = {"process": process, "thread": thread, "thread_key": (process << 32) + thread}
        times = _on_host_clock(window, start, duration)
        calls.append({"name": name, **times, **where, "correlation_id": correlation})
    kernels: list[dict[str, Any]] = []
    memory: list[dict[str, Any]] = []
    for name, start, duration, device, stream, correlation, about in window["device_work"]:
        place = {"process": process, "device": device, "stream": stream}
        row = {"name": scrub(name), **_on_host_clock(window, start, duration), **place}
        row |= {"correlation_id": correlation, **metadata_columns(f"{{{about}}}".encode())}
        if name.startswith(GPU_COPIES):
            row |= {"kind": name[: len("memcpy")].lower(), "memcpy_kind": kind_of_copy(name)}
            memory.append({**row, "host_memory": host_memory_of_copy(name)})
        else:
            kernels.append(row)
    tables = (calls, _CALLS), (kernels, _GPU_KERNELS), (memory, _MEMORY)
    made = (
        pa.Table.from_pylist([{**row, "source": "torch"} for row in rows], schema)
        for rows, schema in tables
    )
    launches, on_device, copies = made
    return launches, on_device, copies


def _on_host_clock(window: dict[str, Any], start_ns: int, duration_ns: int) -> dict[str, int]:
    start_ns -= window["clock_offset_ns"]
    return {"start_ns": start_ns, "end_ns": start_ns + duration_ns}
