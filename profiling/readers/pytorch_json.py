"""Reads JSON of the PyTorch profiler, of all versions (`Kernel` and `kernel`, `Operator` and
`cpu_op`).

Device work belongs to the operator around its runtime call, which has the same correlation id.
Without a device, the work is each operator's own time, without its children. Steps are the
profiler's `ProfilerStep#` marks. Of call stacks the longer functions are read, with their files'
names and no folders. Process names are not read.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...base.budget import Budget
from ...base.counted import counted
from ...base.errors import CurvescopeError
from ..attribution.assemble import assemble
from ..attribution.collectives import collective_of_torch, message_bytes
from ..attribution.columns import factorize
from ..attribution.cupti_names import host_memory_of_copy, kind_of_copy
from ..attribution.library_calls import own_time
from ..attribution.memory_peak import Allocations
from ..attribution.nesting import NONE, Bools, Ints, nest
from ..attribution.placement import name_at
from ..attribution.profile import profile_of_tables
from ..attribution.range_names import (
    ANNOTATION,
    COLLECTIVES,
    MODULE_CALL,
    NODE_PREFIX,
    OPERATOR,
    scrub,
)
from ..recording.rank_info import META_KEY
from ..recording.store import RecordingWriter
from . import Options
from .graph_capture import join_capture, join_own_capture
from .merged_trace import communication_ms, keep_processes, list_rank_processes
from .pytorch_events import ANNOTATED, COPY, HOST, KERNEL, Events, PerText, Table
from .source import Source
from .trace_events import TraceEvents
from .values import LATEST_NS, whole

NAME = "PyTorch profiler JSON"

_NO_DEVICE_EVENTS = (
    "the trace has operators of a program on a GPU, but no event of the GPU; record with "
    "ProfilerActivity.CUDA"
)
_OF_SEVERAL = (
    "the trace merges {count} processes, and this is process {at}, from 0; "
    "`curvescope import FILE --process N` reads another, `curvescope scale read FILE` compares all"
)
_COLLECTIVE_KERNELS = ("nccl", "rccl")
_NO_RANK = (
    "the trace has collectives and does not tell its rank, as those on demand (dynolog); `scale "
    "read` takes the number after `rank` in the name of the file"
)
_BATCH_NAMES = ("batch_size", "batch size", "train_batch_size", "per_device_train_batch_size")
_DEEPEST = 6  # levels of the metadata
_FOLDERS = r"^(?:\.{0,2}/)?(?:[^()/]*/)+"  # before the name of a function's file
_PLACE = ("device", "stream", "correlation_id")
_CPU = 0  # torch's number of the device type
_Tables = tuple[pa.Table, pa.Table, pa.Table, pa.Table]


def recognises(source: Source) -> bool:
    keys = ('"traceEvents"', '"schemaVersion"', '"deviceProperties"')
    return source.text.startswith("{") and any(key in source.text for key in keys)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the trace; default batch size: from the first convolution or product of each step."""
    events, document = _read_events(source, options)
    on_gpu = bool(document.get("deviceProperties")) or "nccl" in str(
        document.get("distributedInfo", "")
    )
    missing = {}
    if (merged := _choose_process(events, options)) is not None:
        missing["processes"] = _OF_SEVERAL.format(count=merged["processes"], at=merged["process"])
        writer.update(merged=merged)
        of_process = {"rank": merged["process"], "world_size": merged["processes"]}
        document["distributedInfo"] = of_process
    rows = _Rows(events)
    ranges, launches, kernels, memory = rows.tables(on_gpu)
    if options.capture is None:
        kernels = join_own_capture(launches, kernels, source.budget)
    else:
        ranges, kernels = _with_capture(ranges, launches, kernels, source.budget, options, writer)
    profile = profile_of_tables("torch", ranges, launches, kernels, memory)
    profile = replace(profile, allocations=rows.allocations(), batch=_batch_of(document))
    rows.write_functions(writer)
    for name, count in events.lost.items():
        writer.count_lost(name, count)
    writer.update(device=_device(document.get("deviceProperties"), events.devices))
    if rows.lacks_device:
        missing["device_events"] = _NO_DEVICE_EVENTS
    if rows.on_host:
        missing["device"] = "no event of a device in it, only operators of the host"
    launched = _launches(launches)
    if launched and not (kernels.num_rows or memory.num_rows or events.lost["counter_ranges"]):
        missing["device_events"] = (
            f"the trace has {counted(launched, 'launch', 'launches')} of kernels and no event of "
            "the GPU: its activity was not recorded, or the profiler stopped before it ran; "
            "synchronise before it stops"
        )
    if (rank := _rank_info(document.get("distributedInfo"))) is not None:
        writer.update(**{META_KEY: rank})
    elif any(name.startswith(_COLLECTIVE_KERNELS) for name in kernels["name"].unique().to_pylist()):
        missing["rank"] = _NO_RANK
    if missing:
        writer.update(missing=missing)
    assemble(profile, writer, options)


def _choose_process(events: Events, options: Options) -> dict[str, Any] | None:
    """Keep the events of one rank of a merged trace, and describe the ranks; None for a trace of
    one.
    """
    ranks = list_rank_processes(events)
    at = options.process or 0
    if not 0 <= at < len(ranks):
        raise CurvescopeError(
            f"--process {at}: it has {counted(len(ranks), 'process', 'processes')}, numbered from "
            "0."
        )
    if len(ranks) < 2:
        return None
    spent_ms = communication_ms(events, ranks)
    keep_processes(events, ranks[at], set().union(*ranks))
    return {"processes": len(ranks), "process": at, "communication_ms": spent_ms}


def _read_events(
    source: Source, options: Options, *, is_capture: bool = False
) -> tuple[Events, dict[str, Any]]:
    events = Events(is_capture)
    columns = events.columns
    trace = TraceEvents(source, columns.event_type, options.report, columns.usual_type)
    for batch in trace:
        events.take(batch)
    events.lost.update(trace.lost)
    return events, trace.document


def _with_capture(
    ranges: pa.Table,
    launches: pa.Table,
    kernels: pa.Table,
    budget: Budget,
    options: Options,
    writer: RecordingWriter,
) -> tuple[pa.Table, pa.Table]:
    """Ranges also of the capture, and the kernels of graphs at their place in it."""
    assert options.capture is not None
    with Source(options.capture, budget) as source:
        if not recognises(source):
            raise CurvescopeError(f"--capture {options.capture}: no JSON of the PyTorch profiler.")
        captured_ranges, captured_launches, *_ = _Rows(
            _read_events(source, options, is_capture=True)[0]
        ).tables(False)
    captured = (captured_ranges, captured_launches)
    joined = join_capture(ranges, launches, kernels, *captured, budget)
    writer.update(graph_capture={"replays": joined.replays, "joined_by": joined.joined_by})
    return joined.ranges, joined.kernels


class _Rows:
    def __init__(self, events: Events) -> None:
        self.lacks_device = False  # whether a GPU did the work, but its events are not in the trace
        self.on_host = False  # whether operators of the host are the work
        self._events = events
        self._texts = events.texts

    def tables(self, on_gpu: bool) -> _Tables:
        """Ranges, API calls, kernels, and memcpys and memsets; `on_gpu`: whether the trace names a
        GPU.
        """
        if not any(self._events.pieces.values()):
            raise CurvescopeError(
                "it has no event of the PyTorch profiler; other Chrome traces are not read."
            )
        host, calls, device = (self._events.joined(group) for group in ("host", "calls", "device"))
        is_kernel = device["kind"] == KERNEL
        kernels = {name: column[is_kernel] for name, column in device.items()}
        memory = {name: column[~is_kernel] for name, column in device.items()}
        has_work = len(device["kind"]) or len(calls["name"])
        if has_work or self._events.lost["counter_ranges"]:
            self.lacks_device = self.on_host = False
        else:
            self.lacks_device = on_gpu or bool(self._begin_with(host["name"], "nccl:").any())
            self.on_host = not self.lacks_device
        kernel_rows = self._own_rows(host) if self.on_host else self._kernel_rows(kernels)
        launched = calls.pop("kernel", None)
        call_rows = self._name_rows(calls)
        if launched is not None:
            call_rows = call_rows.append_column("kernel", self._text(launched))
        return self._host_rows(host), call_rows, kernel_rows, self._memory_rows(memory)

    def write_functions(self, writer: RecordingWriter) -> None:
        """Write the functions of Python that took long; none without call stacks."""
        functions = self._events.joined("functions")
        if not len(functions["name"]):
            return
        rows = self._name_rows(functions, prefix="")
        names = pc.replace_substring_regex(rows["name"].cast(pa.string()), _FOLDERS, "")
        columns = {"start_ns": rows["start_ns"], "thread": rows["thread"], "name": names}
        columns["duration_ns"] = pc.subtract(rows["end_ns"], rows["start_ns"])
        columns["source"] = pa.repeat("torch", rows.num_rows)
        writer.write("functions", pa.table(columns))

    def allocations(self) -> Allocations | None:
        """The allocations of the device with most of them, of a GPU if there is one; None without
        their addresses.
        """
        memory = self._events.joined("memory")
        order = np.argsort(memory["time_ns"], kind="stable")
        memory = {name: column[order] for name, column in memory.items()}
        on_gpu = memory["device_type"] != _CPU
        rows = on_gpu if on_gpu.any() else ~on_gpu
        if not rows.any():
            return None
        devices, number = np.unique(memory["device"][rows], return_counts=True)
        rows &= memory["device"] == devices[np.argmax(number)]
        memory = {name: column[rows] for name, column in memory.items()}
        has_totals = on_gpu[rows].all() and (memory["total_bytes"] != NONE).all()
        return Allocations(
            memory["time_ns"],
            memory["thread"],
            memory["size_bytes"],
            memory["address"],
            memory["total_bytes"] if has_totals else None,
            memory["reserved_bytes"] if has_totals else None,
        )

    def _begin_with(self, code: Ints, beginning: str | tuple[str, ...]) -> Bools:
        begins: Bools = (
            PerText(self._texts, lambda text: int(text.startswith(beginning))).of(code) == 1
        )
        return begins

    def _host_rows(self, host: Table) -> pa.Table:
        """Operators and ranges."""
        kind = host["kind"]
        named = {name: host[name] for name in ("name", "start_ns", "end_ns", "thread")}
        rows = self._name_rows(named, prefix="")
        role = pa.array((kind - HOST).astype(np.int32))
        roles = pa.array([OPERATOR, ANNOTATION, MODULE_CALL])
        columns = {
            "kind": pa.repeat("push_pop", len(kind)),
            "role": pa.DictionaryArray.from_arrays(role, roles),
            "shown": pa.array(kind == ANNOTATED),
            "sequence": _nullable(host["sequence"]),
            "forward_thread": _nullable(host["forward_thread"]),
        }
        for name in ("shapes", "concrete", "dtypes", "strides"):
            columns[name] = self._text(host[name])
        for name, column in columns.items():
            rows = rows.append_column(name, column)
        return rows

    def _text(self, code: Ints) -> pa.Array:
        """Texts by their index in the trace."""
        is_text = code != NONE
        short = np.zeros(len(code), np.int32)
        distinct = np.zeros(0, np.int64)
        short[is_text], distinct = factorize(code[is_text])
        texts = pa.array([self._texts[index] for index in distinct.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(short, mask=~is_text), texts)

    def _own_rows(self, host: Table) -> pa.Table:
        """The own time of operators, for traces without a device."""
        announced = self._begin_with(host["name"], COLLECTIVES)
        works = (host["kind"] == HOST) | ((host["kind"] == ANNOTATED) & announced)
        nested = nest(host["thread"], host["start_ns"], host["end_ns"])
        start, end, span = own_time(nested, works)
        own = {"start_ns": start, "end_ns": end}
        own |= {name: host[name][span] for name in ("name", "thread")}
        rows = self._name_rows(own)
        # A backward node lies in a call of the engine under the same name, which counts as a part
        # of it.
        is_node = self._begin_with(host["name"], NODE_PREFIX)[span]
        part = pa.array(_occurrence(span) + is_node, pa.int32())
        rows = rows.append_column("stream", rows["thread"])
        return rows.append_column("part", part)

    def _kernel_rows(self, device: Table) -> pa.Table:
        wanted = (
            "name",
            "start_ns",
            "end_ns",
            *_PLACE,
            "registers_per_thread",
            "shared_memory_bytes",
        )
        own = {name: device[name] for name in wanted}
        # Outside graphs both are 0. ROCm, and CUDA since PyTorch 2.14, number the nodes within a
        # graph, from 0.
        replayed = (device["graph_id"] > 0) | (device["graph_node_id"] > 0)
        for name in ("graph_id", "graph_node_id"):
            own[name] = np.where(replayed, device[name], NONE)
        rows = self._name_rows(own)
        columns: dict[str, pa.Array] = {}
        if self._events.compiled:
            code, distinct = factorize(device["name"])
            pairs = [self._events.compiled.get(name, (NONE, NONE)) for name in distinct.tolist()]
            compiled = np.array(pairs, np.int64).reshape(-1, 2)
            possible = (compiled > 0) & (compiled < 1 << 31)
            warps, stages = np.where(possible, compiled, NONE)[code].T
            columns["compiled_warps"] = _nullable(warps.copy())
            columns["pipeline_stages"] = _nullable(stages.copy())
        for what in ("grid", "block"):
            code, distinct = factorize(device[what])
            triples = [self._extents(text) for text in distinct.tolist()]
            extents = np.array(triples, np.int64).reshape(-1, 3)
            for axis, name in enumerate("xyz"):
                columns[f"{what}_{name}"] = _nullable(extents[code, axis])
        # Groups on different ranks may have the same name; the profiler truncates long lists of
        # ranks.
        code, distinct = factorize(device["group"].astype(np.int64) << 32 | (device["members"] + 1))
        groups = []
        for pair in distinct.tolist():
            groups.append(self._group(pair >> 32, (pair & 0xFFFFFFFF) - 1))
        columns["communicator"] = pa.array(groups, pa.string()).take(pa.array(code))
        columns |= self._collectives(device)
        for column, values in columns.items():
            rows = rows.append_column(column, values)
        return rows

    def _collectives(self, device: Table) -> dict[str, pa.Array]:
        """Columns of collectives; none if no event describes one."""
        described = np.flatnonzero(device["collective"] != NONE)
        if not len(described):
            return {}
        count = len(device["name"])
        names: list[str | None] = [None] * count
        sizes: list[int | None] = [None] * count
        messages: list[int | None] = [None] * count
        needed = ("collective", "group_size", "elements_in", "elements_out", "dtype")
        fields = [device[name][described].tolist() for name in needed]
        for row, name, size, read, written, dtype in zip(described.tolist(), *fields, strict=True):
            names[row] = collective_of_torch(self._texts[name])
            sizes[row] = size if 0 < size < 1 << 31 else None
            messages[row] = message_bytes(read, written, name_at(self._texts, dtype))
        return {
            "collective": pa.array(names, pa.string()),
            "group_size": pa.array(sizes, pa.int32()),
            "message_bytes": pa.array(messages, pa.int64()),
        }

    def _group(self, name: int, members: int) -> str | None:
        """A process group's name and ranks; None without both."""
        texts = [self._texts[text] for text in (name, members) if text != NONE]
        return " ".join(str(json.loads(text)) for text in texts) or None

    def _memory_rows(self, device: Table) -> pa.Table:
        wanted = ("start_ns", "end_ns", *_PLACE, "bytes")
        columns = {name: _nullable(device[name]) for name in wanted}
        code, distinct = factorize(device["name"])
        texts = [self._texts[name] for name in distinct.tolist()]
        is_set = device["kind"] != COPY
        name_of_copy = pa.array(np.where(is_set, NONE, code), mask=is_set)
        kinds = pa.array(map(kind_of_copy, texts), pa.string())
        memories = pa.array(map(host_memory_of_copy, texts), pa.string())
        columns["memcpy_kind"] = kinds.take(name_of_copy)
        columns["host_memory"] = memories.take(name_of_copy)
        columns["kind"] = pa.array(["memcpy", "memset"]).take(pa.array(is_set.astype(np.int32)))
        return pa.table(columns)

    def _extents(self, text: int) -> tuple[int, ...]:
        """Extents of a grid or block; three times `NONE` if they are not three whole numbers."""
        extents = json.loads(self._texts[text]) if text != NONE else None
        if (
            isinstance(extents, list)
            and len(extents) == 3
            and all(isinstance(extent, int) for extent in extents)
        ):
            return tuple(extents)
        return (NONE,) * 3

    def _name_rows(self, columns: Table, prefix: str = NODE_PREFIX) -> pa.Table:
        """A table with names as texts, without this prefix."""
        code, distinct = factorize(columns["name"])
        names = []
        for name in distinct.tolist():
            names.append(scrub(self._texts[name].removeprefix(prefix)) or "?")
        indices = pa.array(code.astype(np.int32))
        rows = {"name": pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))}
        for key, column in columns.items():
            if key not in ("name", "thread"):
                rows[key] = _nullable(column)
        if "thread" in columns:
            # No masking: a thread's number may be `NONE`.
            thread = pa.array(columns["thread"])
            rows |= {"thread": thread, "thread_key": thread}
        return pa.table(rows)


def _batch_of(document: Any) -> int | None:
    """The batch size that the trace's own metadata names; None unless all that name one agree."""
    batches: set[int] = set()

    def search(value: Any, depth: int) -> None:
        if not isinstance(value, dict) or depth > _DEEPEST:
            return
        for name, inner in value.items():
            if (
                str(name).lower() in _BATCH_NAMES
                and isinstance(inner, (int, str))
                and str(inner).isdecimal()
            ):
                batches.add(int(inner))
            search(inner, depth + 1)

    search(document, 0)
    if len(batches) == 1 and min(batches) > 0:
        return batches.pop()
    return None


def _nullable(column: npt.NDArray[Any]) -> pa.Array:
    return pa.array(column, mask=column == NONE)


def _occurrence(values: Ints) -> npt.NDArray[np.int32]:
    """How often each value stands before, shape (values,)."""
    order = np.argsort(values, kind="stable")
    first = np.append(True, np.diff(values[order]) != 0)
    at = np.arange(len(values))
    counts = np.zeros(len(values), np.int32)
    counts[order] = at - np.maximum.accumulate(np.where(first, at, 0))
    return counts


def _launches(calls: pa.Table) -> int:
    """Number of calls that launch kernels or graphs."""
    names, counts = map(pa.Array.to_pylist, pc.value_counts(calls["name"]).flatten())
    launches = 0
    for name, count in zip(names, counts, strict=True):
        if "launch" in str(name).lower():
            launches += count
    return launches


def _rank_info(information: Any) -> dict[str, Any] | None:
    """The rank of the trace; the profiler does not record the node."""
    facts = information if isinstance(information, dict) else {}
    if isinstance(rank := facts.get("rank"), int) and isinstance(
        world := facts.get("world_size"), int
    ):
        return {"rank": rank, "world_size": world, "local_rank": None, "node": None}
    return None


def _device(properties: Any, used: set[int]) -> dict[str, Any] | None:
    """Facts of the first device with work; ROCm numbers its devices otherwise: then they count if
    all are alike.
    """
    everything = properties if isinstance(properties, list) else []
    devices = [facts for facts in everything if isinstance(facts, dict)]
    chosen = [facts for facts in devices if isinstance(facts.get("id"), int)]
    chosen = [facts for facts in chosen if facts["id"] in used]
    if not chosen and used and len({str(facts.get("name")) for facts in devices}) == 1:
        chosen = devices
    if not chosen:
        return None
    facts = chosen[0]
    name = facts.get("name")
    major = whole(facts.get("computeMajor"))
    minor = whole(facts.get("computeMinor"))
    has_capability = major is not None and minor is not None
    return {
        "name": name if isinstance(name, str) else None,
        "compute_capability": f"{major}.{minor}" if has_capability else None,
        "sm_count": whole(facts.get("numSms")),
        "memory_bytes": whole(facts.get("totalGlobalMem"), LATEST_NS),
    }
