"""Copies between the host's memory and the device's: what the link (PCIe or NVLink) and pageable memory allow.

to_device   from the host's memory
to_host     to the host's memory

The host's memory is pinned, which the device reads and writes by itself, or pageable, which the driver copies through
pinned memory of its own. Bytes are counted once: those that cross the link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.errors import CurvescopeError
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS
from .problem import Array, Error, Labelled, compare, normal

KINDS = ("to_device", "to_host")
HOSTS = ("pinned", "pageable")
SIZE = 1 << 27  # bytes: 2 to 8 ms over PCIe, so that the start of a copy does not count


@dataclass(frozen=True)
class Transfer(Labelled):
    """One copy.

    Attributes:
        kind: one of `KINDS`.
        host: one of `HOSTS`.
        size: bytes.
        precision: number format of the copied numbers.
    """

    kind: str = "to_device"
    host: str = "pinned"
    size: int = SIZE
    precision: str = "fp32"

    def __post_init__(self) -> None:
        for value, choices, what in ((self.kind, KINDS, "kind of copy"), (self.host, HOSTS, "host memory")):
            if value not in choices:
                raise CurvescopeError(f"Unknown {what} {value!r}: choose from {', '.join(choices)}.")
        if self.precision != "fp32" or self.size < PRECISIONS["fp32"].item_bytes:
            raise CurvescopeError(f"{self.label}: copies are of fp32 numbers, at least one.")

    def label_along(self, axis: str) -> str:
        """E.g. `transfer to_device pinned 134217728 B`."""
        kind, host, size = ("*" if axis == name else getattr(self, name) for name in ("kind", "host", "size"))
        return f"transfer {kind} {host} {size} B"

    @property
    def work(self) -> Work:
        """The bytes that cross the link."""
        return Work(0, self.size // PRECISIONS["fp32"].item_bytes * PRECISIONS["fp32"].item_bytes)

    def operands(self, generator: np.random.Generator) -> tuple[Array]:
        """The numbers to copy."""
        return (normal(generator, (self.size // PRECISIONS["fp32"].item_bytes,), "fp32"),)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against the numbers themselves; none is allowed."""
        return compare(result, operands[0].astype(np.float64), 0.0)
