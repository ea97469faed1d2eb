"""Every row of every format of an export, and several profiles as one sweep."""

import csv
import gzip
import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.readers import Options, import_profile
from curvescope.profiling.readers.sweep_import import import_sweep
from curvescope.profiling.recording import export
from curvescope.profiling.recording.schema import TABLES
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ...tables import grade
from ..readers.nsys_export import kernel, launch, push_pop, write_export

PROFILES = Path(__file__).parents[2] / "data" / "profiles"
NAMES = sorted(path.name for path in PROFILES.iterdir() if path.suffix in (".gz", ".csv"))
assert len(NAMES) >= 11


@pytest.mark.parametrize("name", grade(NAMES, quick=NAMES[::36], in_ci=NAMES[::6]))
def test_a_trace_has_every_row_with_a_start_time(name, tmp_path, imported_profile):
    recording = open_recording(imported_profile(name))
    unplaced = export.export_trace(recording, tmp_path / "trace.json.gz")
    document = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    for table in TABLES:
        rows = recording.arrow(table).to_pylist()
        placed = [row for row in rows if row.get("start_ns") is not None]
        assert in_order(rows_of_trace(document, table)) == in_order(map(without_nulls, placed))
        unplaced -= len(rows) - len(placed)
    assert unplaced == 0


def rows_of_trace(document, table):
    """The rows of a table as a trace has them."""
    for event in document["traceEvents"]:
        if event.get("cat") == table:
            row = event["args"]
            row["start_ns"] = document["baseTimeNanoseconds"] + round(1000 * event["ts"])
            if "dur" in event:
                row["duration_ns"] = round(1000 * event["dur"])
            yield row


def without_nulls(row):
    """The columns of a row that a trace has as arguments, and the times."""
    return {name: value for name, value in row.items() if value is not None and name != "name"}


def in_order(rows):
    return sorted(rows, key=lambda row: sorted(row.items()).__repr__())


@pytest.fixture
def recording(tmp_path):
    with RecordingWriter(
        tmp_path / "small", {"recording_type": "profile", "imported_from": "test"}
    ) as writer:
        kernels = {
            "name": ['a "b",\nc', "d"],
            "start_ns": [1_583_978_810_959_705_735, None],
            "duration_ns": [7, 9],
        }
        writer.write(
            "kernels", {**kernels, "source": ["nsys", "ncu"], "achieved_occupancy": [None, 0.1]}
        )
        writer.write(
            "clocks",
            {"start_ns": [1_583_978_810_959_705_001], "throttle_reasons": ["power|thermal"]},
        )
    return open_recording(tmp_path / "small")


def test_a_trace_has_times_to_the_nanosecond_and_tracks_with_names(recording, tmp_path):
    assert export.export_trace(recording, tmp_path / "trace.json") == 1
    document = json.loads((tmp_path / "trace.json").read_text())
    assert document["baseTimeNanoseconds"] == 1_583_978_810_959_705_001
    drawn = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["ts"], event["dur"]) for event in drawn] == [
        ('a "b",\nc', 0.734, 0.007)
    ]
    names = {
        event["args"]["name"]
        for event in document["traceEvents"]
        if event["name"] == "process_name"
    }
    assert names == {"host kernels"}


def test_csv_quotes_names_and_leaves_null_empty_and_parquet_is_one_file_per_table(
    recording, tmp_path
):
    export.export_csv(recording, tmp_path / "out")
    with (tmp_path / "out" / "kernels.csv").open(newline="") as file:
        rows = [
            (row["name"], row["start_ns"], row["achieved_occupancy"])
            for row in csv.DictReader(file)
        ]
    assert rows == [('a "b",\nc', "1583978810959705735", ""), ("d", "", "0.1")]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "clocks.csv",
        "kernels.csv",
    ]
    export.export_parquet(recording, tmp_path / "parquet")
    assert pq.read_table(tmp_path / "parquet" / "kernels.parquet").equals(
        recording.arrow("kernels")
    )


def test_experiments_have_the_names_of_their_changes(tmp_path):
    with RecordingWriter(tmp_path / "first", {"recording_type": "sweep"}) as writer:
        runs = {
            "experiment": [0, 0],
            "factor": [None, "onednn"],
            "batch": [4, 4],
            "round": [0, 0],
            "index": [0, 0],
        }
        writer.write("experiments", {**runs, "start_ns": [100, 200], "duration_ns": [7, 8]})
    assert export.export_trace(open_recording(tmp_path / "first"), tmp_path / "trace.json") == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == [
        "experiment 0, without a change, batch 4",
        "experiment 0, onednn, batch 4",
    ]


def test_nothing_is_overwritten(recording, tmp_path):
    (tmp_path / "there").write_text("mine")
    for write in (export.export_trace, export.export_csv, export.export_parquet):
        with pytest.raises(CurvescopeError, match="nothing is overwritten"):
            write(recording, tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"


def test_export_command_takes_a_profile_too(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        main(["export", str(PROFILES / "magus_gtx1080ti_convolutionFFT2D_trace.csv"), "--perfetto"])
        == 0
    )
    written = tmp_path / "magus_gtx1080ti_convolutionFFT2D_trace.csv.perfetto.json.gz"
    assert str(written.name) in capsys.readouterr().out
    events = json.loads(gzip.decompress(written.read_bytes()))["traceEvents"]
    assert sum(event.get("ph") == "X" and event["cat"] != "drawn" for event in events) == 58


def profile_of(path, batch, slow_us, *, told=True):
    """Five steps of one layer forward and one backward, which at batch 16 costs three times its
    share.
    """
    ranges, launches, kernels = [], [], []
    for step in range(5):
        at = step * 10_000_000
        name = f"step {step}, batch size: {batch}" if told else f"step {step}"
        ranges += [push_pop(name, at, at + 100_000), push_pop("layer:conv", at + 10, at + 90_000)]
        ranges += [
            push_pop("forward", at + 20, at + 40_000),
            push_pop("backward", at + 50_000, at + 80_000),
        ]
        launches += [launch(2 * step, at + 100), launch(2 * step + 1, at + 60_000)]
        jitter = step * 10
        middle = at + 200_000 + batch * 1000
        kernels += [kernel(2 * step, at + 200_000, middle + jitter, demangledName=1)]
        kernels += [
            kernel(
                2 * step + 1, middle + 500, middle + 500 + slow_us * 1000 + jitter, demangledName=4
            )
        ]
    return write_export(path, ranges=ranges, launches=launches, kernels=kernels)


@pytest.mark.slow
def test_a_sweep_of_profiles_is_explained(tmp_path, document_of, text_of):
    files = [
        profile_of(tmp_path / f"b{b}", b, cost) for b, cost in ((4, 400), (8, 800), (16, 4800))
    ]
    done = import_sweep(files, tmp_path / "sweep")
    recording = open_recording(done.path)
    assert recording.meta["batches"] == [4, 8, 16]
    assert recording.meta["device"]["name"] == "Tesla V100"
    steps = recording.frame("steps")
    assert steps["step"].is_unique
    joined = recording.frame("kernels").merge(steps[["step", "batch"]], on="step")
    assert joined.groupby("batch").size().tolist() == [10, 10, 10]
    document = document_of("explain", done.path)
    first = document["anomalies"][0]
    assert (first["functional"]["at"], first["functional"]["to"]) == (8, 16)
    parts = {part["label"]: part["value"]["value"] for part in first["shares"]}
    assert "profiling overhead" not in parts
    assert parts["conv backward"] == pytest.approx(3.2, rel=1e-3)  # 4.8 ms where 1.6 were its share
    assert sum(parts.values()) == pytest.approx(first["value"]["value"], rel=1e-9)
    assert "the profiling overhead is unknown" in " ".join(
        text_of("explain", done.path, "--all").split()
    )


def test_sweep_command_wants_a_batch_size_for_each_file(tmp_path, refusal_of):
    files = [str(profile_of(tmp_path / name, 0, 800, told=False)) for name in ("a", "b")]
    target = str(tmp_path / "sweep")
    assert "--batch 8,16" in refusal_of("import", "--as", "sweep", *files, "-o", target)
    assert main(["import", "--as", "sweep", *files, "--batch", "8", "-o", target]) == 2
    assert "--as sweep" in refusal_of("import", *files, "-o", target)
    assert main(["import", "--as", "sweep", *files, "--batch", "8,16", "-o", target]) == 0
    assert open_recording(target).meta["batches"] == [8, 16]
    alike = [profile_of(tmp_path / name, 8, 800) for name in ("c", "d")]
    steps = open_recording(import_sweep(alike, tmp_path / "alike").path).frame("steps")
    assert (
        steps[["round", "index"]].value_counts().max() == 1
    )  # rounds of a batch size are kept apart
    assert set(steps["round"]) == {0, 1}


@pytest.mark.slow
def test_one_profile_alone_is_no_curve(tmp_path, refusal_of, document_of):
    """So `explain` advises, and what needs a curve is refused with the way to record one."""
    import_profile(profile_of(tmp_path / "p", 8, 800), tmp_path / "r", Options())
    assert document_of("explain", tmp_path / "r")["schema"] == "curvescope.advice/1"
    assert "--as sweep" in refusal_of("explain", tmp_path / "r", "--pair", "4,8")
    assert pd.notna(open_recording(tmp_path / "r").frame("steps")["batch"]).all()
