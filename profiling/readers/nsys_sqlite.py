"""SQLite exports of Nsight Systems, 2020 to 2026.

Tables and columns came and went over the versions: each is asked for by name, and what is not there is null, or named
in `missing` where it matters. Metadata of the capture (command, environment, host and user) is not read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..attribution.assemble import assemble
from ..attribution.cupti_names import COPY_KINDS, LAUNCH_SHAPE
from ..attribution.nesting import Ints
from ..attribution.profile import Profile
from ..attribution.range_names import scrub
from ..recording.store import RecordingWriter
from . import Options
from .source import Source
from .sqlite_tables import SqliteTables

NAME = "Nsight Systems SQLite export"

_KERNEL, _COPY, _SET, _RUNTIME, _NVTX, _GRAPH = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)
# ENUM_NSYS_EVENT_TYPE of every export that has it.
_CATEGORY, _MARK, _PUSH_POP, _START_END, _DOMAIN = 33, 34, 59, 60, 75
_KINDS = {_MARK: "mark", _PUSH_POP: "push_pop", _START_END: "start_end"}
# ENUM_CUDA_MEMCPY_OPER has CUPTI's numbers; 11 to 13 are migrations of unified memory.
_COPY_KINDS = {**COPY_KINDS, 11: "HtoD", 12: "DtoH", 13: "DtoD"}
_PLACE = {
    "start_ns": "start",
    "end_ns": "end",
    "process": "globalPid",
    "device": "deviceId",
    "context": "contextId",
    "stream": "streamId",
    "correlation_id": "correlationId",
}
_SHAPE = {**LAUNCH_SHAPE, "graph_id": "graphId"}
_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")  # the first that is there
_I64, _TEXT = pa.int64(), pa.string()


def recognises(source: Source) -> bool:
    """Whether it is such an export: its strings and its tables of events are there."""
    tables = source.tables
    known = (_KERNEL, _COPY, _RUNTIME, _NVTX, "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SESSION_START_TIME")
    return tables is not None and "StringIds" in tables and any(name in tables for name in known)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the export; every step counts as profiled.

    Raises:
        CurvescopeError: a table holds what it should not.
    """
    assert source.tables is not None
    export = _Export(source.tables)
    writer.update(device=export.device(), profiler=export.version(), missing=export.missing())
    writer.count_lost("graphs_without_kernels", source.tables.count(_GRAPH))
    assemble(export.profile(), writer, options)
    export.write_allocations(writer)


class _Export:
    def __init__(self, tables: SqliteTables) -> None:
        self._tables = tables
        strings = tables.read("StringIds", {"id": _I64, "value": _TEXT})
        order = np.argsort(strings["id"].to_numpy(), kind="stable")
        self._string_ids: Ints = strings["id"].to_numpy()[order]
        self._strings: pa.Array = strings["value"].combine_chunks().take(pa.array(order))
        low, high = (int(self._string_ids[0]), int(self._string_ids[-1])) if len(order) else (0, -1)
        self._ends = low, high
        self._place: Ints | None = None
        if high - low < 4 * len(order) + 1024:  # ids in a row, as profilers give them: a table beats a search
            self._place = np.full(high - low + 2, -1, np.int64)
            self._place[self._string_ids[::-1] - low] = np.arange(len(order))[::-1]
        self._code = np.full(len(order) + 1, -1, np.int32)  # of the strings that name something here
        self._texts: list[str] = []

    def profile(self) -> Profile:
        """The neutral tables."""
        count = sum(map(self._tables.about, (_RUNTIME, _KERNEL, _COPY, _SET)))
        return Profile("nsys", self._ranges(), self._launches, self._kernels, self._memory, count)

    def missing(self) -> dict[str, str]:
        """What was not recorded, by name, with what that means."""
        tables, missing = self._tables, {}
        if not tables.about(_KERNEL):
            launched = tables.count(_RUNTIME)
            missing["kernels"] = (
                f"no kernel in {_KERNEL}, though {launched} CUDA calls were recorded: nothing was launched, or GPU "
                "activity was not recorded (as under WSL 2, or without `--trace=cuda`)"
                if launched
                else f"no kernel in {_KERNEL} and no CUDA call: CUDA was not traced; record with `--trace=cuda,nvtx`"
            )
        elif not tables.about(_RUNTIME):
            missing["api_calls"] = f"no call in {_RUNTIME}: kernels cannot be joined to ranges"
        if not tables.about(_NVTX):
            missing["ranges"] = f"no range in {_NVTX}: layer and phase are unknown; record with `--trace=cuda,nvtx`"
        return missing

    def version(self) -> dict[str, str] | None:
        """Name and version of the profiler; null in exports without that."""
        for name in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            rows = self._tables.read(name, {"name": _TEXT, "value": _TEXT}).to_pylist()
            said = {row["name"]: row["value"] for row in rows if row["value"] is not None}
            if "EXPORT_PRODUCT_VERSION" in said:
                version = {"name": "Nsight Systems", "version": said["EXPORT_PRODUCT_VERSION"]}
                return (
                    version | {"schema": said["EXPORT_SCHEMA_VERSION"]} if "EXPORT_SCHEMA_VERSION" in said else version
                )
        return None

    def device(self) -> dict[str, Any] | None:
        """The device that the first kernel ran on; null where the export does not tell."""
        name = next((n for n in ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU") if n in self._tables), None)
        if name is None:
            return None
        whole = (
            "id",
            "cuDevice",
            "smCount",
            "computeMajor",
            "computeMinor",
            "totalMemory",
            "memoryBandwidth",
            "clockRate",
        )
        rows = self._tables.read(name, {**dict.fromkeys(whole, _I64), "name": _TEXT}).to_pylist()
        used = next((t["deviceId"][0].as_py() for t in self._tables.scan(_KERNEL, {"deviceId": _I64})), None)
        rows = [row for row in rows if row["smCount"]]  # a list of GPUs may hold ones that run no CUDA
        cuda = self._tables.read("TARGET_INFO_CUDA_DEVICE", {"gpuId": _I64, "cudaId": _I64}).to_pylist()
        gpu_of = {row["cudaId"]: row["gpuId"] for row in cuda}
        mine = [row for row in rows if row["id"] == gpu_of.get(used)]
        mine = mine or [row for row in rows if used is not None and row["cuDevice"] == used]
        if not mine and len({row["name"] for row in rows}) == 1:
            mine = rows
        if not mine:
            return None
        facts = mine[0]
        capability = None if facts["computeMajor"] is None else f"{facts['computeMajor']}.{facts['computeMinor']}"
        return {
            "name": facts["name"],
            "compute_capability": capability,
            "sm_count": facts["smCount"],
            "memory_bytes": facts["totalMemory"],
            "memory_bytes_per_s": facts["memoryBandwidth"],
            "clock_hz": facts["clockRate"],
        }

    def write_allocations(self, writer: RecordingWriter) -> None:
        """Memory that was allocated and freed on the device, where it was recorded."""
        wanted = dict.fromkeys(("start", "deviceId", "address", "bytes", "memoryOperationType"), _I64)
        for batch in self._tables.scan("CUDA_GPU_MEMORY_USAGE_EVENTS", wanted):
            batch = batch.filter(pc.field("memoryOperationType").isin([0, 1]) & pc.field("start").is_valid())
            kind = pa.array(["allocate", "free"]).take(batch["memoryOperationType"])
            columns = {"kind": kind, "start_ns": batch["start"], "bytes": batch["bytes"], "device": batch["deviceId"]}
            writer.write("memory", {**columns, "address": batch["address"], "source": ["nsys"] * batch.num_rows})

    def _ranges(self) -> pa.Table:
        whole = dict.fromkeys(
            ("start", "end", "eventType", "globalTid", "textId", "domainId", "category", "color"), _I64
        )
        domains: dict[int, str] = {}
        categories: dict[tuple[int, int], str] = {}
        nothing = pa.schema([*whole.items(), ("text", _TEXT)]).empty_table()
        pieces = [self._range_rows(nothing)]
        for batch in self._tables.scan(_NVTX, {**whole, "text": _TEXT}):
            for row in _of_kind(batch, (_CATEGORY, _DOMAIN)).to_pylist():
                name = row["text"] or self._string(pa.chunked_array([[row["textId"]]], _I64))[0].as_py()
                if row["eventType"] == _DOMAIN:
                    domains[row["domainId"]] = name
                else:
                    categories[row["domainId"], row["category"]] = name
            pieces.append(self._range_rows(batch))
        table = pa.concat_tables(pieces)
        # A domain or category may be named after the ranges in it.
        domain = category = pa.nulls(table.num_rows, _TEXT)
        if domains:
            place = pc.index_in(table["domainId"], pa.array(list(domains), _I64))
            domain = pa.array(list(domains.values()), _TEXT).take(place)
        if categories:
            keys = zip(table["domainId"].to_pylist(), table["categoryId"].to_pylist(), strict=True)
            category = pa.array([categories.get(key) for key in keys], _TEXT)
        table = table.drop_columns(["domainId", "categoryId"])
        return table.append_column("domain", domain).append_column("category", category)

    def _range_rows(self, batch: pa.Table) -> pa.Table:
        """The ranges and marks of a batch, domain and category still by number."""
        batch = _of_kind(batch, _KINDS)
        place = pc.index_in(batch["eventType"], pa.array(list(_KINDS), _I64)).combine_chunks()
        return pa.table(
            {
                "name": self._range_names(batch),
                "start_ns": batch["start"],
                "end_ns": pc.if_else(pc.equal(batch["eventType"], _MARK), batch["start"], batch["end"]),
                "process": _process(batch["globalTid"]),
                "thread": _thread(batch["globalTid"]),
                "thread_key": batch["globalTid"],
                "kind": pa.DictionaryArray.from_arrays(_whole(place), pa.array(list(_KINDS.values()), _TEXT)),
                "color_argb": batch["color"],
                "domainId": batch["domainId"],
                "categoryId": batch["category"],
            }
        )

    def _range_names(self, batch: pa.Table) -> pa.Array:
        places = self._places(batch["textId"])
        if not places.null_count and batch["text"].null_count == len(places):  # all by id
            return pa.DictionaryArray.from_arrays(places.cast(pa.int32()), self._strings)
        name = pc.coalesce(batch["text"], self._strings.take(places))
        return pc.fill_null(name, "").dictionary_encode()

    def _launches(self) -> Iterator[pa.Table]:
        wanted = ("start", "end", "globalTid", "correlationId", "nameId", "returnValue")
        for batch in self._tables.scan(_RUNTIME, dict.fromkeys(wanted, _I64)):
            # `cudaLaunchKernel_v7000`: the version in which the call got its present form is no part of its name.
            names = self._names(batch["nameId"])
            texts = pc.replace_substring_regex(names.dictionary, r"_v\d{4,5}$", "")
            yield pa.table(
                {
                    "name": pa.DictionaryArray.from_arrays(names.indices, texts),
                    "start_ns": batch["start"],
                    "end_ns": batch["end"],
                    "process": _process(batch["globalTid"]),
                    "thread": _thread(batch["globalTid"]),
                    "thread_key": batch["globalTid"],
                    "correlation_id": batch["correlationId"],
                    "return_value": batch["returnValue"],
                }
            )

    def _kernels(self, needed: Sequence[str] | None) -> Iterator[pa.Table]:
        there = self._tables.columns(_KERNEL)
        name = next((column for column in _KERNEL_NAMES if column in there), None)
        columns = _needed(needed, _SHAPE)
        extra = [] if needed is not None else ["staticSharedMemory", "dynamicSharedMemory"]
        named = needed is None or "name" in needed
        wanted = dict.fromkeys([*columns.values(), *extra, *([name] if name and named else [])], _I64)
        for batch in self._tables.scan(_KERNEL, wanted):
            found = {ours: batch[theirs] for ours, theirs in columns.items()}
            found["process"] = _process(batch["globalPid"])
            if named:
                found["name"] = self._names(batch[name] if name else pa.nulls(batch.num_rows, _I64))
            if extra:
                found["shared_memory_bytes"] = pc.add(batch[extra[0]], batch[extra[1]])
            yield pa.table(found)

    def _memory(self, needed: Sequence[str] | None) -> Iterator[pa.Table]:
        for name, kind in ((_COPY, "memcpy"), (_SET, "memset")):
            columns = _needed(needed, {"bytes": "bytes", "address": "virtualAddress"})
            wanted = dict.fromkeys([*columns.values(), "copyKind"], _I64)
            for batch in self._tables.scan(name, wanted):
                found = {ours: batch[theirs] for ours, theirs in columns.items()}
                found["process"] = _process(batch["globalPid"])
                found["kind"] = pa.array([kind] * batch.num_rows, _TEXT)
                found["memcpy_kind"] = copy_kinds(batch["copyKind"])
                yield pa.table(found)

    def _string(self, ids: pa.ChunkedArray) -> pa.Array:
        """Texts of string ids; null for an id that is not in the table."""
        return self._strings.take(self._places(ids))

    def _names(self, ids: pa.ChunkedArray) -> pa.DictionaryArray:
        """Texts of string ids, scrubbed, dictionary-encoded: one code for one id throughout the export."""
        places = pc.fill_null(self._places(ids), len(self._strings)).to_numpy()
        codes = self._code[places]
        if (codes < 0).any():
            for place in np.unique(places[codes < 0]).tolist():
                self._code[place] = len(self._texts)
                text = self._strings[place].as_py() if place < len(self._strings) else None
                self._texts.append(scrub(text or "") or "?")
            codes = self._code[places]
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(self._texts, _TEXT))

    def _places(self, ids: pa.ChunkedArray) -> pa.Array:
        wanted = pc.fill_null(ids, -1).to_numpy() if ids.null_count else ids.to_numpy()
        low, high = self._ends
        if self._place is not None and len(wanted) and low <= wanted.min() and wanted.max() <= high:
            at = self._place[wanted - low]
            known = at >= 0
        elif self._place is not None:
            known = (wanted >= low) & (wanted <= high)
            at = self._place[np.where(known, wanted - low, -1)]
            known = at >= 0
        else:
            at = np.minimum(np.searchsorted(self._string_ids, wanted), len(self._string_ids) - 1)
            known = self._string_ids[at] == wanted
        if ids.null_count:
            known &= ids.is_valid().to_numpy().astype(bool)
        return pa.array(at, mask=None if known.all() else ~known)


def _needed(needed: Sequence[str] | None, further: dict[str, str]) -> dict[str, str]:
    """Our and their names of the columns that are needed; null for all, the further ones too."""
    return {**_PLACE, **further} if needed is None else {ours: _PLACE[ours] for ours in needed if ours in _PLACE}


def _of_kind(batch: pa.Table, kinds: Collection[int]) -> pa.Table:
    """The events of some types."""
    mine = pc.is_in(batch["eventType"], pa.array(list(kinds), _I64))
    return batch if pc.all(mine, min_count=0).as_py() else batch.filter(mine)


def copy_kinds(numbers: pa.ChunkedArray) -> pa.Array:
    """Names of the driver's numbers of copy kinds; null for others."""
    return pa.array(list(_COPY_KINDS.values())).take(pc.index_in(numbers, pa.array(list(_COPY_KINDS), _I64)))


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array of whole numbers, whatever it came as."""
    return pa.array(column.to_pylist() if not len(column) else column.to_numpy(), pa.int32())


def _process(global_id: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """The process in a serialised id: 24 bits of process above 24 bits of thread."""
    if global_id.null_count:
        return pc.bit_wise_and(pc.shift_right(global_id, 24), 0xFFFFFF)
    return pa.array((global_id.to_numpy() >> 24 & 0xFFFFFF).astype(np.int32))


def _thread(global_id: pa.ChunkedArray) -> pa.ChunkedArray:
    """The thread in a serialised id."""
    return pc.bit_wise_and(global_id, 0xFFFFFF)
