"""Two-dimensional convolutions: forward, and backward to the data or to the weights, without
flipping the filter.

Arrays are (samples, channels, height, width) and (filters, channels per group, height, width), NCHW
or NHWC in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

import numpy as np

from ..base.errors import CurvescopeError
from ..profiling.attribution import operator_work
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS, precision_of
from .problem import (
    Array,
    Error,
    Labelled,
    bound_error,
    can_check_all,
    compare,
    in_float64,
    normal,
    random_signs,
)

DIRECTIONS = ("fwd", "bwd_data", "bwd_weights")
LAYOUTS = ("nchw", "nhwc")
_EXTENTS = "nchwkrs"


@dataclass(frozen=True)
class Conv(Labelled):
    """A convolution of n images of c channels with k filters of r x s; pairs are vertical and
    horizontal.
    """

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)  # zeros added on each side
    dilation: tuple[int, int] = (1, 1)  # distance between filter elements
    groups: int = 1  # independent groups of channels and filters
    direction: str = "fwd"  # one of `DIRECTIONS`
    layout: str = "nchw"  # of all arrays in memory, one of `LAYOUTS`
    precision: str = "fp32"

    def __post_init__(self) -> None:
        precision_of(self.precision)
        extents = [getattr(self, name) for name in _EXTENTS]
        positive = min(*extents, self.groups, *self.stride, *self.dilation) > 0
        uneven = self.c % self.groups or self.k % self.groups
        if not positive or min(self.padding) < 0 or uneven:
            self._refuse("extents must be 1 or more; groups must divide channels and filters")
        if min(self.output) < 1:
            self._refuse("the filter is larger than the padded image")
        if self.direction not in DIRECTIONS or self.layout not in LAYOUTS:
            directions, layouts = ", ".join(DIRECTIONS), ", ".join(LAYOUTS)
            self._refuse(f"the direction must be one of {directions}, the layout one of {layouts}")

    def _refuse(self, why: str) -> NoReturn:
        raise CurvescopeError(f"{self.label}: {why}.")

    def label_along(self, axis: str) -> str:
        """E.g.

        `conv bwd_data n64 c64 224x224 k64 3x3 p1 fp32`; default values (stride 1, one group) are
        omitted.
        """
        extents = "n{n} c{c} {h}x{w} k{k} {r}x{s}"
        template = f"conv {{direction}} {extents}"
        for name, usual in (("stride", 1), ("padding", 0), ("dilation", 1)):
            pair = getattr(self, name)
            if pair != (usual, usual):
                template += f" {name[0]}{_pair_label(pair)}"
        if self.groups > 1 or axis == "groups":
            template += " g{groups}"
        if self.layout != "nchw":
            template += " {layout}"
        return self._fill_template(f"{template} {{precision}}", axis)

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the result of the forward pass."""
        return self._output_along(self.h, self.r, 0), self._output_along(self.w, self.s, 1)

    def _output_along(self, image: int, kernel: int, i: int) -> int:
        """Number of places of the filter, vertically (0) or horizontally (1)."""
        covers = self.dilation[i] * (kernel - 1) + 1
        room = image + 2 * self.padding[i] - covers
        return room // self.stride[i] + 1

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        """Shape of the input and of its gradient."""
        return self.n, self.c, self.h, self.w

    @property
    def weights_shape(self) -> tuple[int, int, int, int]:
        """Shape of the filters and of their gradient."""
        return self.k, self.c // self.groups, self.r, self.s

    @property
    def result_shape(self) -> tuple[int, int, int, int]:
        """Shape of the forward result and of the incoming gradient."""
        return self.n, self.k, *self.output

    @property
    def work(self) -> Work:
        """FLOPs of the direct algorithm, including products with padding; each operand
        moved once.
        """
        dtypes = [PRECISIONS[self.precision].profiler_dtype] * 3
        operands = [self.image_shape, self.weights_shape]
        if self.direction == "fwd":
            geometry = (self.stride, self.padding, self.dilation, self.groups)
            arguments = (None, None, None, *geometry)
            return operator_work.work("aten::conv2d", [*operands, ()], dtypes, arguments)
        mask = [self.to_data, self.to_weights, False]
        shapes = [self.result_shape, *operands]
        no_geometry = [None] * 10
        operator = "aten::convolution_backward"
        return operator_work.work(operator, shapes, dtypes, [*no_geometry, mask])

    @property
    def to_data(self) -> bool:
        """Whether the result is the gradient to the image."""
        return self.direction == "bwd_data"

    @property
    def to_weights(self) -> bool:
        """Whether the result is the gradient to the filters."""
        return self.direction == "bwd_weights"

    @property
    def terms(self) -> int:
        """Maximum number of products summed in one element of the result."""
        if self.to_weights:
            p, q = self.output
            return self.n * p * q
        channels = self.k if self.to_data else self.c
        return channels // self.groups * self.r * self.s

    def operands(self, generator: np.random.Generator) -> tuple[Array, Array]:
        """The two inputs of the direction: image and weights, gradient and weights, or image and
        gradient.
        """
        draw = partial(normal, generator, precision=self.precision)
        first = draw(self.result_shape if self.to_data else self.image_shape)
        second = draw(self.result_shape if self.to_weights else self.weights_shape)
        return first, second

    def reference(self, operands: tuple[Array, ...]) -> Array:
        """The result in float64: one matrix product per filter element and group, over all its
        positions at once.
        """
        first, second = in_float64(operands)
        top, left = self.padding
        image = np.zeros(self.image_shape) if self.to_data else first
        padded = np.pad(image, ((0, 0), (0, 0), (top, top), (left, left)))
        result = np.zeros(self.shape)
        for i, j, g in np.ndindex(self.r, self.s, self.groups):
            channels = _group_slice(g, self.c // self.groups)
            filters = _group_slice(g, self.k // self.groups)
            rows, columns = self._places(i, 0), self._places(j, 1)
            view = padded[:, channels, rows, columns]  # of this filter element
            if self.to_weights:
                sums = ([0, 2, 3], [0, 2, 3])
                result[filters, :, i, j] = np.tensordot(second[:, filters], view, sums)
                continue
            weights = second[filters, :, i, j]
            if self.to_data:
                products = np.tensordot(first[:, filters], weights, ([1], [0]))
                view += np.moveaxis(products, 3, 1)
            else:
                products = np.tensordot(view, weights, ([1], [1]))
                result[:, filters] += np.moveaxis(products, 3, 1)
        return padded[:, :, top : top + self.h, left : left + self.w] if self.to_data else result

    def _places(self, element: int, i: int) -> slice:
        """Where one element of the filter lies in the padded image, see `_output_along`."""
        start, step = element * self.dilation[i], self.stride[i]
        return slice(start, start + step * (self.output[i] - 1) + 1, step)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against the reference; for a large convolution, of sums over channels with random
        signs.

        A convolution is linear in its filters: the sum of output channels is the output of the
        summed filters. So the check costs one filter's work. The same holds backward to the data
        over input channels, and backward to the weights over gradients.
        """
        allowed = bound_error(self.precision, self.terms)
        if can_check_all(self.work) or result.shape != self.shape:
            return compare(result, self.reference(operands), allowed)
        first, second = in_float64(operands)
        summed = (self.c if self.to_data else self.k) // self.groups
        signs = random_signs(summed)

        def sum_groups(array: Array, axis: int) -> Array:
            before, after = array.shape[:axis], array.shape[axis + 1 :]
            by_group = array.reshape(*before, self.groups, summed, *after)
            return np.asarray(np.tensordot(by_group, signs, ([axis + 1], [0])))

        if self.to_data:
            small = replace(self, c=self.groups)
            second = np.tensordot(second, signs, ([1], [0]))[:, None]
        else:
            small = replace(self, k=self.groups)
            second = sum_groups(second, int(self.to_weights))
        reference = small.reference((first, second))
        sums = sum_groups(result, 0 if self.to_weights else 1).reshape(reference.shape)
        return compare(sums, reference, allowed * summed**0.5, projected=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the direction's result."""
        shapes = {
            "fwd": self.result_shape,
            "bwd_data": self.image_shape,
            "bwd_weights": self.weights_shape,
        }
        return shapes[self.direction]


def _pair_label(pair: tuple[int, int]) -> str:
    first, second = pair
    return f"{first}" if first == second else f"{first}x{second}"


def _group_slice(group: int, size: int) -> slice:
    return slice(group * size, (group + 1) * size)
