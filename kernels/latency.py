"""Latency of the memory levels: a chain of dependent loads, each giving the place of the next.

The places lie a cache line apart, in an order that is one random cycle, so that no prefetcher knows the next one.
Beyond what the translation buffers reach, a load's time holds their misses too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..profiling.attribution.operator_work import Work
from ..profiling.errors import CurvescopeError
from .problem import Array, Error, compare

# Of x86 and most ARM cores; NVIDIA's L2 has sectors of 32 in lines of 128, so there two places share a line.
LINE_BYTES = 64
ITEM_BYTES = 8
# Some microseconds in L1, some milliseconds in DRAM; a multiple of no cycle's length.
LOADS = 20_000


@dataclass(frozen=True)
class Latency:
    """A chase through a buffer.

    Attributes:
        size: bytes of the buffer.
        loads: of the chain.
        precision: of nothing here; 64-bit indices are loaded.
    """

    size: int
    loads: int = LOADS
    precision: str = "fp64"

    def __post_init__(self) -> None:
        if self.size < 2 * LINE_BYTES or self.loads < 1:
            raise CurvescopeError(f"A chase needs {2 * LINE_BYTES} bytes and one load at least.")

    @property
    def label(self) -> str:
        """As in `latency 32768 B`."""
        return self.label_along("")

    def label_along(self, axis: str) -> str:
        """The label of all problems along an axis: * stands for its value."""
        return f"latency {'*' if axis == 'size' else self.size} B"

    @property
    def work(self) -> Work:
        """No arithmetic; bytes of the places that are visited."""
        return Work(0, ITEM_BYTES * min(self.loads, self.places))

    @property
    def parts(self) -> tuple[int, str]:
        """What the time is spoken of by: so many loads."""
        return self.loads, "load"

    @property
    def places(self) -> int:
        """Cache lines of the buffer."""
        return self.size // LINE_BYTES

    @cached_property
    def order(self) -> Array:
        """The places in the order they are visited, beginning with the first; int64."""
        rest = np.random.default_rng(self.size).permutation(np.arange(1, self.places))
        return np.concatenate([[0], rest]).astype(np.int64)

    def operands(self, generator: np.random.Generator) -> tuple[Array]:  # noqa: ARG002 - the order has its own seed
        """The buffer: in every line's first item the index of the next line's; int64."""
        step = LINE_BYTES // ITEM_BYTES
        buffer = np.zeros(self.places * step, np.int64)
        buffer[self.order * step] = np.roll(self.order, -1) * step
        return (buffer,)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:  # noqa: ARG002 - they follow from the order
        """The chain must end where the order says; its distance from there, in lines.

        Args:
            operands: the buffer.
            result: index of the item that the chain ended at, shape (1,).
        """
        last = self.order[self.loads % self.places] * (LINE_BYTES // ITEM_BYTES)
        return compare(result, np.asarray([float(last)]), 0.0)
