"""Recordings with links in them, each decided by a number, beside a folder that they lead to."""

import hashlib
import json
import os
import shutil
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from curvescope.profiling.recording.schema import SCHEMA_VERSION, TABLES
from curvescope.profiling.recording.store import RecordingWriter, Status

from ..curvescope.recordings import write_planted

CHANGING = ("import R", "sweep --resume S", "confirm R --experiments 1s")
COMMANDS = (
    *(*CHANGING, "explain R", "breakdown R", *CHANGING, "export --parquet R -o new"),
    *(*CHANGING, "report R -o new.html", "export --perfetto R -o new.json", *CHANGING, "runs ."),
)
HEAD = {
    "format": "curvescope recording",
    "schema_version": SCHEMA_VERSION,
    "status": "recording",
    "created_utc": "2026-01-01T00:00:00+00:00",
    **dict.fromkeys(("network", "device", "batches", "protocol")),
    "lost": {},
    "argv": ["python", "x.py"],
}


def write_outside(folder):
    """Files of the user that no command may touch: folders, Parquet files, a recording."""
    folder.mkdir()
    (folder / "thesis.txt").write_text("irreplaceable\n")
    pq.write_table(pa.table({"x": [1, 2]}), folder / "dataset.parquet")
    for name in ("options", "ends", "memory", "room_for_events", "room_for_the_end"):
        (folder / name).write_text("mine\n")
    for name in ("1-5.chunks", "1.json", "1.marks", "empty.parquet"):
        (folder / name).write_bytes(b"")
    (folder / "below").mkdir()
    shutil.copy(folder / "dataset.parquet", folder / "below" / "00000.parquet")
    (folder / "nothing").mkdir()
    with RecordingWriter(folder / "recorded", {"recording_type": "sweep"}) as writer:
        writer.update(status=Status.RECORDING)


def list_all(folder):
    """All that is in a folder: names, sizes, times and contents."""
    entries = {}
    for path in sorted([folder, *folder.rglob("*")]):
        about = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        where = str(path.relative_to(folder))
        entries[where] = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ino, content)
    return entries


def write_linked(number, folder):
    """Write recording `R`, and a sweep `S` of it, with links decided by a number; return the
    command to run.
    """
    random = Random(f"links {number}")
    write_outside(folder / "outside")
    recording = folder / "R"
    command = COMMANDS[number % len(COMMANDS)]
    if "sweep" in command:
        recording = folder / "S" / _write_plan(folder / "S")
    _write_recording(recording, random, cut="import" in command or random.random() < 0.1)
    for _ in range(random.choice((1, 1, 2, 4))):
        _link(recording, folder / "outside", random)
    return command


def _write_plan(folder):
    """Write the plan of a sweep; returns the name of the folder of its recording."""
    from curvescope.profiling.measure.configuration import Configuration
    from curvescope.profiling.measure.protocol import Protocol
    from curvescope.profiling.measure.sweep_plan import PLAN_FILE, SweepPlan

    configuration = Configuration("alexnet")
    protocol = Protocol("one", (1, 1), 1, (1, 1), 0.0, 0, None)
    PLAN_FILE.write(folder, SweepPlan((configuration,), (1,), False, protocol))
    return configuration.label


def _write_recording(recording, random, cut):
    if cut:
        recording.mkdir()
        (recording / "recording.json").write_text(
            json.dumps({**HEAD, "recording_type": "profile", "recorder": "cupti"})
        )
        (recording / "chunks").mkdir()
        (recording / "chunks" / "options").write_text('{"batch": null, "range_pattern": null}')
        return
    write_planted(recording)
    meta = json.loads((recording / "recording.json").read_text())
    meta["status"] = random.choice((*["recording"] * 4, "interrupted", "complete"))
    (recording / "recording.json").write_text(json.dumps(meta))


def _link(recording, outside, random):
    """Put a link in place of a part of a recording: a table, a part, its document, itself."""
    # No command reads `peaks` before it writes: what is wrong with others is said before.
    table = recording / random.choice((*TABLES, "kernels", "steps", *["peaks"] * 20))
    places = [table] * 8 + [recording / "chunks"] * 3 + [recording / "recording.json", recording]
    places += [
        recording
        / "chunks"
        / random.choice(("1-5.chunks", "1.json", "1.marks", "options", "ends")),
        recording / "chunks" / random.choice(("memory", "room_for_events", "room_for_the_end")),
        recording / random.choice((".chunks.merged", ".claim", "output-batch1.log", "more")),
        table / random.choice(("00000.parquet", "00001.parquet", "x")),
    ]
    place = random.choice(places)
    if any(path.is_symlink() for path in (place.parent, recording)):
        return
    if not place.parent.is_dir():
        return
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir():
        shutil.rmtree(place)
    targets = [outside] * 6 + [outside / name for name in ("below", "below", "nothing", "recorded")]
    targets += [outside / name for name in ("thesis.txt", "dataset.parquet", "missing")]
    targets += [outside / "recorded" / "recording.json", place.parent]
    target = random.choice(targets)
    for step in range(random.choice((0, 0, 0, 1, 3))):  # a chain
        between = recording.parent / f"link{step}-{random.random()}"
        between.symlink_to(os.path.relpath(target, between.parent))
        target = between
    place.symlink_to(random.choice((target, os.path.relpath(target, place.parent))))
