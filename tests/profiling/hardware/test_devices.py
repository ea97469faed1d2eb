import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware.devices import devices, get_device


def test_every_gpu_has_the_facts_that_the_cost_model_needs():
    needed = {"sm_count", "fp32_lanes_per_sm", "registers_per_sm", "memory_bytes_per_s", "l2_bytes", "memory_bytes"}
    for device in devices():
        amd = device.board in ("instinct", "radeon")  # listed to read traces, not modelled
        assert needed - ({"registers_per_sm"} if amd else set()) <= set(device.facts), device.key
        assert f"{device.running_clock}_clock_hz" in device.facts, device.key
        assert all(fact.source for fact in device.facts.values())
        if {"base_clock_hz", "boost_clock_hz"} <= set(device.facts):
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


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.key)
def test_peaks_are_those_that_were_published(device):
    """SMs x FMAs x clock against what a data sheet or a database prints: a typing error in any of them shows."""
    for name, fact in device.facts.items():
        if name.startswith("published_"):
            precision, _, tensor = name.removeprefix("published_").removesuffix("_flops_per_s").partition("_")
            peak = device.tensor_flops_per_s(precision) if tensor else device.lane_flops_per_s(precision)
            # Printed with two to four digits; small peaks as 0.01 TFLOP/s.
            assert peak == pytest.approx(fact.value, rel=0.02, abs=0.006e12), name


def test_the_table_has_the_cards_of_every_generation():
    architectures = {device.architecture for device in devices()}
    assert architectures >= {"kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"}
    assert len(devices()) > 100
    published = [name for device in devices() for name in device.facts if name.startswith("published_")]
    assert len(published) > 300


def test_geforce_boards_sum_fp16_products_in_fp32_at_half_the_rate():
    """By hand: 128 SMs x 256 FMAs x 2 x 2520 MHz, against 142 x 512 x 2 x 2505 MHz of the workstation's board."""
    assert get_device("rtx4090").peak_products_per_s("fp16") == pytest.approx(165.2e12, rel=1e-3)
    assert get_device("rtx_6000_ada").peak_products_per_s("bf16") == pytest.approx(364.2e12, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("p100", "fp16", 21.2),  # packed fp16 of GP100
        ("p40", "int8", 47.0),  # dp4a
        ("a100", "fp64", 19.5),
        ("t4", "bf16", 8.14),  # no bf16 before Ampere: in fp32
        ("v100", "fp8", None),
        ("mi300x", "fp8", 2615),
        ("b200", "fp4", 8900),
        ("rx7900xtx", "fp16", 122.8),
        ("rx9070xt", "bf16", 194.6),  # 64 CUs x 512 FMAs x 2 x 2970 MHz
    ],
)
def test_products_have_the_peak_of_the_units_that_run_them(name, precision, tflops):
    peak = get_device(name).peak_products_per_s(precision)
    assert peak == (None if tflops is None else pytest.approx(tflops * 1e12, rel=0.005))


def test_a_clock_that_is_not_known_gives_no_peak():
    assert get_device("h200").peak_flops_per_s("base") is None


def test_a_k40_runs_at_its_base_clock():
    assert get_device("K40m").clock_hz == 745e6


def test_an_unknown_gpu_names_those_that_come_close():
    with pytest.raises(CurvescopeError, match=r"did you mean gtx1080.*Choose from k40"):
        get_device("gtx1800")
