"""Generate the reference page of the trace schema.

Run `python -m curvescope.profiling.recording.schema_doc > docs/schema.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .lost import LOSSES
from .schema import SCHEMA_VERSION, TABLES, Column


def schema_page() -> str:
    """The page as Markdown."""
    lines = [
        "# The trace schema",
        "",
        f"Version {SCHEMA_VERSION}. This page is generated from `profiling/recording/schema.py`; "
        "a test keeps the two equal.",
        "",
        "A recording is a folder: `recording.json`, and a folder of Parquet parts for each table that has rows. "
        "Any Parquet reader opens it: `duckdb.sql(\"from 'RUN/kernels/*.parquet'\")`.",
        "",
        "Missing is null, in columns whose type has a `?`. Times are int64 nanoseconds of one monotonic host clock. "
        "One FMA is two FLOPs. "
        "*Aggregates* says how a column is combined when rows are grouped: sum; exclusive (overlap is divided, then "
        "summed); mean (weighted by duration); key (identifies the row).",
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
        "## Lost data",
        "",
        "`lost` in `recording.json` counts by name, with the sentence. "
        "*Lost*: recorded data is gone, and the recording's status is `incomplete`. *Partial*: the source lacks "
        "something, or a fact is unknown. *Repaired*: changed so that it can be used; nothing is gone.",
    ]
    lines += ["", "| name | severity | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind.severity.value} | {kind.sentence} |" for name, kind in LOSSES.items()]
    return "\n".join(lines).replace("`|`", "`\\|`") + "\n"


def _rows(columns: list[Column]) -> Iterator[str]:
    yield from ("| column | type | unit | aggregates | meaning |", "|---|---|---|---|---|")
    for c in columns:
        yield f"| `{c.name}` | {c.dtype}{'?' * c.nullable} | {c.unit} | {c.aggregate.value} | {c.doc} |"


if __name__ == "__main__":
    print(schema_page(), end="")
