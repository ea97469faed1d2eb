"""Generate the reference page of the trace schema.

Run `python -m curvescope.profiling.recording.schema_doc > docs/schema.md`.
"""

from __future__ import annotations

from .schema import SCHEMA_VERSION, TABLES


def schema_page() -> str:
    """The page as Markdown."""
    lines = [
        "# The trace schema",
        "",
        f"Version {SCHEMA_VERSION}. This page is generated from `profiling/recording/schema.py`; "
        "a test holds the two together.",
        "",
        "A recording is a folder: `recording.json`, and a folder of Parquet parts for each table that has rows. "
        "Any Parquet reader opens it: `duckdb.sql(\"from 'RUN/kernels/*.parquet'\")`.",
        "",
        "Missing is null. Times are int64 nanoseconds of one monotonic host clock. One FMA is two FLOPs. "
        "*Aggregates* says how a column combines when rows are grouped: sum; exclusive (overlap is shared out, then "
        "summed); mean (weighted by duration); key (names or places the row).",
    ]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", table.doc, ""]
        lines += ["| column | type | null | unit | aggregates | meaning |", "|---|---|---|---|---|---|"]
        lines += [
            f"| `{c.name}` | {c.dtype} | {'yes' if c.nullable else 'no'} | {c.unit} | {c.aggregate.value} | {c.doc} |"
            for c in table.columns
        ]
    return "\n".join(lines).replace("`|`", "`\\|`") + "\n"


if __name__ == "__main__":
    print(schema_page(), end="")
