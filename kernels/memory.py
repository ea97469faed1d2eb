"""Memory traffic: STREAM's four kernels, reads alone and writes alone, with a stride, at any size.

Bytes are counted as STREAM does (https://www.cs.virginia.edu/stream/ref.html): the kernel's reads
and writes, without the lines that a cache fetches before writing them. With a stride, only accessed
elements count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..base.errors import CurvescopeError, check_choice
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS
from .problem import (
    Array,
    Error,
    Labelled,
    check_precision,
    compare,
    in_float64,
    normal,
)

SCALAR = 3.0  # the value in STREAM
PRECISIONS_HERE = ("fp32", "fp64")
_LARGEST = 8  # of the whole numbers of a sum: partial sums stay below 2^24, so fp32 holds them


class Kind(NamedTuple):
    """Number of arrays read and written, and FLOPs per element."""

    reads: int
    writes: int
    flops: int


KINDS = {
    "copy": Kind(1, 1, 0),  # a = b
    "scale": Kind(1, 1, 1),  # a = s b
    "add": Kind(2, 1, 1),  # a = b + c
    "triad": Kind(2, 1, 2),  # a = b + s c
    "read": Kind(1, 0, 1),  # sum of b
    "write": Kind(0, 1, 0),  # a = s
}


@dataclass(frozen=True)
class Memory(Labelled):
    """One pass over the arrays, of a kind in `KINDS`."""

    kind: str
    size: int  # bytes of all arrays, with elements that a stride skips
    stride: int = 1  # distance in elements between accessed elements
    precision: str = "fp32"

    def __post_init__(self) -> None:
        check_choice("kind of memory kernel", self.kind, KINDS)
        check_precision("Memory kernels are", self.precision, PRECISIONS_HERE, " or ")
        if self.stride < 1 or self.elements < 1:
            why = "at least one element of each array and a stride of 1 are needed"
            raise CurvescopeError(f"{self.label}: {why}.")

    def label_along(self, axis: str) -> str:
        """E.g. `memory triad 98304 B fp32`."""
        strided = " stride {stride}" if self.stride > 1 or axis == "stride" else ""
        return self._fill_template(f"memory {{kind}} {{size}} B{strided} {{precision}}", axis)

    @property
    def elements(self) -> int:
        """Number of accessed elements in each array."""
        return self.size // (self._bytes_of_pass * max(self.stride, 1))

    @property
    def work(self) -> Work:
        flops = KINDS[self.kind].flops
        return Work(flops * self.elements, self._bytes_of_pass * self.elements)

    @property
    def _bytes_of_pass(self) -> int:
        """Bytes of one element of all arrays."""
        reads, writes, _ = KINDS[self.kind]
        return (reads + writes) * PRECISIONS[self.precision].item_bytes

    def repeats(self, least_bytes: int) -> int:
        """Number of passes that move at least this many bytes."""
        return max(1, -(-least_bytes // (self.work.bytes_compulsory or 1)))

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:
        """The arrays to read, including elements that the stride skips.

        Those of a sum are whole: it is exact in any order, so it proves that each was read.
        """
        shape = (self.elements * self.stride,)
        if self.kind == "read":
            dtype = PRECISIONS[self.precision].torch_dtype
            return (generator.integers(-_LARGEST, _LARGEST + 1, shape, np.int8).astype(dtype),)
        reads = KINDS[self.kind].reads
        return tuple(normal(generator, shape, self.precision) for _ in range(reads))

    def reference(self, operands: tuple[Array, ...]) -> Array:
        """In float64: the written elements that are accessed, or the sum of the read ones, shape
        (1,).
        """
        arrays = list(in_float64(array[:: self.stride] for array in operands))
        if self.kind == "write":
            return np.full(self.elements, SCALAR)
        if self.kind == "read":
            return np.asarray([arrays[0].sum()])
        scale = SCALAR if self.kind in ("scale", "triad") else 1.0
        if len(arrays) == 1:
            return arrays[0] * scale
        return arrays[0] + scale * arrays[1]

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against the reference; allowed: none for a copy and a sum of whole numbers, two
        roundings for arithmetic.
        """
        reference = self.reference(operands)
        if self.kind in ("copy", "read", "write"):
            return compare(result, reference, 0.0)
        roundoff = PRECISIONS[self.precision].result_roundoff
        largest = float(np.abs(reference).max())
        return compare(result, reference, 4 * roundoff * largest)
