import numpy as np
import pytest

from curvescope.analysis.cost_model.choice import get_library
from curvescope.analysis.cost_model.networks import estimate_step, load_operations
from curvescope.analysis.cost_model.problems import PHASES, Convolutions, Products
from curvescope.analysis.cost_model.recording import machine_for
from curvescope.analysis.cost_model.tensor_cores import (
    estimate_tensor_convolutions,
    estimate_tensor_products,
    padded,
    tensor_machine,
)
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware.devices import get_device

V100 = tensor_machine(get_device("v100"), "fp16")


def test_extents_are_padded_to_multiples_of_8():
    assert padded(np.array([1.0, 8.0, 35.0])).tolist() == [8, 8, 40]


@pytest.mark.parametrize(
    ("m", "n", "k", "published_ms"), [(4096, 7133, 4096, 2.199), (1760, 128, 1760, 0.031)], ids=["wide", "narrow"]
)
def test_products_take_about_what_deepbench_publishes_for_fp16_on_v100(m, n, k, published_ms):
    problem = Products(np.array([float(m)]), n, k, False, 1)
    assert 1e3 * estimate_tensor_products(problem, V100).time_s[0] == pytest.approx(published_ms, rel=0.3)


@pytest.mark.parametrize("phase", PHASES)
def test_a_convolution_of_three_channels_costs_no_less_than_one_of_eight(phase):
    three, eight = (
        estimate_tensor_convolutions(phase, Convolutions(16, c, 224, 224, 64, 3, 3, 1, 1, 1, 1), V100).time_s[0]
        for c in (3, 8)
    )
    assert three >= eight


def test_a_card_without_tensor_cores_is_refused_with_the_choices():
    for device, precision in (("gtx1080", "fp16"), ("v100", "bf16"), ("a100", "fp8")):
        with pytest.raises(CurvescopeError, match="choose fp32, or one of fp16, bf16"):
            tensor_machine(get_device(device), precision)


def test_a_step_in_fp16_is_faster_and_needs_less_memory():
    machine, library = machine_for(get_device("a100")), get_library("cudnn8")
    steps = [estimate_step(load_operations("resnet50"), [64], machine, library, precision=p) for p in ("fp32", "bf16")]
    assert steps[1].device_s[0] < 0.6 * steps[0].device_s[0]
    assert steps[1].memory_bytes[0] < 0.7 * steps[0].memory_bytes[0]
    assert [term.layer for term in steps[0].terms] == [term.layer for term in steps[1].terms]
