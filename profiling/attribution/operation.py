"""An operator call as a profiler recorded it, its least work, and the batch size that its shapes
tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import prod
from typing import Any, NamedTuple

Shape = Sequence[int]
# Operators with an operand that has the batch as its first extent.
_BATCH_OPERAND = re.compile(
    r"(?:aten::)?(?:_?convolution|cudnn_convolution|conv[123]d|linear|matmul|addmm|mm)|triton_\w+"
)

# torch's types of elements: number and name of the scalar type (c10/core/ScalarType.h), name of the
# C++ type, bytes.
_TYPES = (
    *((0, "Byte", "unsigned char", 1), (1, "Char", "signed char", 1), (11, "Bool", "bool", 1)),
    *((2, "Short", "short", 2), (27, "UInt16", "unsigned short", 2)),
    *((3, "Int", "int", 4), (28, "UInt32", "unsigned int", 4)),
    *((4, "Long", "long", 8), (4, "Long", "long int", 8), (29, "UInt64", "unsigned long", 8)),
    *((5, "Half", "c10::Half", 2), (15, "BFloat16", "c10::BFloat16", 2)),
    *((6, "Float", "float", 4), (7, "Double", "double", 8)),
    (9, "ComplexFloat", "c10::complex<float>", 8),
    (10, "ComplexDouble", "c10::complex<double>", 16),
)
_BYTES = {name: size for _, *names, size in _TYPES for name in names}
BYTES_BY_NUMBER = {number: size for number, _, _, size in _TYPES}


@dataclass(frozen=True)
class Work:
    """The least work of a call; None for unknown values."""

    flops: int | None  # FLOPs of the direct algorithm
    bytes_compulsory: int | None  # compulsory bytes
    # work of the results with kernels of their own, by name (`data` and `weights`, the gradients of
    # a convolution). Their FLOPs add up to the call's; their bytes to more, since each reads its
    # operands itself
    parts: tuple[tuple[str, Work], ...] = field(default=(), compare=False)


class BatchSource(IntEnum):
    """Source of a batch size; a higher one is more reliable."""

    MATRIX = 1  # the rows of a matrix product, which may be samples times tokens
    # the first extent of another operand with three or more dimensions, which may be tokens
    TENSOR = 2
    CONVOLUTION = 3  # the first extent of a convolution's input
    NAME = 4  # the name of a range


UNKNOWN = Work(None, None)


class Operation(NamedTuple):
    """An operator call as a profiler recorded it: per argument shape, type, scalar value and
    strides.
    """

    name: str
    shapes: Sequence[Any]
    dtypes: Sequence[str] = ()
    concrete: Sequence[Any] = ()
    strides: Sequence[Any] = ()
    # of a convolution's tensor that is no argument, see `convolution_shapes`; empty if unknown
    third: Shape = ()


@dataclass(frozen=True)
class Call:
    """The arguments of an operator call."""

    # per argument the tensor's shape; empty for scalars; a list of shapes for a list of tensors
    shapes: Sequence[Any]
    item_bytes: int  # bytes of one element of the first argument with a known type
    concrete: Sequence[Any]  # per argument the scalar value, or empty
    dtypes: Sequence[str] = ()  # per argument its type, or empty
    third: Shape = ()  # shape of a convolution's tensor that is no argument; empty if unknown

    def shape(self, index: int) -> Shape:
        """Shape of an argument; empty if it has none."""
        return self.shapes[index] if index < len(self.shapes) else ()

    def elements(self, index: int) -> int:
        """Number of elements of an argument; 0 if it has no shape."""
        if shape := self.shape(index):
            return prod(shape)
        return 0

    def value(self, index: int) -> Any:
        """Scalar value of an argument; None if it was not recorded."""
        value = self.concrete[index] if index < len(self.concrete) else None
        return None if value in ("", []) else value

    def traffic(self, *counts: int) -> int:
        """Bytes of the given numbers of elements."""
        return sum(counts) * self.item_bytes

    def size(self, *indices: int) -> int:
        """Bytes of arguments, each by its own type; 0 for those without a shape.

        ValueError: a type is unknown.
        """
        total = 0
        for index in indices:
            if shape := self.shape(index):
                dtype = self.dtypes[index] if index < len(self.dtypes) else ""
                if (size := element_bytes(dtype)) is None:
                    raise ValueError(f"the type {dtype!r} is unknown")
                total += prod(shape) * size
        return total


def element_bytes(dtype: str | None) -> int | None:
    """Bytes of an element of this type, by either of its names; None for unknown types."""
    if (dtype or "").removeprefix("c10::").startswith("Float8"):
        return 1
    return _BYTES.get(dtype or "")


def batch_of(op: str, shapes: Sequence[Any]) -> tuple[int, BatchSource] | None:
    """The batch size and what tells it: the first extent of the first operand, for `addmm` of the
    second; or None.
    """
    if _BATCH_OPERAND.fullmatch(op) is None:
        return None
    index = 1 if op.endswith("addmm") else 0
    shape = shapes[index] if len(shapes) > index else None
    if not isinstance(shape, (list, tuple)) or not shape:
        return None
    extent = shape[0]
    if not isinstance(extent, int) or not 0 < extent < 1 << 31:
        return None
    if "conv" in op:
        return extent, BatchSource.CONVOLUTION
    if len(shape) > 2:
        return extent, BatchSource.TENSOR
    if op.startswith("triton_"):
        return None
    return (extent, BatchSource.MATRIX)
