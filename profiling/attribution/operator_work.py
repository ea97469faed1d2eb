"""Computes the FLOPs and compulsory bytes of an operator call from the shapes of its arguments.

One FMA is two FLOPs; every convolution counts as the direct algorithm; compulsory bytes move each
operand once. Unknown values are None, never 0. Attention counts as torch's own counter does
(torch/utils/flop_counter.py): two products forward, five backward, which computes the scores again;
with a causal mask only the pairs that it leaves, or all where the recording does not say whether
there is one, as an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from .convolution_work import CONVOLUTIONS
from .operation import BYTES_BY_NUMBER, UNKNOWN, Call, Operation, Shape, Work, element_bytes


def work(
    op: str,
    shapes: Sequence[Any],
    dtypes: Sequence[str],
    concrete: Sequence[Any] = (),
    third: Shape = (),
) -> Work:
    """FLOPs and compulsory bytes of one call, as torch.profiler records it with
    `record_shapes=True`.

    `concrete` are its scalar arguments, e.g. stride and padding of a convolution; `third` is the
    shape of a convolution's tensor that is no argument, empty if unknown.
    """
    rule = _RULES.get(op.removeprefix("aten::"))
    if op.startswith("triton_") and not _PARTIAL.search(op):
        rule = _triton_product if _PRODUCT_TEMPLATE.fullmatch(op) else _triton
    item_bytes = next((size for dtype in dtypes if (size := element_bytes(dtype))), None)
    if rule is None or item_bytes is None:
        return UNKNOWN
    try:
        return rule(Call(shapes, item_bytes, concrete, dtypes, third))
    except (IndexError, TypeError, ValueError):
        return UNKNOWN  # the rule does not know this form of the call


def count_work(operation: Operation) -> Work:
    """The work of an operator call, from its shapes."""
    if not operation.shapes:
        return UNKNOWN
    return work(
        operation.name, operation.shapes, operation.dtypes, operation.concrete, operation.third
    )


def _product(first: int = 0) -> Callable[[Call], Work]:
    """Rule for the product of two matrices, or of two batches of them: the arguments from `first`
    on.
    """

    def rule(call: Call) -> Work:
        *batches, m, k = call.shape(first)
        *_, n = call.shape(first + 1)
        batch = prod(batches)
        elements = m * k + k * n + m * n
        flops = 2 * batch * m * k * n
        return Work(flops, call.traffic(batch * elements))

    return rule


def _addmm(call: Call) -> Work:
    m, k = call.shape(1)
    _, n = call.shape(2)
    added = prod(call.shape(0))
    size = call.traffic(m * k, k * n, m * n, added)
    return Work(2 * m * k * n + m * n, size)


def _linear(call: Call) -> Work:
    *rows, k = call.shape(0)
    n, _ = call.shape(1)
    m = prod(rows)
    bias = call.elements(2)
    flops = 2 * m * k * n
    if bias:
        flops += m * n
    return Work(flops, call.traffic(m * k, k * n, m * n, bias))


def _elementwise(
    reads: int, flops_per_element: int = 1, foreach: bool = False
) -> Callable[[Call], Work]:
    """Rule for an operator that reads `reads` tensors, or lists of them, like the first argument,
    and writes one.
    """

    def rule(call: Call) -> Work:
        shape: Sequence[Any] = call.shape(0)
        if not shape and not foreach:
            return UNKNOWN
        elements = sum(map(prod, shape)) if foreach else prod(shape)
        return Work(flops_per_element * elements, call.traffic((reads + 1) * elements))

    return rule


def _scaled_mm(call: Call) -> Work:
    m, k = call.shape(0)
    _, n = call.shape(1)
    flops = 2 * m * k * n
    result_bytes = BYTES_BY_NUMBER.get(call.value(6))  # out_dtype; the operands are fp8
    if result_bytes is None:
        return Work(flops, None)
    return Work(flops, call.size(0, 1, 2, 3, 4) + m * n * result_bytes)


def _int_mm(call: Call) -> Work:
    m, k = call.shape(0)
    _, n = call.shape(1)
    # int8 operands, int32 results
    size = call.traffic(m * k, k * n) + 4 * m * n
    return Work(2 * m * k * n, size)


def _grouped_mm(call: Call, offsets: int = 2) -> Work:
    """One product per group: a 2-d operand holds the groups one after the other, and `offsets`
    their ends.

    Rows of a 2-d operand beyond the last end are not computed, which the shapes do not say: an
    upper bound.
    """
    a = call.shape(0)
    b = call.shape(1)
    if len(a) == 3:
        groups = a[0]
    elif len(b) == 3:
        groups = b[0]
    else:
        groups = call.shape(offsets)[0]
    m, k = a[-2:]
    n = b[-1]
    products = m * k * n
    result = m * n
    # The groups divide the extent that a 2-d operand has for all of them: rows, columns, or the
    # sum.
    if len(a) == len(b) == 3:
        products *= groups
    if len(a) == len(b):
        result *= groups
    return Work(2 * products, call.size(0, 1) + call.traffic(result))


def _embedding(call: Call) -> Work:
    """The rows that are looked up, read and written; the rest of the table does not move."""
    width = call.shape(0)[-1]
    moved = 2 * prod(call.shape(1)) * width
    return Work(0, call.traffic(moved) + call.size(1))


def _embedding_backward(call: Call) -> Work:
    gradient = prod(call.shape(0))
    width = call.shape(0)[-1]
    size = call.traffic(gradient, call.value(2) * width)
    return Work(gradient, size + call.size(1))


def _attention(
    query: int, causal: int, backward: bool = False, heads_last: bool = False
) -> Callable[[Call], Work]:
    """Rule for scaled dot-product attention: query, key and value from argument `query` on.

    `causal` is the index of `is_causal`, or of `custom_mask_type`, which is 0 for no mask; argument
    0 of a backward call is the output's gradient; shapes are (batch, length, heads, size) if
    `heads_last`, else (..., heads, length, size).
    """
    length = -3 if heads_last else -2  # position of the length in a shape

    def rule(call: Call) -> Work:
        q, k, v = (call.shape(query + i) for i in range(3))
        if heads_last and len(q) != 4:
            # sequences of several lengths, one after the other: their lengths are data
            return UNKNOWN
        rows = q[length]
        keys = k[length]
        batch = prod(q) // (rows * q[-1])  # batch times heads; several heads may share a key
        pairs = rows * keys
        if call.value(causal) in (True, 1):  # query i sees the keys up to i (top left)
            pairs = sum(min(row + 1, keys) for row in range(rows))
        scores = 2 * batch * pairs * q[-1]
        values = 2 * batch * pairs * v[-1]
        result = batch * rows * v[-1]
        operands = prod(q) + prod(k) + prod(v)
        if backward:
            # scores, and the gradients of query and key; those of the weights and of value
            flops = 3 * scores + 2 * values
            return Work(flops, call.traffic(2 * operands, 2 * result))
        return Work(scores + values, call.traffic(operands, result))

    return rule


# Kernels that read or write parts of a buffer: its size is not what moves.
_PARTIAL = re.compile(r"embedding|index|gather|scatter|slice|select|cat|nll|pool")


# Inductor's templates of products; the name lists the operators, sorted and joined.
_PRODUCT_TEMPLATE = re.compile(
    r"triton_tem_fused_(?:\w*_)?(?:mm|addmm|bmm|baddbmm)(?:_\w*)?|triton_b?mm(?:_\w*)?"
)


def _triton(call: Call) -> Work:
    """A kernel of torch.compile, with the buffers that it reads and writes as arguments; FLOPs are
    unknown.

    A buffer that is read and written counts once: a lower bound.
    """
    return Work(None, call.size(*range(len(call.shapes))))


def _triton_product(call: Call) -> Work:
    """A product by a template of torch.compile: two operands in turn, and their result among the
    later buffers.

    FLOPs are of the product alone: the operators fused into it are little work.
    """
    tensors = [list(shape) for shape in call.shapes if shape]
    work = set()
    for i, (a, b) in enumerate(pairwise(tensors)):
        if len(a) != len(b) or len(a) < 2:
            continue
        result = [*a[:-1], b[-1]]
        if a[:-2] == b[:-2] and a[-1] == b[-2] and result in tensors[i + 2 :]:
            work.add(2 * prod(a) * b[-1])
    flops = work.pop() if len(work) == 1 else None
    return Work(flops, _triton(call).bytes_compulsory)


_RULES: dict[str, Callable[[Call], Work]] = dict(CONVOLUTIONS)


def _count_by(rule: Callable[[Call], Work], *names: str) -> None:
    """Count the work of operators by a rule."""
    for name in names:
        _RULES[name] = rule


_count_by(_product(), "mm", "bmm")
_count_by(_product(1), "baddbmm")
_count_by(_addmm, "addmm")
_count_by(_linear, "linear")
_count_by(_scaled_mm, "_scaled_mm")
_count_by(_int_mm, "_int_mm")
_count_by(_grouped_mm, "_grouped_mm")
_count_by(lambda call: Work(_grouped_mm(call, 4).flops, None), "_scaled_grouped_mm")
_count_by(_elementwise(1), "relu", "relu_", "clamp_min", "clamp_min_", "mul_", "div_")
_count_by(_elementwise(2), "threshold_backward", "add", "add_", "sub", "mul", "div")
_count_by(_elementwise(1, foreach=True), "_foreach_mul_")
_count_by(_elementwise(2, 2, foreach=True), "_foreach_add_")
_count_by(_elementwise(1, 4), "sigmoid", "tanh")
# Mean, variance, subtraction, scale and shift are five FLOPs per element.
_count_by(_elementwise(1, 5), "batch_norm", "native_batch_norm", "layer_norm", "native_layer_norm")
# Two for the normalised input, three for the two sums that the gradient needs, four for the
# result.
_count_by(_elementwise(2, 9), "native_batch_norm_backward", "native_layer_norm_backward")
_count_by(_elementwise(2, 9), "cudnn_batch_norm_backward", "miopen_batch_norm_backward")
_count_by(_elementwise(1, 5), "_softmax", "_log_softmax")
_count_by(_elementwise(2, 4), "_softmax_backward_data", "_log_softmax_backward_data")
# Square, sum, and two scalings; dx takes the sum of gradient times input besides.
_count_by(_elementwise(1, 4), "rms_norm", "_fused_rms_norm")
_count_by(_elementwise(2, 8), "_fused_rms_norm_backward")
# x / (1 + exp(-x)): negation, exponential, sum, quotient.
_count_by(_elementwise(1, 4), "silu", "silu_")
_count_by(_elementwise(2, 8), "silu_backward")
_count_by(_elementwise(1, 8), "gelu")
_count_by(_elementwise(1, 0), "copy_")
_count_by(lambda call: Work(0, call.traffic(prod(call.shape(0)))), "fill_", "zero_")
_count_by(_embedding, "embedding")
_count_by(_embedding_backward, "embedding_dense_backward")
# Indices by native_functions.yaml of torch 2.13.
_SDPA = "scaled_dot_product"
_count_by(_attention(0, 5), f"{_SDPA}_attention", f"_{_SDPA}_attention_math")
_count_by(_attention(0, 4), f"_{_SDPA}_flash_attention", f"_{_SDPA}_flash_attention_for_cpu")
_count_by(_attention(0, 6), f"_{_SDPA}_efficient_attention", f"_{_SDPA}_cudnn_attention")
_count_by(_attention(0, 8, heads_last=True), "_flash_attention_forward")
_count_by(_attention(0, 9, heads_last=True), "_efficient_attention_forward")
_count_by(_attention(1, 11, backward=True), f"_{_SDPA}_flash_attention_backward")
_count_by(_attention(1, 11, backward=True), f"_{_SDPA}_efficient_attention_backward")
_count_by(_attention(1, 7, backward=True), f"_{_SDPA}_flash_attention_for_cpu_backward")
_count_by(_attention(1, 14, backward=True), f"_{_SDPA}_cudnn_attention_backward")
_count_by(_attention(1, 11, backward=True, heads_last=True), "_flash_attention_backward")
_count_by(_attention(1, 14, backward=True, heads_last=True), "_efficient_attention_backward")
