"""Matrix products: labels, work and reference by hand; what the check lets through and what it
catches.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvescope.kernels import problem as problem_module
from curvescope.kernels.experts import Experts
from curvescope.kernels.gemm import EPILOGUES, TRANSPOSES, Gemm
from curvescope.kernels.problem import bound_error, normal
from curvescope.profiling.hardware.precisions import PRECISIONS

from ..tables import ask_each


@ask_each("transpose", TRANSPOSES)
def test_reference_is_the_column_major_product(transpose):
    problem = Gemm(2, 3, 5, transpose, "fp64")
    a, b = problem.operands(np.random.default_rng(0))
    # Read in Fortran order, as BLAS does: an array of shape (p, q) in C order is the matrix q × p.
    a_matrix, b_matrix = a.T, b.T
    expected = (a_matrix if transpose[0] == "N" else a_matrix.T) @ (
        b_matrix if transpose[1] == "N" else b_matrix.T
    )
    assert expected.shape == (2, 3)
    np.testing.assert_allclose(problem.reference((a, b)).T, expected, rtol=1e-12)


@ask_each("precision", PRECISIONS)
def test_operands_are_held_exactly_by_their_precision(precision):
    values = normal(np.random.default_rng(1), (1000,), precision)
    assert abs(values.mean()) < 0.1
    assert abs(values.std() - 1) < 0.1
    raw = torch.from_numpy(np.random.default_rng(1).standard_normal(1000, np.float32))
    if precision == "int8":
        np.testing.assert_array_equal(values, raw.round().numpy())
    elif precision != "fp64":
        dtype = getattr(torch, PRECISIONS[precision].torch_dtype)
        np.testing.assert_array_equal(values, raw.to(dtype).float().numpy())


@ask_each("shape", [(65, 33, 129), (1500, 1400, 1000)])
@ask_each(("precision", "dtype"), [("fp32", np.float32), ("fp16", np.float16), ("int8", np.int32)])
def test_rounded_results_are_accepted_and_a_wrong_element_is_not(shape, precision, dtype):
    problem = Gemm(*shape, precision=precision)
    operands = problem.operands(np.random.default_rng(2))
    a, b = problem.views(operands)
    result = (b.astype(np.float32) @ a.astype(np.float32)).astype(dtype).astype(np.float64)
    error = problem.error(operands, result)
    assert error.acceptable
    assert error.projected == (
        shape[0] == 1500
    )  # beyond the full check: sums over columns are compared
    # A tile at the edge whose last product counts wrongly: the classic mistake of a kernel's tail.
    spoiled = result.copy()
    spoiled[-8:, -8:] -= (b[-8:, -1:].astype(np.float64) * a[-1:, -8:].astype(np.float64)) * 5
    assert not problem.error(operands, spoiled).acceptable


def test_not_a_number_and_a_wrong_shape_are_wrong():
    problem = Gemm(4, 4, 4)
    operands = problem.operands(np.random.default_rng(0))
    result = problem.reference(operands)
    result[0, 0] = np.nan
    assert not problem.error(operands, result).acceptable
    assert not problem.error(operands, result[:3]).acceptable
    # The allowance over 1024 products, by hand: 16 · 2^-24 · (1 + 32) · 32
    assert bound_error("fp32", 1024) == pytest.approx(16 * 2**-24 * 33 * 32)


@ask_each("checked", [10**12, 10**5])
@ask_each(
    "problem",
    [*(Gemm(65, 33, 129, epilogue=name) for name in EPILOGUES), Gemm(65, 33, 129, batch=2)],
)
def test_batches_and_epilogues_are_checked_whole_or_in_part(monkeypatch, checked, problem):
    """A large one by sums over its columns, or with an epilogue by some of them."""
    monkeypatch.setattr(problem_module, "FULL_CHECK_FLOPS", checked)
    operands = problem.operands(np.random.default_rng(2))
    result = problem.reference(operands)
    error = problem.error(operands, result)
    assert (error.acceptable, error.projected) == (True, checked == 10**5)
    tail = result.copy()
    tail[..., -8:] += 1
    assert not problem.error(operands, tail).acceptable
    if problem.has_epilogue:
        no_bias = problem.reference((*operands[:2], np.zeros_like(operands[2])))
        assert not problem.error(operands, no_bias).acceptable


@ask_each("name", ["relu", "gelu"])
def test_an_activation_is_as_torch_has_it(name):
    problem = Gemm(4, 3, 5, precision="fp64", epilogue=name)
    a, b, bias = problem.operands(np.random.default_rng(0))
    activate = getattr(torch.nn.functional, name)
    expected = activate(torch.from_numpy(b @ a + bias)).numpy()
    np.testing.assert_allclose(problem.reference((a, b, bias)), expected, rtol=1e-12)


def test_a_gelu_by_either_formula_is_right_and_no_other_is():
    problem = Gemm(64, 64, 64, epilogue="gelu")
    operands = problem.operands(np.random.default_rng(0))
    product = replace(problem, epilogue="bias").reference(operands)
    by_formula = [
        torch.nn.functional.gelu(torch.from_numpy(product), approximate=name).numpy()
        for name in ("none", "tanh")
    ]
    assert np.abs(by_formula[0] - by_formula[1]).max() > 1e-4
    for result in by_formula:
        assert problem.error(operands, result).acceptable
    by_sigmoid = torch.nn.functional.silu(torch.from_numpy(1.702 * product)).numpy() / 1.702
    assert not problem.error(operands, by_sigmoid).acceptable


@ask_each("checked", [10**12, 10**5])
def test_an_expert_that_takes_the_weights_of_another_is_wrong(monkeypatch, checked):
    monkeypatch.setattr(problem_module, "FULL_CHECK_FLOPS", checked)
    problem = Experts(3, 100, 33, 65, precision="fp32")
    assert list(problem.ends) == [33, 66, 100]
    weights, tokens = problem.operands(np.random.default_rng(0))
    right = np.concatenate([tokens[rows] @ weights[expert] for expert, rows in problem.slices()])
    assert problem.error((weights, tokens), right).acceptable
    swapped = weights[[1, 0, 2]]
    wrong = np.concatenate([tokens[rows] @ swapped[expert] for expert, rows in problem.slices()])
    assert not problem.error((weights, tokens), wrong).acceptable
    assert not problem.error((weights, tokens), right[:-1]).acceptable
