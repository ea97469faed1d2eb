"""Reads files of nvprof (.nvprof, .nvvp, .prof, .sql: all SQLite), schema versions 8 to 22.

A timeline run stores kernels in CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, a run that replays kernels
for metrics in CUPTI_ACTIVITY_KIND_KERNEL; both are read. Replayed kernels have durations, but no
start times. Times are nanoseconds, API calls are numbers, kernel names are mangled, and one file
contains one process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...base.counted import counted
from ..attribution.assemble import assemble
from ..attribution.cupti_names import MANAGED
from ..attribution.nesting import Ints
from ..attribution.profile import Profile
from ..attribution.range_names import scrub
from ..native import demangle
from ..recording.store import RecordingWriter
from . import Options
from .cupti_tables import scan_kernels, scan_memory
from .metrics import load_toml
from .source import Source
from .sqlite_tables import SqliteTables

NAME = "nvprof SQLite file"

_PREFIX = "CUPTI_ACTIVITY_KIND_"
_KERNELS = (f"{_PREFIX}CONCURRENT_KERNEL", f"{_PREFIX}KERNEL")
_COPIES = (
    (f"{_PREFIX}MEMCPY", "memcpy"),
    (f"{_PREFIX}MEMCPY2", "memcpy"),
    (f"{_PREFIX}MEMSET", "memset"),
)
_UNIFIED = f"{_PREFIX}UNIFIED_MEMORY_COUNTER"
# CUpti_ActivityUnifiedMemoryCounterKind of the counters that are migrations, and the column with
# their GPU.
_MIGRATIONS = {1: ("HtoD", "dstId"), 2: ("DtoH", "srcId"), 8: ("DtoD", "dstId")}
# also the tables of cupti_calls.toml
_CALLS = {
    "runtime": f"{_PREFIX}RUNTIME",
    "driver": f"{_PREFIX}DRIVER",
}
_MARKER, _METRIC, _EVENT, _DEVICE = (
    f"{_PREFIX}{name}" for name in ("MARKER", "METRIC", "EVENT", "DEVICE")
)
_MARKER_DATA = f"{_PREFIX}MARKER_DATA"
# CUpti_ActivityFlag of markers, and CUpti_ActivityObjectKind of the object they belong to.
_INSTANT = 1
_START = 2
_END = 4
_OF_THREAD = 2
# CUPTI_ACTIVITY_FLAG_MARKER_COLOR_ARGB, and the formats of payloads by CUpti_MetricValueKind: 8
# bytes, little-endian.
_ARGB = 2
_PAYLOADS = {0: "<d", 1: "<Q", 4: "<q"}
_I64 = pa.int64()
_TEXT = pa.string()
_BYTES = pa.binary()


def recognises(source: Source) -> bool:
    tables = source.tables
    if tables is None or "StringTable" not in tables:
        return False
    return any(name.startswith(_PREFIX) for name in tables)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    assert source.tables is not None
    file = _File(source.tables)
    writer.update(device=file.device(), profiler=file.version(), missing=file.missing())
    writer.count_lost("metrics_without_name", sum(map(source.tables.count, (_METRIC, _EVENT))))
    assemble(file.profile(), writer, options)


class _File:
    def __init__(self, tables: SqliteTables) -> None:
        self._tables = tables
        strings = tables.read("StringTable", {"_id_": _I64, "value": _TEXT})
        keys = strings["_id_"].to_pylist()
        texts = (text or "" for text in strings["value"].to_pylist())
        self._strings: dict[int, str] = dict(zip(keys, texts, strict=True))
        self._position = {key: position for position, key in enumerate(sorted(self._strings))}
        self._kept: dict[tuple[int, bool], str] = {}
        self._replayed = bool(tables.count(_METRIC) or tables.count(_EVENT))

    def profile(self) -> Profile:
        """The neutral tables."""
        count = sum(map(self._tables.count, (*_KERNELS, *(name for name, _ in _COPIES), _UNIFIED)))
        ranges = self._ranges()
        launches = self._launches()
        return Profile(
            "nvprof",
            ranges,
            lambda: iter([launches]),
            self._kernels,
            self._memory,
            count,
            self._replayed,
        )

    def missing(self) -> dict[str, str]:
        """Missing data by name, with the consequence."""
        missing = {}
        calls = sum(map(self._tables.count, _CALLS.values()))
        if not any(map(self._tables.count, _KERNELS)):
            missing["kernels"] = (
                f"no kernel despite {counted(calls, 'CUDA API call')}: GPU activity was not "
                "recorded"
                if calls
                else "no kernel and no CUDA API call: the program used no GPU, or nvprof did not "
                "see its process"
            )
        elif not calls:
            missing["api_calls"] = "no CUDA API call: kernels cannot be joined to ranges"
        if self._replayed:
            missing["timeline"] = (
                "kernels were replayed for metrics: they have durations, but no start times"
            )
        if not self._tables.count(_MARKER):
            missing["ranges"] = "no NVTX range: layer and phase are unknown"
        return missing

    def version(self) -> dict[str, str] | None:
        """Version of the schema; None if unknown."""
        versions = self._tables.read("Version", {"version": _I64})["version"].to_pylist()
        if versions:
            return {"name": "nvprof", "schema": str(versions[0])}
        return None

    def device(self) -> dict[str, Any] | None:
        """The device of the first kernel; None if unknown."""
        numbers = ["id", "name", "computeCapabilityMajor", "computeCapabilityMinor"]
        numbers += [
            "numMultiprocessors",
            "globalMemorySize",
            "globalMemoryBandwidth",
            "coreClockRate",
        ]
        rows = self._tables.read(_DEVICE, dict.fromkeys(numbers, _I64)).to_pylist()
        first = [self._tables.first_number(table, "deviceId") for table in _KERNELS]
        used = next((number for number in first if number is not None), None)
        if used is not None or len(rows) != 1:
            rows = [row for row in rows if row["id"] == used]
        if not rows:
            return None
        facts = rows[0]
        bandwidth = facts["globalMemoryBandwidth"]
        clock = facts["coreClockRate"]
        major = facts["computeCapabilityMajor"]
        return {
            "name": self._strings.get(facts["name"]),
            "compute_capability": f"{major}.{facts['computeCapabilityMinor']}",
            "sm_count": facts["numMultiprocessors"],
            "memory_bytes": facts["globalMemorySize"],
            "memory_bytes_per_s": bandwidth * 1000 if bandwidth else None,  # stored in kB/s
            "clock_hz": clock * 1000 if clock else None,  # stored in kHz
        }

    def _ranges(self) -> pa.Table:
        wanted = dict.fromkeys(("flags", "timestamp", "id", "objectKind", "name", "domain"), _I64)
        table = self._tables.read(_MARKER, {**wanted, "objectId": _BYTES})
        flags = _numbers(table, "flags")
        ids = _numbers(table, "id")
        time = _numbers(table, "timestamp")
        starts = np.flatnonzero(flags & _START)
        starts = starts[np.lexsort((time[starts], ids[starts]))]
        end_of = _find_ends(flags, ids, time, starts)
        marks = np.flatnonzero((flags & _INSTANT) & ~(flags & (_START | _END)))
        rows = np.concatenate([starts, marks])
        end = np.concatenate([time[end_of], time[marks]])
        open_ = np.concatenate([end_of < 0, np.zeros(len(marks), bool)])
        order = np.argsort(time[rows], kind="stable")
        rows = rows[order]
        picked = table.take(pa.array(rows))
        color, payload = self._marker_data(ids[rows])
        of_thread = pc.fill_null(pc.equal(picked["objectKind"], _OF_THREAD), False)
        kind = np.where(of_thread.to_numpy().astype(bool), "push_pop", "start_end")
        kind = np.where(flags[rows] & _START == 0, "mark", kind)
        thread = _threads(picked["objectId"].to_pylist())
        domains = [self._strings.get(d) if d else None for d in picked["domain"].to_pylist()]
        return pa.table(
            {
                "name": self._names(picked["name"]),
                "start_ns": picked["timestamp"],
                "end_ns": pa.array(end[order], mask=open_[order]),
                "thread": thread,
                "thread_key": thread,
                "domain": pa.array(domains, _TEXT),
                "kind": pa.array(kind.tolist(), _TEXT),
                "color_argb": color,
                "payload": payload,
            }
        )

    def _marker_data(self, ids: Ints) -> tuple[pa.Array, pa.Array]:
        """Colour and payload of markers by their numbers; null if absent."""
        wanted = dict.fromkeys(("id", "flags", "color", "payloadKind"), _I64)
        rows = self._tables.read(_MARKER_DATA, {**wanted, "payload": _BYTES}).to_pylist()
        # the first of two with one number counts, as for ranges
        of_id = {row["id"]: row for row in reversed(rows)}
        colors = []
        payloads = []
        for number in ids.tolist():
            facts = of_id.get(number, {})
            color = facts.get("color") if (facts.get("flags") or 0) & _ARGB else None
            # Stored as signed 32 bits.
            colors.append(None if color is None else color & 0xFFFFFFFF)
            payloads.append(_payload(facts.get("payloadKind"), facts.get("payload")))
        return pa.array(colors, _I64), pa.array(payloads, _TEXT)

    def _launches(self) -> pa.Table:
        wanted = ("cbid", "start", "end", "threadId", "correlationId", "returnValue")
        names_of_calls = load_toml("cupti_calls.toml")
        tables = []
        codes = []
        names: list[str] = []
        for api, table in _CALLS.items():
            rows = self._tables.read(table, dict.fromkeys(wanted, _I64))
            distinct, code = np.unique(_numbers(rows, "cbid"), return_inverse=True)
            tables.append(rows)
            codes.append(code + len(names))
            for number in distinct.tolist():
                names.append(names_of_calls[api].get(str(number), f"{api} call {number}"))
        calls = pa.concat_tables(tables)
        # stored as signed 32 bits
        thread = pc.bit_wise_and(pc.fill_null(calls["threadId"], 0), 0xFFFFFFFF)
        code = pa.array(np.concatenate(codes).astype(np.int32))
        return pa.table(
            {
                "name": pa.DictionaryArray.from_arrays(code, pa.array(names, _TEXT)),
                "start_ns": calls["start"],
                "end_ns": calls["end"],
                "thread": thread,
                "thread_key": thread,
                "correlation_id": calls["correlationId"],
                "return_value": calls["returnValue"],
            }
        )

    def _kernels(self, needed: Sequence[str] | None) -> Iterator[pa.Table]:
        demangled = partial(self._names, demangled=True)
        for table in _KERNELS:
            for kernels in scan_kernels(self._tables, table, "name", demangled, needed):
                if "graph_id" in kernels:  # 0: outside of any graph
                    graph = kernels["graph_id"]
                    kernels["graph_id"] = pc.if_else(
                        pc.equal(graph, 0), pa.scalar(None, _I64), graph
                    )
                yield pa.table(kernels)

    def _memory(self, needed: Sequence[str] | None) -> Iterator[pa.Table]:
        for table, kind in _COPIES:
            yield from map(pa.table, scan_memory(self._tables, table, kind, needed))
        yield from self._migrations(needed)

    def _migrations(self, needed: Sequence[str] | None) -> Iterator[pa.Table]:
        """Migrations of unified memory as memcpys: no call of the program started them, and they
        have no stream.
        """
        wanted = ("counterKind", "value", "start", "end", "address", "srcId", "dstId")
        for batch in self._tables.scan(_UNIFIED, dict.fromkeys(wanted, _I64)):
            for number, (kind, device) in _MIGRATIONS.items():
                rows = batch.filter(pc.equal(batch["counterKind"], number))
                unknown = pa.nulls(rows.num_rows, _I64)
                columns = {"start_ns": rows["start"], "end_ns": rows["end"], "device": rows[device]}
                columns |= dict.fromkeys(("context", "stream", "correlation_id"), unknown)
                if needed is None:
                    columns |= {"bytes": rows["value"], "address": rows["address"]}
                else:
                    columns = {name: values for name, values in columns.items() if name in needed}
                columns["kind"] = pa.repeat("memcpy", rows.num_rows)
                columns["memcpy_kind"] = pa.repeat(kind, rows.num_rows)
                columns["host_memory"] = pa.repeat(MANAGED, rows.num_rows)
                yield pa.table(columns)

    def _names(self, ids: pa.ChunkedArray, *, demangled: bool = False) -> pa.DictionaryArray:
        """Texts of string ids, scrubbed, `?` for none; an id has one code in all batches: its index
        in the table.
        """
        used = ids.to_pylist()
        for key in set(used):
            if key in self._strings and (key, demangled) not in self._kept:
                text = self._strings[key]
                if demangled:
                    text = scrub(demangle(text))
                self._kept[key, demangled] = text or "?"
        texts = [self._kept.get((key, demangled), "?") for key in self._position]
        texts.append("?")
        codes = pa.array([self._position.get(key, len(self._position)) for key in used], pa.int32())
        return pa.DictionaryArray.from_arrays(codes, pa.array(texts, _TEXT))


def _payload(kind: int | None, value: bytes | None) -> str | None:
    """A payload as text; None for other kinds, and for zero, which also stands for a missing
    payload.
    """
    if kind not in _PAYLOADS or value is None or len(value) != 8 or not any(value):
        return None
    return str(struct.unpack(_PAYLOADS[kind], value)[0])


def _threads(objects: list[bytes | None]) -> pa.Array:
    """Threads of marker objects: process and thread in 32 bits each, little-endian; null if
    malformed.
    """
    threads = []
    for data in objects:
        is_whole = data is not None and len(data) >= 8
        threads.append(int.from_bytes(data[4:8], "little") if data and is_whole else None)
    return pa.array(threads, _I64)


def _numbers(table: pa.Table, column: str) -> Ints:
    """A column of numbers, 0 for null."""
    return np.asarray(pc.fill_null(table[column], 0).to_numpy())


def _find_ends(flags: Ints, ids: Ints, time: Ints, starts: Ints) -> Ints:
    """The row of the first end with each start's number, -1 without one; numbers are not reused."""
    ends = np.flatnonzero(flags & _END)
    ends = ends[np.lexsort((time[ends], ids[ends]))]
    at = np.searchsorted(ids[ends], ids[starts])
    closed = at < len(ends)
    closed[closed] = ids[ends[at[closed]]] == ids[starts[closed]]
    end_of = np.full(len(starts), -1, np.int64)
    end_of[closed] = ends[at[closed]]
    return end_of
