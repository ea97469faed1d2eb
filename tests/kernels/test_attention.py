"""Attention and operators over rows: references by hand, what a wrong result does, and what a GPU's
backend calls.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from curvescope.kernels import attention
from curvescope.kernels import problem as problem_module
from curvescope.kernels.attention import Attention
from curvescope.kernels.backends import UnsupportedError
from curvescope.kernels.backends.torch_operators import prepare_attention, prepare_gemm
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.row_operators import RowOperator

from ..tables import ask_each


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("checked", [10**12, 0], ids=["whole", "some queries"])
def test_attention_is_checked_against_torch_in_float64(monkeypatch, causal, checked):
    monkeypatch.setattr(problem_module, "FULL_CHECK_FLOPS", checked)
    problem = Attention(2, 3, 16, 8, "math", causal, "fp64")
    operands = problem.operands(np.random.default_rng(0))
    tensors = [torch.from_numpy(x) for x in operands]
    right = torch.nn.functional.scaled_dot_product_attention(
        *tensors, is_causal=bool(causal)
    ).numpy()
    error = problem.error(operands, right)
    assert (error.acceptable, error.projected) == (True, not checked)
    assert not problem.error(operands, right * 1.01).acceptable
    assert not problem.error(
        operands, np.where(np.arange(16)[:, None] > -1, np.nan, right)
    ).acceptable
    other = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=not causal).numpy()
    assert not problem.error(operands, other).acceptable


@pytest.mark.parametrize("wrong", [0, 1, 2])
@pytest.mark.parametrize("checked", [10**12, 0], ids=["all heads", "one head"])
def test_a_wrong_gradient_is_found_in_any_of_the_three(monkeypatch, wrong, checked):
    monkeypatch.setattr(problem_module, "FULL_CHECK_FLOPS", checked)
    monkeypatch.setattr(attention, "_QUERIES_AT_ONCE", 5)
    problem = Attention(1, 2, 12, 8, "math", 1, "fp64", "bwd")
    operands = problem.operands(np.random.default_rng(0))
    result = prepare_attention(
        torch, problem, [torch.from_numpy(x) for x in operands], "cpu"
    ).result()
    assert problem.error(operands, result).acceptable
    result[wrong] *= 1.01
    assert not problem.error(operands, result).acceptable
    result[wrong] = np.nan
    assert not problem.error(operands, result).acceptable


def test_operators_over_rows_by_hand():
    x = np.array([[1.0, 3.0], [2.0, 2.0]])
    np.testing.assert_allclose(
        RowOperator(2, 2, "layer_norm", "fp64").reference((x,)), [[-1, 1], [0, 0]], atol=1e-4
    )
    np.testing.assert_allclose(
        RowOperator(2, 2, "rms_norm", "fp64").reference((x,)), x / [[5**0.5], [2]], rtol=1e-4
    )
    np.testing.assert_allclose(RowOperator(2, 2, "softmax", "fp64").reference((x,))[1], [0.5, 0.5])
    looked_up = RowOperator(3, 2, "embedding", "fp64")
    (table,) = looked_up.operands(np.random.default_rng(0))
    np.testing.assert_array_equal(looked_up.reference((table,)), table[[0, 7919, 15838]])
    assert not looked_up.error((table,), np.roll(looked_up.reference((table,)), 1, 0)).acceptable


class Torch:
    """What `prepare_attention` uses of torch on CUDA, with the operators logged."""

    def __init__(self, capability):
        self.called = []
        self.cuda = SimpleNamespace(get_device_capability=lambda _: capability)
        self.ops = SimpleNamespace(aten=self)

    def __getattr__(self, name):
        return lambda *arguments, **named: self.called.append((name, arguments[3:]))


@ask_each("algorithm", ["flash", "efficient", "cudnn", "math"])
def test_each_implementation_is_called_itself_with_the_arguments_of_its_schema(algorithm):
    fake = Torch((9, 0))
    prepare_attention(fake, Attention(1, 1, 8, 8, algorithm, 1), ["q", "k", "v"], "cuda:0").run()
    ((name, arguments),) = fake.called
    schema = next(
        s
        for s in torch._C._jit_get_all_schemas()
        if s.name == f"aten::{name}" and not s.overload_name
    )
    given = dict(zip([argument.name for argument in schema.arguments][3:], arguments, strict=False))
    assert algorithm in name
    assert given["is_causal"] is True
    assert given["dropout_p"] == 0.0


# Names of results that the backward operator takes under another name.
TAKEN_AS = {
    "output": "out",
    "log_sumexp": "logsumexp",
    "rng_state": "philox_seed",
    "unused": "philox_offset",
}


@ask_each("algorithm", ["flash", "efficient", "cudnn"])
def test_each_gradient_is_called_itself_with_the_results_of_the_forward_pass(algorithm):
    schemas = {s.name: s for s in torch._C._jit_get_all_schemas() if not s.overload_name}

    class Results(Torch):
        def __getattr__(self, name):
            def call(*arguments, **named):
                self.called.append((name, arguments))
                return tuple(one.name for one in schemas[f"aten::{name}"].returns)

            return call

    fake = Results((9, 0))
    problem = Attention(1, 1, 8, 8, algorithm, 1, direction="bwd")
    prepare_attention(fake, problem, ["query", "key", "value", "gradient"], "cuda:0").run()
    (_, forward), (name, arguments) = fake.called
    assert forward[:3] == ("query", "key", "value")
    if algorithm != "flash":
        assert forward[4] is True  # the logarithms of the sums
    assert name.endswith(f"{algorithm}_attention_backward")
    names = [argument.name for argument in schemas[f"aten::{name}"].arguments]
    given = dict(zip(names, arguments, strict=False))
    assert given.pop(names[0]) == "gradient"
    assert given.pop("is_causal") is True
    assert given.pop("dropout_p") == 0.0
    assert given.pop("attn_bias", None) is None
    assert given.pop("grad_input_mask", [True, True, True, False]) == [True, True, True, False]
    assert {argument: TAKEN_AS.get(value, value) for argument, value in given.items()} == {
        a: a for a in given
    }
    assert {"query", "key", "value", "out", "logsumexp", "philox_seed", "philox_offset"} <= set(
        given
    )


@ask_each(
    ("capability", "problem", "message"),
    [
        ((7, 5), Attention(1, 1, 8, 8, "flash", precision="fp16"), "needs compute capability 8.0"),
        (
            (3, 7),
            Attention(1, 1, 8, 8, "efficient", precision="fp32"),
            "needs compute capability 5.0",
        ),
        (
            (9, 0),
            Attention(1, 1, 8, 8, "flash", precision="fp32"),
            "computes in fp16, bf16, not fp32",
        ),
    ],
)
def test_a_gpu_without_an_implementation_says_so(capability, problem, message):
    with pytest.raises(UnsupportedError, match=message):
        prepare_attention(Torch(capability), problem, ["q", "k", "v"], "cuda:0")


def test_products_of_fp8_are_right_through_scaled_mm():
    """On this CPU, where torch converts; on a GPU the same call goes to cuBLASLt."""
    problem = Gemm(32, 16, 64, "TN", "fp8")
    operands = problem.operands(np.random.default_rng(0))
    tensors = [torch.from_numpy(x).to(torch.float8_e4m3fn) for x in operands]
    prepared = prepare_gemm(torch, problem, tensors, "cpu")
    try:
        prepared.run()
    except RuntimeError as error:  # e.g. with AVX2 alone
        if "primitive descriptor" in str(error):
            pytest.skip("oneDNN has no product of fp8 for this CPU")
        raise
    assert problem.error(operands, prepared.result()).acceptable
    with pytest.raises(UnsupportedError, match="transpose TN"):
        prepare_gemm(torch, Gemm(32, 16, 64, "NN", "fp8"), [x.T for x in tensors], "cpu")
