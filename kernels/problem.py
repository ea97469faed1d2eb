"""What all operator problems share: a label, FLOPs and bytes, random operands, and a check against
float64.

Operands are standard normal and rounded to the problem's precision, so the reference starts from
the kernel's numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from ..base.errors import CurvescopeError
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS, precision_of

Array = npt.NDArray[Any]

# The largest of 10⁸ normally distributed errors lies within 6 standard deviations; Winograd's
# transforms cost more.
_ALLOWED_ROUNDOFFS = 16
# Checking every element in float64 costs as much as the problem itself; larger problems are checked
# on projections.
FULL_CHECK_FLOPS = 4_000_000_000


class Problem(Protocol):
    """One operator at one shape and precision, a key of `PRECISIONS`."""

    @property
    def precision(self) -> str:
        """A key of `PRECISIONS`."""

    @property
    def label(self) -> str:
        """One-line name of the problem."""

    @property
    def work(self) -> Work:
        """FLOPs of the direct algorithm, and compulsory bytes."""

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:
        """Random operands, rounded to the precision."""

    def error(self, operands: tuple[Array, ...], result: Array) -> Error | None:
        """Error against the float64 reference; None where nothing can be compared."""


class Labelled:
    """Base of the problems that can be swept along an axis."""

    template: ClassVar[str]  # of the label, with the names of fields

    @property
    def has_several(self) -> bool:
        """Whether it is several operators, which a library may fuse to one kernel."""
        return False

    @property
    def label(self) -> str:
        """One-line name of the problem."""
        return self.label_along("")

    def label_along(self, axis: str) -> str:
        """The common label of all problems along an axis, with * for its value."""
        return self._fill_template(self.template, axis)

    def _fill_template(self, template: str, axis: str) -> str:
        return template.format_map({**vars(self), axis: "*"})


@dataclass(frozen=True)
class Error:
    """The largest error of a result and the allowed one, both in its unit; NaN if it has NaN.

    `projected` if sums of elements with random signs were compared instead of single elements.
    """

    largest: float
    allowed: float
    projected: bool = False

    @property
    def acceptable(self) -> bool:
        """Whether the result counts as correct."""
        return self.largest <= self.allowed


def check_precision(what: str, precision: str, allowed: Sequence[str], joined: str = ", ") -> None:
    """Raise an error unless a problem is measured in the precision."""
    if precision_of(precision) and precision not in allowed:
        raise CurvescopeError(f"{what} measured in {joined.join(allowed)}.")


def normal(generator: np.random.Generator, shape: tuple[int, ...], precision: str) -> Array:
    """Standard normal numbers that the precision holds exactly (int8: whole ones); float64 for
    fp64, else float32.
    """
    if precision == "fp64":
        return generator.standard_normal(shape)
    values = generator.standard_normal(shape, np.float32)
    if precision == "fp16":
        return values.astype(np.float16).astype(np.float32)
    if precision == "bf16":
        bits = values.view(np.uint32)
        # To nearest, ties to even: add half of what is cut off, a hair less where the kept last bit
        # is 0.
        last_kept = (bits >> np.uint32(16)) & np.uint32(1)
        bits += np.uint32(0x7FFF) + last_kept
        bits &= np.uint32(0xFFFF0000)
    if precision == "fp8":
        return round_to_e4m3(values)
    return np.rint(values) if precision == "int8" else values


def round_to_e4m3(values: Array) -> Array:
    """The nearest numbers of E4M3 to ones of at most 448, ties to even: 3 stored bits, exponents
    from -6.
    """
    with np.errstate(divide="ignore"):
        logarithm = np.log2(np.abs(values))
    exponent = np.maximum(np.floor(logarithm), -6)
    unit = np.exp2(exponent - 3).astype(values.dtype)
    return np.asarray(np.rint(values / unit) * unit)


def bound_error(precision: str, terms: int) -> float:
    """Largest allowed error of a sum of `terms` products of standard normal numbers; its root mean
    square is √terms.
    """
    return bound_relative_error(precision, terms) * float(terms**0.5)


def bound_relative_error(precision: str, terms: float) -> float:
    """The same as a share of that root mean square.

    Roundoff of a running sum grows as a random walk over partial sums that themselves grow with
    √terms.
    """
    p = PRECISIONS[precision]
    of_sum = p.sum_roundoff * terms**0.5
    return float(_ALLOWED_ROUNDOFFS * (p.result_roundoff + p.operand_roundoff + of_sum))


def share_to_check(work: Work) -> float:
    """The share of a problem's work that is checked in float64; 1 for all."""
    return min(1.0, FULL_CHECK_FLOPS / (work.flops or 1))


def can_check_all(work: Work) -> bool:
    """Whether every element is checked in float64, not projections."""
    return share_to_check(work) == 1


def in_float64(arrays: Iterable[Array]) -> Iterator[Array]:
    """Operands as their reference takes them."""
    return (array.astype(np.float64) for array in arrays)


def compare(result: Array, reference: Array, allowed: float, projected: bool = False) -> Error:
    """Compare a result with its reference; a wrong shape counts as an infinite error."""
    if result.shape != reference.shape:
        return Error(float("inf"), allowed, projected)
    largest = np.abs(result - reference).max(initial=0.0)
    return Error(float(largest), allowed, projected)


def softmax(scores: Array) -> Array:
    """Softmax of each row."""
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def random_signs(size: int) -> Array:
    """±1 in float64, the same for the same size: weights that combine many elements into one sum
    without losing any.
    """
    return np.random.default_rng(size).choice(np.array([-1.0, 1.0]), size)
