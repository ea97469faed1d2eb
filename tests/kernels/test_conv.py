"""Convolutions: reference against torch in float64 over geometries, work by hand, what the check
catches.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.kernels.conv import DIRECTIONS, Conv


def torch_result(problem, operands):
    """The same by torch's own convolution and autograd."""
    first, second = (torch.from_numpy(array).double() for array in operands)
    geometry = {
        name: getattr(problem, name) for name in ("stride", "padding", "dilation", "groups")
    }
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
    np.testing.assert_allclose(
        problem.reference(operands), torch_result(problem, operands), atol=1e-10
    )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("full", [True, False])
def test_a_rounded_result_is_accepted_and_a_wrong_tile_is_not(direction, groups, full, monkeypatch):
    monkeypatch.setattr("curvescope.kernels.problem.FULL_CHECK_FLOPS", 10**9 if full else 0)
    problem = Conv(2, 16, 12, 12, 24, 3, 3, (2, 1), (1, 1), groups=groups, direction=direction)
    operands = problem.operands(np.random.default_rng(0))
    result = problem.reference(operands).astype(np.float32).astype(np.float64)
    error = problem.error(operands, result)
    assert error.acceptable
    assert error.projected is not full
    result[-1, -4:, -1, -1] *= 1.1
    assert not problem.error(operands, result).acceptable
