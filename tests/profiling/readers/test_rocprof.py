"""JSON and rocpd databases of rocprofv3: the same run in each gives the same recording."""

import json
import sqlite3

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware.limits import match_device
from curvescope.profiling.readers import import_profile
from curvescope.profiling.readers.rocprof import device_facts
from curvescope.profiling.recording.store import open_recording

from .rocprof_output import PID, START, STEP_NS, SUFFIX, TID, document, write_database, write_json

WRITERS = {
    "json": write_json,
    "rocpd 3": write_database,
    "rocpd 4": lambda path: write_database(path, version=4),
}


def read(path):
    return open_recording(import_profile(path, path.parent / f"run of {path.name}").path)


@pytest.mark.parametrize("form", WRITERS)
def test_a_run_has_its_kernels_copies_calls_and_steps(form, tmp_path):
    recording = read(WRITERS[form](tmp_path / "results"))
    kernels = recording.arrow("kernels").to_pylist()
    gemm, relu = kernels[:2]
    assert [kernel["name"] for kernel in kernels] == ["gemm(float*, int)", "relu<float>"] * 2
    assert (gemm["start_ns"], gemm["duration_ns"], relu["duration_ns"]) == (START + 500, 400, 100)
    place = ("process", "device", "stream", "correlation_id", "source")
    assert [gemm[column] for column in place] == [PID, 0, 3, 2, "rocprof"]
    # A grid of 1000 x 2 work-items in groups of 256.
    assert [gemm[f"grid_{axis}"] for axis in "xyz"] == [4, 2, 1]
    shape = ("block_x", "shared_memory_bytes", "registers_per_thread")
    assert [gemm[column] for column in shape] == [256, 1024, 12]
    assert [kernel["step"] for kernel in kernels] == [0, 0, 1, 1]
    (copy, _) = recording.arrow("memory").to_pylist()
    assert [copy[column] for column in ("memcpy_kind", "bytes", "device", "duration_ns")] == ["HtoD", 4096, 0, 50]
    calls = recording.arrow("api_calls").to_pylist()
    assert [call["name"] for call in calls] == ["hipMemcpyAsync", "hipLaunchKernel", "hipLaunchKernel"] * 2
    assert {(call["process"], call["thread"]) for call in calls} == {(PID, TID)}
    assert [step["duration_ns"] for step in recording.arrow("steps").to_pylist()] == [STEP_NS - 100] * 2
    assert recording.meta["device"]["name"] == "AMD Instinct MI300X OAM"
    assert recording.meta["lost"] == {}
    assert recording.meta.get("missing", {}) == {}
    assert "secret" not in json.dumps(recording.meta)


def test_records_that_cannot_be_read_are_counted(tmp_path):
    found = document()
    dispatches = found["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"]
    dispatches[0]["end_timestamp"] = None
    dispatches[1]["dispatch_info"]["kernel_id"] = 99  # without a name
    (tmp_path / "results.json").write_text(json.dumps(found))
    recording = read(tmp_path / "results.json")
    assert recording.count_rows("kernels") == 2
    assert recording.meta["lost"]["rows_unreadable"]["count"] == 2


def test_an_older_output_is_one_object_without_streams_or_markers(tmp_path):
    process = document()["rocprofiler-sdk-tool"][0]
    buffers = process["buffer_records"]
    del buffers["marker_api"], buffers["hip_api"]
    for record in buffers["kernel_dispatch"]:
        del record["stream_id"]
    (tmp_path / "results.json").write_text(json.dumps({"rocprofiler-sdk-tool": process}))
    recording = read(tmp_path / "results.json")
    assert {row["stream"] for row in recording.arrow("kernels").to_pylist()} == {2}  # the queue
    assert set(recording.meta["missing"]) == {"ranges", "api_calls"}


def test_a_merged_database_has_the_kernels_of_all_processes(tmp_path):
    path = write_database(tmp_path / "results")
    write_database(tmp_path / "second", suffix="_second")
    with sqlite3.connect(path) as database:
        database.execute("ATTACH ? AS other", (str(tmp_path / "second"),))
        tables = database.execute("SELECT name FROM other.sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            database.execute(f'CREATE TABLE "{name}" AS SELECT * FROM other."{name}"')
    recording = read(path)
    assert recording.count_rows("kernels") == 8
    assert {row["device"] for row in recording.arrow("kernels").to_pylist()} == {0}


def test_a_run_without_kernels_names_the_option_that_records_them(tmp_path):
    found = document()
    found["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"] = []
    (tmp_path / "results.json").write_text(json.dumps(found))
    with pytest.raises(CurvescopeError, match="no kernel; record with `rocprofv3 --kernel-trace"):
        read(tmp_path / "results.json")
    path = write_database(tmp_path / "results.db")
    with sqlite3.connect(path) as database:
        database.execute(f'DELETE FROM "rocpd_kernel_dispatch{SUFFIX}"')
    with pytest.raises(CurvescopeError, match="no kernel; record with `rocprofv3 --kernel-trace"):
        read(path)


def test_broken_json_is_refused(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(document())[:-20])
    with pytest.raises(CurvescopeError, match="broken JSON"):
        read(tmp_path / "results.json")


@pytest.mark.parametrize(
    ("name", "target", "units", "key"),
    [
        ("AMD Instinct MI300X", "gfx942", 304, "mi300x"),
        ("AMD Radeon RX 7900 XTX", "gfx1100", 96, "rx7900xtx"),  # two CUs are one work-group processor
    ],
)
def test_compute_units_are_counted_as_hip_counts_them(name, target, units, key):
    facts = device_facts(name, target, units)
    assert match_device(facts["name"], facts["compute_capability"], facts["sm_count"]).key == key
