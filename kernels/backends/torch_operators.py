"""What the torch backend runs for matrix products, experts, attention and operators over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..attention import Attention
from ..experts import Experts
from ..gemm import Gemm
from ..problem import Array, Problem
from ..row_operators import EPSILON, RowOperator
from . import Prepared, UnsupportedError

# First compute capability of each fused attention, and the precisions that it computes in: torch
# 2.13, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.
_FUSED = {
    "flash": ((8, 0), ("fp16", "bf16")),
    "efficient": ((5, 0), ("fp32", "tf32", "fp16", "bf16")),
    "cudnn": ((8, 0), ("fp16", "bf16")),
}
# cuBLASLt's fp8 products read both operands along the sum, in units of 16.
_FP8_UNIT = 16
_GROUPED_UNIT = 16  # bytes


def host_array(tensor: Any) -> Array:
    """A tensor as float64 on the host."""
    array: Array = tensor.detach().double().cpu().numpy()
    return array


def prepare_gemm(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:  # noqa: ARG001 - in the tensors
    """A matrix product: `torch.mm`, `bmm` for a batch, `addmm` with an epilogue, `_scaled_mm` for
    fp8 with scales of 1 and results of bf16, `_int_mm` for int8.
    """
    assert isinstance(problem, Gemm)
    a, b = problem.views((tensors[0], tensors[1]))
    if problem.precision in ("fp8", "int8") and (problem.has_epilogue or problem.batch > 1):
        raise UnsupportedError(f"products of {problem.precision} are single and have no epilogue")
    if problem.precision == "fp8":
        extents = (problem.m, problem.n, problem.k)
        if problem.transpose != "TN" or any(extent % _FP8_UNIT for extent in extents):
            raise UnsupportedError(
                "fp8 products need transpose TN (--axis transpose=TN) and multiples of 16"
            )
        scale = torch.ones((), device=a.device)
        multiply_fp8 = partial(torch._scaled_mm, b, a, scale, scale, out_dtype=torch.bfloat16)
        return Prepared(multiply_fp8, lambda: host_array(multiply_fp8()), "torch._scaled_mm")
    if problem.has_epilogue:
        return _prepare_epilogue(torch, problem, b, a, tensors[2])
    multiply, dtype = torch.mm if problem.batch == 1 else torch.bmm, a.dtype
    if problem.precision == "int8":
        multiply, dtype = torch._int_mm, torch.int32
    c = torch.empty(problem.shape, dtype=dtype, device=a.device)
    run = partial(multiply, b, a, out=c)
    return Prepared(run, lambda: host_array(c), f"torch.{multiply.__name__}")


def _prepare_epilogue(torch: Any, problem: Gemm, rows: Any, weights: Any, bias: Any) -> Prepared:
    """A product with a bias, and an activation in the same call or in one of its own."""
    c = torch.empty(problem.shape, dtype=rows.dtype, device=rows.device)
    add_bias = partial(torch.addmm, bias, rows, weights, out=c)
    if problem.activation is None:
        return Prepared(add_bias, lambda: host_array(c), "torch.addmm")
    if problem.epilogue == problem.activation:
        use_gelu = problem.activation == "gelu"
        together = partial(torch._addmm_activation, bias, rows, weights, use_gelu=use_gelu, out=c)
        return Prepared(together, lambda: host_array(c), "torch._addmm_activation")
    activate = getattr(torch.nn.functional, problem.activation)

    def one_by_one() -> Any:
        return activate(add_bias())

    return Prepared(one_by_one, lambda: host_array(one_by_one()), "torch.addmm and activation")


def prepare_experts(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:
    """The products of all experts: `torch._grouped_mm`, or `torch.mm` for each."""
    assert isinstance(problem, Experts)
    weights, tokens = tensors
    if problem.algorithm == "grouped":
        if not hasattr(torch, "_grouped_mm"):
            raise UnsupportedError("this torch has no _grouped_mm: --axis algorithm=loop")
        if any(extent * tokens.element_size() % _GROUPED_UNIT for extent in (problem.m, problem.k)):
            raise UnsupportedError("torch._grouped_mm needs rows of multiples of 16 bytes")
        ends = torch.from_numpy(problem.ends).to(device)
        together = partial(torch._grouped_mm, tokens, weights, offs=ends)
        return Prepared(together, lambda: host_array(together()), "torch._grouped_mm")
    c = torch.empty((problem.tokens, problem.m), dtype=tokens.dtype, device=device)
    products = [(tokens[rows], weights[expert], c[rows]) for expert, rows in problem.slices()]

    def multiply_each() -> None:
        for own, weight, out in products:
            torch.mm(own, weight, out=out)

    return Prepared(multiply_each, lambda: host_array(c), "torch.mm")


def prepare_attention(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:
    """Attention by one named implementation: the operator is called itself, so that torch does not
    choose another.
    """
    assert isinstance(problem, Attention)
    algorithm = problem.algorithm
    if device.startswith("cuda"):
        capability = torch.cuda.get_device_capability(device)
        _check_fused(algorithm, problem.precision, capability)
    elif algorithm == "flash":
        algorithm = "flash on a CPU"
    elif algorithm != "math":
        raise UnsupportedError(f"a CPU has no {algorithm} attention: flash or math")
    query, key, value, *gradient = tensors
    operands = (query, key, value)
    causal = bool(problem.causal)
    bind = partial(_bind_forward, torch.ops.aten, algorithm, causal, bool(gradient))
    name = f"torch attention {problem.algorithm}"
    if not gradient:
        run = bind(operands)
        return Prepared(run, lambda: host_array(run()[0]), name)
    if algorithm == "math":
        with torch.enable_grad():
            leaves = [operand.detach().requires_grad_() for operand in operands]
            forward = bind(leaves)()[0]
        differentiate = partial(torch.autograd.grad, retain_graph=True)
        to_operands: Callable[[], Any] = partial(differentiate, forward, leaves, gradient[0])
    else:
        results = bind(operands)()
        inputs = (*gradient, *operands)
        to_operands = _bind_backward(torch.ops.aten, algorithm, inputs, results, causal)

    def result() -> Array:
        gradients = to_operands()[:3]
        return np.stack([host_array(to_operand) for to_operand in gradients])

    return Prepared(to_operands, result, f"{name} backward")


def _check_fused(algorithm: str, precision: str, capability: tuple[int, int]) -> None:
    """Raise an UnsupportedError where a device has no such attention."""
    since, precisions = _FUSED.get(algorithm, ((0, 0), (precision,)))
    if capability < since:
        least = ".".join(map(str, since))
        raise UnsupportedError(f"{algorithm} attention needs compute capability {least}")
    if precision not in precisions:
        allowed = ", ".join(precisions)
        raise UnsupportedError(f"{algorithm} attention computes in {allowed}, not {precision}")


def _bind_forward(
    aten: Any, algorithm: str, causal: bool, with_sums: bool, operands: Sequence[Any]
) -> Callable[[], Any]:
    """The forward operator; `with_sums` for their logarithms, which the backward pass needs."""
    if algorithm == "flash":
        return partial(aten._scaled_dot_product_flash_attention, *operands, 0.0, causal)
    if algorithm == "flash on a CPU":
        return partial(aten._scaled_dot_product_flash_attention_for_cpu, *operands, 0.0, causal)
    if algorithm == "math":
        return partial(aten._scaled_dot_product_attention_math, *operands, None, 0.0, causal)
    arguments = (*operands, None, with_sums, 0.0, causal)
    if algorithm == "efficient":
        return partial(aten._scaled_dot_product_efficient_attention, *arguments)
    return partial(aten._scaled_dot_product_cudnn_attention, *arguments, False)


def _bind_backward(
    aten: Any, algorithm: str, tensors: tuple[Any, ...], results: tuple[Any, ...], causal: bool
) -> Callable[[], Any]:
    """The backward operator of a fused attention, with the arguments that autograd gives it
    (derivatives.yaml).

    The tensors are the gradient of the result, queries, keys and values. The forward operator gave
    the results.
    """
    if algorithm == "flash on a CPU":
        call = aten._scaled_dot_product_flash_attention_for_cpu_backward
        return partial(call, *tensors, *results[:2], 0.0, causal)
    if algorithm == "efficient":
        to_all_but_bias = [True, True, True, False]
        call = aten._scaled_dot_product_efficient_attention_backward
        return partial(call, *tensors, None, *results[:4], 0.0, to_all_but_bias, causal)
    # lengths: first positions and longest, of queries and of keys
    out, sums, *lengths = results[:6]
    seed, offset = results[6:8]
    if algorithm == "cudnn":
        call = aten._scaled_dot_product_cudnn_attention_backward
        return partial(call, *tensors, out, sums, seed, offset, None, *lengths, 0.0, causal)
    call = aten._scaled_dot_product_flash_attention_backward
    return partial(call, *tensors, out, sums, *lengths, 0.0, causal, seed, offset)


def prepare_rows(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:
    """An operator over rows."""
    assert isinstance(problem, RowOperator)
    functions, width = torch.nn.functional, (problem.columns,)
    if problem.kind == "embedding":
        indices = torch.from_numpy(problem.indices()).to(device)
        run = partial(functions.embedding, indices, *tensors)
    elif problem.kind in ("layer_norm", "rms_norm"):
        normalise = getattr(functions, problem.kind)
        run = partial(normalise, *tensors, width, eps=EPSILON)
    elif problem.kind == "softmax":
        run = partial(torch.softmax, *tensors, 1)
    else:
        call = functions.silu if problem.kind == "silu" else getattr(torch, problem.kind)
        run = partial(call, *tensors)
    return Prepared(run, lambda: host_array(run()), f"torch {problem.kind}")
