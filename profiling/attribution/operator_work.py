"""Computes the FLOPs and compulsory bytes of an operator call from the shapes of its arguments.

Conventions: one FMA is two FLOPs; every convolution counts as the direct algorithm; compulsory bytes move each operand
once: inputs and weights read, results written. Unknown values are None, never 0. Attention counts as torch's own
counter does (torch/utils/flop_counter.py): the two products of the forward pass, five of the backward pass, which
computes the scores again. With a causal mask only the pairs that it leaves count; where the recording does not say
whether there is one, all do, so that the FLOPs are an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from .scalar_types import BYTES_BY_NUMBER, element_bytes

Shape = Sequence[int]

# Operators with an operand that has the batch as its first extent.
_BATCH_OPERAND = re.compile(
    r"(?:aten::)?(?:_?convolution|cudnn_convolution|conv[123]d|linear|matmul|addmm|mm)|triton_\w+"
)


@dataclass(frozen=True)
class Work:
    """The least work of a call; None for unknown values.

    Attributes:
        flops: FLOPs of the direct algorithm.
        bytes_compulsory: compulsory bytes.
        parts: work of the results with kernels of their own, by name (`data` and `weights`, the gradients of a
            convolution). Their FLOPs add up to the call's; their bytes to more, since each reads its operands itself.
    """

    flops: int | None
    bytes_compulsory: int | None
    parts: tuple[tuple[str, Work], ...] = field(default=(), compare=False)


class BatchSource(IntEnum):
    """Source of a batch size; a higher one is more reliable."""

    MATRIX = 1  # the rows of a matrix product, which may be samples times tokens
    TENSOR = 2  # the first extent of another operand with three or more dimensions, which may be tokens
    CONVOLUTION = 3  # the first extent of a convolution's input
    NAME = 4  # the name of a range


UNKNOWN = Work(None, None)


class Operation(NamedTuple):
    """An operator call as a profiler recorded it: per argument shape, type, scalar value and strides.

    `third` is the shape of a convolution's tensor that is no argument, see `convolution_shapes`; empty if unknown.
    """

    name: str
    shapes: Sequence[Any]
    dtypes: Sequence[str] = ()
    concrete: Sequence[Any] = ()
    strides: Sequence[Any] = ()
    third: Shape = ()


@dataclass(frozen=True)
class Call:
    """The arguments of an operator call.

    Attributes:
        shapes: per argument the tensor's shape; empty for scalars; a list of shapes for a list of tensors.
        item_bytes: bytes of one element of the first argument with a known type.
        concrete: per argument the scalar value, or empty.
        dtypes: per argument its type, or empty.
        third: shape of a convolution's tensor that is no argument; empty if unknown.
    """

    shapes: Sequence[Any]
    item_bytes: int
    concrete: Sequence[Any]
    dtypes: Sequence[str] = ()
    third: Shape = ()

    def shape(self, index: int) -> Shape:
        """Shape of an argument; empty if it has none."""
        return self.shapes[index] if index < len(self.shapes) else ()

    def value(self, index: int) -> Any:
        """Scalar value of an argument; None if it was not recorded."""
        value = self.concrete[index] if index < len(self.concrete) else None
        return None if value in ("", []) else value

    def traffic(self, *counts: int) -> int:
        """Bytes of the given numbers of elements."""
        return sum(counts) * self.item_bytes

    def size(self, *indices: int) -> int:
        """Bytes of arguments, each by its own type; 0 for those without a shape.

        Raises:
            ValueError: the type of an argument is unknown.
        """
        total = 0
        for index in indices:
            if shape := self.shape(index):
                dtype = self.dtypes[index] if index < len(self.dtypes) else ""
                if (size := element_bytes(dtype)) is None:
                    raise ValueError(f"the type {dtype!r} is unknown")
                total += prod(shape) * size
        return total


def work(
    op: str, shapes: Sequence[Any], dtypes: Sequence[str], concrete: Sequence[Any] = (), third: Shape = ()
) -> Work:
    """FLOPs and compulsory bytes of one call.

    Args:
        op: name of the operator, e.g. `aten::conv2d`.
        shapes: shape of each argument, as torch.profiler records it with `record_shapes=True`.
        dtypes: type of each argument, from the same record.
        concrete: scalar arguments, from the same record; they hold stride and padding of convolutions.
        third: shape of a convolution's tensor that is no argument; empty if unknown.
    """
    if op.startswith("triton_") and _PARTIAL.search(op):
        return UNKNOWN
    rule = _triton_rule(op) if op.startswith("triton_") else _RULES.get(op.removeprefix("aten::"))
    if rule is None:
        return UNKNOWN
    item_bytes = next((size for dtype in dtypes if (size := element_bytes(dtype))), None)
    if item_bytes is None:
        return UNKNOWN
    try:
        return rule(Call(shapes, item_bytes, concrete, dtypes, third))
    except (IndexError, TypeError, ValueError):
        return UNKNOWN  # the rule does not know this form of the call


def count_work(operation: Operation) -> Work:
    """The work of an operator call, from its shapes."""
    if not operation.shapes:
        return UNKNOWN
    return work(operation.name, operation.shapes, operation.dtypes, operation.concrete, operation.third)


def batch_of(op: str, shapes: Sequence[Any]) -> tuple[int, BatchSource] | None:
    """The batch size and what tells it; None for operators without one.

    The batch size is the first extent of the first operand, for `addmm` of the second.
    """
    if _BATCH_OPERAND.fullmatch(op) is None:
        return None
    index = 1 if op.endswith("addmm") else 0
    shape = shapes[index] if len(shapes) > index else None
    if not isinstance(shape, (list, tuple)) or not shape:
        return None
    extent = shape[0]
    if not isinstance(extent, int) or not 0 < extent < 1 << 31:
        return None
    if "conv" in op:
        return extent, BatchSource.CONVOLUTION
    if len(shape) > 2:
        return extent, BatchSource.TENSOR
    return None if op.startswith("triton_") else (extent, BatchSource.MATRIX)


def _matrix_multiply(m: int, k: int, n: int, call: Call, batch: int = 1, extra: int = 0) -> Work:
    flops = 2 * batch * m * k * n
    return Work(flops + extra, call.traffic(batch * m * k, batch * k * n, batch * m * n, extra))


def _mm(call: Call) -> Work:
    (m, k), (_, n) = call.shape(0), call.shape(1)
    return _matrix_multiply(m, k, n, call)


def _addmm(call: Call) -> Work:
    (m, k), (_, n) = call.shape(1), call.shape(2)
    work = _matrix_multiply(m, k, n, call)
    assert work.flops is not None
    assert work.bytes_compulsory is not None
    return Work(work.flops + m * n, work.bytes_compulsory + call.traffic(prod(call.shape(0))))


def _bmm(call: Call) -> Work:
    (batch, m, k), (_, _, n) = call.shape(0), call.shape(1)
    return _matrix_multiply(m, k, n, call, batch)


def _baddbmm(call: Call) -> Work:
    (batch, m, k), (_, _, n) = call.shape(1), call.shape(2)
    return _matrix_multiply(m, k, n, call, batch)


def _linear(call: Call) -> Work:
    *rows, k = call.shape(0)
    n, _ = call.shape(1)
    m = prod(rows)
    bias = prod(call.shape(2)) if call.shape(2) else 0
    return Work(2 * m * k * n + (m * n if bias else 0), call.traffic(m * k, k * n, m * n, bias))


def _convolution(call: Call, stride: int = 3, padding: int = 4, dilation: int = 5) -> Work:
    image, weight = call.shape(0), call.shape(1)
    if call.value(6) is True:
        return _transposed_convolution(call)
    if call.third and call.value(stride) is None:
        out: Shape = call.third[2:]
    else:
        out = _output_extents(image, weight, call.value(stride), call.value(padding), call.value(dilation))
    bias = prod(call.shape(2)) if call.shape(2) else 0
    result = image[0] * weight[0] * prod(out)
    # weight is (outputs, inputs of one group, *kernel): each result takes one product per remaining element
    flops = 2 * result * prod(weight[1:]) + (result if bias else 0)
    return Work(flops, call.traffic(prod(image), prod(weight), bias, result))


def _transposed_convolution(call: Call, output_padding: int = 7, groups: int = 8, dilation: int = 5) -> Work:
    """Each element of the input is multiplied by all weights of its channel: (inputs, outputs of a group, *kernel)."""
    image, weight = call.shape(0), call.shape(1)
    if call.value(groups) is None:
        raise ValueError("the number of groups was not recorded")
    settings = [call.value(index) for index in (3, 4, dilation, output_padding)]
    out = []
    for axis, (size, kernel) in enumerate(zip(image[2:], weight[2:], strict=True)):
        step, pad, spread, beyond = (_per_axis(value, axis) for value in settings)
        out.append((size - 1) * step - 2 * pad + spread * (kernel - 1) + beyond + 1)
    bias = prod(call.shape(2)) if call.shape(2) else 0
    result = image[0] * weight[1] * call.value(groups) * prod(out)
    flops = 2 * prod(image) * prod(weight[1:]) + (result if bias else 0)
    return Work(flops, call.traffic(prod(image), prod(weight), bias, result))


def _conv_transpose(call: Call) -> Work:
    return _transposed_convolution(call, output_padding=5, groups=6, dilation=7)


def _mkldnn_convolution(call: Call) -> Work:
    return _convolution(call, stride=4, padding=3, dilation=5)


def _output_extents(image: Shape, weight: Shape, stride: Any, padding: Any, dilation: Any) -> list[int]:
    extents = []
    for axis, (size, kernel) in enumerate(zip(image[2:], weight[2:], strict=True)):
        step, pad, spread = (_per_axis(v, axis) for v in (stride, padding, dilation))
        extents.append((size + 2 * pad - spread * (kernel - 1) - 1) // step + 1)
    return extents


def _per_axis(value: Any, axis: int) -> int:
    if isinstance(value, (list, tuple)):
        return int(value[axis] if len(value) > 1 else value[0])
    if isinstance(value, int):
        return value
    raise ValueError("stride, padding or dilation was not recorded")


def _convolution_backward(call: Call) -> Work:
    mask = call.value(10)
    if not isinstance(mask, (list, tuple)) or len(mask) != 3:
        raise ValueError("the output mask was not recorded")
    to_data, to_weights, to_bias = (bool(m) for m in mask)
    tensors, transposed = (call.shape(0), call.shape(1), call.shape(2)), call.value(7) is True
    total = _gradients(call, tensors, to_data, to_weights, to_bias, transposed)
    if not (to_data and to_weights):
        return total
    # The kernel of the weights' gradient mostly sums up that of the bias, too.
    data = _gradients(call, tensors, True, False, False, transposed)
    weights = _gradients(call, tensors, False, True, to_bias, transposed)
    return Work(total.flops, total.bytes_compulsory, (("data", data), ("weights", weights)))


def _gradients(
    call: Call,
    tensors: tuple[Shape, Shape, Shape],
    to_data: bool,
    to_weights: bool,
    to_bias: bool = False,
    transposed: bool = False,
) -> Work:
    """The work of a convolution's gradients, from its result's gradient, its image and its weights."""
    gradient, image, weight = tensors
    # As many products as forward: by the weights of a group for each result or, if transposed, for each input.
    each = prod(image if transposed else gradient)
    flops = 2 * each * prod(weight[1:]) * (to_data + to_weights) + prod(gradient) * to_bias
    # Each operand once: the gradient, and the further operands and the result of each wanted gradient.
    elements = prod(gradient)
    elements += to_data * (prod(weight) + prod(image)) + to_weights * (prod(image) + prod(weight))
    return Work(flops, call.traffic(elements, to_bias * gradient[1]))


def _one_gradient(to_data: bool) -> Callable[[Call], Work]:
    """Rule for the call of one gradient in PyTorch before 1.11: of the image (data), else of the weights."""

    def rule(call: Call) -> Work:
        if not call.third:
            return UNKNOWN
        image, weight = (call.third, call.shape(2)) if to_data else (call.shape(2), call.third)
        return _gradients(call, (call.shape(1), image, weight), to_data, not to_data)

    return rule


def _elementwise(reads: int, flops_per_element: int = 1) -> Callable[[Call], Work]:
    """Rule for an operator that reads `reads` tensors of the first argument's shape and writes one."""

    def rule(call: Call) -> Work:
        elements = prod(call.shape(0))
        if not call.shape(0):
            return UNKNOWN
        return Work(flops_per_element * elements, call.traffic((reads + 1) * elements))

    return rule


def _foreach(reads: int, flops_per_element: int) -> Callable[[Call], Work]:
    """Rule for an elementwise operator over a list of tensors."""

    def rule(call: Call) -> Work:
        tensors: Sequence[Any] = call.shape(0)
        elements = sum(prod(shape) for shape in tensors)
        return Work(flops_per_element * elements, call.traffic((reads + 1) * elements))

    return rule


def _max_pool(call: Call) -> Work:
    image, window = call.shape(0), call.value(1)
    stride, padding = call.value(2) or window, call.value(3)
    kernel = [_per_axis(window, axis) for axis in range(len(image) - 2)]
    out = _output_extents(image, (0, 0, *kernel), stride, padding, call.value(4) or 1)
    result = prod(image[:2]) * prod(out)
    # comparisons are no floating-point operations; the indices of the maxima (int64) are written for the backward pass
    return Work(0, call.traffic(prod(image), result) + 8 * result)


def _scaled_mm(call: Call) -> Work:
    (m, k), (_, n) = call.shape(0), call.shape(1)
    result_bytes = BYTES_BY_NUMBER.get(call.value(6))  # out_dtype; the operands are fp8
    size = None if result_bytes is None else call.size(0, 1, 2, 3, 4) + m * n * result_bytes
    return Work(2 * m * k * n, size)


def _int_mm(call: Call) -> Work:
    (m, k), (_, n) = call.shape(0), call.shape(1)
    return Work(2 * m * k * n, call.traffic(m * k, k * n) + 4 * m * n)  # int8 operands, int32 results


def _grouped_mm(call: Call, offsets: int = 2) -> Work:
    """One product per group: a 2-d operand holds the groups one after the other, and `offsets` their ends.

    Rows of a 2-d operand beyond the last end are not computed, which the shapes do not say: an upper bound.
    """
    a, b = call.shape(0), call.shape(1)
    groups = a[0] if len(a) == 3 else b[0] if len(b) == 3 else call.shape(offsets)[0]
    m, k, n = a[-2], a[-1], b[-1]
    # The groups divide the extent that a 2-d operand has for all of them: rows, columns, or the sum.
    products = m * k * n * (groups if len(a) == len(b) == 3 else 1)
    result = m * n * (groups if len(a) == len(b) else 1)
    return Work(2 * products, call.size(0, 1) + call.traffic(result))


def _embedding(call: Call) -> Work:
    """The rows that are looked up, read and written; the rest of the table does not move."""
    rows = prod(call.shape(1))
    return Work(0, call.traffic(2 * rows * call.shape(0)[-1]) + call.size(1))


def _embedding_backward(call: Call) -> Work:
    gradient, rows = prod(call.shape(0)), call.value(2)
    return Work(gradient, call.traffic(gradient, rows * call.shape(0)[-1]) + call.size(1))


def _attention(query: int, causal: int, backward: bool = False, heads_last: bool = False) -> Callable[[Call], Work]:
    """Rule for scaled dot-product attention.

    Args:
        query: index of the query, which key and value follow.
        causal: index of `is_causal`, or of `custom_mask_type`, which is 0 for no mask.
        backward: whether the call computes the gradients of the three, and the output's gradient is argument 0.
        heads_last: whether the shapes are (batch, length, heads, size) and not (..., heads, length, size).
    """

    def rule(call: Call) -> Work:
        q, k, v = (call.shape(query + i) for i in range(3))
        if heads_last and len(q) != 4:
            return UNKNOWN  # sequences of several lengths, one after the other: their lengths are data
        rows, keys = (x[-3] if heads_last else x[-2] for x in (q, k))
        batch = prod(q) // (rows * q[-1])  # batch times heads; several heads may share a key
        pairs = rows * keys
        if call.value(causal) in (True, 1):  # query i sees the keys up to i (top left)
            pairs = sum(min(row + 1, keys) for row in range(rows))
        scores, values = 2 * batch * pairs * q[-1], 2 * batch * pairs * v[-1]
        result = batch * rows * v[-1]
        operands = prod(q) + prod(k) + prod(v)
        if backward:  # scores, and the gradients of query and key; those of the weights and of value
            return Work(3 * scores + 2 * values, call.traffic(2 * operands, 2 * result))
        return Work(scores + values, call.traffic(operands, result))

    return rule


# Kernels that read or write parts of a buffer: its size is not what moves.
_PARTIAL = re.compile(r"embedding|index|gather|scatter|slice|select|cat|nll|pool")


# Inductor's templates of products; the name lists the operators, sorted and joined.
_PRODUCT_TEMPLATE = re.compile(r"triton_tem_fused_(?:\w*_)?(?:mm|addmm|bmm|baddbmm)(?:_\w*)?|triton_b?mm(?:_\w*)?")


def _triton_rule(op: str) -> Callable[[Call], Work]:
    return _triton_product if _PRODUCT_TEMPLATE.fullmatch(op) else _triton


def _triton(call: Call) -> Work:
    """A kernel of torch.compile, with the buffers that it reads and writes as arguments; FLOPs are unknown.

    A buffer that is read and written counts once: a lower bound.
    """
    return Work(None, call.size(*range(len(call.shapes))))


def _triton_product(call: Call) -> Work:
    """A product by a template of torch.compile: two operands in turn, and their result among the later buffers.

    FLOPs are those of the product; what is fused into it is little work, and not counted.
    """
    tensors = [list(shape) for shape in call.shapes if shape]
    found = {
        2 * prod(a) * b[-1]
        for i, (a, b) in enumerate(pairwise(tensors))
        if len(a) == len(b) > 1 and a[:-2] == b[:-2] and a[-1] == b[-2] and [*a[:-1], b[-1]] in tensors[i + 2 :]
    }
    return Work(found.pop() if len(found) == 1 else None, _triton(call).bytes_compulsory)


_LIBRARIES = ("cudnn", "miopen", "mkldnn")
_RULES: dict[str, Callable[[Call], Work]] = {
    "mm": _mm,
    "addmm": _addmm,
    "bmm": _bmm,
    "baddbmm": _baddbmm,
    "linear": _linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "_convolution"), _convolution),
    "mkldnn_convolution": _mkldnn_convolution,
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_transpose),
    "convolution_backward": _convolution_backward,
    **{f"{library}_convolution_backward_input": _one_gradient(True) for library in _LIBRARIES},
    **{f"{library}_convolution_backward_weight": _one_gradient(False) for library in _LIBRARIES},
    "mkldnn_convolution_backward_weights": _one_gradient(False),
    **dict.fromkeys(("relu", "relu_", "clamp_min", "clamp_min_", "mul_", "div_"), _elementwise(1)),
    **dict.fromkeys(("threshold_backward", "add", "add_", "sub", "mul", "div"), _elementwise(2)),
    **dict.fromkeys(("sigmoid", "tanh"), _elementwise(1, 4)),
    # Mean, variance, subtraction, scale and shift are five FLOPs per element.
    **dict.fromkeys(("batch_norm", "native_batch_norm", "layer_norm", "native_layer_norm"), _elementwise(1, 5)),
    # Two for the normalised input, three for the two sums that the gradient needs, four for the result.
    **dict.fromkeys(("native_batch_norm_backward", "cudnn_batch_norm_backward"), _elementwise(2, 9)),
    "miopen_batch_norm_backward": _elementwise(2, 9),
    **dict.fromkeys(("_softmax", "_log_softmax"), _elementwise(1, 5)),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _elementwise(2, 4)),
    # Square, sum, and two scalings; dx takes the sum of gradient times input besides.
    **dict.fromkeys(("rms_norm", "_fused_rms_norm"), _elementwise(1, 4)),
    "_fused_rms_norm_backward": _elementwise(2, 8),
    "native_layer_norm_backward": _elementwise(2, 9),
    # x / (1 + exp(-x)): negation, exponential, sum, quotient.
    **dict.fromkeys(("silu", "silu_"), _elementwise(1, 4)),
    "silu_backward": _elementwise(2, 8),
    "gelu": _elementwise(1, 8),
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "_scaled_mm": _scaled_mm,
    "_int_mm": _int_mm,
    "_grouped_mm": _grouped_mm,
    "_scaled_grouped_mm": lambda call: Work(_grouped_mm(call, 4).flops, None),
    # Indices by native_functions.yaml of torch 2.13.
    "scaled_dot_product_attention": _attention(0, 5),
    "_scaled_dot_product_attention_math": _attention(0, 5),
    "_scaled_dot_product_flash_attention": _attention(0, 4),
    "_scaled_dot_product_flash_attention_for_cpu": _attention(0, 4),
    "_scaled_dot_product_efficient_attention": _attention(0, 6),
    "_scaled_dot_product_cudnn_attention": _attention(0, 6),
    "_flash_attention_forward": _attention(0, 8, heads_last=True),
    "_efficient_attention_forward": _attention(0, 9, heads_last=True),
    "_scaled_dot_product_flash_attention_backward": _attention(1, 11, backward=True),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(1, 7, backward=True),
    "_scaled_dot_product_efficient_attention_backward": _attention(1, 11, backward=True),
    "_scaled_dot_product_cudnn_attention_backward": _attention(1, 14, backward=True),
    "_flash_attention_backward": _attention(1, 11, backward=True, heads_last=True),
    "_efficient_attention_backward": _attention(1, 14, backward=True, heads_last=True),
    "copy_": _elementwise(1, 0),
    **dict.fromkeys(("fill_", "zero_"), lambda call: Work(0, call.traffic(prod(call.shape(0))))),
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), _max_pool),
    "_foreach_add_": _foreach(2, 2),
    "_foreach_mul_": _foreach(1, 1),
}
