"""Take an excerpt of a SQLite export of Nsight Systems: what a reader needs, and nothing of the machine.

python excerpt.py EXPORT.sqlite EXCERPT.sqlite.gz
"""

from __future__ import annotations

import gzip
import sqlite3
import sys
import tempfile
from pathlib import Path

# Samples of the CPU and of the operating system, command lines, environment, logs, thread names: left out.
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
)
NAMED = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", ("demangledName", "shortName", "mangledName")),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", ("nameId",)),
)


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
        database.execute(
            "DELETE FROM META_DATA_EXPORT WHERE name NOT LIKE 'EXPORT_PRODUCT%' AND name NOT LIKE '%SCHEMA%'"
        )
        database.execute("UPDATE TARGET_INFO_GPU SET uuid = NULL")
        used = " UNION ".join(
            f"SELECT {column} FROM {table}"
            for table, columns in NAMED
            if table in there
            for column in columns
        )
        database.execute(f"DELETE FROM StringIds WHERE id NOT IN ({used})")
        database.commit()
        database.execute("VACUUM")
        database.close()
        target.write_bytes(gzip.compress(copy.read_bytes(), mtime=0))


if __name__ == "__main__":
    excerpt(Path(sys.argv[1]), Path(sys.argv[2]))
