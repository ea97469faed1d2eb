"""Chunk files of somebody else, each made for one harm: what is whole is kept, the rest is said."""

import json
import os
from contextlib import contextmanager

import pytest

from curvescope.base.limits import CHUNK_FREE_ROWS
from curvescope.cli import main
from curvescope.profiling.attribution.linear_patterns import LinearPattern
from curvescope.profiling.attribution.range_names import RangeNames
from curvescope.profiling.collect import chunks as C
from curvescope.profiling.collect import kept_chunks
from curvescope.profiling.collect.shared_memory import _chunk
from curvescope.profiling.recording.atomic_files import StorageError
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ..tables import ask_each
from .fuzzed_chunks import NAMES, Random, events, strings, table
from .linked_recordings import HEAD, list_all


def write_cut(folder, *pieces, options=None):
    """A cut recording whose process wrote these chunks."""
    (folder / "R" / "chunks").mkdir(parents=True)
    head = {**HEAD, "recording_type": "profile", "recorder": "cupti"}
    (folder / "R" / "recording.json").write_text(json.dumps(head))
    data = b"".join(_chunk(kind, 1, first, payload) for kind, first, payload in pieces)
    (folder / "R" / "chunks" / "1-5.chunks").write_bytes(data)
    if options is not None:
        (folder / "R" / "chunks" / "options").write_text(json.dumps(options))
    return folder / "R"


def kernels(rows, columns=None):
    kind, first, payload = table("kernels", Random("kernels"))
    changed = bytearray(payload)
    changed[4:8] = rows.to_bytes(4, "little")
    begin = C._TABLE_HEADER.itemsize
    for place in range(int.from_bytes(payload[8:12], "little")):  # every value equal: no byte a row
        at = begin + place * C._COLUMN_HEADER.itemsize
        changed[at + 6 : at + 8] = bytes(2)
    if columns is not None:
        changed[8:12] = columns.to_bytes(4, "little")
    return kind, first, bytes(changed)


def test_the_first_command_that_reads_completes_a_cut_recording_and_says_so(tmp_path, capsys):
    recording = write_cut(tmp_path, strings(), events(Random(1)))
    main(["breakdown", str(recording)])
    said = capsys.readouterr().err
    assert f"{recording} was cut" in said
    assert f"10 ranges in {recording}" in said
    assert not (recording / "chunks").exists()
    assert open_recording(recording).count_rows("ranges") == 10
    main(["breakdown", str(recording)])
    assert "was cut" not in capsys.readouterr().err


@contextmanager
def no_lock(_path):
    yield False


def full_disk(_path):
    raise StorageError("The disk is full: a table could not be written.")


@pytest.mark.parametrize(
    ("owner", "name", "found"),
    [
        (kept_chunks, "lock_folder", no_lock),
        (kept_chunks, "processes_writing", lambda _folder: [17]),
        (kept_chunks.os, "access", lambda *_: False),
        (RecordingWriter, "again", full_disk),
    ],
    ids=["no lock", "a process writes", "not ours", "full disk"],
)
def test_what_may_not_be_completed_is_read_and_stays_as_it_is(
    owner, name, found, tmp_path, capsys, monkeypatch
):
    recording = write_cut(tmp_path, strings(), events(Random(1)))
    before = list_all(recording)
    monkeypatch.setattr(owner, name, found)
    assert main(["export", str(recording), "--csv", "-o", str(tmp_path / "tables")]) == 0
    assert (tmp_path / "tables" / "ranges.csv").read_text().count("\n") == 11
    assert {path: about[-1] for path, about in list_all(recording).items()} == {
        path: about[-1] for path, about in before.items()
    }
    assert f"{recording} " in capsys.readouterr().err


@pytest.mark.parametrize("command", ["explain", "import", "breakdown"])
@pytest.mark.parametrize("rows", [CHUNK_FREE_ROWS + 1, 1 << 27, (1 << 32) - 1])
def test_rows_that_take_no_room_are_refused(rows, command, tmp_path, refusal_of):
    recording = write_cut(tmp_path, strings(), kernels(rows))
    said = refusal_of(command, recording)
    assert f"R/chunks: it has {rows:,} rows in" in said
    assert "CURVESCOPE_LIMITS" in said
    assert (recording / "chunks" / "1-5.chunks").is_file()


def test_what_is_whole_is_kept_of_a_damaged_file(tmp_path, text_of):
    """A table without its columns is passed over; the ranges before and after it are there."""
    first, other = events(Random(1)), events(Random(2))
    other = (other[0], 20, other[2])
    recording = write_cut(tmp_path, strings(), first, kernels(3, columns=2), other)
    text_of("import", recording)
    recovered = open_recording(recording)
    assert recovered.count_rows("ranges") == 20
    assert recovered.meta["lost"]["torn_bytes"]["count"] > 0
    assert not (recording / "chunks").exists()


def test_facts_that_fit_no_entry_leave_the_chunk_files(tmp_path, refusal_of):
    """Else the files would be gone, and the recording not readable."""
    kind, first, payload = table("devices", Random("devices"))
    negative = bytearray(payload)
    begin, step = C._TABLE_HEADER.itemsize, C._COLUMN_HEADER.itemsize
    for at in range(begin, begin + 12 * step, step):
        if NAMES[int.from_bytes(payload[at : at + 4], "little")] == "sm_count":
            negative[at + 8 : at + 16] = (-(2**63)).to_bytes(8, "little", signed=True)
    recording = write_cut(tmp_path, strings(), (kind, first, bytes(negative)))
    assert "sm_count" in refusal_of("import", recording)
    assert (recording / "chunks" / "1-5.chunks").is_file()
    assert "sm_count" in refusal_of("explain", recording)


@pytest.mark.parametrize("name", ["options", "ends"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_file_is_not_waited_for_or_followed(kind, name, tmp_path, refusal_of):
    recording = write_cut(tmp_path, strings())
    place = recording / "chunks" / name
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    for command in ("explain", "import"):
        assert f"chunks/{name} is no regular file" in refusal_of(command, recording)


def test_a_pattern_of_somebody_else_takes_no_exponential_time(tmp_path, text_of):
    slow = {"batch": None, "range_pattern": "(?P<layer>(a+)+)$"}
    recording = write_cut(
        tmp_path, strings(["", "", "a" * 60 + "!"]), events(Random(1)), options=slow
    )
    text_of("import", recording)
    assert open_recording(recording).count_rows("ranges") == 10


def test_a_pattern_that_is_not_run_is_refused_and_may_be_typed(tmp_path, text_of, refusal_of):
    needs = {"batch": None, "range_pattern": "(?P<layer>(?<=layer:)a)"}
    recording = write_cut(tmp_path, strings(), events(Random(1)), options=needs)
    for word in ("explain", "import"):
        assert "curvescope import" in (said := refusal_of(word, recording))
        assert "--range-pattern REGEX" in said
    text_of("import", recording, "--range-pattern", needs["range_pattern"])
    assert open_recording(recording).count_rows("ranges") == 10


@ask_each(
    ("pattern", "name"),
    [
        (r"(?P<layer>conv\d+)", "a conv12 b"),
        (r"(?P<layer>\w+)-(a|b)", "größe-b"),
        (r"(?P<layer>[\w.-]+):(\()", "a.b:("),
        (r"[(](?P<layer>\W+)", "(--x"),
        (r"(?P<layer>[^]\d]+)", "]5ab"),
        (r"(?P<op>x)?(?P<layer>y)", "y"),
        (r"(?P<layer>a)\Z", "ba"),
        (r"(?P<layer>a)", "b"),
        (r"(?i)(?P<phase>forward|backward)\b", "x Forward"),
        (r"(?P<batch>\d{1,3})", "b=32"),
    ],
)
def test_a_stored_pattern_means_what_a_typed_one_does(pattern, name):
    assert RangeNames(pattern, stored=True).read(name) == RangeNames(pattern).read(name)


def test_a_pattern_that_takes_long_at_each_character_ends(monkeypatch):
    monkeypatch.setattr("curvescope.profiling.attribution.linear_patterns._MOST_S", 0.0)
    with pytest.raises(Exception, match="takes too long"):
        LinearPattern("(?P<layer>a)").search("a" * 4096)
