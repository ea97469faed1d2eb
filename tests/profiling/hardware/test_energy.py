"""Energy of steps: doubles of NVML, a tree of RAPL files, and the share of each step."""

import sys
from types import SimpleNamespace

import pytest

from curvescope.base.errors import BackendMissingError
from curvescope.profiling.hardware import energy
from curvescope.profiling.hardware.energy import find_meter
from curvescope.profiling.measure import visit

from ...tables import ask_each
from .test_clocks import fake_nvml


def nvml(monkeypatch, **answers):
    module = fake_nvml(**answers)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(energy, "find_device", lambda device: energy.NvmlDevice(module, "handle"))
    return module


def test_the_counter_of_energy_is_taken_where_the_gpu_has_one(monkeypatch):
    counts = iter((1000, 4500, 4500))
    nvml(monkeypatch, nvmlDeviceGetTotalEnergyConsumption=lambda _: next(counts))
    meter = find_meter("cuda:0")  # reads once, to know that it is there
    assert [meter.read(), meter.read()] == [4.5, 4.5]
    assert meter.source.name == "NVML's total energy counter"


@pytest.mark.parametrize(
    ("capability", "kind", "averaged"),
    [
        ((6, 1), "instantaneous power", False),
        ((8, 0), "instantaneous power", False),
        ((9, 0), "average", True),
    ],
)
def test_without_a_counter_power_is_integrated_and_an_average_is_named_so(
    monkeypatch, capability, kind, averaged
):
    """100 W, then 300 W: 200 W on average over two seconds are 400 J."""
    nvml(
        monkeypatch,
        nvmlDeviceGetCudaComputeCapability=lambda _: list(capability),
        nvmlDeviceGetPowerUsage=lambda _: next(watts) * 1000,
    )
    now_ns, watts = iter((0, 2_000_000_000)), iter((100, 300))
    meter = energy.PowerMeter(energy.find_device("cuda:0"), lambda: next(now_ns))
    assert [meter.read(), meter.read()] == [0.0, 400.0]
    assert kind in meter.source.name
    assert meter.source.averaged == averaged
    assert meter.source.least_s == (3.0 if averaged else 0.2)


def test_a_driver_with_the_field_of_instantaneous_power_is_read_by_it(monkeypatch):
    field = SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=250_000))
    module = nvml(
        monkeypatch,
        nvmlDeviceGetCudaComputeCapability=lambda _: [9, 0],
        nvmlDeviceGetFieldValues=lambda _, ids: [field] if ids == [186] else None,
    )
    module.NVML_FI_DEV_POWER_INSTANT = 186
    meter = energy.PowerMeter(energy.find_device("cuda:0"), iter((0, 1_000_000_000)).__next__)
    assert [meter.read(), meter.read()] == [0.0, 250.0]
    assert meter.source.name == "integral of NVML's power (instantaneous power)"


def test_a_gpu_without_energy_and_power_says_so(monkeypatch):
    nvml(monkeypatch, nvmlDeviceGetPowerUsage=None)
    with pytest.raises(BackendMissingError, match="neither energy nor power"):
        find_meter("cuda:0")


def zone(folder, number, name, microjoules, whole=1_000_000):
    package = folder / f"intel-rapl:{number}"
    package.mkdir(parents=True)
    for file, value in (("name", name), ("energy_uj", microjoules), ("max_energy_range_uj", whole)):
        (package / file).write_text(f"{value}\n")
    return package


def test_packages_are_added_and_counters_that_wrap_go_on(monkeypatch, tmp_path):
    """Package 0 goes from 900,000 µJ over its end at 1,000,000 to 100,000, package 1 from 0 to
    300,000: 0.5 J.
    """
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    first, second = zone(tmp_path, 0, "package-0", 900_000), zone(tmp_path, 1, "package-1", 0)
    zone(tmp_path, 2, "psys", 0)
    meter = find_meter("cpu")
    assert meter.read() == 0.0
    (first / "energy_uj").write_text("100000\n")
    (second / "energy_uj").write_text("300000\n")
    assert meter.read() == 0.5
    assert energy.describe_energy("cpu") == {
        "name": "RAPL",
        "scope": "2 CPU packages, with the work of other processes",
        "least_s": 0.02,
        "averaged": False,
    }


def test_a_cpu_without_rapl_or_the_right_to_read_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    assert "no RAPL package" in energy.describe_energy("cpu")["missing"]
    zone(tmp_path, 0, "package-0", 0)

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(energy.RaplMeter, "_counts", refuse)
    assert "chmod a+r" in energy.describe_energy("cpu")["missing"]


@ask_each(
    ("joules", "least_s", "shares_j"),
    [
        (
            [5.0, 30.0, 105.5],
            0.2,
            [25, 75],
        ),  # 100 J within 0.402 s; the gap between the steps keeps its own share
        ([0.0, 10.0, 20.0], 0.5, [None, None]),  # too short for the source
        ([0.0, 10.0, None], 0.01, [None, None]),  # a failed reading
        ([5.0, 5.0, 5.0], 0.01, [None, None]),  # a counter that stood still
    ],
)
def test_steps_share_the_energy_of_their_visit_by_duration(joules, least_s, shares_j):
    timed = [
        {"start_ns": 0, "duration_ns": 100_000_000},
        {"start_ns": 102_000_000, "duration_ns": 300_000_000},
    ]
    meter = SimpleNamespace(
        source=energy.EnergySource("a fake", "the fake", least_s), integrates=False
    )
    meter.read = iter(joules).__next__
    visit.share_energy(None, timed, joules, meter)
    assert [row.get("energy_uj") for row in timed] == [
        joule and joule * 1_000_000 for joule in shares_j
    ]


class Device:
    """A GPU of 400 W in steps, and of 120 W between them; each reading of the host or of a meter
    takes its time.
    """

    device = "fake"

    def __init__(self, step_ns):
        self.step_ns, self.now_ns, self.joules, self.steps = step_ns, 0, 0.0, 0

    def spend(self, ns, watts=120):
        self.now_ns += ns
        self.joules += ns / 1e9 * watts

    def time_step(self):
        self.steps += 1
        self.spend(self.step_ns, 400)
        return self.now_ns - self.step_ns, self.step_ns

    def read(self):
        self.spend(200_000)
        return self.joules


@pytest.mark.parametrize(
    ("step_ms", "count", "run"), [(1, 1000, 2000), (3, 333, 666), (80, 12, 24), (250, 4, 4)]
)
def test_the_energy_of_a_step_is_that_of_a_device_which_does_not_wait(
    monkeypatch, step_ms, count, run
):
    """Counters of the host take 0.5 ms before and after each step; visits are those of --of energy,
    a second long.
    """
    device = Device(step_ms * 1_000_000)
    source = energy.EnergySource("a fake", "the fake", 0.2)
    meter = SimpleNamespace(read=device.read, source=source, integrates=False)
    monkeypatch.setattr(visit, "meter_of", lambda _: meter)
    monkeypatch.setattr(visit, "reset_peak", lambda _: False)
    monkeypatch.setattr(visit, "read_host_use", lambda: device.spend(500_000))
    timed = visit.time_steps(device, count, lambda: device.spend(300_000))
    assert [row["energy_uj"] for row in timed] == pytest.approx(
        [400_000 * step_ms] * count, rel=0.02
    )
    assert device.steps == run
    device.steps = 0
    timed = visit.time_steps(device, count, lambda: device.spend(300_000), exactly=True)
    assert device.steps == count
    assert ("energy_uj" in timed[0]) == (run == count)
