"""What the torch backend runs for matrix products, attention and operators over rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..attention import Attention
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


def host_array(tensor: Any) -> Array:
    """A tensor as float64 on the host."""
    array: Array = tensor.detach().double().cpu().numpy()
    return array


def prepare_gemm(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:  # noqa: ARG001 - in the tensors
    """A matrix product: `torch.mm`, `_scaled_mm` for fp8 with scales of 1 and results of bf16,
    `_int_mm` for int8.
    """
    assert isinstance(problem, Gemm)
    a, b = problem.views((tensors[0], tensors[1]))
    if problem.precision == "fp8":
        if problem.transpose != "TN" or any(
            extent % _FP8_UNIT for extent in (problem.m, problem.n, problem.k)
        ):
            raise UnsupportedError(
                "fp8 products need transpose TN (--axis transpose=TN) and multiples of 16"
            )
        unit_scale = torch.ones((), device=a.device)
        scaled = partial(torch._scaled_mm, b, a, unit_scale, unit_scale, out_dtype=torch.bfloat16)
        return Prepared(scaled, lambda: host_array(scaled()), "torch._scaled_mm")
    multiply, dtype = (
        (torch._int_mm, torch.int32) if problem.precision == "int8" else (torch.mm, a.dtype)
    )
    c = torch.empty((problem.n, problem.m), dtype=dtype, device=a.device)
    return Prepared(
        partial(multiply, b, a, out=c), lambda: host_array(c), f"torch.{multiply.__name__}"
    )


def prepare_attention(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:
    """Attention by one named implementation: the operator is called itself, so that torch does not
    choose another.
    """
    assert isinstance(problem, Attention)
    algorithm, causal, cuda = problem.algorithm, bool(problem.causal), device.startswith("cuda")
    aten = torch.ops.aten
    if algorithm in _FUSED and cuda:
        since, precisions = _FUSED[algorithm]
        capability = torch.cuda.get_device_capability(device)
        if capability < since:
            raise UnsupportedError(
                f"{algorithm} attention needs compute capability {'.'.join(map(str, since))}"
            )
        if problem.precision not in precisions:
            raise UnsupportedError(
                f"{algorithm} attention computes in {', '.join(precisions)}, not "
                f"{problem.precision}"
            )
    elif algorithm in ("efficient", "cudnn"):
        raise UnsupportedError(f"a CPU has no {algorithm} attention: flash or math")
    flash = (
        aten._scaled_dot_product_flash_attention
        if cuda
        else aten._scaled_dot_product_flash_attention_for_cpu
    )
    query, key, value, *gradient = tensors
    operands, backward = (query, key, value), bool(gradient)
    # The backward pass needs the logarithms of the sums.
    calls: dict[str, Callable[[], Any]] = {
        "flash": partial(flash, *operands, 0.0, causal),
        "efficient": partial(
            aten._scaled_dot_product_efficient_attention, *operands, None, backward, 0.0, causal
        ),
        "cudnn": partial(
            aten._scaled_dot_product_cudnn_attention, *operands, None, backward, 0.0, causal, False
        ),
        "math": partial(aten._scaled_dot_product_attention_math, *operands, None, 0.0, causal),
    }
    name = f"torch attention {algorithm}"
    if not backward:
        run = calls[algorithm]
        return Prepared(run, lambda: host_array(run()[0]), name)
    if algorithm == "math":
        with torch.enable_grad():
            leaves = [operand.detach().requires_grad_() for operand in operands]
            forward = aten._scaled_dot_product_attention_math(*leaves, None, 0.0, causal)[0]
        to_operands: Callable[[], Any] = partial(
            torch.autograd.grad, forward, leaves, gradient[0], retain_graph=True
        )
    else:
        kind = "flash on a CPU" if algorithm == "flash" and not cuda else algorithm
        to_operands = _bind_backward(aten, kind, (*gradient, *operands), calls[algorithm](), causal)
    return Prepared(
        to_operands,
        lambda: np.stack([host_array(gradient_of) for gradient_of in to_operands()[:3]]),
        f"{name} backward",
    )


def _bind_backward(
    aten: Any, algorithm: str, tensors: tuple[Any, ...], results: tuple[Any, ...], causal: bool
) -> Callable[[], Any]:
    """The backward operator of a fused attention, with the arguments that autograd gives it
    (derivatives.yaml).

    The tensors are the gradient of the result, queries, keys and values; the results those of the
    forward operator.
    """
    if algorithm == "flash on a CPU":
        return partial(
            aten._scaled_dot_product_flash_attention_for_cpu_backward,
            *tensors,
            *results[:2],
            0.0,
            causal,
        )
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
    calls: dict[str, Callable[..., Any]] = {
        "layer_norm": lambda x: functions.layer_norm(x, width, eps=EPSILON),
        "rms_norm": lambda x: functions.rms_norm(x, width, eps=EPSILON),
        "softmax": lambda x: torch.softmax(x, 1),
        "add": torch.add,
        "mul": torch.mul,
        "relu": torch.relu,
        "silu": functions.silu,
    }
    if problem.kind == "embedding":
        indices = torch.from_numpy(problem.indices()).to(device)
        run = partial(functions.embedding, indices, tensors[0])
    else:
        run = partial(calls[problem.kind], *tensors)
    return Prepared(run, lambda: host_array(run()), f"torch {problem.kind}")
