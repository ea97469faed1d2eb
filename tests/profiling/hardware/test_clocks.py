"""Clock samples: the CPU's own, and a GPU's through a test double of NVML."""

import sys
from types import ModuleType, SimpleNamespace

import pyarrow as pa
import pytest

from curvescope.profiling.hardware import nvml
from curvescope.profiling.hardware.clocks import ClockSampler, throttle_names
from curvescope.profiling.recording.schema import TABLES, conform


def fake_nvml(**answers):
    """A module in pynvml's place, for one card that tells 1980 MHz, 523.4 W, 61 °C and
    a power cap.
    """
    module = ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def refuse(*_):
        raise NVMLError("Not Supported")

    asked = []
    module.NVMLError, module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = (
        NVMLError,
        1,
        2,
        0,
    )
    module.nvmlInit = lambda: None
    module.nvmlDeviceGetCount, module.nvmlDeviceGetName = lambda: 8, lambda handle: "NVIDIA H200"
    module.nvmlDeviceGetHandleByPciBusId = lambda bus_id: asked.append(bus_id) or "handle"
    module.nvmlDeviceGetHandleByIndex = lambda index: asked.append(index) or "handle"
    module.nvmlDeviceGetHandleByUUID = lambda uuid: asked.append(uuid) or "handle"
    module.nvmlDeviceGetClockInfo = lambda handle, clock: {1: 1980, 2: 3201}[clock]
    module.nvmlDeviceGetPowerUsage = lambda handle: 523_400
    module.nvmlDeviceGetTemperature = lambda handle, sensor: 61
    module.nvmlDeviceGetUtilizationRates = lambda handle: SimpleNamespace(gpu=97)
    module.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x4
    module.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 700_000
    module.nvmlDeviceGetEccMode = lambda handle: [1, 1]
    module.nvmlDeviceGetPersistenceMode = lambda handle: 0
    module.nvmlDeviceGetMaxClockInfo = module.nvmlDeviceGetClockInfo
    for name, answer in answers.items():
        setattr(module, name, answer or refuse)
    module.asked = asked
    return module


def test_a_gpu_tells_clocks_power_temperature_and_why_it_is_slow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    clocks = ClockSampler("cuda:1")
    with clocks:
        clocks.sample()
    rows = clocks.take()
    assert len(rows) == 3
    assert sys.modules["pynvml"].asked[-1] == 1
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


SLOT = "0000:01:00.0"


@pytest.mark.parametrize(
    ("visible", "slot", "asked"),
    [("3,5", None, 5), ("GPU-aa,GPU-bb", None, "GPU-bb"), ("", None, 1), ("3,5", SLOT, SLOT)],
)
def test_the_card_is_the_one_that_cuda_counts_or_found_by_its_slot_once_cuda_runs(
    monkeypatch, visible, slot, asked
):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(nvml, "_cuda_bus_id", lambda index: slot if index == 1 else None)
    ClockSampler("cuda:1").sample()
    told = sys.modules["pynvml"].asked
    assert told[-1] == asked
    assert slot is None or told == [slot]


def test_among_several_kinds_of_gpu_the_index_is_cudas_only_in_the_order_of_slots(monkeypatch):
    names = ["NVIDIA T400", "NVIDIA H200"]
    mixed = fake_nvml(
        nvmlDeviceGetHandleByIndex=int,
        nvmlDeviceGetName=names.__getitem__,
        nvmlDeviceGetCount=lambda: 2,
    )
    monkeypatch.setitem(sys.modules, "pynvml", mixed)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert "set CUDA_DEVICE_ORDER=PCI_BUS_ID" in ClockSampler("cuda:0").missing
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert ClockSampler("cuda:0").missing is None


def test_asking_for_the_slot_loads_no_driver():
    assert nvml._cuda_bus_id(0) is None


def test_a_sample_between_steps_is_taken_at_most_every_50_ms():
    now_ms = [0]
    clocks = ClockSampler("cpu", clock_ns=lambda: now_ms[0] * 1_000_000)
    for now_ms[0] in (0, 20, 49, 50, 60, 200, 249):
        clocks.sample_sometimes()
    assert [row["start_ns"] // 1_000_000 for row in clocks.take()] == [0, 50, 200]


def test_the_settings_of_a_card(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    assert nvml.describe_settings("cuda:0") == {
        "power_limit_w": 700.0,
        "ecc": True,
        "mig": None,  # the card has none
        "persistence": False,
        "max_sm_clock_hz": 1_980_000_000,
        "max_memory_clock_hz": 3_201_000_000,
    }
    assert nvml.describe_settings("cpu") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.describe_settings("cuda:0") is None


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
