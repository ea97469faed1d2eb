"""Reads what NCCL tells about its calls in exports of Nsight Systems: message, ranks and
communicator.

The export describes the fields of payloads (NVTX_PAYLOAD_SCHEMA_ENTRIES). A payload begins with 32
bytes: domain, 0, schema, 0 (32 bits each), size of the fields, and size of all (64 bits each),
little-endian. NCCL counts the bytes that a rank gives (AllGather) or gets (ReduceScatter);
`kernels.message_bytes` is the larger of both, as nccl-tests counts it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ..attribution.collectives import between_two, collective
from ..attribution.columns import int_column
from .sqlite_tables import SqliteTables

_ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
_EVENTS = "NVTX_EVENTS"
_HEADER = struct.Struct("<IIIIQQ")
# Formats of NVTX_PAYLOAD_ENTRY_TYPE_* (nvToolsExtPayload.h): int, longs, and integers and sizes of
# fixed width.
_FORMATS = {
    5: "<i",
    6: "<I",
    7: "<q",
    8: "<Q",
    9: "<q",
    10: "<Q",
    15: "<i",
    16: "<I",
    17: "<q",
    18: "<Q",
    22: "<Q",
}
_COMMUNICATOR = "NCCL communicator ID"
_RANKS = "No. of ranks"
_MESSAGE = "Message size [bytes]"
# the message of a rank is one of so many parts
_PER_RANK = frozenset({"AllGather", "ReduceScatter", "AlltoAll"})


def nccl_columns(tables: SqliteTables, ranges: pa.Table) -> dict[str, pa.Array]:
    """Columns collective, message_bytes, group_size and communicator of ranges; none without a
    call.
    """
    calls, ranks = _calls(tables)
    if not calls:
        return {}
    rows: list[dict[str, Any]] = [{}] * ranges.num_rows
    started = np.isin(int_column(ranges, "start_ns"), [start for _, start in calls])
    for row in np.flatnonzero(started).tolist():
        thread = ranges["thread_key"][row].as_py()
        start = ranges["start_ns"][row].as_py()
        if (thread, start) in calls:
            name = ranges["name"][row].as_py()
            rows[row] = _facts(name, *calls[thread, start], ranks)
    types = {
        "collective": pa.string(),
        "message_bytes": pa.int64(),
        "group_size": pa.int32(),
        "communicator": pa.string(),
    }
    return {name: pa.array([row.get(name) for row in rows], dtype) for name, dtype in types.items()}


def _calls(
    tables: SqliteTables,
) -> tuple[dict[tuple[int, int], tuple[int | None, int]], dict[int, int]]:
    """Communicator and bytes of the calls with a message, by thread and start in ns; ranks of
    communicators.
    """
    calls: dict[tuple[int, int], tuple[int | None, int]] = {}
    ranks: dict[int, int] = {}
    numbers = dict.fromkeys(("domainId", "schemaId", "type", "offset"), pa.int64())
    fields: dict[tuple[int, int], dict[str, tuple[int, str]]] = {}
    for row in tables.read(_ENTRIES, {**numbers, "name": pa.string()}).to_pylist():
        form = _FORMATS.get(row["type"])
        if form and row["name"] in (_COMMUNICATOR, _RANKS, _MESSAGE):
            schema = row["domainId"], row["schemaId"]
            fields.setdefault(schema, {})[row["name"]] = (row["offset"] or 0, form)
    if not fields:
        return calls, ranks
    for start, thread, payload in tables.read_filled(_EVENTS, ("start", "globalTid"), "binaryData"):
        values = decode_payload(payload, fields)
        communicator = values.get(_COMMUNICATOR)
        size = values.get(_RANKS)
        if communicator is not None and size is not None and 0 < size < 1 << 31:
            ranks[communicator] = size
        elif _MESSAGE in values and isinstance(start, int) and isinstance(thread, int):
            calls[thread, start] = communicator, values[_MESSAGE]
    return calls, ranks


def _facts(
    name: str, communicator: int | None, message_bytes: int, ranks: Mapping[int, int]
) -> dict[str, Any]:
    what = collective(name)
    if not what and (name in ("ncclSend", "ncclRecv") or between_two(name)):
        what = "SendRecv"
    group = None
    if communicator is not None:
        group = ranks.get(communicator)
    parts = group if what in _PER_RANK else 1
    size = None
    if what and parts is not None and parts * message_bytes < 1 << 63:
        size = parts * message_bytes
    return {
        "collective": what or None,
        "group_size": group,
        "message_bytes": size,
        "communicator": None if communicator is None else f"{communicator:016x}",
    }


def decode_payload(
    payload: Any, fields: Mapping[tuple[int, int], Mapping[str, tuple[int, str]]]
) -> dict[str, int]:
    """The values of a payload (blob or text) by name; empty for one that is damaged or of no known
    schema.

    Fields are offsets and formats by name, by domain and schema.
    """
    data = payload.encode("latin-1", errors="replace") if isinstance(payload, str) else payload
    if not isinstance(data, bytes) or len(data) < _HEADER.size:
        return {}
    domain, _, schema, _, _, _ = _HEADER.unpack_from(data)
    payloads = {}
    for name, (offset, form) in fields.get((domain, schema), {}).items():
        at = _HEADER.size + offset
        if offset >= 0 and at + struct.calcsize(form) <= len(data):
            (value,) = struct.unpack_from(form, data, at)
            if value >= 0:
                payloads[name] = value
    return payloads
