"""Convolutions among recorded operator calls, as `bench conv` names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...kernels.conv import Conv
from ...profiling.attribution.products import read_precision
from ...profiling.recording.operators import Argument, TensorArgument, Value

_Pair = tuple[int, int]


class _Form(NamedTuple):
    """Positions of a convolution's arguments."""

    image: int
    weights: int
    stride: int
    padding: int
    dilation: int
    groups: int
    transposed: int | None = None
    mask: int | None = None  # of a gradient, which results are wanted


_CONVOLUTIONS = {
    "aten::conv2d": _Form(0, 1, 3, 4, 5, 6),
    "aten::convolution": _Form(0, 1, 3, 4, 5, 8, transposed=6),
    "aten::convolution_backward": _Form(1, 2, 4, 5, 6, 9, transposed=7, mask=10),
}


def read_convolutions(op: str, arguments: Sequence[Argument]) -> list[Conv]:
    """The convolutions over two dimensions that a call makes: one, or a backward call's two; none
    if it is of another form.
    """
    form = _CONVOLUTIONS.get(op)
    if form is None or len(arguments) <= max(position or 0 for position in form):
        return []
    image, weights = arguments[form.image], arguments[form.weights]
    if not (isinstance(image, TensorArgument) and isinstance(weights, TensorArgument)):
        return []
    precision, groups = read_precision(weights), _value(arguments, form.groups)
    geometry = [_pair(arguments[at]) for at in (form.stride, form.padding, form.dilation)]
    is_flat = len(image.shape) == len(weights.shape) == 4
    if not is_flat or precision is None or _value(arguments, form.transposed):
        return []
    stride, padding, dilation = geometry
    if stride is None or padding is None or dilation is None or not isinstance(groups, int):
        return []
    (n, c, h, w), (k, _, r, s) = image.shape, weights.shape
    layout = "nhwc" if c > 1 and image.strides is not None and image.strides[1] == 1 else "nchw"
    directions = ["fwd"] if form.mask is None else _list_directions(_value(arguments, form.mask))
    how = (stride, padding, dilation, groups)
    return [
        Conv(n, c, h, w, k, r, s, *how, direction, layout, precision) for direction in directions
    ]


def _list_directions(mask: object) -> list[str]:
    """The directions of a backward call, by its mask of results."""
    if not isinstance(mask, tuple):
        return []
    directions = ("bwd_data", "bwd_weights")
    return [name for name, is_wanted in zip(directions, mask, strict=False) if is_wanted]


def _value(arguments: Sequence[Argument], at: int | None) -> object:
    argument = None if at is None else arguments[at]
    return argument.value if isinstance(argument, Value) else None


def _pair(argument: Argument) -> _Pair | None:
    """A number for each of two dimensions; None of a text, e.g. the padding `same`."""
    value = argument.value if isinstance(argument, Value) else None
    numbers = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(number, int) for number in numbers) or len(numbers) not in (1, 2):
        return None
    return numbers[0], numbers[-1]
