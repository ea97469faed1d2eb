"""Columns of kernels, memcpys and memsets that SQLite files of Nsight Systems and nvprof share:
both store CUPTI's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ..attribution.cupti_names import COPY_KINDS, CUPTI_MEMORY, LAUNCH_SHAPE, MANAGED
from .sqlite_tables import SqliteTables, translate

# Columns of the neutral tables, and the columns of the files.
WORK = {
    "start_ns": "start",
    "end_ns": "end",
    "device": "deviceId",
    "context": "contextId",
    "stream": "streamId",
    "correlation_id": "correlationId",
}
_KERNEL_COLUMNS = {**LAUNCH_SHAPE, "graph_id": "graphId"}
_SHARED_MEMORY = ("staticSharedMemory", "dynamicSharedMemory")
# ENUM_CUDA_MEMCPY_OPER of Nsight Systems has CUPTI's numbers; 11 to 13 are migrations of unified
# memory.
_MIGRATIONS = {11: "HtoD", 12: "DtoH", 13: "DtoD"}
_MEMCPY_KINDS = {**COPY_KINDS, **_MIGRATIONS}

Columns = dict[str, pa.ChunkedArray | pa.Array]


def scan_kernels(
    tables: SqliteTables,
    table: str,
    name: str,
    decode: Callable[[pa.ChunkedArray], pa.Array],
    needed: Sequence[str] | None,
    work: Mapping[str, str] = WORK,
) -> Iterator[Columns]:
    """Columns of a table of kernels, batch by batch; `name` holds string ids, whose names `decode`
    gives.

    Of the columns of all device work (`work`) only the needed ones are read; None for these and the
    launch's, too.
    """
    columns = _select(work, _KERNEL_COLUMNS, needed)
    shared = _SHARED_MEMORY if needed is None else ()
    for batch in tables.scan(table, dict.fromkeys((*columns.values(), *shared, name), pa.int64())):
        columns_of_batch = {ours: batch[theirs] for ours, theirs in columns.items()}
        columns_of_batch["name"] = decode(batch[name])
        if shared:
            columns_of_batch["shared_memory_bytes"] = pc.add(*(batch[column] for column in shared))
        yield columns_of_batch


def scan_memory(
    tables: SqliteTables,
    table: str,
    kind: str,
    needed: Sequence[str] | None,
    work: Mapping[str, str] = WORK,
    memory: Mapping[int, str] = CUPTI_MEMORY,
) -> Iterator[Columns]:
    """Columns of a table of memcpys or memsets (`kind`), batch by batch; arguments as of
    `scan_kernels`.

    `memory` has the kinds of memory of the host by their numbers.
    """
    columns = _select(work, {"bytes": "bytes", "address": "virtualAddress"}, needed)
    migrations = pa.array(list(_MIGRATIONS), pa.int64())
    wanted = (*columns.values(), "copyKind", "srcKind", "dstKind")
    for batch in tables.scan(table, dict.fromkeys(wanted, pa.int64())):
        columns_of_batch = {ours: batch[theirs] for ours, theirs in columns.items()}
        columns_of_batch["kind"] = pa.repeat(kind, batch.num_rows)
        columns_of_batch["memcpy_kind"] = translate(batch["copyKind"], _MEMCPY_KINDS)
        source = translate(batch["srcKind"], memory)
        target = translate(batch["dstKind"], memory)
        migrated = pc.is_in(batch["copyKind"], migrations)
        host_memory = pc.coalesce(source, target)
        columns_of_batch["host_memory"] = pc.if_else(migrated, MANAGED, host_memory)
        yield columns_of_batch


def _select(
    work: Mapping[str, str], further: Mapping[str, str], needed: Sequence[str] | None
) -> dict[str, str]:
    if needed is None:
        return {**work, **further}
    return {ours: work[ours] for ours in needed if ours in work}
