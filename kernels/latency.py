"""Latency of the memory levels, by a chain of dependent loads: each loads the index of the next.

The items form one random cycle, which no prefetcher predicts. Beyond the reach of the TLB its
misses are in the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..base.errors import CurvescopeError
from ..profiling.attribution.operation import Work
from .problem import Array, Error, Labelled, compare

# Cache line of x86 and most ARM cores. NVIDIA's L2 has 32-byte sectors in 128-byte lines, so two
# items share a line.
LINE_BYTES = 64
ITEM_BYTES = 8
# Takes some microseconds in L1, some milliseconds in DRAM. A run goes on where the last one ended,
# so that runs visit the complete buffer before they meet a line again.
LOADS = 20_000


@dataclass(frozen=True)
class Latency(Labelled):
    """A pointer chase of `loads` loads through a buffer of `size` bytes.

    The precision has no effect, as 64-bit indices are loaded; other problems need it.
    """

    size: int
    loads: int = LOADS
    precision: str = "fp64"
    template = "latency {size} B"

    def __post_init__(self) -> None:
        if self.size < 2 * LINE_BYTES or self.loads < 1:
            raise CurvescopeError(
                f"A pointer chase needs at least {2 * LINE_BYTES} bytes and one load."
            )

    @property
    def work(self) -> Work:
        """No FLOPs; the bytes of the visited items."""
        return Work(0, ITEM_BYTES * min(self.loads, self.lines))

    @property
    def parts(self) -> tuple[int, str]:
        """The unit for reporting: number of loads and its name."""
        return self.loads, "load"

    @property
    def lines(self) -> int:
        """Number of cache lines of the buffer."""
        return self.size // LINE_BYTES

    @cached_property
    def order(self) -> Array:
        """Indices of the lines in the order of the chain, from the first on; int64."""
        rest = np.random.default_rng(self.size).permutation(np.arange(1, self.lines))
        return np.concatenate([[0], rest]).astype(np.int64)

    def operands(self, generator: np.random.Generator) -> tuple[Array]:  # noqa: ARG002 - the order has a fixed seed
        """The buffer: the first item of every line holds the index of the next line's; int64."""
        step = LINE_BYTES // ITEM_BYTES
        buffer = np.zeros(self.lines * step, np.int64)
        buffer[self.order * step] = np.roll(self.order, -1) * step
        return (buffer,)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:  # noqa: ARG002 - implied by the order
        """Distance in lines between the end of the chain, an index of shape (1,), and the expected
        end.
        """
        last = self.order[self.loads % self.lines] * (LINE_BYTES // ITEM_BYTES)
        return compare(result, np.asarray([float(last)]), 0.0)
