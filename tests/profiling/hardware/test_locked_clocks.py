"""Clocks that are locked for a while, on a double of NVML; and that nothing else changes a setting
of a GPU.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware import locked_clocks as module
from curvescope.profiling.hardware.locked_clocks import lock_clocks, read_locked_clock_hz
from curvescope.profiling.hardware.nvml import NvmlDevice

from .test_clocks import fake_nvml

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_guard(monkeypatch):
    """Doubles in this process are none in another one."""
    monkeypatch.setattr(module, "start_guard", lambda device: None)
    monkeypatch.setattr(module, "end_guard", lambda guard: None)


@pytest.fixture
def calls(monkeypatch):
    """What NVML was told, in order."""
    calls = []
    nvml = fake_nvml(
        nvmlDeviceSetGpuLockedClocks=lambda _, low, high: calls.append((low, high)),
        nvmlDeviceResetGpuLockedClocks=lambda _: calls.append("unlocked"),
        nvmlDeviceGetDefaultApplicationsClock=lambda _, __: 1590,
    )
    monkeypatch.setattr(module, "find_device", lambda device: NvmlDevice(nvml, "handle"))
    monkeypatch.delenv("CURVESCOPE_LOCKED_SM_CLOCK_HZ", raising=False)
    return calls


@pytest.mark.parametrize(("asked", "locked"), [(None, 1590), (1200, 1200)])
def test_a_clock_is_locked_in_the_block_and_recordings_of_it_say_so(calls, asked, locked):
    with lock_clocks("cuda:0", asked) as mhz:
        assert mhz == locked
        assert read_locked_clock_hz() == locked * 1_000_000
        assert calls == [(locked, locked)]
    assert calls == [(locked, locked), "unlocked"]
    assert read_locked_clock_hz() is None


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_in_the_block_unlocks(calls, error):
    with pytest.raises(error), lock_clocks("cuda:0"):
        raise error
    assert calls[-1] == "unlocked"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_would_end_the_process_unlocks_first(calls, name):
    number = getattr(signal, name)
    before = signal.getsignal(number)

    def be_ended():
        with lock_clocks("cuda:0"):
            os.kill(os.getpid(), number)
            signal.pause()

    with pytest.raises(KeyboardInterrupt):
        be_ended()
    assert calls[-1] == "unlocked"
    assert signal.getsignal(number) == before


def test_without_the_right_to_lock_it_says_who_has_it_and_leaves_nothing_locked(calls, monkeypatch):
    nvml = fake_nvml(
        nvmlDeviceSetGpuLockedClocks=None,
        nvmlDeviceResetGpuLockedClocks=lambda _: calls.append("reset"),
    )
    monkeypatch.setattr(module, "find_device", lambda device: NvmlDevice(nvml, "handle"))
    with pytest.raises(CurvescopeError, match="root"), lock_clocks("cuda:0", 1500):
        pytest.fail("the block must not run")
    assert read_locked_clock_hz() is None


def test_a_clock_that_cannot_be_unlocked_is_said_with_the_command_that_does(
    calls, monkeypatch, capsys
):
    nvml = fake_nvml(
        nvmlDeviceSetGpuLockedClocks=lambda *_: None, nvmlDeviceResetGpuLockedClocks=None
    )
    monkeypatch.setattr(module, "find_device", lambda device: NvmlDevice(nvml, "handle"))
    with lock_clocks("cuda:0", 1500):
        pass
    assert "nvidia-smi -rgc" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["diagnose", "alexnet"],
        ["sweep", "alexnet", "--batch", "1"],
        ["bench", "gemm", "--axis", "n=4"],
    ],
    ids=lambda command: command[0],
)
def test_commands_refuse_to_lock_the_clock_of_a_cpu_before_they_measure(
    command, tmp_path, refusal_of
):
    assert "--lock-clocks is for a GPU" in refusal_of(
        *command, "--device", "cpu", "--lock-clocks", "-o", tmp_path / "r"
    )


# A driver that writes down what it is told, as another process finds it.
PYNVML = """
import pathlib
NVML_CLOCK_SM, NVMLError = 1, OSError
def told(what):
    with pathlib.Path(__file__).with_name("told").open("a") as file:
        file.write(what + "\\n")
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetName(handle): return "NVIDIA H100"
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceSetGpuLockedClocks(handle, low, high): told(f"locked {low}")
def nvmlDeviceResetGpuLockedClocks(handle): told("unlocked")
"""
LOCKING = """
import sys
from curvescope.profiling.hardware import locked_clocks
locked_clocks.find_device.__globals__["_cuda_bus_id"] = lambda index: None
with locked_clocks.lock_clocks("cuda:0", 1200):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_a_kill_leaves_no_clock_locked(tmp_path, end):
    (tmp_path / "pynvml.py").write_text(PYNVML)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    process = subprocess.Popen(
        [sys.executable, "-c", LOCKING],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"locked\n"
    told = tmp_path / "told"
    assert told.read_text() == "locked 1200\n"
    if end == "kill":
        process.kill()
    process.communicate()
    limit_s = time.monotonic() + 600
    while "unlocked" not in told.read_text() and time.monotonic() < limit_s:
        time.sleep(0.01)
    assert told.read_text() == "locked 1200\nunlocked\n"


def test_nothing_but_the_option_changes_a_setting_of_a_gpu():
    """NVML's setters stand in two modules, which only the option and a factor enter that asks for
    it.
    """
    setters = re.compile(r"nvml\w*(?:Set|Reset|Clear|Register)[A-Z]\w*")
    rooms = (
        "analysis",
        "benchmarks",
        "curvescope",
        "experiments",
        "kernels",
        "profiling",
        "examples",
    )
    sources = [
        path for room in rooms for path in (ROOT / room).rglob("*.py") if not path.is_symlink()
    ]
    naming = {path.name: set(setters.findall(path.read_text())) for path in sources}
    found = {name: names for name, names in naming.items() if names}
    assert found == {
        "locked_clocks.py": {"nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"},
        "clock_guard.py": {"nvmlDeviceResetGpuLockedClocks"},
    }
    callers = {path.name for path in sources if re.search(r"\block_clocks\(", path.read_text())}
    assert callers == {"locked_clocks.py", "options.py", "processor.py"}


def test_confirm_refuses_to_lock_the_clock_of_a_cpu(refusal_of):
    recording = ROOT / "examples" / "recordings" / "alexnet-cpu"
    assert "--lock-clocks is for a GPU" in refusal_of("confirm", recording, "--lock-clocks")
