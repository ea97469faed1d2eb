"""Reads Chrome traces of `curvescope export --perfetto` back into rows, with durations to the
nanosecond.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from ...base.errors import CurvescopeError
from ..recording.export import BASE_KEY, ROW_EVENT
from ..recording.schema import TABLES, Table
from ..recording.store import FORMAT, RecordingWriter
from . import Options
from .source import Source
from .trace_events import Event, TraceEvents
from .values import nanoseconds

NAME = "trace of Curvescope"

_BATCH_ROWS = 1 << 15


def recognises(source: Source) -> bool:
    return source.text.startswith("{") and f'"format": "{FORMAT}"' in source.text[:4096]


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the trace; steps, layers and phases come from the exported recording."""
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
    lost: Counter[str] = Counter()
    events = TraceEvents(source, Event, options.report)
    for batch in events:
        base = events.document.get(BASE_KEY)
        if not isinstance(base, int):
            raise CurvescopeError(
                "it has no whole number `baseTimeNanoseconds` before its events; export it again."
            )
        for event in batch:
            table = TABLES.get(event.cat)
            if table is not None:
                _take(event, table, base, rows[table.name], lost)
        for name, named_rows in rows.items():
            if len(named_rows) >= _BATCH_ROWS:
                _write(writer, name, named_rows)
    for name, named_rows in rows.items():
        _write(writer, name, named_rows)
    other = events.document.get("otherData")
    meta = other.get("meta") if isinstance(other, dict) else None
    if isinstance(meta, dict):
        kept = {name: value for name, value in meta.items() if name != "imported_from"}
        writer.update(**kept, exported_from=meta.get("imported_from"))
    for name, count in (lost + events.lost).items():
        writer.count_lost(name, count)


def _take(
    event: Event, table: Table, base_ns: int, rows: list[dict[str, Any]], lost: Counter[str]
) -> None:
    names = [column.name for column in table.columns]
    row = {name: value for name, value in (event.args or {}).items() if name in names}
    if not (event.ph == "M" and event.name == ROW_EVENT):
        try:
            row["start_ns"] = base_ns + nanoseconds(event.ts)
            if event.ph == "X" and "duration_ns" in names:
                row["duration_ns"] = nanoseconds(event.dur)
        except (TypeError, ValueError, OverflowError):
            lost["events_unreadable"] += 1
            return
        if "name" in names:
            row["name"] = event.name
    duration = row.get("duration_ns")
    if isinstance(duration, int) and duration < 0:
        lost["events_unreadable"] += 1
    else:
        rows.append(row)


def _write(writer: RecordingWriter, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        writer.write(table, pa.Table.from_pylist(rows, TABLES[table].arrow))
        rows.clear()
