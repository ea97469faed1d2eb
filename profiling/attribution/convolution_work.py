"""Work of convolutions and pools from the shapes of their arguments: the direct algorithm, see
`operator_work`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from .operation import UNKNOWN, Call, Shape, Work


def _convolution(call: Call, stride: int = 3, padding: int = 4, dilation: int = 5) -> Work:
    if call.value(6) is True:
        return _transposed_convolution(call)
    image = call.shape(0)
    weight = call.shape(1)
    step = call.value(stride)
    if call.third and step is None:
        out: Shape = call.third[2:]
    else:
        out = _output_extents(image, weight, step, call.value(padding), call.value(dilation))
    result = image[0] * weight[0] * prod(out)
    # weight is (outputs, inputs of one group, *kernel): each result takes one product per remaining
    # element
    return _count(call, result * prod(weight[1:]), result)


def _count(call: Call, products: int, result: int) -> Work:
    """The work of a convolution of so many products and elements of the result."""
    image = prod(call.shape(0))
    weight = prod(call.shape(1))
    bias = call.elements(2)
    flops = 2 * products
    if bias:
        flops += result
    return Work(flops, call.traffic(image, weight, bias, result))


def _transposed_convolution(
    call: Call, output_padding: int = 7, groups: int = 8, dilation: int = 5
) -> Work:
    image = call.shape(0)
    weight = call.shape(1)
    number = call.value(groups)
    if number is None:
        raise ValueError("the number of groups was not recorded")
    settings = [call.value(index) for index in (3, 4, dilation, output_padding)]
    result = image[0] * weight[1] * number
    for axis, (size, kernel) in enumerate(zip(image[2:], weight[2:], strict=True)):
        step, pad, spread, beyond = (_per_axis(value, axis) for value in settings)
        reached = (size - 1) * step + spread * (kernel - 1)
        result *= reached - 2 * pad + beyond + 1
    # Each element of the input is multiplied by all weights of its channel: (inputs, outputs of a
    # group, *kernel).
    return _count(call, prod(image) * prod(weight[1:]), result)


def _output_extents(
    image: Shape, weight: Shape, stride: Any, padding: Any, dilation: Any
) -> list[int]:
    extents = []
    for axis, (size, kernel) in enumerate(zip(image[2:], weight[2:], strict=True)):
        step, pad, spread = (_per_axis(v, axis) for v in (stride, padding, dilation))
        room = size + 2 * pad - spread * (kernel - 1) - 1
        extents.append(room // step + 1)
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
    tensors = (call.shape(0), call.shape(1), call.shape(2))
    transposed = call.value(7) is True
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
    """The work of a convolution's gradients, from its result's gradient, its image and weights."""
    gradient, image, weight = tensors
    wanted = to_data + to_weights
    results = prod(gradient)
    inputs = prod(image)
    # As many products as forward: by the weights of a group for each result or, if transposed, for
    # each input.
    each = inputs if transposed else results
    products = each * prod(weight[1:])
    flops = 2 * products * wanted + results * to_bias
    # Each operand once: the gradient, and the further operands and the result of each wanted
    # gradient.
    elements = results + wanted * (inputs + prod(weight))
    return Work(flops, call.traffic(elements, to_bias * gradient[1]))


def _one_gradient(call: Call, to_data: bool) -> Work:
    """The work of one gradient in PyTorch before 1.11: of the image (data), else of the weights."""
    if not call.third:
        return UNKNOWN
    image, weight = (call.third, call.shape(2)) if to_data else (call.shape(2), call.third)
    return _gradients(call, (call.shape(1), image, weight), to_data, not to_data)


def _max_pool(call: Call) -> Work:
    image = call.shape(0)
    window = call.value(1)
    stride = call.value(2) or window
    padding = call.value(3)
    dilation = call.value(4) or 1
    kernel = [_per_axis(window, axis) for axis in range(len(image) - 2)]
    out = _output_extents(image, (0, 0, *kernel), stride, padding, dilation)
    result = prod(image[:2]) * prod(out)
    # comparisons are no floating-point operations; the indices of the maxima (int64) are written
    # for the backward pass
    return Work(0, call.traffic(prod(image), result) + 8 * result)


_LIBRARIES = ("cudnn", "miopen", "mkldnn")
_DIRECT = ("conv1d", "conv2d", "conv3d", "convolution", "_convolution")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_to_data = partial(_one_gradient, to_data=True)
_to_weights = partial(_one_gradient, to_data=False)
CONVOLUTIONS: dict[str, Callable[[Call], Work]] = {
    **dict.fromkeys(_DIRECT, _convolution),
    "mkldnn_convolution": partial(_convolution, stride=4, padding=3),
    "convolution_backward": _convolution_backward,
    "mkldnn_convolution_backward_weights": _to_weights,
    "max_pool2d": _max_pool,
    "max_pool2d_with_indices": _max_pool,
}
for _name in _TRANSPOSED:
    CONVOLUTIONS[_name] = partial(_transposed_convolution, output_padding=5, groups=6, dilation=7)
for _library in _LIBRARIES:
    CONVOLUTIONS[f"{_library}_convolution_backward_input"] = _to_data
    CONVOLUTIONS[f"{_library}_convolution_backward_weight"] = _to_weights
