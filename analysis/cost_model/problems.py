"""Shapes of modelled operators, as arrays with one entry per problem."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

ITEM_BYTES = 4  # fp32 throughout: tensor cores are not modelled
NARROW = "narrow_product"
_NARROW_EXTENT = 128
PHASES = ("forward", "backward_data", "backward_weights")


@dataclass(frozen=True)
class _Problems:
    """Problems as arrays of one shape, (problems,): a subclass has one field per extent."""

    def __post_init__(self) -> None:
        names = [extent.name for extent in fields(self)]
        extents = [np.asarray(getattr(self, name), np.float64) for name in names]
        arrays = np.broadcast_arrays(*extents)
        for name, array in zip(names, arrays, strict=True):
            object.__setattr__(self, name, np.atleast_1d(array))


@dataclass(frozen=True)
class Convolutions(_Problems):
    """2-d convolutions, fp32; every field an array of shape (problems,)."""

    n: Floats  # images
    c: Floats  # input channels
    h: Floats  # input height
    w: Floats  # input width
    k: Floats  # output channels
    r: Floats  # kernel height
    s: Floats  # kernel width
    pad_h: Floats  # padding above and below
    pad_w: Floats  # padding left and right
    stride_h: Floats  # stride down
    stride_w: Floats  # stride across
    # groups of channels; each output channel reads the inputs of its group only
    groups: Floats = field(default_factory=lambda: np.ones(1))

    @property
    def group_c(self) -> Floats:
        """Input channels of a group."""
        return self.c / self.groups

    @property
    def group_k(self) -> Floats:
        """Output channels of a group."""
        return self.k / self.groups

    @property
    def depthwise(self) -> Flags:
        """Whether every input channel is a group of its own."""
        return np.asarray((self.groups > 1) & (self.group_c == 1))

    @property
    def p(self) -> Floats:
        """Output height."""
        return _count_places(self.h, self.r, self.pad_h, self.stride_h)

    @property
    def q(self) -> Floats:
        """Output width."""
        return _count_places(self.w, self.s, self.pad_w, self.stride_w)

    @property
    def flops(self) -> Floats:
        """FLOPs of the direct algorithm; one FMA is two. The same for all three phases."""
        taps = self.group_c * self.r * self.s
        outputs = self.n * self.k * self.p * self.q
        return 2 * taps * outputs

    @property
    def input_bytes(self) -> Floats:
        """Size of the input."""
        return ITEM_BYTES * self.n * self.c * self.h * self.w

    @property
    def touched_bytes(self) -> Floats:
        """Bytes of the input that a convolution reads: a stride larger than the kernel skips whole
        rows.
        """
        read_share = np.minimum(1.0, self.r / self.stride_h)
        return self.input_bytes * read_share

    @property
    def output_bytes(self) -> Floats:
        """Size of the output."""
        return ITEM_BYTES * self.n * self.k * self.p * self.q

    @property
    def weight_bytes(self) -> Floats:
        """Size of the weights."""
        return ITEM_BYTES * self.k * self.group_c * self.r * self.s

    def mirror(self) -> Convolutions:
        """The stride-1 convolution that computes the gradient of the input of a stride-1
        convolution.
        """
        ones = np.ones_like(self.n)
        images = self.n, self.k, self.p, self.q
        filters = self.c, self.r, self.s
        pads = self.r - 1 - self.pad_h, self.s - 1 - self.pad_w
        return Convolutions(*images, *filters, *pads, ones, ones)


def _count_places(extent: Floats, kernel: Floats, pad: Floats, stride: Floats) -> Floats:
    """Number of places of a kernel along one side of an image."""
    free = extent + 2 * pad - kernel
    return np.floor(free / stride) + 1


@dataclass(frozen=True)
class Products(_Problems):
    """Matrix products C = A·B, fp32, A being m × k and B k × n; every field an array of shape
    (problems,).
    """

    m: Floats  # rows of C
    n: Floats  # columns of C
    k: Floats  # depth
    transposed: Flags  # whether A is stored in the slower of its two orders
    count: Floats  # number of products of that shape in one call

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "transposed", self.transposed.astype(np.bool_))

    @property
    def flops(self) -> Floats:
        """FLOPs; one FMA is two."""
        return 2 * self.m * self.n * self.k * self.count

    @property
    def touched_bytes(self) -> Floats:
        """Size of all three matrices."""
        read = self.m * self.k + self.k * self.n
        written = self.m * self.n
        return ITEM_BYTES * self.count * (read + written)


def product_kinds(flops: Floats | float, touched_bytes: Floats | float) -> npt.NDArray[np.str_]:
    """Which matrix products are narrow: some extent is about 128 or less, so libraries use special
    kernels.

    Derived from the FLOPs per byte, which a recording contains: twice their ratio is 1 / (1/m + 1/n
    + 1/k).
    """
    is_narrow = 2 * np.asarray(flops) < _NARROW_EXTENT * np.asarray(touched_bytes)
    return np.where(is_narrow, NARROW, "product")
