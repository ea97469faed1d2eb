"""Outputs of rocprofv3: the same run as JSON and as rocpd database, and kernel traces with the
headers of versions.
"""

import json
import sqlite3

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware.limits import match_device
from curvescope.profiling.readers.rocprof import device_facts

from ...tables import ask_each
from .made_profiles import imported, lost, of_text, rows
from .rocprof_output import PID, START, STEP_NS, SUFFIX, TID, document, write_database, write_json

WRITERS = {
    "json": write_json,
    "rocpd 3": write_database,
    "rocpd 4": lambda path: write_database(path, version=4),
}


# A grid of 1000 x 2 work-items in groups of 256.
SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "shared_memory_bytes", "registers_per_thread")


def read(found, folder):
    return of_text(json.dumps(found), folder)


@pytest.mark.parametrize("form", WRITERS)
def test_a_run_has_its_kernels_copies_calls_and_steps(form, tmp_path):
    recording = imported(WRITERS[form](tmp_path / "results"), tmp_path)
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
    found = document()
    dispatches = found["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"]
    dispatches[0]["end_timestamp"] = None
    dispatches[1]["dispatch_info"]["kernel_id"] = 99  # without a name
    recording = read(found, tmp_path)
    assert (recording.count_rows("kernels"), lost(recording)) == (2, {"rows_unreadable": 2})


def test_an_older_output_is_one_object_without_streams_or_markers(tmp_path):
    process = document()["rocprofiler-sdk-tool"][0]
    buffers = process["buffer_records"]
    del buffers["marker_api"], buffers["hip_api"]
    for record in buffers["kernel_dispatch"]:
        del record["stream_id"]
    recording = read({"rocprofiler-sdk-tool": process}, tmp_path)
    assert {row["stream"] for row in recording.arrow("kernels").to_pylist()} == {2}  # the queue
    assert set(recording.meta["missing"]) == {"ranges", "api_calls"}


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
    found = document()
    found["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"] = []
    message = "no kernel; record with `rocprofv3 --kernel-trace"
    for text in (json.dumps(found), trace("7", [])):
        with pytest.raises(CurvescopeError, match=message):
            of_text(text, tmp_path)
    path = write_database(tmp_path / "results.db")
    with sqlite3.connect(path) as database:
        database.execute(f'DELETE FROM "rocpd_kernel_dispatch{SUFFIX}"')
    with pytest.raises(CurvescopeError, match=message):
        imported(path, tmp_path)


def test_broken_json_is_refused(tmp_path):
    with pytest.raises(CurvescopeError, match="broken JSON"):
        of_text(json.dumps(document())[:-20], tmp_path)


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


SIZES = '"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"'  # noqa: E501
TIMES = '"Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"'
# ROCm 6.2 to 6.4, 7, and the CSV of `rocpd convert`: header, and what is before the kernel and
# between times and sizes.
VERSIONS = {
    "6": (
        f'"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Id",{TIMES},'
        f'"Private_Segment_Size","Group_Segment_Size",{SIZES}',
        '"KERNEL_DISPATCH",{agent},2,74441,1,2',
        "0,1024",
    ),
    "7": (
        f'"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id",{TIMES},'
        f'"LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",{SIZES}',
        '"KERNEL_DISPATCH","Agent {agent}",9,2,70,1,33',
        "1024,0,12,4,48",
    ),
    "rocpd": (
        f'"Guid","Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id",{TIMES},'
        f'"Lds_Block_Size","Scratch_Size","Vgpr_Count","Accum_Vgpr_Count","Sgpr_Count",{SIZES}',
        '"00006409-00d1","KERNEL_DISPATCH","Agent {agent}",9,2,70,1,33',
        "1024,0,12,4,48",
    ),
}


def trace(version, dispatches):
    """Dispatches: agent, name, start and end in ns."""
    header, before, after = VERSIONS[version]
    rows = [
        f'{before.format(agent=agent)},"{name}",{number},{start},{end},{after},256,1,1,1000,2,1'
        for number, (agent, name, start, end) in enumerate(dispatches)
    ]
    return "\n".join([header, *rows, ""])


@pytest.mark.parametrize("version", VERSIONS)
def test_kernels_of_tables_of_every_version(version, tmp_path):
    start = 1_614_963_487_781_917
    dispatches = [
        (8, "gemm(float*, int)", start, start + 500),
        (4, "relu<float>", start + 600, start + 700),
    ]
    recording = of_text(trace(version, dispatches), tmp_path)
    gemm, relu = recording.arrow("kernels").to_pylist()
    assert (gemm["name"], gemm["start_ns"], gemm["duration_ns"]) == (
        "gemm(float*, int)",
        start,
        500,
    )
    # Agents count processors, too: agent 4 is the first GPU.
    assert (gemm["device"], relu["device"], gemm["stream"], gemm["source"]) == (1, 0, 2, "rocprof")
    assert [gemm[column] for column in SHAPE] == [
        4,
        2,
        1,
        256,
        1024,
        None if version == "6" else 12,
    ]
    assert recording.meta["lost"] == {}


def test_unreadable_rows_of_a_table_are_counted(tmp_path):
    text = (
        trace("7", [(4, "gemm", 10, 20), (4, "gemm", 30, "x"), ("", "gemm", 50, 60)]) + '"cut off\n'
    )
    recording = of_text(text, tmp_path)
    assert (recording.count_rows("kernels"), lost(recording)) == (1, {"rows_unreadable": 3})


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (
            '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id",'
            '"Grid_Size","Kernel_Id","Kernel_Name","Workgroup_Size","LDS_Block_Size",'
            '"Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Counter_Name",'
            '"Counter_Value","Start_Timestamp","End_Timestamp"',
            "with counters",
        ),
        (
            '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp",'
            '"End_Timestamp"',
            "with calls or ranges of the host",
        ),
        ('"Kind","Stream_Id","Direction","Source_Agent_Id"', "with copies"),
    ],
)
def test_other_tables_of_a_run_say_what_they_are(header, what, tmp_path):
    """They were no profile that Curvescope reads, which names CSV of rocprofv3."""
    with pytest.raises(CurvescopeError, match=what) as caught:
        of_text(f'{header}\n"1","2","3"\n', tmp_path)
    assert "*_kernel_trace.csv" in str(caught.value)
