"""Convolutions in two dimensions: forward, and backward to the data or to the weights.

Arrays are (samples, channels, height, width) and (filters, channels of a group, height, width) whatever the layout in
memory is: NHWC is a matter of strides. As in torch and cuDNN the filter is not flipped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..profiling.attribution import operator_work
from ..profiling.errors import CurvescopeError
from ..profiling.hardware.precisions import PRECISIONS, precision_of
from .problem import (
    FULL_CHECK_FLOPS,
    Array,
    Error,
    allowed_error,
    compare,
    normal,
    random_signs,
)

DIRECTIONS = ("fwd", "bwd_data", "bwd_weights")
LAYOUTS = ("nchw", "nhwc")


@dataclass(frozen=True)
class Conv:
    """A convolution.

    Attributes:
        n: samples: the batch.
        c: input channels.
        h: input height.
        w: input width.
        k: filters: output channels.
        r: filter height.
        s: filter width.
        stride: of height and width, as the two below.
        padding: zeros at either side.
        dilation: distance of filter elements.
        groups: channels and filters fall into that many parts that do not mix.
        direction: fwd, bwd_data or bwd_weights.
        layout: nchw or nhwc, of all arrays.
        precision: a key of `PRECISIONS`.
    """

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    direction: str = "fwd"
    layout: str = "nchw"
    precision: str = "fp32"

    def __post_init__(self) -> None:
        precision_of(self.precision)
        sizes = (self.n, self.c, self.h, self.w, self.k, self.r, self.s, self.groups, *self.stride, *self.dilation)
        if min(sizes) < 1 or min(self.padding) < 0 or self.c % self.groups or self.k % self.groups:
            raise CurvescopeError(f"{self.label}: extents are at least 1, and channels and filters fill the groups.")
        if min(self.output) < 1:
            raise CurvescopeError(f"{self.label}: the filter is larger than the padded image.")
        if self.direction not in DIRECTIONS or self.layout not in LAYOUTS:
            known = f"the direction is one of {', '.join(DIRECTIONS)}, the layout one of {', '.join(LAYOUTS)}"
            raise CurvescopeError(f"{self.label}: {known}.")

    @property
    def label(self) -> str:
        """As in `conv bwd_data n64 c64 224x224 k64 3x3 p1 fp32`; what is usual (stride 1, no groups) is left out."""
        return self.label_along("")

    def label_along(self, axis: str) -> str:
        """The label of all problems along an axis: * stands for its value."""
        n, c, h, w, k, r, s = ("*" if axis == name else getattr(self, name) for name in "nchwkrs")
        parts = [f"conv {self.direction} n{n} c{c} {h}x{w} k{k} {r}x{s}"]
        for letter, pair, usual in (("s", self.stride, 1), ("p", self.padding, 0), ("d", self.dilation, 1)):
            if pair != (usual, usual):
                parts.append(f"{letter}{pair[0]}" if pair[0] == pair[1] else f"{letter}{pair[0]}x{pair[1]}")
        if self.groups > 1 or axis == "groups":
            parts.append(f"g{'*' if axis == 'groups' else self.groups}")
        if self.layout != "nchw":
            parts.append(self.layout)
        return " ".join([*parts, self.precision])

    @property
    def phase(self) -> str:
        """Forward or backward."""
        return "forward" if self.direction == "fwd" else "backward"

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the result of the forward pass."""
        extents = zip((self.h, self.w), (self.r, self.s), self.stride, self.padding, self.dilation, strict=True)
        p, q = ((size + 2 * pad - spread * (kernel - 1) - 1) // step + 1 for size, kernel, step, pad, spread in extents)
        return p, q

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        """Of the input, and of the gradient to it."""
        return self.n, self.c, self.h, self.w

    @property
    def weights_shape(self) -> tuple[int, int, int, int]:
        """Of the filters, and of the gradient to them."""
        return self.k, self.c // self.groups, self.r, self.s

    @property
    def result_shape(self) -> tuple[int, int, int, int]:
        """Of the forward pass's result, and of the gradient that comes back."""
        return self.n, self.k, *self.output

    @property
    def work(self) -> operator_work.Work:
        """FLOPs of the direct algorithm, products with padding included; each operand moved once."""
        dtypes = [PRECISIONS[self.precision].profiler_dtype] * 3
        if self.direction == "fwd":
            concrete = (None, None, None, self.stride, self.padding, self.dilation, self.groups)
            return operator_work.work("aten::conv2d", [self.image_shape, self.weights_shape, ()], dtypes, concrete)
        mask = [self.direction == "bwd_data", self.direction == "bwd_weights", False]
        shapes = [self.result_shape, self.image_shape, self.weights_shape]
        return operator_work.work("aten::convolution_backward", shapes, dtypes, [*[None] * 10, mask])

    @property
    def terms(self) -> int:
        """Products in one element of the result, at most."""
        if self.direction == "bwd_weights":
            return self.n * self.output[0] * self.output[1]
        channels = self.c if self.direction == "fwd" else self.k
        return channels // self.groups * self.r * self.s

    def operands(self, generator: np.random.Generator) -> tuple[Array, Array]:
        """Image and weights, gradient and weights, or image and gradient, by direction."""
        first = self.result_shape if self.direction == "bwd_data" else self.image_shape
        second = self.result_shape if self.direction == "bwd_weights" else self.weights_shape
        return normal(generator, first, self.precision), normal(generator, second, self.precision)

    def reference(self, operands: tuple[Array, ...]) -> Array:
        """The result in float64: one matrix product for every element of the filter, over all its places at once."""
        first, second = (array.astype(np.float64) for array in operands)
        return {"fwd": self._forward, "bwd_data": self._to_data, "bwd_weights": self._to_weights}[self.direction](
            first, second
        )

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Against the reference; of a large convolution, sums over channels with random signs are compared.

        A convolution is linear in its filters: the sum of output channels is the output of the sum of filters, which
        takes one filter's work. Towards the data the same holds of input channels, towards the weights of gradients.
        """
        allowed = allowed_error(self.precision, self.terms)
        if (self.work.flops or 0) <= FULL_CHECK_FLOPS or result.shape != self.shape:
            return compare(result, self.reference(operands), allowed)
        first, second = (array.astype(np.float64) for array in operands)
        summed = (self.c if self.direction == "bwd_data" else self.k) // self.groups
        signs = random_signs(summed)
        by_group = (self.groups, summed)
        if self.direction == "bwd_data":
            small = replace(self, c=self.groups)
            weights = np.tensordot(second, signs, ([1], [0]))[:, None]
            reference = small.reference((first, weights))
            sums = np.einsum("ngchw,c->nghw", result.reshape(self.n, *by_group, self.h, self.w), signs)
        elif self.direction == "fwd":
            small = replace(self, k=self.groups)
            weights = np.einsum("gkcrs,k->gcrs", second.reshape(*by_group, *self.weights_shape[1:]), signs)
            reference = small.reference((first, weights))
            sums = np.einsum("ngkpq,k->ngpq", result.reshape(self.n, *by_group, *self.output), signs)
        else:
            small = replace(self, k=self.groups)
            gradient = np.einsum("ngkpq,k->ngpq", second.reshape(self.n, *by_group, *self.output), signs)
            reference = small.reference((first, gradient))
            sums = np.einsum("gkcrs,k->gcrs", result.reshape(*by_group, *self.weights_shape[1:]), signs)
        return compare(sums, reference, allowed * summed**0.5, projected=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what the direction gives."""
        shapes = {"fwd": self.result_shape, "bwd_data": self.image_shape, "bwd_weights": self.weights_shape}
        return shapes[self.direction]

    def _places(self, i: int, j: int) -> tuple[slice, slice]:
        """Where filter element (i, j) falls in the padded image, for all results at once."""
        starts = (i * self.dilation[0], j * self.dilation[1])
        p, q = (
            slice(start, start + step * (count - 1) + 1, step)
            for start, step, count in zip(starts, self.stride, self.output, strict=True)
        )
        return p, q

    def _padded(self, image: Array) -> Array:
        (top, left) = self.padding
        return np.pad(image, ((0, 0), (0, 0), (top, top), (left, left)))

    def _groups(self) -> list[tuple[slice, slice]]:
        """Channels and filters of every group."""
        c, k = self.c // self.groups, self.k // self.groups
        return [(slice(g * c, (g + 1) * c), slice(g * k, (g + 1) * k)) for g in range(self.groups)]

    def _forward(self, image: Array, weights: Array) -> Array:
        padded, result = self._padded(image), np.zeros(self.result_shape)
        for i, j in np.ndindex(self.r, self.s):
            rows, columns = self._places(i, j)
            for channels, filters in self._groups():
                seen = padded[:, channels, rows, columns]
                result[:, filters] += np.moveaxis(np.tensordot(seen, weights[filters, :, i, j], ([1], [1])), 3, 1)
        return result

    def _to_data(self, gradient: Array, weights: Array) -> Array:
        (top, left) = self.padding
        padded = np.zeros((self.n, self.c, self.h + 2 * top, self.w + 2 * left))
        for i, j in np.ndindex(self.r, self.s):
            rows, columns = self._places(i, j)
            for channels, filters in self._groups():
                spread = np.tensordot(gradient[:, filters], weights[filters, :, i, j], ([1], [0]))
                padded[:, channels, rows, columns] += np.moveaxis(spread, 3, 1)
        return padded[:, :, top : top + self.h, left : left + self.w]

    def _to_weights(self, image: Array, gradient: Array) -> Array:
        padded, result = self._padded(image), np.zeros(self.weights_shape)
        for i, j in np.ndindex(self.r, self.s):
            rows, columns = self._places(i, j)
            for channels, filters in self._groups():
                seen = padded[:, channels, rows, columns]
                result[filters, :, i, j] = np.tensordot(gradient[:, filters], seen, ([0, 2, 3], [0, 2, 3]))
        return result
