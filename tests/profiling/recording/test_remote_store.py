"""Recordings on remote stores, against an S3 server on loopback."""

import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sweep_plan import PLAN_FILE, SweepPlan, run_plan, sweep_recordings
from curvescope.profiling.recording import store as store_module
from curvescope.profiling.recording.remote_store import RemotePath, as_path
from curvescope.profiling.recording.store import (
    RecordingWriter,
    Status,
    list_recordings,
    open_recording,
)

from ..measure.fake_measurers import FakeMeasurer
from .s3_server import s3_server
from .test_store import steps

DOCS = Path(__file__).parents[3] / "docs" / "internals" / "other-measures.md"


@pytest.fixture(scope="module")
def _server():
    with s3_server("bucket"):
        yield


@pytest.fixture
def store(_server, request):
    """A place of this test alone."""
    own = "".join(c if c.isalnum() else "_" for c in request.node.name)
    return as_path(f"s3://bucket/{own}/job=3")


def kernels():
    same = {
        "duration_ns": [1_000_000] * 2,
        "layer": ["conv1"] * 2,
        "step": [0] * 2,
        "source": ["cupti"] * 2,
    }
    return {"name": ["k0", "k1"], "start_ns": [0, 1], **same}


def record(path, **meta):
    with RecordingWriter(path, {"network": "tiny", **meta}) as writer:
        writer.write("kernels", kernels())
        for first in (0, 2):
            writer.write("steps", steps(first=first))
    return path


@pytest.mark.slow
def test_a_recording_on_s3_reads_back_as_one_on_a_disk_does(store, tmp_path):
    remote, local = open_recording(str(record(store / "r"))), open_recording(record(tmp_path / "r"))
    assert remote.complete
    for table in ("steps", "kernels", "api_calls"):
        assert remote.arrow(table).equals(local.arrow(table))
        assert remote.count_rows(table) == local.count_rows(table)
    pieces = (
        [p.to_pylist() for p in one.pieces("kernels", ["name", "op"])] for one in (remote, local)
    )
    assert next(pieces) == next(pieces)
    assert "s3://" in remote._repr_html_()


@pytest.mark.slow
def test_each_part_is_one_object_of_its_own_name_and_nothing_is_overwritten(store):
    record(store / "r")
    names = {
        str(path).removeprefix(f"{store}/") for path in [*store.glob("*/*"), *store.glob("*/*/*")]
    }
    files = {name for name in names if name.rsplit("/", 1)[-1].count(".")}
    assert files == {
        "r/recording.json",
        "r/kernels/00000.parquet",
        "r/steps/00000.parquet",
        "r/steps/00001.parquet",
    }
    with pytest.raises(CurvescopeError, match="nothing is overwritten"):
        RecordingWriter(store / "r", {})
    assert open_recording(store / "r").complete


@pytest.mark.slow
def test_of_writers_that_choose_one_place_at_once_one_gets_it(store, monkeypatch):
    """All see an empty place before any writes: only the exclusive creation of recording.json can
    tell them apart. The server answers slowly, so that all ask at once.
    """
    from moto.s3.models import S3Backend

    look = S3Backend.get_object

    def look_slowly(*arguments, **options):
        there = look(*arguments, **options)
        time.sleep(0.02)
        return there

    monkeypatch.setattr(S3Backend, "get_object", look_slowly)
    monkeypatch.setattr(RemotePath, "iterdir", lambda _: iter(()))

    def attempt(number):
        try:
            record(store / "r", number=number)
        except CurvescopeError as error:
            assert "nothing is overwritten" in str(error)  # noqa: PT017 - each attempt may end either way
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        won = [number for number in pool.map(attempt, range(8)) if number is not None]
    monkeypatch.undo()
    assert won == [open_recording(store / "r").meta["number"]]
    assert open_recording(store / "r").count_rows("steps") == 4


@pytest.mark.slow
def test_a_document_far_too_large_is_not_read_whole(store, monkeypatch):
    record(store / "r")
    size = len((store / "r" / "recording.json").read_bytes())
    read, read_bytes = [], RemotePath.read_bytes

    def count(path, most=None):
        read.append(len(data := read_bytes(path, most)))
        return data

    monkeypatch.setattr(RemotePath, "read_bytes", count)
    monkeypatch.setattr(store_module, "META_BYTES", size - 10)
    with pytest.raises(CurvescopeError, match=r"bytes in recording\.json; at most"):
        open_recording(store / "r")
    assert read == [size - 9]
    monkeypatch.setattr(store_module, "META_BYTES", size)
    assert open_recording(store / "r").complete


@pytest.mark.slow
def test_writers_of_one_store_do_not_meet(store, document_of):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda rank: record(store / f"rank{rank}", network=f"net{rank}"), range(8)))
    (store / "broken" / "recording.json").write_bytes(b"{")
    *found, broken = list_recordings(store)
    assert broken.path == store / "broken"
    assert "cannot be read" in broken.reason
    assert sorted(r.meta["network"] for r in found) == [f"net{rank}" for rank in range(8)]
    assert all(r.count_rows("steps") == 4 for r in found)
    listed = {row["path"] for row in document_of("runs", "--store", store)["recordings"]}
    assert listed == {*(f"{store}/rank{i}" for i in range(8)), f"{store}/broken"}


@pytest.mark.slow
def test_a_writer_that_was_cut_off_resumes(store):
    with RecordingWriter(store / "r", {}) as writer:
        writer.write("kernels", kernels(), part="a")
        writer.write("steps", steps(), part="a")
        writer.write("kernels", kernels(), part="b")  # and then it was killed
    with RecordingWriter.resume(store / "r", "steps") as writer:
        writer.write("kernels", kernels(), part="b")
        writer.write("steps", steps(), part="b")
    recording = open_recording(store / "r")
    assert recording.count_rows("kernels") == recording.count_rows("steps") == 4
    assert recording.meta["status"] == Status.COMPLETE


@pytest.mark.slow
def test_commands_take_urls(store, document_of, tmp_path):
    from ...curvescope.recordings import write_planted

    write_planted(store / "r")
    write_planted(tmp_path / "r")
    answers = []
    for place in (store / "r", tmp_path / "r"):
        answers.append(document_of("breakdown", place))
    assert answers[0] == answers[1]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["duckdb", "pandas"])
def test_the_queries_of_the_docs_answer(language, store, capsys):
    record(store / "rank0")
    record(store / "rank1")
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    query = next(block for block in blocks if f"import {language}" in block)
    exec(query.replace("s3://bucket/job", str(store)), {})
    out = capsys.readouterr().out
    assert ("conv1" in out and "4.0" in out) if language == "duckdb" else "1000001" in out


@pytest.mark.slow
def test_what_is_not_there_does_not_answer_or_lacks_a_package_is_said(store, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no credentials")  # each store's package raises exceptions of its own

    with pytest.raises(CurvescopeError, match="is not a recording"):
        open_recording(store / "nothing")
    assert list_recordings(store) == []
    assert list_recordings(as_path("s3://no-such-bucket/job")) == []
    with pytest.raises(CurvescopeError, match="Protocol not known"):
        open_recording("nowhere://bucket/r")
    monkeypatch.setattr(store.filesystem, "ls", refuse)
    with pytest.raises(CurvescopeError, match=r"cannot be listed \(RuntimeError: no credentials\)"):
        list_recordings(store)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(BackendMissingError, match=r"curvescope\[cluster\]"):
        open_recording("s3://bucket/r")


def test_a_store_with_folders_gets_them(tmp_path):
    """fsspec's other kind of store, as HDFS or SFTP: here its local one, by a URL of its own."""
    place = RemotePath(f"local://{tmp_path}/a/b")
    record(place)
    assert open_recording(tmp_path / "a" / "b").complete
    with pytest.raises(CurvescopeError, match="nothing is overwritten"):
        RecordingWriter(place, {})


def test_local_paths_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert open_recording(f"file://{record(tmp_path / 'r')}").path == tmp_path / "r"


@pytest.mark.slow
def test_a_sweep_on_a_store_is_resumed_there_and_begun_once(store):
    settings = (Configuration("alexnet"), Configuration("vgg16"))
    plan = SweepPlan(settings, (1, 2), False, Protocol("two", (2, 2), 1, (1, 1), 0.0, 0, None))
    PLAN_FILE.write(store / "sweep", plan)
    with pytest.raises(CurvescopeError, match=r"is not empty.*--resume s3://"):
        PLAN_FILE.write(store / "sweep", plan)
    with pytest.raises(CurvescopeError, match="the worker ended"):
        run_plan(store / "sweep", plan, measurers=[FakeMeasurer(lost_at=3)])
    assert (
        run_plan(store / "sweep", PLAN_FILE.read(store / "sweep"), measurers=[FakeMeasurer()]) == []
    )
    for path in sweep_recordings(store / "sweep"):
        recording = open_recording(path)
        assert recording.complete
        assert sorted(recording.frame("steps")["step"]) == [0, 1, 2, 3]
