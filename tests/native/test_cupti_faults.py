"""The collector where something fails under it: calls of libcupti, forks, sudden ends, a full disk,
kills.

The GPU and libcupti are test doubles, see `test_cupti`.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import numpy as np
import pytest

from curvescope.profiling.collect.chunks import read_chunks
from curvescope.profiling.collect.inject import CUDA_VARIABLE, FOLDER_VARIABLE
from curvescope.profiling.native import library_path

from ..tables import grade
from .doubles import HERE

HUNDRED_KERNELS = """
    gpu = FakeGpu()
    assert gpu.start() == 0
    for i in range(1, 101):
        gpu.kernel("k", gpu.now(), gpu.now() + 1, i)
"""
EVERY_CALL = [
    "GetVersion", "GetResultString", "Subscribe", "Unsubscribe", "GetTimestamp", "GetCallbackName",
    "ActivityRegisterCallbacks", "ActivityEnable", "ActivityDisable", "ActivityFlushAll", "ActivityGetNextRecord",
    "ActivityGetNumDroppedRecords", "SetThreadIdType", "ActivityRegisterTimestampCallback", "ActivityEnableRuntimeApi",
    "ActivityEnableDriverApi",
]  # fmt: skip


# A call that stops the collector, one that loses a buffer, and some that it can do without.
CALLS_OF_CI = {"GetVersion", "ActivityEnable", "ActivityGetNextRecord", "ActivityFlushAll",
               "GetTimestamp", "ActivityDisable", "Unsubscribe"}  # fmt: skip


@pytest.mark.parametrize("call", grade(EVERY_CALL, quick=EVERY_CALL[:1], in_ci=CALLS_OF_CI))
def test_whatever_call_fails_the_program_runs_on_and_the_recording_is_whole(record_fake, call):
    code, recording = record_fake(HUNDRED_KERNELS, FAKE_CUPTI_FAIL=f"cupti{call}=999")
    assert code == 0
    loses = {"ActivityGetNextRecord": "cupti_buffers_cut", "ActivityFlushAll": "cupti_unsaved"}.get(
        call
    )
    assert recording.meta["status"] == ("incomplete" if loses else "complete")
    assert set(recording.meta["lost"]) == ({loses} if loses else set())
    (collector,) = recording.meta["collectors"]
    stops = {"GetVersion", "Subscribe", "ActivityRegisterCallbacks", "ActivityEnable"}
    kernels = recording.arrow("kernels").num_rows
    if call in stops:
        assert kernels == 0
        assert collector["cupti_status"] != "recording"
    elif loses:  # without a flush, the one buffer stays with CUPTI
        assert recording.meta["lost"][loses]["count"] == 1
    else:
        assert kernels == 100
        assert collector["cupti_status"] == "recording"


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        ("cuptiSubscribe=39", "Another profiler has CUPTI in this process"),
        ("cuptiSubscribe=35", "ERR_NVGPUCTRPERM"),
        ("cuptiActivityEnable=35", "ERR_NVGPUCTRPERM"),
    ],
)
def test_what_stands_against_recording_is_said_with_its_remedy(record_fake, fail, words):
    code, recording = record_fake(HUNDRED_KERNELS, FAKE_CUPTI_FAIL=fail)
    assert code == 0
    assert words in recording.meta["collectors"][0]["cupti_status"]


@pytest.mark.slow
def test_libcupti_is_found_in_the_process_first_then_the_wheel_then_the_toolkit(
    record_fake, doubles, tmp_path
):
    wheel = tmp_path / "site-packages" / "nvidia" / "cuda_cupti" / "lib"
    toolkit = tmp_path / "cuda" / "extras" / "CUPTI" / "lib64"
    for folder in (wheel, toolkit):
        folder.mkdir(parents=True)
        shutil.copy(doubles / "libcupti.so.12", folder)
    # newer than the driver: not to be taken
    shutil.copy(doubles / "libcupti.so.12", wheel / "libcupti.so.13")
    package = tmp_path / "site-packages" / "package.so"
    shutil.copy(doubles / "libcuda.so.1", package)
    start = """
        import ctypes, os
        gpu = FakeGpu.__new__(FakeGpu)
        if "PACKAGE" in os.environ: ctypes.CDLL(os.environ["PACKAGE"])
        if "OWN" in os.environ: ctypes.CDLL(os.environ["OWN"])
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    """
    variables = {"CUDA_HOME": str(tmp_path / "cuda"), "FAKE_CUDA_DRIVER": "12040", "cupti": ""}
    own = str(doubles / "libcupti.so.12")
    for more, expected in (
        ({"OWN": own, "PACKAGE": str(package)}, own),
        (
            {"OWN": str(doubles / "libcuda.so.1"), "PACKAGE": str(package)},
            str(wheel / "libcupti.so.12"),
        ),
        (
            {
                "OWN": str(doubles / "libcuda.so.1"),
                "PACKAGE": own.replace("libcupti.so.12", "libcuda.so.1"),
            },
            None,
        ),
    ):
        _, recording = record_fake(start, **variables, **more)
        path = recording.meta["collectors"][0]["cupti_path"]
        if expected is None:
            # The environment that runs the tests may hold the real wheel, which comes before a
            # toolkit.
            assert path == str(toolkit / "libcupti.so.12") or "site-packages" in path
        else:
            assert path == expected
    _, recording = record_fake(start, **variables | {"cupti": "off"}, OWN=own)
    assert "CURVESCOPE_CUPTI=off" in recording.meta["collectors"][0]["cupti_status"]
    _, recording = record_fake(start, **variables | {"cupti": "/no/libcupti.so"}, OWN=own)
    assert "CURVESCOPE_CUPTI" in recording.meta["collectors"][0]["cupti_status"]


@pytest.mark.slow
def test_a_million_kernels_from_four_threads_are_all_there(record_fake):
    code, recording = record_fake(
        """
        gpu = FakeGpu()
        gpu.start()
        gpu.emit_many(4, 250_000, 300)
        """
    )
    kernels = recording.frame("kernels", ["name", "correlation_id", "stream", "duration_ns"])
    assert code == 0
    dropped = recording.meta["lost"].get("cupti_dropped", {"count": 0})["count"]
    assert len(kernels) + dropped == 1_000_000
    assert kernels["name"].nunique() == 300
    assert kernels["name"].iloc[0].startswith("kernel_")
    assert kernels["correlation_id"].is_unique
    assert set(kernels["stream"]) == {7, 8, 9, 10}
    assert kernels["duration_ns"].between(1000, 5000).all()
    assert "cannot be joined" in recording.meta["missing"]["api_calls"]


@pytest.mark.slow
def test_a_fork_in_the_midst_of_it_leaves_the_parents_records_whole(record_fake):
    code, recording = record_fake(
        """
        import os, threading, nvtx
        gpu = FakeGpu()
        gpu.start()
        emitting = threading.Thread(target=gpu.emit_many, args=(2, 300_000))
        emitting.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                with nvtx.annotate("child"): pass
                os._exit(0) if _ % 2 else os.sys.exit(0)
            os.waitpid(child, 0)
        emitting.join()
        """
    )
    assert code == 0
    dropped = recording.meta["lost"].get("cupti_dropped", {"count": 0})["count"]
    processes = recording.frame("kernels", ["process"])["process"]
    assert len(processes) + dropped == 600_000
    assert processes.nunique() == 1
    assert (
        recording.frame("ranges")["name"] == "child"
    ).sum() >= 10  # those that ended by exit flushed


@pytest.mark.slow
@pytest.mark.parametrize("end", ["os._exit(3)", "os.abort()", "os.kill(os.getpid(), 9)"])
def test_records_flushed_before_a_sudden_end_are_there(record_fake, end):
    code, recording = record_fake(
        f"""
        import os, pathlib, time
        from curvescope.profiling.collect.chunks import read_chunks
        gpu = FakeGpu()
        gpu.start()
        for i in range(1000): gpu.kernel("k", gpu.now(), gpu.now() + 1, i + 1)
        folder = pathlib.Path(os.environ["CURVESCOPE_CHUNK_FOLDER"])
        while sum(read_chunks(path).table("kernels").rows for path in folder.glob("*.chunks")) < 1000:
            time.sleep(0.01)
        {end}
        """
    )
    assert code == {"os._exit(3)": 3, "os.abort()": 134, "os.kill(os.getpid(), 9)": 137}[end]
    assert recording.arrow("kernels").num_rows == 1000


@pytest.mark.slow
def test_the_real_libcupti_refuses_a_driver_that_is_none_and_the_program_runs_on(record_fake):
    # The wheel of the dev extra, which has no driver to talk to here: what a broken installation
    # looks like.
    real = Path(sysconfig.get_paths()["purelib"], "nvidia", "cuda_cupti", "lib", "libcupti.so.12")
    code, recording = record_fake(
        """
        import ctypes
        assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
        """,
        cupti=str(real),
    )
    assert code == 0
    (collector,) = recording.meta["collectors"]
    assert collector["cupti_path"] == str(real)
    assert collector["cupti_version"] >= 26
    assert "cuptiSubscribe" in collector["cupti_status"]


@pytest.mark.slow
def test_closing_the_collectors_library_does_not_take_it_away(record_fake):
    code, recording = record_fake(
        """
        import _ctypes, ctypes, os
        gpu = FakeGpu()
        gpu.start()
        for _ in range(3):
            _ctypes.dlclose(ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])._handle)
        gpu.emit_many(1, 50_000)
        """
    )
    assert code == 0
    assert recording.arrow("kernels").num_rows == 50_000


@pytest.mark.slow
def test_when_the_disk_is_full_rows_are_counted_by_kind_and_what_was_written_is_whole(record_fake):
    code, recording = record_fake(
        """
        import resource, time
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        gpu = FakeGpu()
        gpu.start()
        gpu.emit_many(1, 200_000)
        for i in range(1, 51): gpu.copy(1, 64, gpu.now(), gpu.now() + 5, i)
        """
    )
    lost = {name: entry["count"] for name, entry in recording.meta["lost"].items()}
    kernels, copies = recording.arrow("kernels").num_rows, recording.arrow("memory").num_rows
    assert code == 0
    assert 0 < kernels < 200_000
    # The last counts may not have fitted themselves: the shared memory has their sum, and that of
    # rows of clocks.
    counted = sum(lost.get(name, 0) for name in ("kernels", "copies", "cupti_unwritten"))
    missing = 200_050 - kernels - copies
    assert missing <= counted < missing + 1000
    assert "torn_bytes" not in lost


ENDLESS = """
from fake_gpu import FakeGpu
gpu = FakeGpu()
gpu.start()
print("started", flush=True)
while True:
    gpu.emit_many(2, 5_000)
"""


@pytest.mark.slow
@pytest.mark.parametrize("runs", [5, pytest.param(40, marks=pytest.mark.exhaustive)])
def test_killed_at_any_moment_every_flushed_chunk_of_kernels_is_there(tmp_path, on_doubles, runs):
    # Spread over four cycles of the writer, 10 ms each; the machine's own load varies them besides.
    for run, moment_s in enumerate(np.arange(runs) * 0.04 / runs):
        chunks = tmp_path / f"chunks{run}"
        chunks.mkdir()
        environment = {**os.environ, **on_doubles, "PYTHONPATH": str(HERE)}
        environment |= {CUDA_VARIABLE: str(library_path()), FOLDER_VARIABLE: str(chunks)}
        with subprocess.Popen(
            [sys.executable, "-c", ENDLESS], env=environment, stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            time.sleep(moment_s)
            before = [read_chunks(path).table("kernels") for path in chunks.glob("*.chunks")]
            process.kill()
        after = [read_chunks(path).table("kernels") for path in chunks.glob("*.chunks")]
        for earlier, later in zip(before, after, strict=False):
            assert later.rows >= earlier.rows
            if earlier.rows:
                for column in ("correlation_id", "start_ns"):
                    assert (later[column][: earlier.rows] == earlier[column]).all()
        shutil.rmtree(chunks)


@pytest.mark.slow
def test_the_first_libcupti_that_fits_the_driver_and_starts_is_taken(
    record_fake, doubles, tmp_path
):
    """An unversioned link may be of a newer CUDA, and one of the right CUDA may refuse
    the driver.
    """
    newer, refusing, good = (
        tmp_path / "cuda" / name for name in ("extras/CUPTI/lib64", "lib64", "lib")
    )
    for folder in (newer, refusing, good):
        folder.mkdir(parents=True)
    shutil.copy(doubles / "libcupti.so.12", newer / "libcupti.so")
    shutil.copy(doubles / "libcupti.so.12", refusing)
    shutil.copy(doubles / "libcupti.so.12", good)
    (good / "libcupti.so").symlink_to("libcupti.so.12")
    environment = {
        "cupti": "",
        "CUDA_HOME": str(tmp_path / "cuda"),
        "FAKE_CUDA_DRIVER": "12040",
        "FAKE_CUPTI_NEWER": str(newer),
        "FAKE_CUPTI_REFUSES": str(refusing),
        "LD_LIBRARY_PATH": str(tmp_path / "driver"),
    }
    (tmp_path / "driver").mkdir()
    shutil.copy(doubles / "libcuda.so.1", tmp_path / "driver")
    start = "import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)"
    _, recording = record_fake(start, **environment)
    (collector,) = recording.meta["collectors"]
    assert (
        "cuptiSubscribe" not in collector["cupti_status"]
    )  # this copy was told of no kinds of records
    assert collector["cupti_path"] == str(good / "libcupti.so.12")

    _, recording = record_fake(start, **environment | {"cupti": str(newer / "libcupti.so")})
    assert (
        "is of CUDA 13, newer than the driver's 12"
        in recording.meta["collectors"][0]["cupti_status"]
    )


@pytest.mark.slow
def test_a_program_that_brings_no_libcupti_gets_the_one_of_the_recording_python(
    record_fake, doubles, tmp_path
):
    (tmp_path / "driver").mkdir()
    shutil.copy(doubles / "libcuda.so.1", tmp_path / "driver")
    _, recording = record_fake(
        f"""
        import ctypes, os
        os.environ["CURVESCOPE_CUPTI_FOLDERS"] = "/no/folder:{doubles}"  # of whatever Python records
        ctypes.CDLL("libcuda.so.1").cuInit(0)
        """,
        cupti="",
        LD_LIBRARY_PATH=str(tmp_path / "driver"),
    )
    assert recording.meta["collectors"][0]["cupti_path"] == str(doubles / "libcupti.so.12")


def test_a_process_that_sees_no_device_is_told_so(record_fake, doubles):
    _, recording = record_fake(
        "import ctypes\nassert ctypes.CDLL('libcuda.so.1').cuInit(0) == 100",
        FAKE_CUDA_DEVICES="0",
        FAKE_CUPTI_REFUSES=str(doubles),
    )
    status = recording.meta["collectors"][0]["cupti_status"]
    assert status == "No CUDA device is visible to this process: there is no GPU work to record."
