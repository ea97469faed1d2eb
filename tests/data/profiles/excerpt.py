"""Take an excerpt of a SQLite export of Nsight Systems: what a reader needs, and nothing of the
machine.

python excerpt.py EXPORT.sqlite EXCERPT.sqlite.gz
"""

from __future__ import annotations

import gzip
import sqlite3
import sys
import tempfile
from pathlib import Path

# Samples of the CPU and of the operating system, command lines, environment, logs, thread names:
# left out.
DROPPED = (
    "META_DATA_CAPTURE",
    "ProcessStreams",
    "DIAGNOSTIC_EVENT",
    "ThreadNames",
    "PROFILER_OVERHEAD",
    "COMPOSITE_EVENTS",
    "SAMPLING_CALLCHAINS",
    "SCHED_EVENTS",
    "OSRT_API",
    "OSRT_CALLCHAINS",
    "OSRT_FILE_ACCESS_EVENTS",
    "OSRT_FILE_ACCESS_DESCRIPTORS",
    "TARGET_INFO_SESSION_START_TIME",
    "TARGET_INFO_SYSTEM_ENV",
    "ANALYSIS_FILE",
    "PROCESSES",
    "CUDA_CALLCHAINS",
)
NAMED = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", ("demangledName", "shortName", "mangledName")),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", ("nameId",)),
    ("NVTX_EVENTS", ("textId",)),
)


def columns_of(database: sqlite3.Connection, table: str) -> set[str]:
    """The names of a table's columns."""
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}


def excerpt(source: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.sqlite"
        copy.write_bytes(source.read_bytes())
        database = sqlite3.connect(copy)
        there = {
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        for table in there.intersection(DROPPED):
            database.execute(f"DROP TABLE {table}")
        for table in there.intersection(("META_DATA_EXPORT", "EXPORT_META_DATA")):
            database.execute(
                f"DELETE FROM {table} WHERE name NOT LIKE 'EXPORT_PRODUCT%' AND name NOT LIKE "
                "'%SCHEMA%'"
            )
        if "TARGET_INFO_GPU" in there and "uuid" in columns_of(database, "TARGET_INFO_GPU"):
            database.execute("UPDATE TARGET_INFO_GPU SET uuid = NULL")
        used = " UNION ".join(
            f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"
            for table, columns in NAMED
            if table in there
            for column in columns
            if column in columns_of(database, table)
        )
        database.execute(f"DELETE FROM StringIds WHERE id NOT IN ({used})")
        database.commit()
        database.execute("VACUUM")
        database.close()
        target.write_bytes(gzip.compress(copy.read_bytes(), mtime=0))


if __name__ == "__main__":
    excerpt(Path(sys.argv[1]), Path(sys.argv[2]))
