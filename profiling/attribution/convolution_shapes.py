"""Finds the shape that a convolution's arguments do not show, where a trace has shapes but no
scalars.

PyTorch before 2.1 wrote no strides and paddings, and the size of one operand of a gradient as
numbers. The backward call around it takes the image, the gradient of the result, and the weights. A
forward call takes image and weights; its result is known if all backward calls with these two
agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from .nesting import NONE, Codes, Ints
from .operation import Operation

_IMAGE = "image"
_RESULT = "result"
_WEIGHT = "weight"
# Operators, and the tensor that each argument is, by native_functions.yaml of torch 1.8 to 1.13; ""
# for others.
_FORWARD = re.compile(r"aten::(?:conv[123]d|_?convolution)"), (_IMAGE, _WEIGHT)
_LIBRARY = r"aten::(?:cudnn|miopen|mkldnn)_convolution_backward"
_BACKWARD = (
    (re.compile(_LIBRARY), (_IMAGE, _RESULT, _WEIGHT)),
    (re.compile("aten::convolution_backward"), (_RESULT, _IMAGE, _WEIGHT)),
)
_GRADIENTS = (
    (re.compile(_LIBRARY + "_input"), ("", _RESULT, _WEIGHT)),
    (re.compile(_LIBRARY + "_weights?"), ("", _RESULT, _IMAGE)),
)
_Shapes = dict[str, tuple[int, ...]]


def with_third_shapes(
    operations: Sequence[Operation], call: Ints | Codes, parent: Ints | Codes
) -> tuple[list[Operation], Ints]:
    """The operations with the third shape of convolutions, and each span's index into them.

    It is the shape of the tensor that is no argument. `call` is the index of each span into
    `operations`; gradients of equal shapes may differ in the third.
    """
    completed = _with_results(operations)
    tensors = [_tensors(operation, *_GRADIENTS) for operation in operations]
    is_gradient = np.array([*map(bool, tensors), False], np.bool_)  # the last value: no call
    spans = np.flatnonzero(is_gradient[call] & (parent != NONE))
    of_span = np.asarray(call, np.int64).copy()
    if not len(spans):
        return completed, of_span
    own_and_around = np.stack([of_span[spans], of_span[parent[spans]]])
    pairs, pair = np.unique(own_and_around, axis=1, return_inverse=True)
    numbers = []
    for own, around in pairs.T.tolist():
        whole = {} if around == NONE else _tensors(operations[around], *_BACKWARD)
        (missing,) = {_IMAGE, _RESULT, _WEIGHT}.difference(tensors[own])
        if len(whole) == 3 and tensors[own].items() <= whole.items():
            numbers.append(len(completed))
            completed.append(operations[own]._replace(third=whole[missing]))
        else:
            numbers.append(own)
    of_span[spans] = np.array(numbers, np.int64)[pair.reshape(-1)]
    return completed, of_span


def _with_results(operations: Sequence[Operation]) -> list[Operation]:
    results: dict[tuple[tuple[int, ...], ...], set[tuple[int, ...]]] = {}
    for operation in operations:
        tensors = _tensors(operation, *_BACKWARD)
        if len(tensors) == 3 and _is_direct(tensors):
            pair = tensors[_IMAGE], tensors[_WEIGHT]
            results.setdefault(pair, set()).add(tensors[_RESULT])
    completed = []
    for operation in operations:
        tensors = _tensors(operation, _FORWARD)
        if len(tensors) == 2:
            alike = results.get((tensors[_IMAGE], tensors[_WEIGHT]), set())
            if len(alike) == 1:
                (third,) = alike
                operation = operation._replace(third=third)
        completed.append(operation)
    return completed


def _tensors(operation: Operation, *forms: tuple[re.Pattern[str], tuple[str, ...]]) -> _Shapes:
    """The tensors of a convolution among the arguments.

    Empty if the convolution has none of these forms or an argument lacks.
    """
    names = next((names for form, names in forms if form.fullmatch(operation.name)), ())
    shapes: _Shapes = {}
    for name, shape in zip(names, operation.shapes, strict=False):
        if name:
            if not _is_shape(shape):
                return {}
            shapes[name] = tuple(shape)
    wanted = sum(map(bool, names))
    return shapes if len(shapes) == wanted else {}


def _is_shape(shape: object) -> bool:
    return isinstance(shape, list) and bool(shape) and all(type(n) is int for n in shape)


def _is_direct(tensors: _Shapes) -> bool:
    """Whether it may be a convolution that is not transposed.

    The result of a transposed one is mostly larger than its image.
    """
    image = tensors[_IMAGE]
    result = tensors[_RESULT]
    weight = tensors[_WEIGHT]
    if not len(image) == len(result) == len(weight) > 2:
        return False
    if image[0] != result[0] or result[1] != weight[0]:
        return False
    return all(out <= size for out, size in zip(result[2:], image[2:], strict=True))
