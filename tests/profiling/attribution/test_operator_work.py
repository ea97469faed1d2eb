"""FLOPs and compulsory bytes: by hand for single calls, against torch's own counter for whole networks."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from curvescope.profiling.attribution.operator_work import UNKNOWN, Work, work
from curvescope.profiling.workload.networks import get_network

F4 = ["float"] * 6


def test_matrix_product_by_hand():
    # 2 × 3 times 3 × 5: 30 products and sums; 6 + 15 + 10 elements of 4 bytes
    assert work("aten::mm", [[2, 3], [3, 5]], F4) == Work(60, 124)
    assert work("aten::addmm", [[5], [2, 3], [3, 5], [], []], F4) == Work(70, 144)
    assert work("aten::linear", [[2, 3], [5, 3], [5]], F4) == Work(70, 144)
    assert work("aten::bmm", [[4, 2, 3], [4, 3, 5]], F4) == Work(240, 496)


def test_half_precision_moves_half_the_bytes():
    assert work("aten::mm", [[2, 3], [3, 5]], ["c10::BFloat16"] * 2) == Work(60, 62)


def test_convolution_by_hand():
    # 1 image 3×4×4, 2 filters 3×3 without padding: 2×2×2 results of 27 products each
    call = ([[1, 3, 4, 4], [2, 3, 3, 3], []], F4, [None, None, None, [1, 1], [0, 0], [1, 1], 1])
    assert work("aten::conv2d", *call) == Work(2 * 8 * 27, 4 * (48 + 54 + 8))


def test_grouped_and_strided_convolution_by_hand():
    # 4 channels in 2 groups, 6 filters over 2 channels each, stride 2, padding 1 on 5×5: 3×3 results
    call = ([[2, 4, 5, 5], [6, 2, 3, 3], [6]], F4, [None, None, None, [2, 2], [1, 1], [1, 1], 2])
    results = 2 * 6 * 9
    assert work("aten::conv2d", *call).flops == 2 * results * 18 + results


def test_backward_of_a_convolution_counts_only_what_is_wanted():
    shapes = [[1, 2, 2, 2], [1, 3, 4, 4], [2, 3, 3, 3]] + [[]] * 8

    def backward(mask):
        return work("aten::convolution_backward", shapes, F4, [None] * 10 + [mask])

    one = 2 * 8 * 27
    assert backward([True, True, False]).flops == 2 * one
    assert backward([False, True, True]).flops == one + 8
    assert backward([True, False, False]) == Work(one, 4 * (8 + 54 + 48))


def test_optimizer_over_a_list_of_tensors():
    assert work("aten::_foreach_mul_", [[[2, 3], [4]], []], F4) == Work(10, 80)


@pytest.mark.parametrize(
    ("op", "shapes", "concrete"),
    [
        ("aten::no_such_operator", [[2, 3]], []),
        ("aten::mm", [[2, 3]], []),  # an operand was not recorded
        ("aten::conv2d", [[1, 3, 4, 4], [2, 3, 3, 3], []], []),  # nor the stride
        ("aten::convolution", [[1, 3, 4, 4], [3, 2, 3, 3], []], [None, None, None, [1, 1], [0, 0], [1, 1], True]),
        ("aten::convolution_backward", [[1, 2, 2, 2], [1, 3, 4, 4], [2, 3, 3, 3]], []),
    ],
)
def test_what_is_not_known_is_none(op, shapes, concrete):
    assert work(op, shapes, F4, concrete) == UNKNOWN


def test_unknown_element_types_are_none():
    assert work("aten::mm", [[2, 3], [3, 5]], ["", ""]) == UNKNOWN


@pytest.mark.parametrize("name", ["alexnet", "vgg_a"])
def test_a_training_step_has_the_flops_that_torch_counts(name):
    """torch's counter leaves bias and elementwise work out; the products must agree exactly."""
    network = get_network(name)
    with torch.device("meta"):
        model = network.build()
        images = torch.empty(2, *network.input_shape)
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    ours = 0
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            shapes = [list(module.seen), list(module.weight.shape), []]
            settings = [None, None, None, list(module.stride), list(module.padding), list(module.dilation), 1]
            forward = work("aten::conv2d", shapes, F4, settings).flops
        elif isinstance(module, torch.nn.Linear):
            forward = work("aten::linear", [list(module.seen), list(module.weight.shape), []], F4).flops
        else:
            continue
        ours += forward * (2 if module is first_layer(model) else 3)
    assert ours == counter.get_total_flops()


def first_layer(model):
    return next(iter(model.children()))


@pytest.fixture(autouse=True)
def _remember_inputs():
    def remember(module, inputs):
        module.seen = inputs[0].shape

    handle = torch.nn.modules.module.register_module_forward_pre_hook(remember)
    yield
    handle.remove()
