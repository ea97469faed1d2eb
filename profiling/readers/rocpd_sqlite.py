"""Reads rocpd databases of ROCm's rocprofv3, its default output since ROCm 7 (`*_results.db`).

Each process has tables of its own (`rocpd_kernel_dispatch_<uuid>`). An event joins a row to its
category, correlation id (`stack_id`) and the message of a roctx range; version 4 stores process,
thread, agent and stream once per track (https://github.com/ROCm/rocm-systems, rocpd_tables.sql).
Host names and command lines are not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ..recording.store import RecordingWriter
from . import Options
from .rocprof import Records, device_facts
from .source import Source
from .sqlite_tables import SqliteTables

NAME = "rocprofv3 database (rocpd)"

_DISPATCH = "rocpd_kernel_dispatch"
_MARKER = "MARKER"  # begins the category of roctx ranges
_I64, _TEXT = pa.int64(), pa.string()
_TRACK = ("pid", "tid", "agent_id", "stream_id")  # columns of a row, or of its track
_WORK = (*_TRACK, "track_id", "start", "end", "event_id")


def recognises(source: Source) -> bool:
    return source.tables is not None and any(name.startswith(_DISPATCH) for name in source.tables)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    assert source.tables is not None
    records = Records()
    for name in source.tables:
        if name.startswith(_DISPATCH):
            tables = _Tables(source.tables, name.removeprefix(_DISPATCH))
            tables.read_agents(records)
            tables.read_work(records)
    records.write(writer, options)


class _Tables:
    """The tables of one process."""

    def __init__(self, tables: SqliteTables, suffix: str) -> None:
        self._tables, self._suffix = tables, suffix
        self._strings = {
            row["id"]: row["string"] for row in self._rows("string", "id", texts=("string",))
        }
        self._process = {row["id"]: row["pid"] for row in self._rows("info_process", "id", "pid")}
        self._thread = {row["id"]: row["tid"] for row in self._rows("info_thread", "id", "tid")}
        self._tracks = {row["id"]: row for row in self._rows("track", "id", *_TRACK)}
        self._categories = {
            row["id"]: row["name"] for row in self._rows("info_category", "id", texts=("name",))
        }

    def read_agents(self, records: Records) -> None:
        """Number the GPUs."""
        for row in self._rows(
            "info_agent", "id", "type_index", texts=("type", "name", "product_name")
        ):
            if row["type"] == "GPU":
                facts = device_facts(row["product_name"], row["name"])
                records.add_gpu(self._agent(row["id"]), facts, row["type_index"])

    def read_work(self, records: Records) -> None:
        """Read dispatches, copies, API calls and ranges."""
        names = ("display_name", "kernel_name")
        symbols = {
            row["id"]: row
            for row in self._rows("info_kernel_symbol", "id", "arch_vgpr_count", texts=names)
        }
        correlation, category, message = self._events()
        sizes = [f"{what}_{axis}" for what in ("grid_size", "workgroup_size") for axis in "xyz"]
        for row in self._rows("kernel_dispatch", *_WORK, "kernel_id", "group_segment_size", *sizes):
            symbol, extents = symbols.get(row["kernel_id"], {}), [row[size] for size in sizes]
            records.add_kernel(
                symbol.get("display_name") or symbol.get("kernel_name"),
                row["start"],
                row["end"],
                self._agent(row["agent_id"]),
                items=extents[:3],
                block=extents[3:],
                registers_per_thread=symbol.get("arch_vgpr_count"),
                shared_memory_bytes=row["group_segment_size"],
                **self._place(row, correlation),
            )
        for row in self._rows(
            "memory_copy", *_WORK, "name_id", "dst_agent_id", "src_agent_id", "size"
        ):
            agents = [self._agent(row["dst_agent_id"]), self._agent(row["src_agent_id"])]
            name, place = self._strings.get(row["name_id"]), self._place(row, correlation)
            records.add_copy(name, row["start"], row["end"], agents, bytes=row["size"], **place)
        for row in self._rows("region", *_WORK, "name_id"):
            event, name = row["event_id"], self._strings.get(row["name_id"])
            about = (
                row["start"],
                row["end"],
                self._process.get(row["pid"]),
                self._thread.get(row["tid"]),
            )
            kind = (self._categories or self._strings).get(category.get(event)) or ""
            if not kind.startswith(_MARKER):
                records.add_on_host(
                    records.launches, name, *about, correlation_id=correlation.get(event)
                )
            elif event in message:
                records.add_on_host(records.ranges, message[event], *about, kind="push_pop")

    def _events(self) -> tuple[dict[Any, Any], dict[Any, Any], dict[Any, str]]:
        """Correlation id, category and message of each event."""
        correlation, category, message = {}, {}, {}
        for row in self._rows("event", "id", "category_id", "stack_id", texts=("extdata",)):
            correlation[row["id"]], category[row["id"]] = row["stack_id"], row["category_id"]
            if (text := _message(row["extdata"])) is not None:
                message[row["id"]] = text
        return correlation, category, message

    def _place(self, row: dict[str, Any], correlation: dict[Any, Any]) -> dict[str, Any]:
        ids = {"stream": row["stream_id"], "correlation_id": correlation.get(row["event_id"])}
        return {"process": self._process.get(row["pid"]), **ids}

    def _agent(self, number: int | None) -> tuple[str, int] | None:
        """An agent of this process; its number alone is that of another agent in
        another process.
        """
        return None if number is None else (self._suffix, number)

    def _rows(
        self, table: str, *numbers: str, texts: tuple[str, ...] = ()
    ) -> Iterator[dict[str, Any]]:
        wanted = {**dict.fromkeys(numbers, _I64), **dict.fromkeys(texts, _TEXT)}
        for batch in self._tables.scan(f"rocpd_{table}{self._suffix}", wanted):
            for row in batch.to_pylist():
                if row.get("track_id") is not None:
                    track = self._tracks.get(row["track_id"], {})
                    row |= {column: track.get(column) for column in _TRACK if row[column] is None}
                yield row


def _message(extdata: str | None) -> str | None:
    """The message in the further data of an event; None without one."""
    if not extdata or '"message"' not in extdata:
        return None
    try:
        parsed = json.loads(extdata)
    except (ValueError, RecursionError):
        return None
    message = parsed.get("message") if isinstance(parsed, dict) else None
    return message if isinstance(message, str) and message else None
