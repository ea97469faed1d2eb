"""Generate the reference page of the trace schema.

Run `python -m curvescope.profiling.recording.schema_doc > docs/schema.md`.
"""

from __future__ import annotations

from .lost import LOSSES
from .schema import SCHEMA_VERSION, TABLES


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
        "Missing is null. Times are int64 nanoseconds of one monotonic host clock. One FMA is two FLOPs. "
        "*Aggregates* says how a column is combined when rows are grouped: sum; exclusive (overlap is divided, then "
        "summed); mean (weighted by duration); key (identifies the row).",
    ]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", table.doc, ""]
        lines += ["| column | type | null | unit | aggregates | meaning |", "|---|---|---|---|---|---|"]
        lines += [
            f"| `{c.name}` | {c.dtype} | {'yes' if c.nullable else 'no'} | {c.unit} | {c.aggregate.value} | {c.doc} |"
            for c in table.columns
        ]
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


if __name__ == "__main__":
    print(schema_page(), end="")
