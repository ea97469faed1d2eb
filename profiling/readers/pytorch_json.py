"""Reads JSON of the PyTorch profiler, of all versions (`Kernel` and `kernel`, `Operator` and `cpu_op`).

Device work belongs to the operator around its runtime call, which has the same correlation id. Without a device, the
work is each operator's own time, without its children. Steps are the profiler's `ProfilerStep#` marks. Call stacks,
file names and process names are not read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...base.errors import CurvescopeError
from ..attribution.assemble import assemble
from ..attribution.collectives import collective_of_torch, message_bytes
from ..attribution.columns import factorize
from ..attribution.cupti_names import kind_of_copy
from ..attribution.library_calls import own_time
from ..attribution.memory_peak import MEMORY_EVENT, Allocations
from ..attribution.nesting import NONE, Bools, Ints, nest
from ..attribution.profile import profile_of_tables
from ..attribution.range_names import ANNOTATION, COLLECTIVES, MODULE, MODULE_CALL, NODE_PREFIX, OPERATOR, scrub
from ..recording.rank_info import META_KEY
from ..recording.store import RecordingWriter
from . import Options
from .event_columns import COMPLETE, INSTANT, JSON, NUMBER, TEXT, TIME, Column, EventColumns, Field, Memo, signed
from .graph_capture import join_capture, join_own_capture
from .graph_data import read_graph_data
from .source import Source
from .trace_events import TraceEvents

NAME = "PyTorch profiler JSON"

_STEP_MARK = "ProfilerStep#"
# Old versions write the framework's own annotations as operators.
_ANNOTATIONS = (_STEP_MARK, "Optimizer.", "enumerate(DataLoader)")

# Columns, and the fields of an event's `args` that they come from.
_HOST_ARGS = {
    "sequence": Field("Sequence number", NUMBER, True),
    "forward_thread": Field("Fwd thread id", NUMBER, True),
    "shapes": Field("Input Dims", JSON, True),
    "concrete": Field("Concrete Inputs", JSON, True),
    "dtypes": Field("Input type", JSON, True),
    "strides": Field("Input Strides", JSON, True),
}
_TRITON_ARGS = (Field("num_warps", NUMBER, True), Field("num_stages", NUMBER, True))  # of a kernel of torch.compile
_DEVICE_ARGS = {
    "device": Field("device", NUMBER, True),
    "stream": Field("stream", NUMBER, True),
    "registers_per_thread": Field("registers per thread", NUMBER, True),
    "shared_memory_bytes": Field("shared memory", NUMBER, True),
    "bytes": Field("bytes", NUMBER, True),
    "grid": Field("grid", JSON, True),
    "block": Field("block", JSON, True),
    "graph_id": Field("graph id", NUMBER, True),
    "graph_node_id": Field("graph node id", NUMBER, True),
    "group": Field("Process Group Name", JSON, True),
    "members": Field("Process Group Ranks", JSON, True),
    "collective": Field("Collective name", TEXT, True),
    "group_size": Field("Group size", NUMBER, True),
    "elements_in": Field("In msg nelems", NUMBER, True),
    "elements_out": Field("Out msg nelems", NUMBER, True),
    "dtype": Field("dtype", TEXT, True),
}
_MEMORY_ARGS = {
    "size_bytes": Field("Bytes", NUMBER, True),
    "address": Field("Addr", NUMBER, True),
    "total_bytes": Field("Total Allocated", NUMBER, True),
    "reserved_bytes": Field("Total Reserved", NUMBER, True),
    "device_type": Field("Device Type", NUMBER, True),
    "device": Field("Device Id", NUMBER, True),
}
_ALLOCATION = ("time_ns", "thread", "size_bytes", "address")
_LAUNCHED = Field("kernel", TEXT, True)  # ROCm names a launch's kernel, e.g. in the capture of a graph
_TIMED = (Field("name", TEXT), Field("ts", TIME), Field("dur", TIME))
_ON_THREAD = (Field("pid", JSON), Field("tid", JSON))
_QUEUE = Field("sycl queue", NUMBER, True)  # the stream of an Intel GPU
_CORRELATION = Field("correlation", NUMBER, True)
_MEMORY_FIELDS = (Field("name", TEXT), Field("ts", TIME), *_ON_THREAD, *_MEMORY_ARGS.values())
_HOST_FIELDS = (*_TIMED, *_ON_THREAD, *_HOST_ARGS.values(), *_TRITON_ARGS)
_CALL_FIELDS = (*_TIMED, *_ON_THREAD, _CORRELATION)
_DEVICE_FIELDS = (*_TIMED, _CORRELATION, *_DEVICE_ARGS.values())
_HOST, _ANNOTATION, _MODULE_RANGE, _CALL, _KERNEL, _COPY, _SET, _COUNTER, _KNOWN = range(1, 10)
_CATEGORIES = {
    **dict.fromkeys(("operator", "cpu_op"), _HOST),
    "user_annotation": _ANNOTATION,
    "python_function": _MODULE_RANGE,
    "runtime": _CALL,
    "kernel": _KERNEL,
    # Costs of the profiler, the trace's own span, and marks of the host on a stream.
    **dict.fromkeys(("overhead", "trace", "cuda_event"), _KNOWN),
}
# Every maker of devices has categories of its own, e.g. `cuda_driver`, `xpu_runtime`, `mlu_memcpy`, `gpu_memset`.
_CATEGORY_ENDS = {
    **dict.fromkeys(("_runtime", "_driver"), _CALL),
    "memcpy": _COPY,
    "memset": _SET,
    "_profiler_range": _COUNTER,
    **dict.fromkeys(("_sync", "_user_annotation"), _KNOWN),  # waits, and annotations again on the device
}
_NO_DEVICE_EVENTS = (
    "the trace has operators of a program on a GPU, but no event of the GPU; record with ProfilerActivity.CUDA"
)
_COLLECTIVE_KERNELS = ("nccl", "rccl")
_NO_RANK = (
    "the trace has collectives and does not tell its rank, as those on demand (dynolog); `ranks` takes the number "
    "after `rank` in the name of the file"
)
_COLLECTIVE = ("collective", "group_size", "elements_in", "elements_out", "dtype")
_PLACE = ("device", "stream", "correlation_id")
_GRAPH = ("graph_id", "graph_node_id")
_CPU = 0  # torch's number of the device type
_NO_THREAD = -(1 << 63)
_CATEGORY = attrgetter("cat")
_Table = dict[str, npt.NDArray[Any]]
_Tables = tuple[pa.Table, pa.Table, pa.Table, pa.Table]


def recognises(source: Source) -> bool:
    """Whether it is JSON with the keys of a trace."""
    keys = ('"traceEvents"', '"schemaVersion"', '"deviceProperties"')
    return source.text.startswith("{") and any(key in source.text for key in keys)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the trace; every step counts as profiled.

    Args:
        source: the JSON text.
        writer: the recording.
        options: the user's options; default batch size: that of the first convolution or product of each step.

    Raises:
        CurvescopeError: broken JSON, no trace of this profiler, or several processes in one file.
    """
    events, document = _read_events(source, options)
    on_gpu = bool(document.get("deviceProperties")) or "nccl" in str(document.get("distributedInfo", ""))
    tables = events.tables(on_gpu)
    if options.capture is not None:
        tables = _with_capture(tables, options, writer)
    else:
        ranges, launches, kernels, memory = tables
        tables = ranges, launches, join_own_capture(launches, kernels), memory
    profile = replace(profile_of_tables("torch", *tables), allocations=events.allocations())
    for name, count in events.lost.items():
        writer.count_lost(name, count)
    writer.update(device=_device(document.get("deviceProperties"), events.devices))
    missing = {"device_events": _NO_DEVICE_EVENTS} if events.lacks_device else {}
    if (rank := _rank_info(document.get("distributedInfo"))) is not None:
        writer.update(**{META_KEY: rank})
    elif any(name.startswith(_COLLECTIVE_KERNELS) for name in tables[2]["name"].unique().to_pylist()):
        missing["rank"] = _NO_RANK
    if missing:
        writer.update(missing=missing)
    assemble(profile, writer, options)


def _read_events(source: Source, options: Options, *, is_capture: bool = False) -> tuple[_Events, dict[str, Any]]:
    events = _Events(is_capture)
    columns = events.columns
    trace = TraceEvents(source, columns.event_type, options.report, columns.usual_type)
    for batch in trace:
        events.take(batch)
    events.lost.update(trace.lost)
    return events, trace.document


def _with_capture(tables: _Tables, options: Options, writer: RecordingWriter) -> _Tables:
    """The tables with kernels of graphs at the place of their capture.

    Raises:
        CurvescopeError: the capture is no trace of this profiler, or does not fit.
    """
    assert options.capture is not None
    with Source(options.capture) as source:
        if not recognises(source):
            raise CurvescopeError(f"--capture {options.capture}: no JSON of the PyTorch profiler.")
        captured_ranges, captured_launches, *_ = _read_events(source, options, is_capture=True)[0].tables(False)
    ranges, launches, kernels, memory = tables
    nodes = read_graph_data(options.graph_data) if options.graph_data is not None else None
    joined = join_capture(ranges, launches, kernels, captured_ranges, captured_launches, nodes)
    writer.update(graph_capture={"replays": joined.replays, "joined_by": joined.joined_by})
    return joined.ranges, launches, joined.kernels, memory


class _Events:
    """The columns of the events that are needed.

    Attributes:
        columns: what converts the events.
        lost: named counts.
        devices: numbers of the devices with work.
        lacks_device: whether a GPU did the work, but its events are not in the trace.
    """

    def __init__(self, is_capture: bool = False) -> None:
        """Prepare to convert.

        Args:
            is_capture: whether the trace is of the capture of graphs, so that API calls need the names of kernels.
        """
        self.lost: Counter[str] = Counter()
        self.devices: set[int] = set()
        self.lacks_device = False
        self._call_fields = (*_CALL_FIELDS, _LAUNCHED) if is_capture else _CALL_FIELDS
        complete = dict.fromkeys((*_HOST_FIELDS, *self._call_fields, *_DEVICE_FIELDS, _QUEUE))
        self.columns = EventColumns({COMPLETE: tuple(complete), INSTANT: _MEMORY_FIELDS})
        self._texts = self.columns.texts
        self._category = Memo(_kind_of_category)
        self._of_name = _PerText(self._texts, _kind_by_name)
        self._is_memory = _PerText(self._texts, lambda text: int(text == MEMORY_EVENT))
        self._thread = _PerText(self._texts, _thread_number)
        self._processes: set[int] = set()  # of operators
        self._calling: set[int] = set()  # processes of API calls; MTIA writes the device for some of them
        self._compiled: dict[int, tuple[int, ...]] = {}
        self._pieces: dict[str, list[_Table]] = {"host": [], "calls": [], "device": [], "memory": []}
        self._empty: dict[str, _Table] = {}

    def take(self, events: Sequence[Any]) -> None:
        """Convert some events, by their categories."""
        self._take_memory(self.columns.having(INSTANT, events))
        self._take_complete(self.columns.having(COMPLETE, events))

    def _take_complete(self, events: list[Any]) -> None:
        try:
            kind = np.fromiter(map(self._category.__getitem__, map(_CATEGORY, events)), np.int8, len(events))
        except TypeError:  # a category is a list or an object
            self._take_complete([event for event in events if isinstance(event.cat, str)])
            return
        self.lost["counter_ranges"] += int(np.count_nonzero(kind == _COUNTER))
        self.lost["events_of_unknown_category"] += int(np.count_nonzero(kind == 0))
        on_host = (kind == _HOST) | (kind == _ANNOTATION) | (kind == _MODULE_RANGE)
        self._take_host(_chosen(events, on_host), kind[on_host])
        self._take_calls(_chosen(events, kind == _CALL))
        on_device = (kind == _KERNEL) | (kind == _COPY) | (kind == _SET)
        self._take_device(_chosen(events, on_device), kind[on_device])

    def _take_memory(self, events: list[Any]) -> None:
        columns = self.columns.columns(events, _MEMORY_FIELDS)
        named = self._is_memory.of(columns["name"].values) == 1
        rows = np.logical_and.reduce([columns[name].valid for name in ("name", "ts", "tid", "Bytes", "Addr")]) & named
        kept = {"time_ns": columns["ts"].values, "thread": self._thread.of(columns["tid"].values)}
        self._keep("memory", rows, {**kept, **_renamed(columns, _MEMORY_ARGS)})

    def _take_host(self, events: list[Any], kind: npt.NDArray[np.int8]) -> None:
        columns = self.columns.columns(events, _HOST_FIELDS)
        by_name = np.where(columns["name"].valid, self._of_name.of(columns["name"].values), 0)
        kind = np.where(by_name == _MODULE_RANGE, _MODULE_RANGE, kind)
        kind = np.where((kind == _HOST) & (by_name == _ANNOTATION), _ANNOTATION, kind)
        ours = (kind != _MODULE_RANGE) | (by_name == _MODULE_RANGE)  # the others are Python functions
        rows, timed = self._readable(columns, ours, ("tid",), (kind == _ANNOTATION) | (kind == _MODULE_RANGE))
        self._take_compiled(columns, rows)
        self._keep("host", rows, {**timed, "kind": kind.astype(np.int8), **_renamed(columns, _HOST_ARGS)})

    def _take_compiled(self, columns: dict[str, Column], rows: Bools) -> None:
        """Keep how the kernels of torch.compile were compiled, by their names, which their operators have, too."""
        compiled = rows & np.logical_or.reduce([columns[field.name].valid for field in _TRITON_ARGS])
        values = (columns[field.name].values[compiled].tolist() for field in _TRITON_ARGS)
        names = columns["name"].values[compiled].tolist()
        self._compiled.update(zip(names, zip(*values, strict=True), strict=True))

    def _take_calls(self, events: list[Any]) -> None:
        columns = self.columns.columns(events, self._call_fields)
        rows, timed = self._readable(columns, np.ones(len(events), np.bool_), ("tid", "correlation"), True)
        self._calling.update(np.unique(columns["pid"].values[rows & columns["pid"].valid]).tolist())
        kept = {**timed, "correlation_id": columns["correlation"].values}
        if _LAUNCHED in self._call_fields:
            kept["kernel"] = columns["kernel"].values.astype(np.int32)
        self._keep("calls", rows, kept)

    def _take_device(self, events: list[Any], kind: npt.NDArray[np.int8]) -> None:
        columns = self.columns.columns(events, _DEVICE_FIELDS)
        if not (columns["device"].valid & columns["stream"].valid).all():
            columns |= self._placed_by_event(events, columns)
        required = ("correlation", "device", "stream")
        rows, timed = self._readable(columns, np.ones(len(events), np.bool_), required)
        self.devices.update(np.unique(columns["device"].values[rows]).tolist())
        kept = {**timed, "kind": kind, "correlation_id": columns["correlation"].values}
        kept |= _renamed(columns, _DEVICE_ARGS)
        for name in ("registers_per_thread", "shared_memory_bytes", "bytes"):  # a negative amount is missing
            kept[name] = np.maximum(kept[name], NONE)
        self._keep("device", rows, kept)

    def _placed_by_event(self, events: list[Any], columns: dict[str, Column]) -> dict[str, Column]:
        """Device and stream, where `args` lack them: the process and thread of the event, on Intel GPUs the queue."""
        others = self.columns.columns(events, (_QUEUE, *_ON_THREAD))
        found = {"device": columns["device"], "stream": _first_valid(columns["stream"], others[_QUEUE.name])}
        for name, field in zip(found, _ON_THREAD, strict=True):
            number = self._thread.of(others[field.name].values)
            is_number = others[field.name].valid & (number >= 0)
            found[name] = _first_valid(found[name], Column(number, is_number))
        return found

    def _readable(
        self, columns: dict[str, Column], ours: Bools, required: tuple[str, ...], annotates: Bools | bool = False
    ) -> tuple[Bools, _Table]:
        """Mask of our events with a name, a time and all required fields, and the common columns of all events.

        Our other events are counted as unreadable.

        Args:
            columns: columns of the events.
            ours: mask of the events to read.
            required: names of the required fields.
            annotates: mask of the events whose process may be another one than that of operators.
        """
        name, start, duration = columns["name"], columns["ts"].values, columns["dur"].values
        rows = (start >= 0) & (duration >= 0)
        for field in ("name", "ts", "dur", *required):
            rows &= columns[field].valid
        timed: _Table = {"name": name.values.astype(np.int32), "start_ns": start, "end_ns": start + duration}
        if "tid" in required:
            timed["thread"] = self._thread.of(columns["tid"].values)
            rows &= timed["thread"] != _NO_THREAD
            works = ours & rows & columns["pid"].valid & np.logical_not(annotates)
            self._processes.update(np.unique(columns["pid"].values[works]).tolist())
        self.lost["events_unreadable"] += int(np.count_nonzero(ours & ~rows))
        return ours & rows, timed

    def tables(self, on_gpu: bool) -> _Tables:
        """Ranges, API calls, kernels, and memcpys and memsets.

        Args:
            on_gpu: whether the trace names a GPU.

        Raises:
            CurvescopeError: there is no event of this profiler, or events of several processes.
        """
        if not any(self._pieces.values()):
            raise CurvescopeError("it has no event of the PyTorch profiler; other Chrome traces are not read.")
        if len(self._processes or self._calling) > 1:
            raise CurvescopeError("it merges several processes; import the file of each rank by itself.")
        host, calls, device = (self._joined(group) for group in ("host", "calls", "device"))
        ranges = self._host_rows(host)
        kernels = {name: column[device["kind"] == _KERNEL] for name, column in device.items()}
        memory = {name: column[device["kind"] != _KERNEL] for name, column in device.items()}
        has_device = len(device["kind"]) or len(calls["name"]) or self.lost["counter_ranges"]
        self.lacks_device = not has_device and (on_gpu or self._calls_nccl(host))
        kernel_rows = self._kernel_rows(kernels) if has_device or self.lacks_device else self._own_rows(host)
        launched = calls.pop("kernel", None)
        call_rows = self._named(calls)
        if launched is not None:
            call_rows = call_rows.append_column("kernel", self._text(launched))
        return ranges, call_rows, kernel_rows, self._memory_rows(memory)

    def allocations(self) -> Allocations | None:
        """The allocations of the device with most of them, of a GPU if there is one; None without their addresses."""
        memory = self._joined("memory")
        order = np.argsort(memory["time_ns"], kind="stable")
        memory = {name: column[order] for name, column in memory.items()}
        on_gpu = memory["device_type"] != _CPU
        rows = on_gpu if on_gpu.any() else ~on_gpu
        if not rows.any():
            return None
        devices, number = np.unique(memory["device"][rows], return_counts=True)
        rows &= memory["device"] == devices[np.argmax(number)]
        known = on_gpu[rows].all() and (memory["total_bytes"][rows] != NONE).all()
        total, reserved = (memory[name][rows] if known else None for name in ("total_bytes", "reserved_bytes"))
        time_ns, thread, size_bytes, address = (memory[name][rows] for name in _ALLOCATION)
        return Allocations(time_ns, thread, size_bytes, address, total, reserved)

    def _calls_nccl(self, host: _Table) -> bool:
        return bool((_PerText(self._texts, lambda text: int(text.startswith("nccl:"))).of(host["name"]) == 1).any())

    def _host_rows(self, host: _Table) -> pa.Table:
        """Operators and ranges."""
        kind = host["kind"]
        rows = self._named({name: host[name] for name in ("name", "start_ns", "end_ns", "thread")}, prefix="")
        roles = pa.array((kind - _HOST).astype(np.int32))
        columns = {
            "kind": pa.repeat("push_pop", len(kind)),
            "role": pa.DictionaryArray.from_arrays(roles, pa.array([OPERATOR, ANNOTATION, MODULE_CALL])),
            "shown": pa.array(kind == _ANNOTATION),
            "sequence": _nullable(host["sequence"]),
            "forward_thread": _nullable(host["forward_thread"]),
            **{name: self._text(host[name]) for name in ("shapes", "concrete", "dtypes", "strides")},
        }
        for name, column in columns.items():
            rows = rows.append_column(name, column)
        return rows

    def _text(self, code: Ints) -> pa.Array:
        """Texts by their index among those of the trace."""
        known = code != NONE
        short, distinct = np.zeros(len(code), np.int32), np.zeros(0, np.int64)
        short[known], distinct = factorize(code[known])
        texts = pa.array([self._texts[index] for index in distinct.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(short, mask=~known), texts)

    def _own_rows(self, host: _Table) -> pa.Table:
        """The own time of operators, for traces without a device."""
        announced = _PerText(self._texts, lambda text: int(text.startswith(COLLECTIVES))).of(host["name"])
        works = (host["kind"] == _HOST) | ((host["kind"] == _ANNOTATION) & (announced == 1))
        start, end, span = own_time(nest(host["thread"], host["start_ns"], host["end_ns"]), works)
        columns: _Table = {"start_ns": start, "end_ns": end}
        rows = self._named({**columns, "name": host["name"][span], "thread": host["thread"][span]})
        return rows.append_column("stream", rows["thread"])

    def _kernel_rows(self, device: _Table) -> pa.Table:
        wanted = ("name", "start_ns", "end_ns", *_PLACE, "registers_per_thread", "shared_memory_bytes")
        # Outside graphs both are 0. ROCm, and CUDA since PyTorch 2.14, number the nodes within a graph, from 0.
        replayed = (device["graph_id"] > 0) | (device["graph_node_id"] > 0)
        graphs = {name: np.where(replayed, device[name], NONE) for name in _GRAPH}
        rows = self._named({**{name: device[name] for name in wanted}, **graphs})
        if self._compiled:
            code, distinct = factorize(device["name"])
            known = np.array([self._compiled.get(name, (NONE, NONE)) for name in distinct.tolist()], np.int64)
            known = np.where((known > 0) & (known < 1 << 31), known, NONE).reshape(-1, 2)
            for column, values in zip(("compiled_warps", "pipeline_stages"), known[code].T, strict=True):
                rows = rows.append_column(column, _nullable(values.copy()))
        for what in ("grid", "block"):
            code, distinct = factorize(device[what])
            extents = np.array([self._extents(text) for text in distinct.tolist()], np.int64).reshape(-1, 3)
            for axis, name in enumerate("xyz"):
                rows = rows.append_column(f"{what}_{name}", _nullable(extents[code, axis]))
        # Groups on different ranks may have the same name; the profiler truncates long lists of ranks.
        code, distinct = factorize(device["group"].astype(np.int64) << 32 | (device["members"] + 1))
        groups = [self._group(pair >> 32, (pair & 0xFFFFFFFF) - 1) for pair in distinct.tolist()]
        rows = rows.append_column("communicator", pa.array(groups, pa.string()).take(pa.array(code)))
        for column, values in self._collectives(device).items():
            rows = rows.append_column(column, values)
        return rows

    def _collectives(self, device: _Table) -> dict[str, pa.Array]:
        """Columns of collectives; none if no event describes one."""
        described = np.flatnonzero(device["collective"] != NONE)
        if not len(described):
            return {}
        names: list[str | None] = [None] * len(device["name"])
        sizes: list[int | None] = [None] * len(names)
        messages: list[int | None] = [None] * len(names)
        fields = [device[name][described].tolist() for name in _COLLECTIVE]
        for row, name, size, read, written, dtype in zip(described.tolist(), *fields, strict=True):
            names[row] = collective_of_torch(self._texts[name])
            sizes[row] = size if 0 < size < 1 << 31 else None
            messages[row] = message_bytes(read, written, self._texts[dtype] if dtype != NONE else None)
        return {
            "collective": pa.array(names, pa.string()),
            "group_size": pa.array(sizes, pa.int32()),
            "message_bytes": pa.array(messages, pa.int64()),
        }

    def _group(self, name: int, members: int) -> str | None:
        """A process group's name and ranks; None without both."""
        return " ".join(str(json.loads(self._texts[text])) for text in (name, members) if text != NONE) or None

    def _memory_rows(self, device: _Table) -> pa.Table:
        columns = {name: device[name] for name in ("start_ns", "end_ns", *_PLACE, "bytes")}
        code, distinct = factorize(device["name"])
        kinds = [kind_of_copy(self._texts[name]) for name in distinct.tolist()]
        copied = pa.array(np.where(device["kind"] == _COPY, code, NONE), mask=device["kind"] != _COPY)
        names = pa.array(["memcpy", "memset"]).take(pa.array((device["kind"] != _COPY).astype(np.int32)))
        columns = {name: _nullable(column) for name, column in columns.items()}
        return pa.table({**columns, "kind": names, "memcpy_kind": pa.array(kinds, pa.string()).take(copied)})

    def _extents(self, text: int) -> tuple[int, ...]:
        """Extents of a grid or block; three times `NONE` if they are not three whole numbers."""
        found = json.loads(self._texts[text]) if text != NONE else None
        if isinstance(found, list) and len(found) == 3 and all(isinstance(extent, int) for extent in found):
            return tuple(found)
        return (NONE,) * 3

    def _named(self, columns: _Table, prefix: str = NODE_PREFIX) -> pa.Table:
        """A table with names as texts, without this prefix."""
        code, distinct = factorize(columns["name"])
        names = [scrub(self._texts[name].removeprefix(prefix)) or "?" for name in distinct.tolist()]
        name = pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), pa.array(names, pa.string()))
        rest = {key: _nullable(column) for key, column in columns.items() if key not in ("name", "thread")}
        # No masking: a thread's number may be `NONE`.
        threads = {key: pa.array(columns["thread"]) for key in ("thread", "thread_key") if "thread" in columns}
        return pa.table({"name": name, **rest, **threads})

    def _keep(self, group: str, rows: Bools, columns: _Table) -> None:
        if rows.any():
            self._pieces[group].append({name: column[rows] for name, column in columns.items()})
        self._empty[group] = {name: column[:0] for name, column in columns.items()}

    def _joined(self, group: str) -> _Table:
        """All columns of a group, concatenated and freed one by one."""
        pieces = self._pieces.pop(group)
        empty = self._empty[group]
        return {name: np.concatenate([empty[name], *(piece.pop(name) for piece in pieces)]) for name in empty}


def _renamed(columns: dict[str, Column], fields: dict[str, Field]) -> _Table:
    """The columns of some fields by our names; indices of texts in 32 bits."""
    values = {ours: columns[field.name].values for ours, field in fields.items()}
    return {ours: column.astype(np.int32) if fields[ours].kind == JSON else column for ours, column in values.items()}


def _first_valid(column: Column, other: Column) -> Column:
    """A column, with the values of the other one where it has none."""
    return Column(np.where(column.valid, column.values, other.values), column.valid | other.valid)


def _chosen(events: Sequence[Any], rows: Bools) -> list[Any]:
    return list(compress(events, rows.tobytes()))


class _PerText:
    """A number for each text; computed once."""

    def __init__(self, texts: Sequence[str], number: Callable[[str], int]) -> None:
        self._texts, self._number, self._table = texts, number, np.zeros(0, np.int64)

    def of(self, indices: Ints) -> Ints:
        """The numbers of the texts with these indices; arbitrary for `NONE`."""
        new = [self._number(text) for text in self._texts[len(self._table) :]]
        self._table = np.append(self._table, np.array(new, np.int64))
        return self._table[indices] if len(self._table) else np.zeros(len(indices), np.int64)


def _kind_of_category(category: Any) -> int:
    """What events of a category are; 0 if unknown."""
    name = str(category).lower()
    return _CATEGORIES.get(name) or next((kind for end, kind in _CATEGORY_ENDS.items() if name.endswith(end)), 0)


def _kind_by_name(name: str) -> int:
    return _MODULE_RANGE if name.startswith(MODULE) else _ANNOTATION if name.startswith(_ANNOTATIONS) else 0


def _thread_number(thread: str) -> int:
    """The number of a thread's id in JSON, e.g. `7` or `"7"`; `_NO_THREAD` for others, e.g. `"thread 7 (python)"`."""
    try:
        return signed(int(str(json.loads(thread)).split()[-1]))
    except (IndexError, OverflowError, RecursionError, ValueError):
        return _NO_THREAD


def _nullable(column: npt.NDArray[Any]) -> pa.Array:
    return pa.array(column, mask=column == NONE)


def _rank_info(information: Any) -> dict[str, Any] | None:
    """The rank of the trace; the profiler does not record the node."""
    if not isinstance(information, dict):
        return None
    rank, world = information.get("rank"), information.get("world_size")
    if not isinstance(rank, int) or not isinstance(world, int):
        return None
    return {"rank": rank, "world_size": world, "local_rank": None, "node": None}


def _device(properties: Any, used: set[int]) -> dict[str, Any] | None:
    """Facts of the first device with work; ROCm numbers its devices otherwise: then they count if all are alike."""
    known = [facts for facts in properties if isinstance(facts, dict)] if isinstance(properties, list) else []
    of_work = [facts for facts in known if isinstance(facts.get("id"), int) and facts["id"] in used]
    alike = len({str(facts.get("name")) for facts in known}) == 1
    for facts in of_work or (known if alike and used else []):
        major = facts.get("computeMajor")
        return {
            "name": facts.get("name"),
            "compute_capability": f"{major}.{facts.get('computeMinor')}" if major is not None else None,
            "sm_count": facts.get("numSms"),
            "memory_bytes": facts.get("totalGlobalMem"),
        }
    return None
