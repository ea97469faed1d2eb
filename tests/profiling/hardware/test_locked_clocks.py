"""Clocks that are locked for a while, on a double of NVML."""

import os
import signal

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware import locked_clocks as module
from curvescope.profiling.hardware.locked_clocks import locked_clock_hz, locked_clocks
from curvescope.profiling.hardware.nvml import NvmlDevice

from .test_clocks import fake_nvml


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
    with locked_clocks("cuda:0", asked) as mhz:
        assert mhz == locked
        assert locked_clock_hz() == locked * 1_000_000
        assert calls == [(locked, locked)]
    assert calls == [(locked, locked), "unlocked"]
    assert locked_clock_hz() is None


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_in_the_block_unlocks(calls, error):
    with pytest.raises(error), locked_clocks("cuda:0"):
        raise error
    assert calls[-1] == "unlocked"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_would_end_the_process_unlocks_first_and_keeps_its_exit_code(calls, name):
    number = getattr(signal, name)
    before = signal.getsignal(number)

    def be_ended():
        with locked_clocks("cuda:0"):
            os.kill(os.getpid(), number)
            signal.pause()

    with pytest.raises(SystemExit) as left:
        be_ended()
    assert left.value.code == 128 + number
    assert calls[-1] == "unlocked"
    assert signal.getsignal(number) == before


def test_without_the_right_to_lock_it_says_who_has_it_and_leaves_nothing_locked(calls, monkeypatch):
    nvml = fake_nvml(nvmlDeviceSetGpuLockedClocks=None, nvmlDeviceResetGpuLockedClocks=lambda _: calls.append("reset"))
    monkeypatch.setattr(module, "find_device", lambda device: NvmlDevice(nvml, "handle"))
    with pytest.raises(CurvescopeError, match="root"), locked_clocks("cuda:0", 1500):
        pytest.fail("the block must not run")
    assert locked_clock_hz() is None


def test_a_clock_that_cannot_be_unlocked_is_said_with_the_command_that_does(calls, monkeypatch, capsys):
    nvml = fake_nvml(nvmlDeviceSetGpuLockedClocks=lambda *_: None, nvmlDeviceResetGpuLockedClocks=None)
    monkeypatch.setattr(module, "find_device", lambda device: NvmlDevice(nvml, "handle"))
    with locked_clocks("cuda:0", 1500):
        pass
    assert "nvidia-smi -rgc" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [["diagnose", "alexnet"], ["sweep", "alexnet", "--batch", "1"], ["bench", "gemm", "--axis", "n=4"]],
    ids=lambda command: command[0],
)
def test_commands_refuse_to_lock_the_clock_of_a_cpu_before_they_measure(command, tmp_path, refusal_of):
    assert "--lock-clocks is for a GPU" in refusal_of(
        *command, "--device", "cpu", "--lock-clocks", "-o", tmp_path / "r"
    )
