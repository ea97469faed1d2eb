"""Matrix products and convolutions among recorded operator calls, as the benchmarks name them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..hardware.precisions import PRECISIONS
from ..recording.operators import TORCH_DTYPES, Argument, TensorArgument, Value

# operators that multiply rows with one matrix
OF_MATRICES = ("aten::linear", "aten::addmm", "aten::mm")
# by the stored type
_PRECISIONS = {PRECISIONS[name].torch_dtype: name for name in ("fp64", "fp32", "fp16", "bf16")}
_Pair = tuple[int, int]


class Product(NamedTuple):
    """A product C (m x n) = op(A) (m x k) · op(B) (k x n), column-major as in BLAS."""

    m: int
    n: int  # number of rows that are multiplied with one matrix
    k: int
    transpose: str  # N or T for A and B
    precision: str


class Convolution(NamedTuple):
    """A convolution in one direction, as `bench conv` names it."""

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: _Pair
    padding: _Pair
    dilation: _Pair
    groups: int
    direction: str  # fwd, bwd_data or bwd_weights
    layout: str  # nchw or nhwc
    precision: str


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


def read_product(op: str, arguments: Sequence[Argument]) -> Product | None:
    """The product of rows with a matrix that a call makes; None if it is of another form."""
    tensors = [argument for argument in arguments if isinstance(argument, TensorArgument)]
    matrices = [tensor for tensor in tensors if len(tensor.shape) > 1]
    if op not in OF_MATRICES or len(matrices) != 2 or len(matrices[1].shape) != 2:
        return None
    x, weights = matrices
    precision = _precision(weights)
    if precision is None:
        return None
    n, (rows, columns) = math.prod(x.shape[:-1]), weights.shape
    if op == "aten::linear":
        return Product(rows, n, columns, "TN", precision)
    transpose = ("T" if _is_transposed(weights) else "N") + ("T" if _is_transposed(x) else "N")
    return Product(columns, n, rows, transpose, precision)


def read_convolutions(op: str, arguments: Sequence[Argument]) -> list[Convolution]:
    """The convolutions over two dimensions that a call makes: one, or a backward call's two; none
    if it is of another form.
    """
    form = _CONVOLUTIONS.get(op)
    if form is None or len(arguments) <= max(position or 0 for position in form):
        return []
    image, weights = arguments[form.image], arguments[form.weights]
    if not (isinstance(image, TensorArgument) and isinstance(weights, TensorArgument)):
        return []
    precision, groups = _precision(weights), _value(arguments, form.groups)
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
    made = Convolution(
        n, c, h, w, k, r, s, stride, padding, dilation, groups, "fwd", layout, precision
    )
    return [made._replace(direction=direction) for direction in directions]


def _precision(tensor: TensorArgument) -> str | None:
    return _PRECISIONS.get(TORCH_DTYPES.get(tensor.dtype, ""))


def _is_transposed(tensor: TensorArgument) -> bool:
    """Whether a matrix is stored by columns."""
    if tensor.strides is None or len(tensor.shape) != 2:
        return False
    rows, columns = tensor.shape
    return columns > 1 and tensor.strides[0] == 1 and tensor.strides[1] >= rows


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
