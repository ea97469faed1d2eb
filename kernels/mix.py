"""Arithmetic between memory: each element is read, takes some multiply-adds, and is written.

Their number sets the FLOPs per byte. So the rates over it are the measured roof of the device, as
mixbench draws it (https://github.com/ekondis/mixbench).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..base.errors import CurvescopeError
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS
from .peak import end_of_chains
from .problem import Array, Error, Labelled, check_precision, compare, normal

PRECISIONS_HERE = ("fp32", "fp64")
FMAS = tuple(2**power for power in range(9))  # in fp32 0.25 to 64 FLOPs a byte


@dataclass(frozen=True)
class Mix(Labelled):
    """One pass over an array of half the size, into another one."""

    fmas: int  # of each element, one after the other
    size: int  # bytes of both arrays
    precision: str = "fp32"
    template = "mix {fmas} FMAs {size} B {precision}"

    def __post_init__(self) -> None:
        check_precision("Mixes are", self.precision, PRECISIONS_HERE, " or ")
        if self.fmas < 1 or self.elements < 1:
            raise CurvescopeError(f"{self.label}: one multiply-add and one element are needed.")

    @property
    def _item_bytes(self) -> int:
        return PRECISIONS[self.precision].item_bytes

    @property
    def elements(self) -> int:
        """Number of elements in each array."""
        return self.size // (2 * self._item_bytes)

    @property
    def flops_per_byte(self) -> float:
        """Two FLOPs of a multiply-add; an element is read and written."""
        return self.fmas / self._item_bytes

    @property
    def work(self) -> Work:
        return Work(2 * self.fmas * self.elements, 2 * self._item_bytes * self.elements)

    def operands(self, generator: np.random.Generator) -> tuple[Array]:
        """The array to read."""
        return (normal(generator, (self.elements,), self.precision),)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against the ends of the chains; allowed: some roundings, which each step halves."""
        reference = end_of_chains(operands[0], self.fmas)
        largest = max(1.0, float(np.abs(reference).max()))
        return compare(result, reference, 4 * PRECISIONS[self.precision].result_roundoff * largest)


@dataclass(frozen=True)
class Ridge:
    """Where the roof of the arithmetic meets that of the memory, by the best rate of each."""

    gflop_per_s: float
    gb_per_s: float

    @property
    def flops_per_byte(self) -> float:
        """FLOPs per byte from which on arithmetic is the limit."""
        return self.gflop_per_s / self.gb_per_s


def find_ridge(rates: Iterable[tuple[float, float]]) -> Ridge:
    """The ridge of measured pairs of GFLOP/s and GB/s."""
    gflop_per_s, gb_per_s = zip(*rates, strict=True)
    return Ridge(max(gflop_per_s), max(gb_per_s))
