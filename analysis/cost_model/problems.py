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
        arrays = np.broadcast_arrays(
            *(np.asarray(getattr(self, f.name), np.float64) for f in fields(self))
        )
        for extent, array in zip(fields(self), arrays, strict=True):
            object.__setattr__(self, extent.name, np.atleast_1d(array))


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
        return np.floor((self.h + 2 * self.pad_h - self.r) / self.stride_h) + 1

    @property
    def q(self) -> Floats:
        """Output width."""
        return np.floor((self.w + 2 * self.pad_w - self.s) / self.stride_w) + 1

    @property
    def flops(self) -> Floats:
        """FLOPs of the direct algorithm; one FMA is two. The same for all three phases."""
        return 2 * self.n * self.k * self.group_c * self.r * self.s * self.p * self.q

    @property
    def input_bytes(self) -> Floats:
        """Size of the input."""
        return ITEM_BYTES * self.n * self.c * self.h * self.w

    @property
    def touched_bytes(self) -> Floats:
        """Bytes of the input that a convolution reads: a stride larger than the kernel skips whole
        rows.
        """
        return self.input_bytes * np.minimum(1.0, self.r / self.stride_h)

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
        return Convolutions(
            self.n, self.k, self.p, self.q, self.c, self.r, self.s,
            self.r - 1 - self.pad_h, self.s - 1 - self.pad_w, ones, ones,
        )  # fmt: skip


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
        return ITEM_BYTES * self.count * (self.m * self.k + self.k * self.n + self.m * self.n)


def product_kinds(flops: Floats | float, touched_bytes: Floats | float) -> npt.NDArray[np.str_]:
    """Which matrix products are narrow: some extent is about 128 or less, so libraries use special
    kernels.

    Derived from the FLOPs per byte, which a recording contains: twice their ratio is 1 / (1/m + 1/n
    + 1/k).
    """
    return np.where(
        2 * np.asarray(flops) < _NARROW_EXTENT * np.asarray(touched_bytes), NARROW, "product"
    )
