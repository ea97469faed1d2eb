"""What the tests of readers of SQLite profiles share: import, what was lost, SQL without the reader."""

from __future__ import annotations

import gzip
import sqlite3

from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording


def imported(path, tmp_path, options=None):
    return open_recording(import_profile(path, tmp_path / "recording", options).path)


def lost(recording):
    return {name: entry["count"] for name, entry in recording.meta["lost"].items()}


def query(path, tmp_path, sql):
    """Rows of SQL on a packed export."""
    unpacked = tmp_path / "unpacked.sqlite"
    unpacked.write_bytes(gzip.decompress(path.read_bytes()))
    return sqlite3.connect(unpacked).execute(sql).fetchall()
