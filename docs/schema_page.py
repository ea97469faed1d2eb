"""The reference page of the trace schema, from the schema; docs/generate_reference.py writes it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from curvescope.profiling.recording.entries import RecordingJson
from curvescope.profiling.recording.lost import LOSSES
from curvescope.profiling.recording.schema import SCHEMA_VERSION, TABLES, Column


def schema_page() -> str:
    """The page as Markdown."""
    lines = [
        "# The trace schema",
        "",
        f"Version {SCHEMA_VERSION}, from `profiling/recording/schema.py`.",
        "",
        "A recording is a folder: `recording.json`, and a folder of Parquet parts for each table "
        "that has rows. Any Parquet reader opens it: "
        "`duckdb.sql(\"from 'RUN/kernels/*.parquet'\")`.",
        "",
        "Missing is null, in columns whose type has a `?`. Times are int64 nanoseconds of one "
        "monotonic host clock. One FMA is two FLOPs. *Aggregates* says how a column is combined "
        "when rows are grouped: sum; exclusive (overlap is divided, then summed); mean (weighted "
        "by duration); key (identifies the row).",
    ]
    counts = Counter(column for table in TABLES.values() for column in table.columns)
    shared = [column for column, count in counts.items() if count > 1]
    lines += ["", "## Columns of several tables", "", *_rows(shared)]
    for table in TABLES.values():
        own = [column for column in table.columns if column not in shared]
        also = [f"`{column.name}`" for column in table.columns if column in shared]
        lines += ["", f"## {table.name}", "", table.doc, "", *_rows(own)]
        lines += ["", f"Also: {', '.join(also)}."] if also else []
    lines += [
        "",
        "## recording.json",
        "",
        "From `profiling/recording/entries.py`. All but the first three may be absent or null: "
        "unknown. Entries that are not listed are kept. A recording with an entry of another type, "
        "or an impossible value, is refused, and the message names the entry. Numbers are not "
        "negative, and batch sizes and shapes at least 1.",
        "",
        "| entry | type | meaning |",
        "|---|---|---|",
        *_entries(RecordingJson),
    ]
    lines += [
        "",
        "## Lost data",
        "",
        "`lost` in `recording.json` counts by name, with the sentence. *Lost*: recorded data is "
        "gone, and the recording's status is `incomplete`. *Partial*: the source lacks something, "
        "or a fact is unknown. *Repaired*: changed so that it can be used; nothing is gone.",
    ]
    lines += ["", "| name | severity | meaning |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {kind.severity.value} | {kind.sentence} |" for name, kind in LOSSES.items()
    ]
    return "\n".join(lines).replace("`|`", "`\\|`") + "\n"


_COMMENTED = re.compile(r"^((?:    # .+\n)*)    (\w+): [^#\n]+(?:  # (.+))?$", re.MULTILINE)
_KINDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def _entries(kind: type, of: str = "") -> Iterator[str]:
    """A row for each entry of a class of `entries`, and for those inside it."""
    hints = get_type_hints(kind)
    for above, name, beside in _COMMENTED.findall(inspect.getsource(kind)):
        said = " ".join(above.replace("    # ", " ").split()) or beside
        meaning = re.sub(r"\bNone\b", "null", said)
        inner, words = _inside(hints[name])
        yield f"| `{of}{name}` | {words} | {meaning} |"
        if inner is not None:
            yield from _entries(inner, f"{of}{name}.")


def _inside(hint: Any, number: str = "") -> tuple[type | None, str]:
    """The class of objects that a type holds, if any, and the type in words."""
    if dataclasses.is_dataclass(hint):
        return hint, "objects" if number else "object"  # type: ignore[return-value]
    parts = [part for part in get_args(hint) if part not in (type(None), ...)]
    origin = getattr(hint, "__origin__", None)
    if hasattr(hint, "__metadata__"):
        return _inside(hint.__origin__, number)
    if isinstance(hint, type) and (
        kind := _KINDS.get(hint, "text" if issubclass(hint, str) else None)
    ):
        return None, kind + number
    if origin is tuple:
        inner, words = _inside(parts[0], "s")
        return inner, f"list of {words}"
    if origin is not None and len(parts) == 2:
        inner, words = _inside(parts[1], "s")
        return inner, f"{words} by name"
    return _inside(parts[0], number) if parts else (None, "any value")


def _rows(columns: list[Column]) -> Iterator[str]:
    yield from ("| column | type | unit | aggregates | meaning |", "|---|---|---|---|---|")
    for c in columns:
        dtype = f"{c.dtype}?" if c.nullable else str(c.dtype)
        yield f"| `{c.name}` | {dtype} | {c.unit} | {c.aggregate.value} | {c.doc} |"
