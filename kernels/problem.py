"""What every operator problem has: a label, its work, random operands, and a check against float64.

Operands are standard normal and already rounded to the problem's precision, so that the reference starts from the
very numbers that the kernel sees, and a result that sums `terms` products has a root mean square of √terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..profiling.attribution.operator_work import Work
from ..profiling.hardware.precisions import PRECISIONS

Array = npt.NDArray[Any]


# The largest of 10⁸ normally distributed errors lies within 6 standard deviations; Winograd's transforms cost more.
_ALLOWED_ROUNDOFFS = 16
# A check of every element in float64 costs as much as the problem itself; beyond this one it is done on projections.
FULL_CHECK_FLOPS = 4_000_000_000


class Problem(Protocol):
    """One operator at one shape and precision."""

    @property
    def precision(self) -> str:
        """A key of `PRECISIONS`."""

    @property
    def label(self) -> str:
        """The problem in a line."""

    @property
    def work(self) -> Work:
        """FLOPs of the direct algorithm, and compulsory bytes."""

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:
        """Random operands, rounded to the precision."""

    def error(self, operands: tuple[Array, ...], result: Array) -> Error | None:
        """How far the result is from the float64 reference; null where there is nothing to compare."""


@dataclass(frozen=True)
class Error:
    """The largest error of a result and what is allowed, in the result's own unit.

    Attributes:
        largest: over all elements; not a number where the result has one.
        allowed: by the roundoff of the precision.
        projected: whether sums of elements with random signs were compared, not each element.
    """

    largest: float
    allowed: float
    projected: bool = False

    @property
    def acceptable(self) -> bool:
        """Whether the result counts as correct."""
        return self.largest <= self.allowed


def normal(generator: np.random.Generator, shape: tuple[int, ...], precision: str) -> Array:
    """Standard normal numbers that the precision holds exactly: float64 for fp64, else float32."""
    if precision == "fp64":
        return generator.standard_normal(shape)
    values = generator.standard_normal(shape, np.float32)
    if precision == "fp16":
        return values.astype(np.float16).astype(np.float32)
    if precision == "bf16":
        bits = values.view(np.uint32)
        # To nearest, ties to even: add half of what is cut off, a hair less where the kept last bit is 0.
        bits += np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        bits &= np.uint32(0xFFFF0000)
    return values


def allowed_error(precision: str, terms: int) -> float:
    """The largest error of a sum of that many products of standard normal numbers.

    Roundoff of a running sum grows as a random walk over partial sums that themselves grow with √terms.
    """
    p = PRECISIONS[precision]
    relative = p.result_roundoff + p.operand_roundoff + p.sum_roundoff * terms**0.5
    return float(_ALLOWED_ROUNDOFFS * relative * terms**0.5)


def compare(result: Array, reference: Array, allowed: float, projected: bool = False) -> Error:
    """Hold a result against its reference; a shape that differs is infinitely wrong."""
    if result.shape != reference.shape:
        return Error(float("inf"), allowed, projected)
    return Error(float(np.abs(result - reference).max(initial=0.0)), allowed, projected)


def random_signs(size: int) -> Array:
    """±1 in float64, the same for the same size: weights that make one sum of many elements, none of them lost."""
    return np.random.default_rng(size).choice(np.array([-1.0, 1.0]), size)
