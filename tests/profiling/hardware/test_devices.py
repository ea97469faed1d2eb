import pytest

from curvescope.profiling.errors import CurvescopeError
from curvescope.profiling.hardware.devices import devices, get_device


def test_every_gpu_has_the_facts_that_the_cost_model_needs():
    needed = {"sm_count", "fp32_lanes_per_sm", "registers_per_sm", "memory_bytes_per_s", "l2_bytes", "memory_bytes"}
    for device in devices():
        assert needed <= set(device.facts), device.key
        assert f"{device.running_clock}_clock_hz" in device.facts, device.key
        assert all(fact.source for fact in device.facts.values())
        if "base_clock_hz" in device.facts:
            assert device.facts["base_clock_hz"].value < device.facts["boost_clock_hz"].value


@pytest.mark.parametrize(
    ("name", "clock", "tflops"),
    # As the vendor's datasheets print them.
    [
        ("k40", "base", 4.29),
        ("k40", "boost", 5.04),
        ("gtx1080", "boost", 8.87),
        ("p100", "boost", 10.6),
        ("v100", "boost", 15.7),
    ],
)
def test_peaks_are_the_datasheets(name, clock, tflops):
    assert get_device(name).peak_flops_per_s(clock) == pytest.approx(tflops * 1e12, rel=0.005)


def test_a_clock_that_is_not_known_gives_no_peak():
    assert get_device("h200").peak_flops_per_s("base") is None


def test_a_k40_runs_at_its_base_clock():
    assert get_device("K40m").clock_hz == 745e6


def test_an_unknown_gpu_names_those_that_come_close():
    with pytest.raises(CurvescopeError, match=r"did you mean gtx1080.*Choose from k40"):
        get_device("gtx1800")
