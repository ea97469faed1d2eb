"""What is said of files that hold no profile, or less than one: each sentence is true
of its file.
"""

import json
import sqlite3
import zipfile

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording


def refused(path, tmp_path):
    """The words with which a file is refused."""
    with pytest.raises(CurvescopeError) as caught:
        import_profile(path, tmp_path / "run")
    return str(caught.value)


def test_a_log_of_ncu_says_how_many_kernels_it_profiled(tmp_path):
    """It said that no kernel was profiled."""
    lines = [
        f'==PROF== Profiling "gemm_{i}" - {i}: 0%....50%....100% - 38 passes' for i in range(90)
    ]
    path = tmp_path / "ncu.txt"
    path.write_text(
        "\n".join(
            ["==PROF== Connected to process 7 (/usr/bin/python)", *lines, "  gemm_0 (1, 1, 1)", ""]
        )
    )
    words = refused(path, tmp_path)
    assert "90 kernels were profiled; record with `ncu --csv --page raw" in words
    assert "no kernel" not in words
    path.write_text("==PROF== Connected to process 7\n==PROF== Disconnected\n")
    assert "no kernel was profiled" in refused(path, tmp_path)


def test_an_export_without_any_trace_is_one_of_nsight_systems(tmp_path):
    path = tmp_path / "empty.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
    words = refused(path, tmp_path)
    assert "an export of Nsight Systems without GPU activity" in words


def test_an_archive_says_what_is_in_it(tmp_path):
    path = tmp_path / "job.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("dump/compile.csv", "a,b")
        archive.writestr("readme.txt", "")
    assert "none of 2 files in it is named as a profile" in refused(path, tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("out/report.nsys-rep", "x")
    assert "import one of the files in it: report.nsys-rep." in refused(path, tmp_path)
    path.write_bytes(b"PK\x03\x04 cut off")
    assert "a ZIP archive; unpack it" in refused(path, tmp_path)


def test_launches_without_any_event_of_the_gpu_are_said(tmp_path):
    common = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {
            **common,
            "cat": "cpu_op",
            "name": "aten::mm",
            "ts": 10 * i,
            "dur": 5,
            "args": {"External id": i},
        }
        for i in range(1, 4)
    ]
    events += [
        {
            **common,
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "ts": 10 * i + 1,
            "dur": 2,
            "args": {"correlation": i},
        }
        for i in range(1, 4)
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    done = import_profile(path, tmp_path / "run")
    assert (
        "the trace has 3 launches of kernels and no event of the GPU"
        in done.missing["device_events"]
    )
    assert open_recording(done.path).count_rows("kernels") == 0


def test_a_database_of_nvprof_without_calls_says_so(tmp_path):
    """It said: no kernel despite 0 CUDA API calls, so GPU activity was not recorded."""
    path = tmp_path / "none.nvvp"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringTable (_id_ INTEGER, value TEXT)")
        database.execute("CREATE TABLE Version (version INTEGER)")
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (start INTEGER, name INTEGER)"
        )
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (cbid INTEGER, start INTEGER)")
    done = import_profile(path, tmp_path / "run")
    assert done.missing["kernels"].startswith("no kernel and no CUDA API call")
