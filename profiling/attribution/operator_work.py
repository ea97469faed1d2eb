"""FLOPs and compulsory bytes of an operator call, from the shapes it was called with.

Conventions: one FMA is two FLOPs; a convolution counts as its direct algorithm whatever ran; compulsory bytes move each
operand once: inputs and weights read, results written. What is not known is null, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

Shape = Sequence[int]

# Operators with an operand that has the batch as its first extent, and which operand.
_BATCH_OPERAND = re.compile(r"(?:aten::)?(?:_?convolution|cudnn_convolution|conv[123]d|linear|matmul|addmm|mm)")

_ITEM_BYTES = {
    "double": 8,
    "long": 8,
    "long int": 8,
    "float": 4,
    "int": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "short": 2,
    "bool": 1,
    "unsigned char": 1,
    "signed char": 1,
}


@dataclass(frozen=True)
class Work:
    """What a call has to do at least: FLOPs of the direct algorithm and compulsory bytes; None where not known.

    Attributes:
        flops: of the call.
        bytes_compulsory: of the call.
        parts: the work of what has kernels of its own, by name (`data` and `weights`, the gradients of a convolution).
            Their FLOPs add up to the call's. Each reads its operands itself: their bytes are more than the call's.
    """

    flops: int | None
    bytes_compulsory: int | None
    parts: tuple[tuple[str, Work], ...] = field(default=(), compare=False)


UNKNOWN = Work(None, None)


class Operation(NamedTuple):
    """What an operator was called with, as a profiler recorded it: per argument shape, type and scalar value."""

    name: str
    shapes: Sequence[Any]
    dtypes: Sequence[str] = ()
    concrete: Sequence[Any] = ()


@dataclass(frozen=True)
class Call:
    """An operator call as a profiler recorded it.

    Attributes:
        shapes: per argument the tensor's shape; empty for scalars; a list of shapes for a list of tensors.
        item_bytes: bytes of one element of the first floating-point argument.
        concrete: per argument the scalar value, or empty.
    """

    shapes: Sequence[Any]
    item_bytes: int
    concrete: Sequence[Any]

    def shape(self, place: int) -> Shape:
        """Shape of an argument; empty where there is none."""
        return self.shapes[place] if place < len(self.shapes) else ()

    def value(self, place: int) -> Any:
        """Concrete value of an argument; null where it was not recorded."""
        value = self.concrete[place] if place < len(self.concrete) else None
        return None if value in ("", []) else value

    def traffic(self, *counts: int) -> int:
        """Bytes of that many elements."""
        return sum(counts) * self.item_bytes


def work(op: str, shapes: Sequence[Any], dtypes: Sequence[str], concrete: Sequence[Any] = ()) -> Work:
    """FLOPs and compulsory bytes of one call.

    Args:
        op: the operator's name, as in `aten::conv2d`.
        shapes: per argument, as torch.profiler records them with `record_shapes=True`.
        dtypes: per argument, likewise.
        concrete: scalar arguments, likewise; convolutions need their stride and padding from here.
    """
    rule = _RULES.get(op.removeprefix("aten::"))
    if rule is None:
        return UNKNOWN
    item_bytes = next((_ITEM_BYTES[d] for d in dtypes if d in _ITEM_BYTES), None)
    if item_bytes is None:
        return UNKNOWN
    try:
        return rule(Call(shapes, item_bytes, concrete))
    except (IndexError, TypeError, ValueError):
        return UNKNOWN  # called in a form that the rule does not know


def count_work(operation: Operation) -> Work:
    """The work of an operator call, from its shapes."""
    if not operation.shapes:
        return UNKNOWN
    return work(operation.name, operation.shapes, operation.dtypes, operation.concrete)


def batch_of(op: str, shapes: Sequence[Any]) -> int | None:
    """The batch size, where the operator's operands have it first; `addmm` takes it in its second."""
    if _BATCH_OPERAND.fullmatch(op) is None:
        return None
    place = 1 if op.endswith("addmm") else 0
    shape = shapes[place] if len(shapes) > place else None
    extent = shape[0] if isinstance(shape, (list, tuple)) and shape else None
    return extent if isinstance(extent, int) and 0 < extent < 1 << 31 else None


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
        raise ValueError("a transposed convolution is another sum")
    out = _output_extents(image, weight, call.value(stride), call.value(padding), call.value(dilation))
    bias = prod(call.shape(2)) if call.shape(2) else 0
    result = image[0] * weight[0] * prod(out)
    # weight is (outputs, inputs of one group, *kernel): each result takes one product per remaining element
    flops = 2 * result * prod(weight[1:]) + (result if bias else 0)
    return Work(flops, call.traffic(prod(image), prod(weight), bias, result))


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
    whole = _gradients(call, to_data, to_weights, to_bias)
    if not (to_data and to_weights):
        return whole
    # Who computes the gradient of the weights mostly sums up that of the bias too.
    data, weights = _gradients(call, True, False, False), _gradients(call, False, True, to_bias)
    return Work(whole.flops, whole.bytes_compulsory, (("data", data), ("weights", weights)))


def _gradients(call: Call, to_data: bool, to_weights: bool, to_bias: bool) -> Work:
    gradient, image, weight = call.shape(0), call.shape(1), call.shape(2)
    flops = 2 * prod(gradient) * prod(weight[1:]) * (to_data + to_weights) + prod(gradient) * to_bias
    # Each operand once: the gradient, and what each wanted result reads besides and writes.
    elements = prod(gradient)
    elements += to_data * (prod(weight) + prod(image)) + to_weights * (prod(image) + prod(weight))
    return Work(flops, call.traffic(elements, to_bias * weight[0]))


def _elementwise(reads: int, flops_per_element: int = 1) -> Callable[[Call], Work]:
    """An operator over tensors of the first argument's shape that reads `reads` of them and writes one."""

    def rule(call: Call) -> Work:
        elements = prod(call.shape(0))
        if not call.shape(0):
            return UNKNOWN
        return Work(flops_per_element * elements, call.traffic((reads + 1) * elements))

    return rule


def _foreach(reads: int, flops_per_element: int) -> Callable[[Call], Work]:
    """The same over a list of tensors."""

    def rule(call: Call) -> Work:
        tensors: Sequence[Any] = call.shape(0)
        elements = sum(prod(shape) for shape in tensors)
        return Work(flops_per_element * elements, call.traffic((reads + 1) * elements))

    return rule


def _normalisation(call: Call) -> Work:
    # mean, variance, subtract, scale, shift: five per element, one read and one write
    return _elementwise(1, 5)(call)


def _max_pool(call: Call) -> Work:
    image, window = call.shape(0), call.value(1)
    stride, padding = call.value(2) or window, call.value(3)
    kernel = [_per_axis(window, axis) for axis in range(len(image) - 2)]
    out = _output_extents(image, (0, 0, *kernel), stride, padding, call.value(4) or 1)
    result = prod(image[:2]) * prod(out)
    # comparisons are no floating-point operations; the indices of the maxima (int64) are written for the backward pass
    return Work(0, call.traffic(prod(image), result) + 8 * result)


_RULES: dict[str, Callable[[Call], Work]] = {
    "mm": _mm,
    "addmm": _addmm,
    "bmm": _bmm,
    "baddbmm": _baddbmm,
    "linear": _linear,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "convolution": _convolution,
    "_convolution": _convolution,
    "mkldnn_convolution": _mkldnn_convolution,
    "convolution_backward": _convolution_backward,
    "relu": _elementwise(1),
    "relu_": _elementwise(1),
    "clamp_min": _elementwise(1),
    "clamp_min_": _elementwise(1),
    "threshold_backward": _elementwise(2),
    "gelu": _elementwise(1, 8),
    "sigmoid": _elementwise(1, 4),
    "tanh": _elementwise(1, 4),
    "add": _elementwise(2),
    "add_": _elementwise(2),
    "sub": _elementwise(2),
    "mul": _elementwise(2),
    "mul_": _elementwise(1),
    "div": _elementwise(2),
    "div_": _elementwise(1),
    "copy_": _elementwise(1, 0),
    "fill_": lambda call: Work(0, call.traffic(prod(call.shape(0)))),
    "zero_": lambda call: Work(0, call.traffic(prod(call.shape(0)))),
    "batch_norm": _normalisation,
    "native_batch_norm": _normalisation,
    "layer_norm": _normalisation,
    "native_layer_norm": _normalisation,
    "_softmax": _elementwise(1, 5),
    "_log_softmax": _elementwise(1, 5),
    "max_pool2d": _max_pool,
    "max_pool2d_with_indices": _max_pool,
    "_foreach_add_": _foreach(2, 2),
    "_foreach_mul_": _foreach(1, 1),
}
