"""The list of recordings: their status now."""

import json
import os

import pytest

from curvescope.profiling.recording import atomic_files
from curvescope.profiling.recording.store import CHUNKS, META_FILE, RecordingWriter

LONG_AGO = 1_700_000_000


@pytest.fixture
def writer(tmp_path):
    """A writer that is at work on a recording made long ago."""
    made = RecordingWriter(tmp_path / "r", {"recording_type": "profile"})
    os.utime(tmp_path / "r" / META_FILE, (LONG_AGO, LONG_AGO))
    return made


def status(document_of, tmp_path):
    (row,) = document_of("runs", tmp_path)["recordings"]
    return row["status"]


def test_a_recording_in_progress_is_told_from_one_whose_writer_was_killed(
    writer, document_of, tmp_path
):
    assert status(document_of, tmp_path) == "recording"
    writer._locks.close()  # as the system does at the end of a process
    assert status(document_of, tmp_path) == "interrupted"
    assert (
        json.loads((tmp_path / "r" / META_FILE).read_text())["status"] == "recording"
    )  # nothing is written


def test_a_new_recording_is_in_progress_although_nobody_has_locked_it_yet(
    writer, document_of, tmp_path
):
    writer._locks.close()
    os.utime(tmp_path / "r" / META_FILE)
    assert status(document_of, tmp_path) == "recording"


def test_a_look_at_a_recording_keeps_no_writer_away(writer, monkeypatch, tmp_path):
    """The list locks it for a moment."""
    fcntl = pytest.importorskip("fcntl")
    writer._locks.close()
    looking = os.open(tmp_path / "r", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(atomic_files.time, "sleep", lambda _: os.close(looking))
    RecordingWriter.again(tmp_path / "r").finish()


def test_a_cut_recording_of_a_command_is_listed_with_what_completes_it(writer, text_of, tmp_path):
    (tmp_path / "r" / CHUNKS).mkdir()
    writer._locks.close()
    assert f"curvescope explain {tmp_path / 'r'}" in " ".join(text_of("runs", tmp_path).split())
