"""Which processes on a GPU are neighbours: neither this one, nor what it started, nor what started
it.
"""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from curvescope.profiling.hardware import neighbours
from curvescope.profiling.hardware.neighbours import find_neighbours, neighbours_on
from curvescope.profiling.hardware.nvml import NvmlDevice
from curvescope.profiling.hardware.register import register
from curvescope.profiling.measure import visit
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.recording.store import open_recording

from ...tables import ask_each
from ..measure.fake_clock import FakeClock, FakeWorkload, record_step

# A shell (10) started this process (20), which started a worker (30); 40 and 50 are of somebody
# else.
PARENTS = {10: 1, 20: 10, 30: 20, 40: 1, 50: 40}


@pytest.fixture(autouse=True)
def processes(tmp_path, monkeypatch):
    for pid, parent in PARENTS.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (odd) name) S {parent} 7 7")
    monkeypatch.setattr(neighbours, "PROC", tmp_path)


def on_gpu(*pids, gigabytes=2):
    running = [
        SimpleNamespace(pid=pid, usedGpuMemory=gigabytes and gigabytes * 10**9) for pid in pids
    ]
    library = SimpleNamespace(
        NVMLError=OSError, nvmlDeviceGetComputeRunningProcesses=lambda _: running
    )
    return NvmlDevice(library, "handle")


@ask_each(
    ("running", "pids", "unknown"),
    [
        ((10, 20, 30), (), 0),
        ((20, 40), (40,), 0),
        ((20, 50, 40, 30), (40, 50), 0),
        ((4711,), (), 0),  # a container whose numbers the host does not have: this process itself
        ((4711, 4712, 4713), (), 2),
        ((20, 4712), (), 1),
    ],
)
def test_only_strangers_are_neighbours(running, pids, unknown):
    found = neighbours_on(on_gpu(*running), 20)
    assert (found is None) == (not pids and not unknown)
    if found is not None:
        assert (found.pids, found.unknown) == (pids, unknown)


def test_a_neighbour_is_said_with_what_it_holds_and_what_to_do():
    assert neighbours_on(on_gpu(20, 40), 20).sentence == (
        "1 other process (process 40) with 2.0 GB used this GPU while it was measured, and what "
        "they did is in the times: stop them, and measure again."
    )
    assert (
        "with" not in neighbours_on(on_gpu(20, 40, gigabytes=None), 20).sentence.split(" used")[0]
    )


def test_a_neighbour_of_one_visit_is_a_warning_of_the_recording(tmp_path, monkeypatch):
    """It is there in the second visit and, with other memory, in the third."""
    held, clock = iter((None, 2, 3)), FakeClock()

    def found(_):
        gigabytes = next(held)
        return gigabytes and neighbours_on(on_gpu(20, 40, gigabytes=gigabytes), 20)

    monkeypatch.setattr(visit, "find_neighbours", found)
    monkeypatch.setattr(visit, "record_step", record_step)
    protocol = Protocol("one round", (1, 1), 1, (1, 1), 0.0, 1, None)
    run_sweep(
        Here(FakeWorkload(clock, lambda _: 1_000_000)),
        (1, 2, 4),
        protocol,
        tmp_path / "r",
        clock_s=clock.seconds,
    )
    warnings = open_recording(tmp_path / "r").meta["warnings"]
    assert warnings == [neighbours_on(on_gpu(20, 40), 20).sentence]


HOLDS = """
import sys
from curvescope.profiling.hardware.register import register
with register("alexnet into runs/a"):
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_measurement():
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def test_on_a_cpu_other_measurements_of_curvescope_are_named():
    with register("mine"):
        assert find_neighbours("cpu") is None
        with another_measurement() as other:
            assert find_neighbours("cpu").sentence == (
                "1 other measurement of Curvescope runs on this machine: alexnet into runs/a "
                f"(process {other.pid}). They disturb each other: run one at a time."
            )
        assert find_neighbours("cpu") is None


def test_a_killed_measurement_is_no_neighbour():
    with another_measurement() as other:
        other.kill()
        other.wait()
        assert find_neighbours("cpu") is None
        assert not Path(os.environ["XDG_RUNTIME_DIR"], "curvescope", str(other.pid)).exists()


@pytest.mark.parametrize("how", ["a file", "of another user", "a pipe in it"])
def test_a_register_that_cannot_be_used_is_none(tmp_path, monkeypatch, how):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if how == "a file":
        (tmp_path / "curvescope").write_text("")
    elif how == "a pipe in it":
        (tmp_path / "curvescope").mkdir()
        os.mkfifo(tmp_path / "curvescope" / "4711")
    else:
        monkeypatch.setattr(os, "getuid", lambda: 4711)
    with register("mine"):
        assert find_neighbours("cpu") is None


def test_a_measurement_beside_another_says_so_in_its_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(visit, "record_step", record_step)
    clock = FakeClock()
    protocol = Protocol("one round", (1, 1), 1, (1, 1), 0.0, 1, None)
    with another_measurement() as other:
        run_sweep(
            Here(FakeWorkload(clock, lambda _: 1_000_000)),
            (1, 2),
            protocol,
            tmp_path / "r",
            clock_s=clock.seconds,
        )
    (warning,) = open_recording(tmp_path / "r").meta["warnings"]
    assert f"alexnet into runs/a (process {other.pid})" in warning
