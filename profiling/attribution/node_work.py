"""FLOPs of the nodes of a compiled graph, e.g. of the operators that torch.compile fused into one
kernel.

An element-wise node counts by the elements of its result, so broadcast operands count as often as
they are used, and a reduction by the elements that it reads. An arithmetic function is one FLOP;
sigmoid and tanh are four, and a variance is one beyond its mean, as in `operator_work`. Integers,
comparisons and copies are none.
"""

from __future__ import annotations

from typing import NamedTuple

from .fused_kernels import VIEWS


class Elements(NamedTuple):
    """A tensor."""

    number: int  # number of elements
    floating: bool  # whether they are floating-point numbers


_SPACES = ("aten", "prims")
_FUNCTIONS = """add sub rsub mul div neg abs reciprocal sqrt rsqrt square pow fmod remainder hypot floor ceil round
trunc sign exp exp2 expm1 log log2 log10 log1p erf erfc erfinv sin cos tan asin acos atan atan2 maximum minimum clamp
clamp_min clamp_max relu threshold_backward"""
_NO_FLOPS = """le lt ge gt eq ne where masked_fill isnan isinf logical_not logical_and logical_or logical_xor any all
argmax argmin bitwise_not bitwise_and bitwise_or bitwise_xor clone copy copy_ full full_like scalar_tensor iota arange
convert_element_type _to_copy cat constant_pad_nd repeat flip split split_with_sizes slice_scatter select_scatter index
gather embedding"""
_BY_RESULT = {
    **dict.fromkeys(_NO_FLOPS.split(), 0),
    **dict.fromkeys(_FUNCTIONS.split(), 1),
    **dict.fromkeys(("fma", "addcmul", "addcdiv"), 2),
    **dict.fromkeys(("sigmoid", "tanh"), 4),
}
_BY_OPERAND = {
    **dict.fromkeys(("sum", "mean", "prod", "amax", "amin", "cumsum"), 1),
    **dict.fromkeys(("var", "var_mean"), 2),
    # Inductor's own, on GPUs: maximum, difference, exponential and sum
    "prepare_softmax_online": 4,
}


def node_flops(op: str, result: Elements | None, operand: Elements | None) -> int | None:
    """FLOPs of one node, e.g. `aten::rsqrt`; None if its operator or the tensor that decides is
    unknown.

    `result` is None if unknown or several, `operand` is the first one.
    """
    space, _, name = op.rpartition("::")
    each, tensor = (
        (_BY_OPERAND[name], operand) if name in _BY_OPERAND else (_BY_RESULT.get(name), result)
    )
    if op in VIEWS or (each == 0 and space in _SPACES):
        return 0
    if each is None or tensor is None or space not in _SPACES:
        return None
    return each * tensor.number if tensor.floating else 0
