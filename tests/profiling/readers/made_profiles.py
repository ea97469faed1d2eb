"""What the tests of readers share: import of files, texts and events, what was lost, SQL without
the reader.
"""

import gzip
import json
import sqlite3
from pathlib import Path

from curvescope.profiling.readers import Options, import_profile
from curvescope.profiling.recording.store import open_recording

PROFILES = Path(__file__).parents[2] / "data" / "profiles"


def imported(path, folder, **options):
    """The recording of a file, in a new folder inside this one."""
    target = folder / f"recording{len(list(folder.glob('recording*'))) or ''}"
    return open_recording(import_profile(path, target, Options(**options)).path)


def of_text(text, folder, **options):
    (folder / "profile").write_text(text)
    return imported(folder / "profile", folder, **options)


def of_events(events, folder, **document):
    """The recording of a Chrome trace; further values of its document."""
    return of_text(json.dumps({"traceEvents": events, **document}), folder)


def rows(recording, table, *columns):
    """The rows of a table, as tuples of these columns."""
    return [tuple(row[column] for column in columns) for row in recording.arrow(table).to_pylist()]


def lost(recording):
    return {name: entry["count"] for name, entry in recording.meta["lost"].items()}


def query(path, tmp_path, sql):
    """Rows of SQL on a packed export."""
    unpacked = tmp_path / "unpacked.sqlite"
    unpacked.write_bytes(gzip.decompress(path.read_bytes()))
    return sqlite3.connect(unpacked).execute(sql).fetchall()
