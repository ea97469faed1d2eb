"""Convolutions: reference against torch in float64 over geometries, work by hand, what the check catches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.base.errors import CurvescopeError
from curvescope.kernels.conv import DIRECTIONS, Conv
from curvescope.profiling.attribution.operation import Work


def torch_result(problem, operands):
    """The same by torch's own convolution and autograd."""
    first, second = (torch.from_numpy(array).double() for array in operands)
    geometry = {name: getattr(problem, name) for name in ("stride", "padding", "dilation", "groups")}
    if problem.direction == "fwd":
        return torch.nn.functional.conv2d(first, second, **geometry).numpy()
    if problem.direction == "bwd_data":
        return torch.nn.grad.conv2d_input(problem.image_shape, second, first, **geometry).numpy()
    return torch.nn.grad.conv2d_weight(first, problem.weights_shape, second, **geometry).numpy()


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(
    st.builds(
        Conv,
        n=st.integers(1, 3),
        c=st.sampled_from([2, 4]),
        h=st.integers(7, 9),
        w=st.integers(7, 9),
        k=st.sampled_from([2, 6]),
        r=st.integers(1, 3),
        s=st.integers(1, 3),
        stride=pairs,
        padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
        dilation=pairs,
        groups=st.integers(1, 2),
        direction=st.sampled_from(DIRECTIONS),
        precision=st.just("fp64"),
    )
)
@settings(max_examples=60)
def test_the_reference_is_torchs_for_every_geometry(problem):
    operands = problem.operands(np.random.default_rng(0))
    np.testing.assert_allclose(problem.reference(operands), torch_result(problem, operands), atol=1e-10)


def test_label_and_work_by_hand():
    problem = Conv(1, 3, 4, 4, 2, 3, 3)
    assert problem.label == "conv fwd n1 c3 4x4 k2 3x3 fp32"
    assert problem.work == Work(2 * 8 * 27, 4 * (48 + 54 + 8))  # 2·2·2 results of 27 products
    assert replace(problem, direction="bwd_weights").work == Work(2 * 8 * 27, 4 * (8 + 48 + 54))
    grouped = Conv(8, 4, 9, 7, 4, 3, 2, (2, 1), (1, 1), (1, 2), 2, "bwd_data", "nhwc", "bf16")
    assert grouped.label == "conv bwd_data n8 c4 9x7 k4 3x2 s2x1 p1 d1x2 g2 nhwc bf16"
    assert grouped.label_along("n") == "conv bwd_data n* c4 9x7 k4 3x2 s2x1 p1 d1x2 g2 nhwc bf16"
    assert grouped.output == (5, 7)
    assert grouped.terms == 2 * 3 * 2
    # 8·4·5·7 gradients of 2·3·2 products each
    assert grouped.work.flops == 2 * 8 * 4 * 5 * 7 * 12


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("full", [True, False])
def test_a_rounded_result_is_accepted_and_a_wrong_tile_is_not(direction, groups, full, monkeypatch):
    monkeypatch.setattr("curvescope.kernels.conv.FULL_CHECK_FLOPS", 10**9 if full else 0)
    problem = Conv(2, 16, 12, 12, 24, 3, 3, (2, 1), (1, 1), groups=groups, direction=direction)
    operands = problem.operands(np.random.default_rng(0))
    result = problem.reference(operands).astype(np.float32).astype(np.float64)
    error = problem.error(operands, result)
    assert error.acceptable
    assert error.projected is not full
    result[-1, -4:, -1, -1] *= 1.1
    assert not problem.error(operands, result).acceptable


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": 2}, "groups must divide channels"),
        ({"h": 2}, "larger than the padded image"),
        ({"direction": "up"}, "one of fwd"),
        ({"layout": "chwn"}, "one of nchw"),
        ({"stride": (0, 1)}, "must be 1 or more"),
    ],
)
def test_what_is_no_convolution_is_refused(changes, message):
    with pytest.raises(CurvescopeError, match=message):
        replace(Conv(1, 3, 4, 4, 2, 3, 3), **changes)
