"""Copies between the host's memory and the device's: what the link (PCIe or NVLink) and pageable
memory allow.

The device itself reads and writes pinned memory. The driver copies pageable memory through pinned
memory of its own. Bytes count once, where they cross the link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.errors import CurvescopeError, check_choice
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS
from .problem import Array, Error, Labelled, compare, normal

_ITEM_BYTES = PRECISIONS["fp32"].item_bytes
KINDS = ("to_device", "to_host")
HOSTS = ("pinned", "pageable")
SIZE = 1 << 27  # bytes: 2 to 8 ms over PCIe, so that the start of a copy does not count


@dataclass(frozen=True)
class Transfer(Labelled):
    """One copy of `size` bytes, of a kind in `KINDS`, with host memory of `HOSTS`."""

    kind: str = "to_device"
    host: str = "pinned"
    size: int = SIZE
    precision: str = "fp32"
    template = "transfer {kind} {host} {size} B"

    def __post_init__(self) -> None:
        check_choice("kind of copy", self.kind, KINDS)
        check_choice("host memory", self.host, HOSTS)
        if self.precision != "fp32" or self.size < _ITEM_BYTES:
            raise CurvescopeError(f"{self.label}: copies are of fp32 numbers, at least one.")

    @property
    def work(self) -> Work:
        return Work(0, self.size // _ITEM_BYTES * _ITEM_BYTES)

    def operands(self, generator: np.random.Generator) -> tuple[Array]:
        return (normal(generator, (self.size // _ITEM_BYTES,), "fp32"),)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against the numbers themselves; none is allowed."""
        return compare(result, operands[0].astype(np.float64), 0.0)
