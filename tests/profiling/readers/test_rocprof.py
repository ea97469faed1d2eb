"""Databases of rocprofv3 (rocpd), in the schemas of its versions."""

import json
import sqlite3

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware.limits import match_device
from curvescope.profiling.readers.rocprof import device_facts

from ...tables import ask_each
from .made_profiles import imported, lost, rows
from .rocprof_output import PID, START, STEP_NS, SUFFIX, TID, write_database

# A grid of 1000 x 2 work-items in groups of 256.
SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "shared_memory_bytes", "registers_per_thread")


@pytest.mark.parametrize("version", [3, 4])
def test_a_run_has_its_kernels_copies_calls_and_steps(version, tmp_path):
    recording = imported(write_database(tmp_path / "results", version=version), tmp_path)
    kernels = recording.arrow("kernels").to_pylist()
    gemm, relu = kernels[:2]
    assert [kernel["name"] for kernel in kernels] == ["gemm(float*, int)", "relu<float>"] * 2
    assert (gemm["start_ns"], gemm["duration_ns"], relu["duration_ns"]) == (START + 500, 400, 100)
    place = ("process", "device", "stream", "correlation_id", "source")
    assert [gemm[column] for column in place] == [PID, 0, 3, 2, "rocprof"]
    assert [gemm[column] for column in SHAPE] == [4, 2, 1, 256, 1024, 12]
    assert [kernel["step"] for kernel in kernels] == [0, 0, 1, 1]
    (copy, _) = recording.arrow("memory").to_pylist()
    assert [copy[column] for column in ("memcpy_kind", "bytes", "device", "duration_ns")] == [
        "HtoD",
        4096,
        0,
        50,
    ]
    calls = recording.arrow("api_calls").to_pylist()
    assert [call["name"] for call in calls] == [
        "hipMemcpyAsync",
        "hipLaunchKernel",
        "hipLaunchKernel",
    ] * 2
    assert {(call["process"], call["thread"]) for call in calls} == {(PID, TID)}
    assert [step["duration_ns"] for step in recording.arrow("steps").to_pylist()] == [
        STEP_NS - 100
    ] * 2
    assert recording.meta["device"]["name"] == "AMD Instinct MI300X OAM"
    assert recording.meta["lost"] == {}
    assert recording.meta.get("missing", {}) == {}
    assert "secret" not in json.dumps(recording.meta)


def test_records_that_cannot_be_read_are_counted(tmp_path):
    path = write_database(tmp_path / "results")
    with sqlite3.connect(path) as database:
        dispatches = f'"rocpd_kernel_dispatch{SUFFIX}"'
        database.execute(f'UPDATE {dispatches} SET "end" = NULL WHERE rowid = 1')
        database.execute(f"UPDATE {dispatches} SET kernel_id = 99 WHERE rowid = 2")
    recording = imported(path, tmp_path)
    assert (recording.count_rows("kernels"), lost(recording)) == (2, {"rows_unreadable": 2})


def test_a_merged_database_has_the_kernels_of_all_processes(tmp_path):
    path = write_database(tmp_path / "results")
    write_database(tmp_path / "second", suffix="_second")
    with sqlite3.connect(path) as database:
        database.execute("ATTACH ? AS other", (str(tmp_path / "second"),))
        tables = database.execute(
            "SELECT name FROM other.sqlite_master WHERE type = 'table'"
        ).fetchall()
        for (name,) in tables:
            database.execute(f'CREATE TABLE "{name}" AS SELECT * FROM other."{name}"')
    assert rows(imported(path, tmp_path), "kernels", "device") == [(0,)] * 8


def test_a_run_without_kernels_names_the_option_that_records_them(tmp_path):
    message = "no kernel; record with `rocprofv3 --kernel-trace"
    path = write_database(tmp_path / "results.db")
    with sqlite3.connect(path) as database:
        database.execute(f'DELETE FROM "rocpd_kernel_dispatch{SUFFIX}"')
    with pytest.raises(CurvescopeError, match=message):
        imported(path, tmp_path)


@ask_each(
    ("name", "target", "units", "key"),
    [
        ("AMD Instinct MI300X", "gfx942", 304, "mi300x"),
        (
            "AMD Radeon RX 7900 XTX",
            "gfx1100",
            96,
            "rx7900xtx",
        ),  # two CUs are one work-group processor
    ],
)
def test_compute_units_are_counted_as_hip_counts_them(name, target, units, key):
    facts = device_facts(name, target, units)
    assert match_device(facts["name"], facts["compute_capability"], facts["sm_count"]).key == key
