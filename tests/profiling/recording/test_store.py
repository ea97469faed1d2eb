import errno
import json
import os
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.recording import atomic_files, part_files
from curvescope.profiling.recording.schema import SCHEMA_VERSION
from curvescope.profiling.recording.store import (
    Recording,
    RecordingWriter,
    Status,
    list_recordings,
    new_recording_path,
    open_recording,
)


def steps(count=2, batch=4, first=0):
    numbers, unmeasured = (
        list(range(first, first + count)),
        {"start_ns": [None] * count, "profiled": [False] * count},
    )
    same = {
        "batch": [batch] * count,
        "round": [0] * count,
        "mode": ["training"] * count,
        **unmeasured,
    }
    return {
        "step": numbers,
        "index": numbers,
        "duration_ns": [1_000_000 + i for i in numbers],
        **same,
    }


def record(path, parts=1):
    with RecordingWriter(path, {"network": "tiny"}) as writer:
        for part in range(parts):
            writer.write("steps", steps(first=2 * part))
    return path


def snapshot(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_column_that_an_older_part_does_not_have_is_null(tmp_path):
    recording = open_recording(record(tmp_path / "r"))
    (part,) = recording.parts("steps")
    pq.write_table(pq.read_table(part).drop_columns(["mode", "start_ns"]), part)
    (piece,) = recording.pieces("steps", ("mode", "start_ns", "batch"))
    assert piece.to_pydict() == {"mode": [None, None], "start_ns": [None, None], "batch": [4, 4]}


def test_what_was_written_reads_back_here_and_by_any_parquet_reader(tmp_path):
    import duckdb

    recording = open_recording(record(tmp_path / "r", parts=3))
    frame = recording.frame("steps")
    assert frame["duration_ns"].tolist() == [1_000_000 + i for i in range(6)]
    assert frame["start_ns"].isna().all()  # missing stays missing
    assert recording.complete
    assert recording.frame("kernels").empty
    assert "registers_per_thread" in recording.frame("kernels").columns
    query = f"select count(*), sum(duration_ns) from '{tmp_path}/r/steps/*.parquet'"
    assert duckdb.sql(query).fetchall() == [(6, 6_000_015)]


def test_nothing_is_overwritten(tmp_path):
    before = snapshot(record(tmp_path / "r"))
    with pytest.raises(CurvescopeError, match="nothing is overwritten"):
        RecordingWriter(tmp_path / "r", {})
    assert snapshot(tmp_path / "r") == before


EXPERIMENT = {
    "number": 0,
    "stage": "alone",
    "scope": "step",
    "functional": [[4, -2.0], [8, 1.0]],
    "batches": [4, 8],
}
EXPERIMENT |= {"functional_kind": "excess"}
EXPERIMENT_RUNS = {"experiment": [0], "round": [0], "index": [0], "factor": [None], "batch": [4]}
EXPERIMENT_RUNS |= {"start_ns": [None], "duration_ns": [5]}


@pytest.mark.parametrize("status", [Status.COMPLETE, Status.INCOMPLETE, Status.INTERRUPTED])
def test_a_finished_recording_gets_parts_and_keeps_its_own(tmp_path, status):
    """Its files, its status and what it lost stay; parts are numbered on, and one that exists is
    refused.
    """
    path = record(tmp_path / "r", parts=2)
    with RecordingWriter.extend(path) as writer:
        writer.count_lost("kernels_unmatched", 3, "a test's")
        writer.update(status=status)
    before = snapshot(path)
    with RecordingWriter.extend(path) as writer:
        writer.write("steps", steps())
        writer.write("experiments", EXPERIMENT_RUNS)
        with pytest.raises(ValueError, match=r"00000\.parquet exists"):
            writer.write("steps", steps(), part="00000")
        writer.update(experiments=[EXPERIMENT])
    with suppress(RuntimeError), RecordingWriter.extend(path) as writer:
        writer.write("experiments", EXPERIMENT_RUNS)
        raise RuntimeError  # a failure keeps what was added before, and the status
    recording = open_recording(path)
    assert recording.meta["status"] == status
    assert recording.meta["lost"]["kernels_unmatched"]["count"] == 3
    assert recording.meta["experiments"] == [EXPERIMENT]
    assert (recording.count_rows("steps"), recording.count_rows("experiments")) == (6, 2)
    after = snapshot(path)
    assert all(
        after[file] == content for file, content in before.items() if file.name != "recording.json"
    )


def test_a_sweep_whose_writer_was_killed_keeps_all_its_parts_and_gets_more(tmp_path):
    path = tmp_path / "r"
    writer = RecordingWriter(path, {"recording_type": "sweep"})
    writer.write("steps", steps(), part="whole")
    for name in ("whole", "begun"):
        rows = {
            "name": ["r"],
            "start_ns": [0],
            "duration_ns": [1],
            "kind": ["push_pop"],
            "source": ["torch"],
        }
        writer.write("ranges", rows, part=name)
    with pytest.raises(CurvescopeError, match="Another process adds to"):
        RecordingWriter.extend(path)
    del writer  # as by a kill: its lock ends, and its last entry stays
    assert open_recording(path).meta["status"] == Status.RECORDING
    with RecordingWriter.extend(path) as writer:
        writer.write("experiments", EXPERIMENT_RUNS)
    recording = open_recording(path)
    assert recording.meta["status"] == Status.INTERRUPTED
    assert [part.stem for part in recording.parts("ranges")] == ["begun", "whole"]
    assert (recording.count_rows("steps"), recording.count_rows("experiments")) == (2, 1)


def test_what_cannot_be_written_is_neither_completed_nor_extended(tmp_path, monkeypatch):
    path = record(tmp_path / "r")
    before = snapshot(path)
    monkeypatch.setattr("os.access", lambda *_: False)
    for change in (
        RecordingWriter.extend,
        RecordingWriter.again,
        lambda path: RecordingWriter.resume(path, "steps"),
    ):
        with pytest.raises(CurvescopeError, match="is not yours to write in: copy it"):
            change(path)
    assert snapshot(path) == before


def test_what_another_process_adds_to_or_is_still_recorded_gets_nothing(tmp_path):
    RecordingWriter(tmp_path / "r", {})
    with pytest.raises(CurvescopeError, match="not finished"):
        RecordingWriter.extend(tmp_path / "r")
    path = record(tmp_path / "old")
    with (
        RecordingWriter.extend(path),
        pytest.raises(CurvescopeError, match="Another process adds to"),
    ):
        RecordingWriter.extend(path)
    with RecordingWriter.extend(path):  # the lock ended with its writer
        pass
    with pytest.raises(CurvescopeError, match="nothing does not exist"):
        RecordingWriter.extend(tmp_path / "nothing")


def test_resuming_drops_unfinished_visits_but_no_experiments(tmp_path):
    with RecordingWriter(tmp_path / "r", {}) as writer:
        operators = {
            "batch": [4],
            "op": ["aten::mm"],
            "arguments": ["[]"],
            "calls": [1],
            "position": [0],
        }
        for part in ("a", "b"):
            writer.write("operators", {**operators, "source": ["torch"]}, part=part)
        writer.write("steps", steps(), part="a")  # the visit b was cut off
        writer.write("experiments", EXPERIMENT_RUNS)
    RecordingWriter.resume(tmp_path / "r", "steps").finish()
    recording = open_recording(tmp_path / "r")
    assert [part.stem for part in recording.parts("operators")] == ["a"]
    assert recording.count_rows("experiments") == 1


def test_an_exception_or_a_kill_leaves_whole_parts_and_the_status_says_it(tmp_path):
    writer = RecordingWriter(tmp_path / "killed", {})
    writer.write("steps", steps())
    # what SIGKILL leaves of a part being written: a temporary file, never the name itself
    (tmp_path / "killed" / "steps" / ".00001.parquet.x7k").write_bytes(b"PAR1 half a p")
    with suppress(KeyboardInterrupt), RecordingWriter(tmp_path / "raised", {}) as writer:
        writer.write("steps", steps())
        raise KeyboardInterrupt
    for name, status in (("killed", Status.RECORDING), ("raised", Status.INTERRUPTED)):
        recording = open_recording(tmp_path / name)
        assert (recording.meta["status"], recording.complete) == (status, False)
        assert len(recording.frame("steps")) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": SCHEMA_VERSION + 1}, "upgrade with"),
        ({"schema_version": SCHEMA_VERSION - 1}, "record it again"),
        *(({name: value}, "not written by Curvescope") for name, value in
          (("format", "something else"), ("schema_version", "new"), ("status", None))),
        *((content, r"recording\.json") for content in (b"", b"{", b"[1]", b"\xff\xfe\x00", b"null")),  # noqa: E501
    ],
)  # fmt: skip
def test_foreign_newer_and_damaged_recordings_are_refused_by_name(tmp_path, change, message):
    meta = record(tmp_path / "r") / "recording.json"
    is_entry = isinstance(change, dict)
    meta.write_bytes(
        json.dumps({**json.loads(meta.read_text()), **change}).encode() if is_entry else change
    )
    with pytest.raises(CurvescopeError, match=message):
        open_recording(tmp_path / "r")


@pytest.mark.parametrize(
    "read", [Recording.frame, Recording.count_rows, lambda r, table: list(r.pieces(table))]
)
def test_a_damaged_part_is_named(tmp_path, read):
    record(tmp_path / "r", parts=2)
    part = tmp_path / "r" / "steps" / "00001.parquet"
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(CurvescopeError, match=r"00001\.parquet is damaged"):
        read(open_recording(tmp_path / "r"), "steps")


def test_small_parts_are_read_and_checked_together(tmp_path, monkeypatch):
    checked, conform = [], part_files.conform

    def count(table, rows):
        checked.append(rows.num_rows)
        return conform(table, rows)

    monkeypatch.setattr(part_files, "conform", count)
    with RecordingWriter(tmp_path / "r", {"network": "tiny"}) as writer:
        for part in range(5):
            writer.write("steps", {**steps(first=2 * part), "mode": [f"mode {part}"] * 2})
    recording = open_recording(tmp_path / "r")
    (piece,) = recording.pieces("steps")
    assert piece.to_pylist() == recording.arrow("steps").to_pylist()
    assert piece["mode"].num_chunks == 1
    assert checked == [10, 10]
    monkeypatch.setattr(part_files, "_PIECE_ROWS", 3)
    assert [piece.num_rows for piece in recording.pieces("steps")] == [4, 4, 2]


def test_of_parts_that_are_checked_together_the_wrong_one_is_named(tmp_path):
    recording = open_recording(record(tmp_path / "r", parts=3))
    part = recording.parts("steps")[1]
    pq.write_table(pa.table({**pq.read_table(part).to_pydict(), "batch": [4, -4]}), part)
    for read in (recording.frame, lambda table: list(recording.pieces(table))):
        with pytest.raises(CurvescopeError, match=r"00001\.parquet is damaged .*batch is -4"):
            read("steps")


def test_parts_that_only_together_add_up_to_more_than_a_part_may_are_read(tmp_path):
    """A part's total is a sign of damage; a recording of many processes may reach more."""
    with RecordingWriter(tmp_path / "r", {"network": "tiny"}) as writer:
        for part in range(3):
            writer.write("steps", {**steps(first=2 * part), "duration_ns": [1 << 48] * 2})
    recording = open_recording(tmp_path / "r")
    assert len(recording.frame("steps")) == 6
    (piece,) = recording.pieces("steps")
    assert piece.num_rows == 6


@pytest.mark.parametrize("columns", [{"batch": ["two", "four"]}, {"batch": [2, 4], "own": [1, 2]}])
def test_a_part_that_does_not_fit_the_schema_is_refused(tmp_path, columns):
    recording = open_recording(record(tmp_path / "r"))
    (part,) = recording.parts("steps")
    pq.write_table(pa.table({**pq.read_table(part).to_pydict(), **columns}), part)
    for read in (recording.frame, lambda table: list(recording.pieces(table))):
        with pytest.raises(CurvescopeError, match=r"not from Curvescope"):
            read("steps")


def test_a_folder_that_is_no_recording_or_holds_some_is_told(tmp_path):
    with pytest.raises(CurvescopeError, match="curvescope runs"):
        open_recording(tmp_path)
    record(tmp_path / "sweep" / "vgg_a")
    with pytest.raises(CurvescopeError, match=r"holds recordings: name one, e\.g\. .*vgg_a"):
        open_recording(tmp_path / "sweep")


def test_a_full_disk_is_said_and_leaves_what_was_there(tmp_path, monkeypatch):
    writer = RecordingWriter(tmp_path / "r", {})
    writer.write("steps", steps())
    before = snapshot(tmp_path / "r")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_files.os, "fsync", full)
    with pytest.raises(CurvescopeError, match="disk is full"):
        writer.write("steps", steps())
    assert snapshot(tmp_path / "r") == before  # no temporary file either
    assert len(open_recording(tmp_path / "r").frame("steps")) == 2


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB, where this user may mount one."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = [shutil.which("mount") or "mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user may not mount a small file system")
    yield mount
    subprocess.run(["umount", mount], check=True)


def test_a_real_full_disk(small_disk):
    (small_disk / "ballast").write_bytes(b"x" * 180_000)
    with pytest.raises(CurvescopeError, match="disk is full"):
        record(small_disk / "r", parts=100)
    recording = open_recording(small_disk / "r")
    assert len(recording.frame("steps")) == 2 * len(recording.parts("steps")) > 0


def test_data_that_does_not_fit_the_schema_is_a_programming_error(tmp_path):
    writer = RecordingWriter(tmp_path / "r", {})
    with pytest.raises(ValueError, match="does not have the columns durations"):
        writer.write("steps", {**steps(), "durations": [1, 2]})
    with pytest.raises(ValueError, match=r"steps\.duration_ns must not be null"):
        writer.write("steps", {**steps(), "duration_ns": [1, None]})


def test_listing_names_what_it_cannot_read(tmp_path):
    record(tmp_path / "b")
    record(tmp_path / "a")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "recording.json").write_text("{")
    *listed, broken = list_recordings(tmp_path)
    assert [one.path.name for one in listed] == ["a", "b"]
    assert broken.path == tmp_path / "broken"
    assert "recording.json cannot be read" in broken.reason


def test_dated_folders_never_collide(tmp_path):
    first = new_recording_path("my.module:net", tmp_path)
    assert first.name.endswith("_my.module-net")
    assert new_recording_path("my.module:net", tmp_path) != first


def test_of_several_writers_of_one_folder_one_gets_it(tmp_path):
    """Sixteen threads between the look into the folder and the first file: all but one used to
    write on together.
    """
    together = threading.Barrier(16)

    def make(number):
        together.wait()
        with (
            suppress(CurvescopeError),
            RecordingWriter(tmp_path / "r", {"number": number}) as writer,
        ):
            return writer.meta["number"]

    with ThreadPoolExecutor(16) as pool:
        made = [number for number in pool.map(make, range(16)) if number is not None]
    assert len(made) == 1
    assert open_recording(tmp_path / "r").meta["number"] == made[0]
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["recording.json"]


def test_lost_data_is_counted_by_name(tmp_path):
    with RecordingWriter(tmp_path / "r", {}) as writer:
        writer.count_lost("dropped", 3, "records dropped")
        writer.count_lost("dropped", 4, "records dropped")
        writer.count_lost("never", 0, "nothing")
    assert open_recording(Path(tmp_path / "r")).meta["lost"] == {
        "dropped": {"count": 7, "severity": "partial", "sentence": "records dropped"}
    }


def test_files_have_the_permissions_that_the_user_gives_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        record(tmp_path / "r")
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "r").rglob("*") if path.is_file()]
    assert len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}


@pytest.mark.parametrize(
    "raised",
    [
        pa.ArrowException(
            "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"
        ),
        pa.ArrowMemoryError("malloc of size 64 failed"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_a_whole_file_is_not_called_damaged_where_memory_ran_out(tmp_path, monkeypatch, raised):
    """The message told to move it away."""
    with RecordingWriter(tmp_path / "r", {}) as writer:
        writer.write("steps", steps())

    def refuse(*_args, **_options):
        raise raised

    monkeypatch.setattr(pq, "read_metadata", refuse)
    with pytest.raises((MemoryError, OSError)):
        open_recording(tmp_path / "r").count_rows("steps")
