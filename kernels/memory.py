"""Memory traffic: STREAM's four kernels, reading alone and writing alone, with a stride, at any size.

Bytes are counted as STREAM counts them (McCalpin, https://www.cs.virginia.edu/stream/ref.html): what the kernel reads
and writes, not the lines that a cache fetches in order to write them; of a stride only the elements that are touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..profiling.attribution.operator_work import Work
from ..profiling.errors import CurvescopeError
from ..profiling.hardware.precisions import PRECISIONS, precision_of
from .problem import Array, Error, allowed_error, compare, normal

SCALAR = 3.0  # STREAM's own
PRECISIONS_HERE = ("fp32", "fp64")


class Kind(NamedTuple):
    """Arrays read and written, and FLOPs for each element."""

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
class Memory:
    """One pass over the arrays.

    Attributes:
        kind: a key of `KINDS`.
        size: bytes that all arrays span together, what a stride leaves out included.
        stride: every so many elements one is touched.
        precision: fp32 or fp64.
    """

    kind: str
    size: int
    stride: int = 1
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CurvescopeError(f"Unknown kind of memory kernel {self.kind!r}: choose from {', '.join(KINDS)}.")
        if precision_of(self.precision) and self.precision not in PRECISIONS_HERE:
            raise CurvescopeError(f"Memory kernels are measured in {' or '.join(PRECISIONS_HERE)}.")
        if self.stride < 1 or self.elements < 1:
            raise CurvescopeError(f"{self.label}: the size holds not one element of each array, or the stride is 0.")

    @property
    def label(self) -> str:
        """As in `memory triad 98304 B fp32`."""
        return self.label_along("")

    def label_along(self, axis: str) -> str:
        """The label of all problems along an axis: * stands for its value."""
        size, stride = ("*" if axis == name else getattr(self, name) for name in ("size", "stride"))
        strided = "" if stride == 1 else f" stride {stride}"
        return f"memory {self.kind} {size} B{strided} {self.precision}"

    @property
    def elements(self) -> int:
        """Elements touched in each array."""
        reads, writes, _ = KINDS[self.kind]
        return self.size // ((reads + writes) * PRECISIONS[self.precision].item_bytes * max(self.stride, 1))

    @property
    def work(self) -> Work:
        """By the kind: FLOPs and bytes of every touched element."""
        reads, writes, flops = KINDS[self.kind]
        item_bytes = PRECISIONS[self.precision].item_bytes
        return Work(flops * self.elements, (reads + writes) * item_bytes * self.elements)

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:
        """The arrays that are read, with what the stride leaves out."""
        length = self.elements * self.stride
        return tuple(normal(generator, (length,), self.precision) for _ in range(KINDS[self.kind].reads))

    def reference(self, operands: tuple[Array, ...]) -> Array:
        """The touched elements of what is written in float64, or the sum of what is read, shape (1,)."""
        touched = [array[:: self.stride].astype(np.float64) for array in operands]
        if self.kind == "write":
            return np.full(self.elements, SCALAR)
        if self.kind == "read":
            return np.asarray([touched[0].sum()])
        if self.kind == "copy":
            return touched[0]
        if self.kind == "scale":
            return SCALAR * touched[0]
        return touched[0] + (SCALAR if self.kind == "triad" else 1.0) * touched[1]

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Against the reference: a copy is exact, arithmetic within two roundings, a sum within those of its length."""
        reference = self.reference(operands)
        if self.kind in ("copy", "write"):
            return compare(result, reference, 0.0)
        if self.kind == "read":
            return compare(result, reference, allowed_error(self.precision, self.elements))
        roundoff = PRECISIONS[self.precision].result_roundoff
        return compare(result, reference, 4 * roundoff * float(np.abs(reference).max()))
