"""Clock samples: the CPU's own, and a GPU's through a test double of NVML."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pyarrow as pa
import pytest

from curvescope.profiling.hardware.clocks import ClockSampler, throttle_names
from curvescope.profiling.recording.schema import TABLES, conform


def fake_nvml(**answers):
    """A module in pynvml's place, for one card that tells 1980 MHz, 523.4 W, 61 °C and a power cap."""
    nvml = ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def refuse(*_):
        raise NVMLError("Not Supported")

    asked = []
    nvml.NVMLError, nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM, nvml.NVML_TEMPERATURE_GPU = NVMLError, 1, 2, 0
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByIndex = lambda index: asked.append(index) or "handle"
    nvml.nvmlDeviceGetHandleByUUID = lambda uuid: asked.append(uuid) or "handle"
    nvml.nvmlDeviceGetClockInfo = lambda handle, clock: {1: 1980, 2: 3201}[clock]
    nvml.nvmlDeviceGetPowerUsage = lambda handle: 523_400
    nvml.nvmlDeviceGetTemperature = lambda handle, sensor: 61
    nvml.nvmlDeviceGetUtilizationRates = lambda handle: SimpleNamespace(gpu=97)
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x4
    for name, answer in answers.items():
        setattr(nvml, name, answer or refuse)
    nvml.asked = asked
    return nvml


def test_a_gpu_tells_clocks_power_temperature_and_why_it_is_slow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    clocks = ClockSampler("cuda:1")
    with clocks:
        clocks.sample()
    rows = clocks.take()
    assert len(rows) == 3
    assert sys.modules["pynvml"].asked == [1]
    assert {key: rows[0][key] for key in rows[0] if key != "start_ns"} == {
        "device": 1,
        "sm_clock_hz": 1_980_000_000,
        "memory_clock_hz": 3_201_000_000,
        "power_w": 523.4,
        "temperature_c": 61.0,
        "throttle_reasons": "sw_power_cap",
        "load": 0.97,
    }
    assert conform(TABLES["clocks"], pa.Table.from_pylist(rows)).num_rows == 3
    assert clocks.take() == []


@pytest.mark.parametrize(("visible", "asked"), [("3,5", 5), ("GPU-aa,GPU-bb", "GPU-bb"), ("", 1)])
def test_the_card_is_the_one_that_cuda_counts(monkeypatch, visible, asked):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    ClockSampler("cuda:1")
    assert sys.modules["pynvml"].asked == [asked]


def test_what_a_card_does_not_report_is_missing(monkeypatch):
    silent = fake_nvml(nvmlDeviceGetPowerUsage=None, nvmlDeviceGetCurrentClocksThrottleReasons=None)
    monkeypatch.setitem(sys.modules, "pynvml", silent)
    clocks = ClockSampler("cuda:0")
    clocks.sample()
    (row,) = clocks.take()
    assert row["power_w"] is None
    assert row["throttle_reasons"] is None
    assert row["temperature_c"] == 61.0


@pytest.mark.parametrize("module", [None, fake_nvml(nvmlInit=None)])
def test_without_nvml_it_says_what_is_missing(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    clocks = ClockSampler("cuda:0")
    assert "NVML" in clocks.missing
    clocks.sample()
    assert clocks.take() == []


def test_a_cpu_tells_frequency_and_load():
    clocks = ClockSampler("cpu")
    assert clocks.missing is None
    clocks.sample()
    (row,) = clocks.take()
    assert row["load"] >= 0
    assert row["sm_clock_hz"] is None or row["sm_clock_hz"] > 10**8


def test_throttle_reasons_have_their_names():
    assert throttle_names(0) == ""
    assert throttle_names(0x44) == "sw_power_cap|hw_thermal"
    assert throttle_names(0x10000) == "0x10000"
