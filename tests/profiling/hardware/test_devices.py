import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware.devices import devices, get_device

from ...tables import ask_each


def test_every_gpu_has_the_facts_that_the_cost_model_needs():
    needed = {
        "sm_count",
        "fp32_lanes_per_sm",
        "registers_per_sm",
        "memory_bytes_per_s",
        "l2_bytes",
        "memory_bytes",
    }
    for device in devices():
        amd = device.board in ("instinct", "radeon")  # listed to read traces, not modelled
        assert needed - ({"registers_per_sm"} if amd else set()) <= set(device.facts), device.key
        assert f"{device.running_clock}_clock_hz" in device.facts, device.key
        assert all(fact.source for fact in device.facts.values())
        if {"base_clock_hz", "boost_clock_hz"} <= set(device.facts):
            assert device.facts["base_clock_hz"].value < device.facts["boost_clock_hz"].value


@ask_each("device", devices())
def test_peaks_are_those_that_were_published(device):
    """SMs x FMAs x clock against what a data sheet or a database prints: a typing error in any of
    them shows.
    """
    for name, fact in device.facts.items():
        if name.startswith("published_"):
            precision, _, tensor = (
                name.removeprefix("published_").removesuffix("_flops_per_s").partition("_")
            )
            peak = (
                device.tensor_flops_per_s(precision)
                if tensor
                else device.lane_flops_per_s(precision)
            )
            # Printed with two to four digits; small peaks as 0.01 TFLOP/s.
            assert peak == pytest.approx(fact.value, rel=0.02, abs=0.006e12), name


@ask_each(
    ("name", "precision", "tflops"),
    [
        ("k40", "fp32", 4.29),  # at its base clock
        ("p100", "fp16", 21.2),  # packed fp16 of GP100
        ("p40", "int8", 47.0),  # dp4a
        ("a100", "fp64", 19.5),
        ("t4", "bf16", 8.14),  # no bf16 before Ampere: in fp32
        ("v100", "fp8", None),
        ("mi300x", "fp8", 2615),
        ("b200", "fp4", 8900),
        ("rx7900xtx", "fp16", 122.8),
        ("rx9070xt", "bf16", 194.6),  # 64 CUs x 512 FMAs x 2 x 2970 MHz
        # GeForce boards sum in fp32 at half the rate: 128 SMs x 256 FMAs x 2 x 2520 MHz, 142 x 512
        # x 2 x 2505.
        ("rtx4090", "fp16", 165.2),
        ("rtx_6000_ada", "bf16", 364.2),
    ],
)
def test_products_have_the_peak_of_the_units_that_run_them(name, precision, tflops):
    peak = get_device(name).peak_products_per_s(precision)
    assert peak == (None if tflops is None else pytest.approx(tflops * 1e12, rel=0.005))


def test_a_peak_is_at_the_clock_that_is_asked_for_if_it_is_known():
    assert get_device("k40").peak_flops_per_s("boost") == pytest.approx(5.04e12, rel=0.005)
    assert get_device("h200").peak_flops_per_s("base") is None
    assert get_device("K40m").clock_hz == 745e6


def test_an_unknown_gpu_names_those_that_come_close():
    with pytest.raises(CurvescopeError, match=r"did you mean gtx1080.*Choose from k40"):
        get_device("gtx1800")
