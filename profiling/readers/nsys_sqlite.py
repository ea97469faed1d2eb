"""Reads SQLite exports of Nsight Systems, 2020 to 2026.

Versions differ in tables and columns: the reader selects each by name. An absent column is null,
and an absent table has a sentence in `missing` if it matters. Metadata of the capture (command,
environment, host, user) is not read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ..attribution.assemble import assemble
from ..attribution.columns import int_column
from ..attribution.cupti_names import NSYS_MEMORY
from ..attribution.graph_nodes import GraphNodes
from ..attribution.nesting import Ints
from ..attribution.profile import Profile
from ..attribution.range_names import scrub
from ..attribution.waits import CONTEXT, EVENT, NO_NUMBER, Waits
from ..recording.store import RecordingWriter
from . import Options
from .cupti_tables import WORK, Columns, scan_kernels, scan_memory
from .nccl_payloads import nccl_columns
from .source import Source
from .sqlite_tables import SqliteTables, translate

NAME = "Nsight Systems SQLite export"

_KERNEL, _COPY, _SET, _RUNTIME, _GRAPH, _SYNC = (
    f"CUPTI_ACTIVITY_KIND_{name}"
    for name in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE", "SYNCHRONIZATION")
)
_NVTX = "NVTX_EVENTS"
# ENUM_NSYS_EVENT_TYPE of every export that has it.
_CATEGORY = 33
_MARK = 34
_PUSH_POP = 59
_START_END = 60
_DOMAIN = 75
_KINDS = {_MARK: "mark", _PUSH_POP: "push_pop", _START_END: "start_end"}
_WORK = {**WORK, "process": "globalPid", "graph_node_id": "graphNodeId"}
_GRAPH_NODES = "CUDA_GRAPH_NODE_EVENTS"  # creations of nodes; those with an original are clones
# the first that the table has is read
_KERNEL_NAMES = (
    "demangledName",
    "shortName",
    "mangledName",
)
_MACHINE = ("TARGET_INFO_", "ENUM_NSYS_", "OSRT_", "SCHED_EVENTS")
_I64 = pa.int64()
_TEXT = pa.string()


def recognises(source: Source) -> bool:
    tables = source.tables
    own_tables = (
        _KERNEL,
        _COPY,
        _RUNTIME,
        _NVTX,
        "META_DATA_EXPORT",
        "EXPORT_META_DATA",
        "TARGET_INFO_SESSION_START_TIME",
    )
    if tables is None or "StringIds" not in tables:
        return False
    if any(name in tables for name in own_tables):
        return True
    # One in which nothing was traced has facts of the machine only.
    return any(name.startswith(_MACHINE) for name in tables)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    assert source.tables is not None
    if not any(map(source.tables.about, (_KERNEL, _COPY, _SET, _RUNTIME, _NVTX))):
        raise CurvescopeError(
            "an export of Nsight Systems without GPU activity, CUDA calls and ranges: nothing of "
            "CUDA or NVTX was traced; record with `nsys profile --trace=cuda,nvtx`."
        )
    export = _Export(source.tables)
    writer.update(device=export.device(), profiler=export.version(), missing=export.missing())
    writer.count_lost("graphs_without_kernels", source.tables.count(_GRAPH))
    assemble(export.profile(), writer, options)
    export.write_allocations(writer)


def _name_missing_kernels(calls: int) -> str:
    """Why an export has no kernels, from its number of CUDA calls."""
    if not calls:
        return (
            f"no kernel in {_KERNEL} and no CUDA call: CUDA was not traced; record with "
            "`--trace=cuda,nvtx`"
        )
    were = "was" if calls == 1 else "were"
    return (
        f"no kernel in {_KERNEL}, though {counted(calls, 'CUDA call')} {were} recorded: nothing "
        "was launched, or GPU activity was not recorded (as under WSL 2, or without "
        "`--trace=cuda`)"
    )


class _Export:
    def __init__(self, tables: SqliteTables) -> None:
        self._tables = tables
        strings = tables.read("StringIds", {"id": _I64, "value": _TEXT})
        ids = strings["id"].to_numpy()
        order = np.argsort(ids, kind="stable")
        self._string_ids: Ints = ids[order]
        self._strings: pa.Array = strings["value"].combine_chunks().take(pa.array(order))
        low = int(self._string_ids[0]) if len(order) else 0
        high = int(self._string_ids[-1]) if len(order) else -1
        self._id_range = low, high
        self._position: Ints | None = None  # by id - low; the last entry stands for unknown ids
        # Profilers number strings in sequence: a lookup beats a search.
        if high - low < 4 * len(order) + 1024:
            self._position = np.full(high - low + 2, -1, np.int64)
            # Backwards, so that the first of several stays.
            places = self._string_ids[::-1] - low
            self._position[places] = np.arange(len(order))[::-1]
        self._code = np.full(len(order) + 1, -1, np.int32)  # by position: index into `_texts`
        self._texts: list[str] = []
        self._graph_nodes = self._read_graph_nodes()

    def profile(self) -> Profile:
        """The neutral tables."""
        count = sum(map(self._tables.about, (_RUNTIME, _KERNEL, _COPY, _SET)))
        return Profile("nsys", self._ranges(), self._launches, self._kernels, self._memory, count)

    def missing(self) -> dict[str, str]:
        """Missing data by name, with the consequence."""
        tables = self._tables
        missing = {}
        if not tables.about(_KERNEL):
            missing["kernels"] = _name_missing_kernels(tables.count(_RUNTIME))
        elif not tables.about(_RUNTIME):
            missing["api_calls"] = f"no call in {_RUNTIME}: kernels cannot be joined to ranges"
        if not tables.about(_NVTX):
            missing["ranges"] = (
                f"no range in {_NVTX}: layer and phase are unknown; record with `--trace=cuda,nvtx`"
            )
        return missing

    def version(self) -> dict[str, str] | None:
        """Name and version of the profiler; None in exports without them."""
        for name in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            rows = self._tables.read(name, {"name": _TEXT, "value": _TEXT}).to_pylist()
            facts = {row["name"]: row["value"] for row in rows if row["value"] is not None}
            if "EXPORT_PRODUCT_VERSION" in facts:
                version = {"name": "Nsight Systems", "version": facts["EXPORT_PRODUCT_VERSION"]}
                schema = facts.get("EXPORT_SCHEMA_VERSION")
                if schema is None:
                    return version
                return version | {"schema": schema}
        return None

    def device(self) -> dict[str, Any] | None:
        """The device of the first kernel; None if unknown."""
        facts = self._device_row()
        if facts is None:
            return None
        major = facts["computeMajor"]
        return {
            "name": facts["name"],
            "compute_capability": None if major is None else f"{major}.{facts['computeMinor']}",
            "sm_count": facts["smCount"],
            "memory_bytes": facts["totalMemory"],
            "memory_bytes_per_s": facts["memoryBandwidth"],
            "clock_hz": facts["clockRate"],
        }

    def _device_row(self) -> dict[str, Any] | None:
        names = []
        for name in ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU"):
            if name in self._tables:
                names.append(name)
        if not names:
            return None
        numbers = ["id", "cuDevice", "smCount", "computeMajor", "computeMinor"]
        numbers += ["totalMemory", "memoryBandwidth", "clockRate"]
        wanted = {**dict.fromkeys(numbers, _I64), "name": _TEXT}
        rows = self._tables.read(names[0], wanted).to_pylist()
        # a list of GPUs may contain some without CUDA
        rows = [row for row in rows if row["smCount"]]
        used = self._tables.first_number(_KERNEL, "deviceId")
        pairs = {"gpuId": _I64, "cudaId": _I64}
        gpu_of = {}
        for row in self._tables.read("TARGET_INFO_CUDA_DEVICE", pairs).to_pylist():
            gpu_of[row["cudaId"]] = row["gpuId"]
        candidates = [row for row in rows if row["id"] == gpu_of.get(used)]
        if not candidates and used is not None:
            candidates = [row for row in rows if row["cuDevice"] == used]
        if not candidates and len({row["name"] for row in rows}) == 1:
            candidates = rows
        return candidates[0] if candidates else None

    def write_allocations(self, writer: RecordingWriter) -> None:
        """Write allocations and frees of device memory, if they were recorded."""
        wanted = ("start", "deviceId", "address", "bytes", "memoryOperationType")
        is_change = pc.field("memoryOperationType").isin([0, 1]) & pc.field("start").is_valid()
        for batch in self._tables.scan("CUDA_GPU_MEMORY_USAGE_EVENTS", dict.fromkeys(wanted, _I64)):
            batch = batch.filter(is_change)
            columns = {
                "kind": pa.array(["allocate", "free"]).take(batch["memoryOperationType"]),
                "start_ns": batch["start"],
                "bytes": batch["bytes"],
                "device": batch["deviceId"],
                "address": batch["address"],
                "source": ["nsys"] * batch.num_rows,
            }
            writer.write("memory", columns)

    def _ranges(self) -> pa.Table:
        columns = [
            "start",
            "end",
            "eventType",
            "globalTid",
            "textId",
            "domainId",
            "category",
            "color",
        ]
        wanted = {**dict.fromkeys(columns, _I64), "text": _TEXT}
        domains: dict[int, str] = {}
        categories: dict[tuple[int, int], str] = {}
        pieces = [self._range_rows(pa.schema(list(wanted.items())).empty_table())]
        for batch in self._tables.scan(_NVTX, wanted):
            for row in _of_kind(batch, (_CATEGORY, _DOMAIN)).to_pylist():
                positions = self._positions(pa.chunked_array([[row["textId"]]], _I64))
                name = row["text"] or self._strings.take(positions)[0].as_py()
                if row["eventType"] == _DOMAIN:
                    domains[row["domainId"]] = name
                else:
                    categories[row["domainId"], row["category"]] = name
            pieces.append(self._range_rows(batch))
        table = pa.concat_tables(pieces)
        # The event that names a domain or category may come after its ranges.
        domain = translate(table["domainId"], domains)
        category = pa.nulls(table.num_rows, _TEXT)
        if categories:
            keys = zip(table["domainId"].to_pylist(), table["categoryId"].to_pylist(), strict=True)
            category = pa.array([categories.get(key) for key in keys], _TEXT)
        table = table.drop_columns(["domainId", "categoryId"])
        more = {"domain": domain, "category": category, **nccl_columns(self._tables, table)}
        for column, values in more.items():
            table = table.append_column(column, values)
        return table

    def _range_rows(self, batch: pa.Table) -> pa.Table:
        """The ranges and marks of a batch, with the numbers of their domains and categories."""
        batch = _of_kind(batch, _KINDS)
        kind = batch["eventType"]
        return pa.table(
            {
                "name": self._range_names(batch),
                "start_ns": batch["start"],
                "end_ns": pc.if_else(pc.equal(kind, _MARK), batch["start"], batch["end"]),
                **_place(batch["globalTid"]),
                "kind": translate(kind, _KINDS),
                "color_argb": batch["color"],
                "domainId": batch["domainId"],
                "categoryId": batch["category"],
            }
        )

    def _range_names(self, batch: pa.Table) -> pa.Array:
        positions = self._positions(batch["textId"])
        if not positions.null_count and batch["text"].null_count == len(
            positions
        ):  # every name is a string id
            return pa.DictionaryArray.from_arrays(positions.cast(pa.int32()), self._strings)
        name = pc.coalesce(batch["text"], self._strings.take(positions))
        return pc.fill_null(name, "").dictionary_encode()

    def _waits(self) -> Waits:
        wanted = ("globalPid", "correlationId", "syncType", "streamId", "eventId")
        table = self._tables.read(_SYNC, dict.fromkeys(wanted, _I64))
        kind, stream, event = (int_column(table, name) for name in wanted[2:])
        # The export writes the type of an event for cudaDeviceSynchronize, too, but no event.
        whole = (kind == EVENT) & (event == NO_NUMBER) & (stream == NO_NUMBER)
        call = _call_number(table["globalPid"], table["correlationId"])
        return Waits(call, np.where(whole, CONTEXT, kind), stream)

    def _launches(self) -> Iterator[pa.Table]:
        waits = self._waits()
        wanted = ("start", "end", "globalTid", "correlationId", "nameId", "returnValue")
        for batch in self._tables.scan(_RUNTIME, dict.fromkeys(wanted, _I64)):
            # `cudaLaunchKernel_v7000`: the suffix is the CUDA version that last changed the call's
            # signature.
            names = self._names(batch["nameId"])
            texts = pc.replace_substring_regex(names.dictionary, r"_v\d{4,5}$", "")
            call = _call_number(batch["globalTid"], batch["correlationId"])
            yield pa.table(
                {
                    "name": pa.DictionaryArray.from_arrays(names.indices, texts),
                    "start_ns": batch["start"],
                    "end_ns": batch["end"],
                    **_place(batch["globalTid"]),
                    "correlation_id": batch["correlationId"],
                    "return_value": batch["returnValue"],
                    **waits.columns(call),
                }
            )

    def _kernels(self, needed: Sequence[str] | None) -> Iterator[pa.Table]:
        columns = self._tables.columns(_KERNEL)
        name = next((column for column in _KERNEL_NAMES if column in columns), _KERNEL_NAMES[0])
        for kernels in scan_kernels(self._tables, _KERNEL, name, self._names, needed, _WORK):
            yield self._work(kernels)

    def _memory(self, needed: Sequence[str] | None) -> Iterator[pa.Table]:
        for table, kind in ((_COPY, "memcpy"), (_SET, "memset")):
            for operations in scan_memory(self._tables, table, kind, needed, _WORK, NSYS_MEMORY):
                yield self._work(operations)

    def _work(self, rows: Columns) -> pa.Table:
        """Device work with its process and, for work of CUDA graphs, the capture of its node."""
        table = pa.table({**rows, "process": _process(rows["process"])})
        process = int_column(table, "process")
        node = int_column(table, "graph_node_id")
        columns = dict(zip(table.column_names, table.columns, strict=True))
        return pa.table({**columns, **self._graph_nodes.columns(process, node)})

    def _read_graph_nodes(self) -> GraphNodes:
        wanted = ("graphNodeId", "originalGraphNodeId", "start", "globalTid")
        table = self._tables.read(_GRAPH_NODES, dict.fromkeys(wanted, _I64))
        table = table.filter(table["graphNodeId"].is_valid())
        node, original, start, thread = (int_column(table, name) for name in wanted)
        process = _process(pc.fill_null(table["globalTid"], 0)).to_numpy().astype(np.int64)
        return GraphNodes(process, node, np.maximum(original, 0), start, thread)

    def _names(self, ids: pa.ChunkedArray) -> pa.DictionaryArray:
        """Texts of string ids, scrubbed, dictionary-encoded: an id has one code in all batches."""
        positions = pc.fill_null(self._positions(ids), len(self._strings)).to_numpy()
        codes = self._code[positions]
        if (codes < 0).any():
            for position in np.unique(positions[codes < 0]).tolist():
                self._code[position] = len(self._texts)
                text = self._strings[position].as_py() if position < len(self._strings) else None
                self._texts.append(scrub(text or "") or "?")
            codes = self._code[positions]
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(self._texts, _TEXT))

    def _positions(self, ids: pa.ChunkedArray) -> pa.Array:
        """Positions of string ids in `_strings`; null for an id that is not in the table."""
        wanted = pc.fill_null(ids, -1).to_numpy()
        if self._position is not None:
            low, high = self._id_range
            is_inside = (wanted >= low) & (wanted <= high)
            at = self._position[np.where(is_inside, wanted - low, -1)]
            is_stored = at >= 0
        else:
            places = np.searchsorted(self._string_ids, wanted)
            at = np.minimum(places, len(self._string_ids) - 1)
            is_stored = self._string_ids[at] == wanted
        if ids.null_count:
            is_stored &= ids.is_valid().to_numpy().astype(bool)
        return pa.array(at, mask=None if is_stored.all() else ~is_stored)


def _of_kind(batch: pa.Table, kinds: Collection[int]) -> pa.Table:
    """The events of some types."""
    mine = pc.is_in(batch["eventType"], pa.array(list(kinds), _I64))
    if pc.all(mine, min_count=0).as_py():
        return batch
    return batch.filter(mine)


def _call_number(global_id: pa.ChunkedArray, correlation_id: pa.ChunkedArray) -> Ints:
    """A number for each pair of process and correlation id; unique, since a correlation id has 32
    bits.
    """
    process = np.asarray(pc.fill_null(_process(global_id), 0))
    correlation = np.asarray(pc.fill_null(correlation_id, 0))
    return np.asarray(process << 32 | (correlation & 0xFFFF_FFFF), np.int64)


def _process(global_id: pa.ChunkedArray) -> pa.ChunkedArray:
    """The process in a serialised id: 24 bits of process above 24 bits of thread."""
    return pc.bit_wise_and(pc.shift_right(global_id, 24), 0xFFFFFF)


def _place(global_id: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    thread = pc.bit_wise_and(global_id, 0xFFFFFF)
    return {"process": _process(global_id), "thread": thread, "thread_key": global_id}
