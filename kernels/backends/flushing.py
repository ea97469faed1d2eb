"""Drives everything else out of a device's caches, by a buffer that all its processors go through."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..timers import Run

# Where the size of the last-level cache is not told: larger than any so far (AMD's 3D caches hold 96 MB per die,
# Hopper's L2 50 MB); twice this is what triton.testing.do_bench takes.
_UNKNOWN_CACHE_BYTES = 128_000_000


class Flush:
    """Goes through a buffer twice the size of the last-level cache; the buffer is made at the first call.

    Attributes:
        cost_ns: what a flush takes; 0 before the first.
    """

    def __init__(self, make: Callable[[int], Run], cache_bytes: int | None, synchronize: Run) -> None:
        """Say how.

        Args:
            make: given a number of bytes, makes a zeroed buffer and returns what reads and writes all of it, on every
                processor: a plain fill may go past the caches with streaming stores, and leave them as they were.
            cache_bytes: size of the last-level cache; null where it is not told.
            synchronize: waits for the device.
        """
        self._make, self._synchronize = make, synchronize
        self._bytes = 2 * (cache_bytes or _UNKNOWN_CACHE_BYTES)
        self._run: Run | None = None
        self.cost_ns = 0

    def __call__(self) -> None:
        """Flush; on a device it is only asked for, in the stream of the work."""
        if self._run is None:
            self._run = self._make(self._bytes)
            self._run()  # its pages are there, and its code compiled, from now on
            self._synchronize()
            began = time.perf_counter_ns()
            self._run()
            self._synchronize()
            self.cost_ns = time.perf_counter_ns() - began
        self._run()
