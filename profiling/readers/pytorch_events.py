"""Collects the events of a PyTorch trace that are needed, by their categories, and their fields as
columns.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ..attribution.columns import count_true
from ..attribution.memory_peak import MEMORY_EVENT
from ..attribution.nesting import NONE, Bools, Ints
from ..attribution.range_names import MODULE
from .event_columns import (
    COMPLETE,
    INSTANT,
    JSON,
    NUMBER,
    TEXT,
    TIME,
    EventColumn,
    EventColumns,
    Field,
    Memo,
)
from .values import signed

_STEP_MARK = "ProfilerStep#"
# Old versions write the framework's own annotations as operators.
_ANNOTATIONS = (_STEP_MARK, "Optimizer.", "enumerate(DataLoader)")


# Columns, and the fields of an event's `args` that they come from.
def _args(kind: int, names: Mapping[str, str]) -> dict[str, Field]:
    return {ours: Field(theirs, kind, True) for ours, theirs in names.items()}


_HOST_ARGS = {
    **_args(NUMBER, {"sequence": "Sequence number", "forward_thread": "Fwd thread id"}),
    **_args(JSON, {"shapes": "Input Dims", "concrete": "Concrete Inputs", "dtypes": "Input type"}),
    **_args(JSON, {"strides": "Input Strides"}),
}
# of a kernel of torch.compile
_TRITON_ARGS = (
    Field("num_warps", NUMBER, True),
    Field("num_stages", NUMBER, True),
)
_DEVICE_ARGS = {
    **_args(
        NUMBER,
        {"device": "device", "stream": "stream", "bytes": "bytes", "group_size": "Group size"},
    ),
    **_args(
        NUMBER,
        {"registers_per_thread": "registers per thread", "shared_memory_bytes": "shared memory"},
    ),
    **_args(NUMBER, {"graph_id": "graph id", "graph_node_id": "graph node id"}),
    **_args(NUMBER, {"elements_in": "In msg nelems", "elements_out": "Out msg nelems"}),
    **_args(JSON, {"grid": "grid", "block": "block"}),
    **_args(JSON, {"group": "Process Group Name", "members": "Process Group Ranks"}),
    **_args(TEXT, {"collective": "Collective name", "dtype": "dtype"}),
}
_MEMORY_ARGS = {
    **_args(
        NUMBER,
        {
            "size_bytes": "Bytes",
            "address": "Addr",
            "device_type": "Device Type",
            "device": "Device Id",
        },
    ),
    **_args(NUMBER, {"total_bytes": "Total Allocated", "reserved_bytes": "Total Reserved"}),
}
# ROCm names a launch's kernel, e.g. in the capture of a graph
_LAUNCHED = Field("kernel", TEXT, True)
_TIMED = (Field("name", TEXT), Field("ts", TIME), Field("dur", TIME))
_ON_THREAD = (Field("pid", JSON), Field("tid", JSON))
_QUEUE = Field("sycl queue", NUMBER, True)  # the stream of an Intel GPU
_CORRELATION = Field("correlation", NUMBER, True)
_MEMORY_FIELDS = (Field("name", TEXT), Field("ts", TIME), *_ON_THREAD, *_MEMORY_ARGS.values())
_HOST_FIELDS = (*_TIMED, *_ON_THREAD, *_HOST_ARGS.values(), *_TRITON_ARGS)
_CALL_FIELDS = (*_TIMED, *_ON_THREAD, _CORRELATION)
_PROCESS = Field("pid", JSON)
_DEVICE_FIELDS = (*_TIMED, _PROCESS, _CORRELATION, *_DEVICE_ARGS.values())
HOST, ANNOTATED, _MODULE_RANGE, _CALL, KERNEL, COPY, _SET, _COUNTER, _KNOWN = range(1, 10)
_CATEGORIES = {
    **dict.fromkeys(("operator", "cpu_op"), HOST),
    "user_annotation": ANNOTATED,
    "python_function": _MODULE_RANGE,
    "runtime": _CALL,
    "kernel": KERNEL,
    # Costs of the profiler, the trace's own span, and marks of the host on a stream.
    **dict.fromkeys(("overhead", "trace", "cuda_event"), _KNOWN),
}
# Every maker of devices has categories of its own, e.g. `cuda_driver`, `xpu_runtime`, `mlu_memcpy`,
# `gpu_memset`.
_CATEGORY_ENDS = {
    **dict.fromkeys(("_runtime", "_driver"), _CALL),
    "memcpy": COPY,
    "memset": _SET,
    "_profiler_range": _COUNTER,
    **dict.fromkeys(
        ("_sync", "_user_annotation"), _KNOWN
    ),  # waits, and annotations again on the device
}
PROCESS = "process"  # column of the text of an event's process
_NO_THREAD = -(1 << 63)
_LEAST_FUNCTION_NS = 100_000  # a shorter function of Python explains no gap that is worth a line
_CATEGORY = attrgetter("cat")
Table = dict[str, npt.NDArray[Any]]


class Events:
    """The columns of the events that are needed, as they were read (`pieces`); texts by their index
    in `texts`.
    """

    def __init__(self, is_capture: bool = False) -> None:
        """Prepare to convert; of the capture of graphs, API calls need the names of kernels."""
        self.lost: Counter[str] = Counter()
        self.devices: set[int] = set()  # numbers of those with work
        self._call_fields = (*_CALL_FIELDS, _LAUNCHED) if is_capture else _CALL_FIELDS
        complete = dict.fromkeys((*_HOST_FIELDS, *self._call_fields, *_DEVICE_FIELDS, _QUEUE))
        self.columns = EventColumns({COMPLETE: tuple(complete), INSTANT: _MEMORY_FIELDS})
        self.texts = self.columns.texts
        self._category = Memo(_kind_of_category)
        self._of_name = PerText(self.texts, _kind_by_name)
        self._is_memory = PerText(self.texts, lambda text: int(text == MEMORY_EVENT))
        self._thread = PerText(self.texts, _thread_number)
        self.processes: set[int] = set()  # of operators
        # processes of API calls; MTIA writes the device for some of them
        self.calling: set[int] = set()
        # warps and stages of torch.compile's kernels, by name
        self.compiled: dict[int, tuple[int, ...]] = {}
        groups = ("host", "calls", "device", "memory", "functions")
        self.pieces: dict[str, list[Table]] = {group: [] for group in groups}
        self._empty: dict[str, Table] = {}

    def take(self, events: Sequence[Any]) -> None:
        """Convert some events, by their categories."""
        self._take_memory(self.columns.having(INSTANT, events))
        events = self.columns.having(COMPLETE, events)
        try:
            kinds = map(self._category.__getitem__, map(_CATEGORY, events))
            kind = np.fromiter(kinds, np.int8, len(events))
        except TypeError:  # a category is a list or an object
            events = [event for event in events if isinstance(event.cat, str)]
            kind = np.array([self._category[event.cat] for event in events], np.int8)
        self.lost["counter_ranges"] += count_true(kind == _COUNTER)
        self.lost["events_of_unknown_category"] += count_true(kind == 0)
        on_host = (kind == HOST) | (kind == ANNOTATED) | (kind == _MODULE_RANGE)
        self._take_host(_select_events(events, on_host), kind[on_host])
        self._take_calls(_select_events(events, kind == _CALL))
        on_device = (kind == KERNEL) | (kind == COPY) | (kind == _SET)
        self._take_device(_select_events(events, on_device), kind[on_device])

    def _take_memory(self, events: list[Any]) -> None:
        columns = self.columns.columns(events, _MEMORY_FIELDS)
        rows = self._is_memory.of(columns["name"].values) == 1
        for name in ("name", "ts", "tid", "Bytes", "Addr"):
            rows &= columns[name].valid
        kept = {
            "time_ns": columns["ts"].values,
            "thread": self._thread.of(columns["tid"].values),
            PROCESS: _process(columns),
            **_rename_columns(columns, _MEMORY_ARGS),
        }
        self._keep("memory", rows, kept)

    def _take_host(self, events: list[Any], kind: npt.NDArray[np.int8]) -> None:
        columns = self.columns.columns(events, _HOST_FIELDS)
        name = columns["name"]
        by_name = np.where(name.valid, self._of_name.of(name.values), 0)
        kind = np.where(by_name == _MODULE_RANGE, _MODULE_RANGE, kind)
        kind = np.where((kind == HOST) & (by_name == ANNOTATED), ANNOTATED, kind)
        is_module = kind == _MODULE_RANGE
        # the others are Python functions
        ours = ~is_module | (by_name == _MODULE_RANGE)
        rows, timed = self._readable(columns, ours, ("tid",), (kind == ANNOTATED) | is_module)
        start_ns = timed["start_ns"]
        long = timed["end_ns"] - start_ns >= _LEAST_FUNCTION_NS
        self._keep("functions", ~ours & long & name.valid & (start_ns >= 0), timed)
        # How the kernels of torch.compile were compiled, by their names, which their operators
        # have, too.
        settings = [columns[field.name] for field in _TRITON_ARGS]
        compiled = rows & np.logical_or.reduce([column.valid for column in settings])
        values = [column.values[compiled].tolist() for column in settings]
        names = name.values[compiled].tolist()
        self.compiled.update(zip(names, zip(*values, strict=True), strict=True))
        kept = {**timed, "kind": kind.astype(np.int8), **_rename_columns(columns, _HOST_ARGS)}
        self._keep("host", rows, kept)

    def _take_calls(self, events: list[Any]) -> None:
        columns = self.columns.columns(events, self._call_fields)
        everything = np.ones(len(events), np.bool_)
        rows, timed = self._readable(columns, everything, ("tid", "correlation"), True)
        process = columns["pid"]
        self.calling.update(np.unique(process.values[rows & process.valid]).tolist())
        kept = {**timed, "correlation_id": columns["correlation"].values}
        if _LAUNCHED in self._call_fields:
            kept["kernel"] = columns["kernel"].values.astype(np.int32)
        self._keep("calls", rows, kept)

    def _take_device(self, events: list[Any], kind: npt.NDArray[np.int8]) -> None:
        columns = self.columns.columns(events, _DEVICE_FIELDS)
        if not (columns["device"].valid & columns["stream"].valid).all():
            columns |= self._place_by_event(events, columns)
        required = ("correlation", "device", "stream")
        rows, timed = self._readable(columns, np.ones(len(events), np.bool_), required)
        self.devices.update(np.unique(columns["device"].values[rows]).tolist())
        kept = {**timed, "kind": kind, "correlation_id": columns["correlation"].values}
        kept |= _rename_columns(columns, _DEVICE_ARGS)
        for name in (
            "registers_per_thread",
            "shared_memory_bytes",
            "bytes",
        ):  # a negative amount is missing
            kept[name] = np.maximum(kept[name], NONE)
        self._keep("device", rows, kept)

    def _place_by_event(
        self, events: list[Any], columns: dict[str, EventColumn]
    ) -> dict[str, EventColumn]:
        """Device and stream, where `args` lack them: the process and thread of the event, on Intel
        GPUs the queue.
        """
        others = self.columns.columns(events, (_QUEUE, *_ON_THREAD))
        placed = {
            "device": columns["device"],
            "stream": _first_valid(columns["stream"], others[_QUEUE.name]),
        }
        for name, field in zip(placed, _ON_THREAD, strict=True):
            number = self._thread.of(others[field.name].values)
            is_number = others[field.name].valid & (number >= 0)
            placed[name] = _first_valid(placed[name], EventColumn(number, is_number))
        return placed

    def _readable(
        self,
        columns: dict[str, EventColumn],
        ours: Bools,
        required: tuple[str, ...],
        annotates: Bools | bool = False,
    ) -> tuple[Bools, Table]:
        """Mask of our events with a name, a time and all required fields, and the common columns of
        all events.

        Our other events are counted as unreadable. An event that annotates may come from another
        process than operators.
        """
        start = columns["ts"].values
        duration = columns["dur"].values
        rows = (start >= 0) & (duration >= 0)
        for field in ("name", "ts", "dur", *required):
            rows &= columns[field].valid
        timed: Table = {
            PROCESS: _process(columns),
            "name": columns["name"].values.astype(np.int32),
            "start_ns": start,
            "end_ns": start + duration,
        }
        if "tid" in required:
            timed["thread"] = self._thread.of(columns["tid"].values)
            rows &= timed["thread"] != _NO_THREAD
            process = columns["pid"]
            works = ours & rows & process.valid & np.logical_not(annotates)
            self.processes.update(np.unique(process.values[works]).tolist())
        self.lost["events_unreadable"] += count_true(ours & ~rows)
        return ours & rows, timed

    def _keep(self, group: str, rows: Bools, columns: Table) -> None:
        if rows.any():
            self.pieces[group].append({name: column[rows] for name, column in columns.items()})
        self._empty[group] = {name: column[:0] for name, column in columns.items()}

    def joined(self, group: str) -> Table:
        """All columns of a group but the process, concatenated and freed one by one."""
        pieces = self.pieces.pop(group)
        columns = {}
        for name, empty in self._empty[group].items():
            if name != PROCESS:
                columns[name] = np.concatenate([empty, *(piece.pop(name) for piece in pieces)])
        return columns


def _process(columns: dict[str, EventColumn]) -> Ints:
    """The text of each event's process by its index; `NONE` without one."""
    process = columns["pid"]
    return np.where(process.valid, process.values, NONE)


def _rename_columns(columns: dict[str, EventColumn], fields: dict[str, Field]) -> Table:
    """The columns of some fields by our names; indices of texts in 32 bits."""
    table = {}
    for ours, field in fields.items():
        values = columns[field.name].values
        table[ours] = values.astype(np.int32) if field.kind == JSON else values
    return table


def _first_valid(column: EventColumn, other: EventColumn) -> EventColumn:
    return EventColumn(
        np.where(column.valid, column.values, other.values), column.valid | other.valid
    )


def _select_events(events: Sequence[Any], rows: Bools) -> list[Any]:
    return list(compress(events, rows.tobytes()))


class PerText:
    """A number for each text; computed once."""

    def __init__(self, texts: Sequence[str], number: Callable[[str], int]) -> None:
        self.texts, self._number, self._table = texts, number, np.zeros(0, np.int64)

    def of(self, indices: Ints) -> Ints:
        """The numbers of the texts with these indices; arbitrary for `NONE`."""
        new = [self._number(text) for text in self.texts[len(self._table) :]]
        self._table = np.append(self._table, np.array(new, np.int64))
        if not len(self._table):
            return np.zeros(len(indices), np.int64)
        return self._table[indices]


def _kind_of_category(category: Any) -> int:
    """What events of a category are; 0 if unknown."""
    name = str(category).lower()
    return _CATEGORIES.get(name) or next(
        (kind for end, kind in _CATEGORY_ENDS.items() if name.endswith(end)), 0
    )


def _kind_by_name(name: str) -> int:
    if name.startswith(MODULE):
        return _MODULE_RANGE
    if name.startswith(_ANNOTATIONS):
        return ANNOTATED
    return 0


def _thread_number(thread: str) -> int:
    """The number of a thread's id in JSON, e.g. `7` or `"7"`; `_NO_THREAD` for others, e.g.
    `"thread 7 (python)"`.
    """
    try:
        return signed(int(str(json.loads(thread)).split()[-1]))
    except (IndexError, OverflowError, RecursionError, ValueError):
        return _NO_THREAD
