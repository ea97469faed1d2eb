"""Flushes a device's caches by reading and writing a large buffer on all its processors."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..timers import Run

# Used if the size of the last-level cache is unknown: larger than any so far (AMD's 3D caches hold 96 MB per die,
# Hopper's L2 50 MB). Twice this size is the buffer of triton.testing.do_bench.
_UNKNOWN_CACHE_BYTES = 128_000_000


class Flush:
    """Cache flusher with a buffer of twice the last-level cache, allocated at the first call.

    Attributes:
        cost_ns: duration of a flush; 0 before the first.
    """

    def __init__(self, make: Callable[[int], Run], cache_bytes: int | None, synchronize: Run) -> None:
        """Create a cache flusher.

        Args:
            make: allocates a zeroed buffer of the given number of bytes and returns a function that reads and writes
                all of
                it on every processor. A plain fill may use streaming stores, which bypass the caches.
            cache_bytes: size of the last-level cache; None if unknown.
            synchronize: waits for the device.
        """
        self._make, self._synchronize = make, synchronize
        self._bytes = 2 * (cache_bytes or _UNKNOWN_CACHE_BYTES)
        self._run: Run | None = None
        self.cost_ns = 0

    def __call__(self) -> None:
        """Flush; on a GPU the flush is only queued, in the stream of the work."""
        if self._run is None:
            self._run = self._make(self._bytes)
            # from now on its pages are mapped and its code is compiled
            self._synchronize()
            began = time.perf_counter_ns()
            self._run()
            self._synchronize()
            self.cost_ns = time.perf_counter_ns() - began
        self._run()
