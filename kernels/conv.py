"""Two-dimensional convolutions: forward, and backward to the data or to the weights, without
flipping the filter.

Arrays are (samples, channels, height, width) and (filters, channels per group, height, width), NCHW
or NHWC in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..base.errors import CurvescopeError
from ..profiling.attribution import operator_work
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS, precision_of
from .problem import (
    FULL_CHECK_FLOPS,
    Array,
    Error,
    Labelled,
    bound_error,
    compare,
    normal,
    random_signs,
)

DIRECTIONS = ("fwd", "bwd_data", "bwd_weights")
LAYOUTS = ("nchw", "nhwc")


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
        sizes = (
            self.n,
            self.c,
            self.h,
            self.w,
            self.k,
            self.r,
            self.s,
            self.groups,
            *self.stride,
            *self.dilation,
        )
        if min(sizes) < 1 or min(self.padding) < 0 or self.c % self.groups or self.k % self.groups:
            raise CurvescopeError(
                f"{self.label}: extents must be 1 or more; groups must divide channels and filters."
            )
        if min(self.output) < 1:
            raise CurvescopeError(f"{self.label}: the filter is larger than the padded image.")
        if self.direction not in DIRECTIONS or self.layout not in LAYOUTS:
            allowed = (
                f"the direction must be one of {', '.join(DIRECTIONS)}, the layout one of "
                f"{', '.join(LAYOUTS)}"
            )
            raise CurvescopeError(f"{self.label}: {allowed}.")

    def label_along(self, axis: str) -> str:
        """E.g.

        `conv bwd_data n64 c64 224x224 k64 3x3 p1 fp32`; default values (stride 1, one group) are
        omitted.
        """
        n, c, h, w, k, r, s = ("*" if axis == name else getattr(self, name) for name in "nchwkrs")
        parts = [f"conv {self.direction} n{n} c{c} {h}x{w} k{k} {r}x{s}"]
        for letter, pair, usual in (
            ("s", self.stride, 1),
            ("p", self.padding, 0),
            ("d", self.dilation, 1),
        ):
            if pair != (usual, usual):
                parts.append(
                    f"{letter}{pair[0]}" if pair[0] == pair[1] else f"{letter}{pair[0]}x{pair[1]}"
                )
        if self.groups > 1 or axis == "groups":
            parts.append(f"g{'*' if axis == 'groups' else self.groups}")
        if self.layout != "nchw":
            parts.append(self.layout)
        return " ".join([*parts, self.precision])

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the result of the forward pass."""
        extents = zip(
            (self.h, self.w),
            (self.r, self.s),
            self.stride,
            self.padding,
            self.dilation,
            strict=True,
        )
        p, q = (
            (size + 2 * pad - spread * (kernel - 1) - 1) // step + 1
            for size, kernel, step, pad, spread in extents
        )
        return p, q

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
        if self.direction == "fwd":
            concrete = (None, None, None, self.stride, self.padding, self.dilation, self.groups)
            return operator_work.work(
                "aten::conv2d", [self.image_shape, self.weights_shape, ()], dtypes, concrete
            )
        mask = [self.direction == "bwd_data", self.direction == "bwd_weights", False]
        shapes = [self.result_shape, self.image_shape, self.weights_shape]
        return operator_work.work(
            "aten::convolution_backward", shapes, dtypes, [*[None] * 10, mask]
        )

    @property
    def terms(self) -> int:
        """Maximum number of products summed in one element of the result."""
        if self.direction == "bwd_weights":
            return self.n * self.output[0] * self.output[1]
        channels = self.c if self.direction == "fwd" else self.k
        return channels // self.groups * self.r * self.s

    def operands(self, generator: np.random.Generator) -> tuple[Array, Array]:
        """The two inputs of the direction: image and weights, gradient and weights, or image and
        gradient.
        """
        first = self.result_shape if self.direction == "bwd_data" else self.image_shape
        second = self.result_shape if self.direction == "bwd_weights" else self.weights_shape
        return normal(generator, first, self.precision), normal(generator, second, self.precision)

    def reference(self, operands: tuple[Array, ...]) -> Array:
        """The result in float64: one matrix product per filter element and group, over all its
        positions at once.
        """
        first, second = (array.astype(np.float64) for array in operands)
        to_data, (top, left) = self.direction == "bwd_data", self.padding
        image = np.zeros(self.image_shape) if to_data else first
        padded, result = (
            np.pad(image, ((0, 0), (0, 0), (top, top), (left, left))),
            np.zeros(self.shape),
        )
        c, k = self.c // self.groups, self.k // self.groups
        for i, j, g in np.ndindex(self.r, self.s, self.groups):
            channels, filters = slice(g * c, (g + 1) * c), slice(g * k, (g + 1) * k)
            starts = (i * self.dilation[0], j * self.dilation[1])
            rows, columns = (
                slice(start, start + step * (count - 1) + 1, step)
                for start, step, count in zip(starts, self.stride, self.output, strict=True)
            )
            seen = padded[:, channels, rows, columns]  # by this filter element; a view
            if self.direction == "fwd":
                result[:, filters] += np.moveaxis(
                    np.tensordot(seen, second[filters, :, i, j], ([1], [1])), 3, 1
                )
            elif to_data:
                seen += np.moveaxis(
                    np.tensordot(first[:, filters], second[filters, :, i, j], ([1], [0])), 3, 1
                )
            else:
                result[filters, :, i, j] = np.tensordot(
                    second[:, filters], seen, ([0, 2, 3], [0, 2, 3])
                )
        return padded[:, :, top : top + self.h, left : left + self.w] if to_data else result

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against the reference; for a large convolution, of sums over channels with random
        signs.

        A convolution is linear in its filters: the sum of output channels is the output of the
        summed filters, which costs one filter's work. The same holds backward to the data over
        input channels, and backward to the weights over gradients.
        """
        allowed = bound_error(self.precision, self.terms)
        if (self.work.flops or 0) <= FULL_CHECK_FLOPS or result.shape != self.shape:
            return compare(result, self.reference(operands), allowed)
        first, second = (array.astype(np.float64) for array in operands)
        summed = (self.c if self.direction == "bwd_data" else self.k) // self.groups
        signs = random_signs(summed)

        def sum_groups(array: Array, axis: int) -> Array:
            by_group = array.reshape(
                *array.shape[:axis], self.groups, summed, *array.shape[axis + 1 :]
            )
            return np.asarray(np.tensordot(by_group, signs, ([axis + 1], [0])))

        if self.direction == "bwd_data":
            small, second = (
                replace(self, c=self.groups),
                np.tensordot(second, signs, ([1], [0]))[:, None],
            )
        else:
            small, second = (
                replace(self, k=self.groups),
                sum_groups(second, int(self.direction == "bwd_weights")),
            )
        reference = small.reference((first, second))
        sums = sum_groups(result, 0 if self.direction == "bwd_weights" else 1)
        return compare(
            sums.reshape(reference.shape), reference, allowed * summed**0.5, projected=True
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the direction's result."""
        shapes = {
            "fwd": self.result_shape,
            "bwd_data": self.image_shape,
            "bwd_weights": self.weights_shape,
        }
        return shapes[self.direction]
