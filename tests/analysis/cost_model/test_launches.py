from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.cost_model.choice import estimate_products_of, get_library
from curvescope.analysis.cost_model.constants import (
    PEAK_SHARES,
    Constants,
    constants_for,
)
from curvescope.analysis.cost_model.launches import TILES, ModelledGpu
from curvescope.analysis.cost_model.networks import estimate_step, load_operations
from curvescope.analysis.cost_model.problems import (
    NARROW,
    PHASES,
    Convolutions,
    Products,
    product_kinds,
)
from curvescope.analysis.cost_model.product import estimate_products
from curvescope.analysis.cost_model.recording import machine_for
from curvescope.analysis.cost_model.tensor_cores import (
    estimate_tensor_convolutions,
    estimate_tensor_products,
    pad,
    tensor_machine,
)
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware.devices import get_device

from ...tables import ask_each
from .start import start_constants

PUBLISHED = Path(__file__).parents[3] / "benchmarks" / "published"


@pytest.fixture
def machine():
    return ModelledGpu(get_device("p100"), start_constants())


def with_constants(machine, **values):
    return ModelledGpu(machine.device, Constants({**machine.constants.values, **values}))


def test_a_large_product_runs_at_its_share_of_the_peak(machine):
    exact = with_constants(machine, product=0.8, small_tile=1e-9)
    time_s = estimate_products(
        Products(16384, 16384, 8192, False, 1), exact, tiles=TILES[:1]
    ).time_s[0]
    rate = 2 * 16384 * 16384 * 8192 / time_s
    # 16,384 blocks of 128 × 128 over 56 SMs: 293 each, of 292.57 on average.
    assert rate == pytest.approx(0.8 * exact.device.peak_flops_per_s() * 292.571 / 293, rel=0.01)


def test_a_wave_that_is_not_full_costs_as_much_as_a_full_one(machine):
    depth, sms = np.array([4096.0]), machine.device.sm_count
    full, one_more, twice = (
        machine.blocks_s(0.8, TILES[0], np.array([float(n)]), depth)[0]
        for n in (2 * sms, 2 * sms + 1, 4 * sms)
    )
    assert twice == pytest.approx(2 * full)
    assert full * 1.4 < one_more < twice


def test_fewer_blocks_than_sms_take_as_long_as_one_per_sm(machine):
    depth = np.array([1000.0])
    one, all_sms = (machine.blocks_s(0.8, TILES[3], np.array([n]), depth)[0] for n in (1.0, 56.0))
    assert one == all_sms


def test_a_stream_runs_at_its_share_of_the_bandwidth_and_costs_a_launch(machine):
    constants = machine.constants
    launch = machine.stream("copy", np.array([0.0, 1e9]))
    assert launch.time_s[0] == pytest.approx(constants["start_us"] * 1e-6)
    assert launch.time_s[1] - launch.time_s[0] == pytest.approx(
        1e9 / (732.2e9 * constants["stream"])
    )


def test_the_slowest_limit_decides():
    machine = ModelledGpu(get_device("v100"), start_constants())
    start = machine.start_s
    alone = machine.combine(np.array([1e-3]), np.array([0.0]), np.array([0.0]))[0] - start
    tied = (
        machine.combine(np.array([1e-3]), np.array([0.0]), np.array([1e-3 * 898e9 * 0.75]))[0]
        - start
    )
    assert alone == pytest.approx(1e-3)
    assert 1e-3 < tied < 1.26e-3


def test_narrow_products_of_pascal_are_a_quarter_off_in_the_mean():
    """DRAM's share decides what they take; DeepBench, P100 with cuBLAS 8."""
    table = pd.read_csv(PUBLISHED / "deepbench_gemm.csv")
    rows = table[table.gpu == "Tesla P100"]
    problems = Products(rows.m, rows.n, rows.k, (rows.a_t == "T").to_numpy(), 1)
    p100, library = machine_for(get_device("p100")), get_library("cudnn6")
    time_s = estimate_products_of(problems, p100, library).time_s
    is_narrow = product_kinds(problems.flops, problems.touched_bytes) == NARROW
    error = (time_s * 1e3 / rows.time_ms.to_numpy() - 1)[is_narrow]
    assert np.abs(error).mean() < 0.27
    assert abs(np.median(error)) < 0.05


def test_a_deep_product_with_a_small_output_is_split(machine):
    problem = Products(64, 64, 500_000, False, 1)
    split = estimate_products(problem, machine)
    unsplit = estimate_products(problem, machine, split_from=10**9)
    assert split.time_s[0] < unsplit.time_s[0] / 10
    assert split.workspace_bytes[0] > 0
    assert unsplit.workspace_bytes[0] == 0


def test_a_geforce_board_runs_above_its_boost_clock():
    constants = Constants({**start_constants().values, "gpu_boost": 1.1})
    assert ModelledGpu(get_device("gtx1080"), constants).clock_hz == pytest.approx(1.1 * 1733e6)
    assert ModelledGpu(get_device("p100"), constants).clock_hz == 1480e6


@ask_each(("device", "megahertz"), [("t4", 900), ("p4", 993), ("l4", 1273)])
def test_a_board_of_75_watts_runs_below_its_boost_clock(device, megahertz):
    machine = ModelledGpu(get_device(device), start_constants())
    assert machine.clock_hz == megahertz * 1e6 < machine.device.clock_hz


def constants(share):
    return Constants(
        {**start_constants().values, **dict.fromkeys(PEAK_SHARES, share), "start_us": 10 * share}
    )


@ask_each(
    ("fitted", "name", "share"),
    [
        ({"maxwell": 0.6, "volta": 0.8}, "pascal", 0.6),  # the newest before it
        ({"maxwell": 0.6}, "kepler", 0.6),  # nothing is older: the next one
        (
            {"kepler": 0.2, "maxwell": 0.6, "pascal": 0.8},
            "volta",
            0.9,
        ),  # unused: 0.8, 0.4, 0.2, so 0.1 next
        ({"maxwell": 0.8, "pascal": 0.6}, "volta", 0.6),  # a share that fell is not carried on
    ],
)
def test_an_architecture_that_was_not_fitted_carries_on_what_those_before_it_did(
    fitted, name, share
):
    known = {architecture: constants(of) for architecture, of in fitted.items()}
    found = constants_for(name, known)
    assert [found[of] for of in PEAK_SHARES] == pytest.approx([share] * len(PEAK_SHARES))
    assert found["start_us"] in {
        10 * of for of in fitted.values()
    }  # what is not a share of the peak stays
    with pytest.raises(ValueError, match="no architecture"):
        constants_for(name, {})


@ask_each(("inputs", "groups"), [(3, 1), (4, 2)])
def test_convolution_flops_and_bytes_by_hand(inputs, groups):
    """2 images of 5 × 5, four 3 × 3 filters, stride 2, padding 1: 3 × 3 outputs read the inputs of
    their group.
    """
    one = Convolutions(2, inputs, 5, 5, 4, 3, 3, 1, 1, 2, 2, groups)
    assert (one.p[0], one.q[0]) == (3, 3)
    assert one.flops[0] == 2 * (2 * 4 * 3 * 3) * (inputs / groups * 3 * 3)
    assert one.input_bytes[0] == 4 * 2 * inputs * 5 * 5
    assert one.output_bytes[0] == 4 * 2 * 4 * 3 * 3
    assert one.weight_bytes[0] == 4 * 4 * inputs / groups * 3 * 3
    assert not one.depthwise[0]


def test_the_mirror_of_a_convolution_computes_the_gradient_of_its_input():
    one = Convolutions(2, 3, 7, 9, 4, 5, 3, 1, 0, 1, 1)
    mirror = one.mirror()
    assert (mirror.p[0], mirror.q[0], mirror.k[0]) == (7, 9, 3)
    assert mirror.flops[0] == 2 * 2 * 3 * 4 * 15 * 7 * 9


V100 = tensor_machine(get_device("v100"), "fp16")


def test_extents_are_padded_to_multiples_of_8():
    assert pad(np.array([1.0, 8.0, 35.0])).tolist() == [8, 8, 40]


@ask_each(("m", "n", "k", "published_ms"), [(4096, 7133, 4096, 2.199), (1760, 128, 1760, 0.031)])
def test_products_take_about_what_deepbench_publishes_for_fp16_on_v100(m, n, k, published_ms):
    problem = Products(np.array([float(m)]), n, k, False, 1)
    assert 1e3 * estimate_tensor_products(problem, V100).time_s[0] == pytest.approx(
        published_ms, rel=0.3
    )


@ask_each("phase", PHASES)
def test_a_convolution_of_three_channels_costs_no_less_than_one_of_eight(phase):
    three, eight = (
        estimate_tensor_convolutions(
            phase, Convolutions(16, c, 224, 224, 64, 3, 3, 1, 1, 1, 1), V100
        ).time_s[0]
        for c in (3, 8)
    )
    assert three >= eight


def test_a_card_without_tensor_cores_is_refused_with_the_choices():
    for device, precision in (("gtx1080", "fp16"), ("v100", "bf16"), ("a100", "fp8")):
        with pytest.raises(CurvescopeError, match="choose fp32, or one of fp16, bf16"):
            tensor_machine(get_device(device), precision)


def test_a_step_in_fp16_is_faster_and_needs_less_memory():
    machine, library = machine_for(get_device("a100")), get_library("cudnn8")
    steps = [
        estimate_step(load_operations("resnet50"), [64], machine, library, precision=p)
        for p in ("fp32", "bf16")
    ]
    assert steps[1].device_s[0] < 0.6 * steps[0].device_s[0]
    assert steps[1].memory_bytes[0] < 0.7 * steps[0].memory_bytes[0]
    assert [term.layer for term in steps[0].terms] == [term.layer for term in steps[1].terms]
