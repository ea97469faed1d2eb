"""Flushes a device's caches by reading and writing a large buffer on all its processors."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from ...profiling.attribution.events import StepRows
from ..timers import Run

# Used if the size of the last-level cache is unknown: larger than any so far (AMD's 3D caches hold 96 MB per die,
# Hopper's L2 50 MB). Twice this size is the buffer of triton.testing.do_bench.
_UNKNOWN_CACHE_BYTES = 128_000_000


def run_in_turn(*runs: Run) -> Run:
    """A function that runs several, one after the other."""

    def run() -> None:
        for each in runs:
            each()

    return run


class FlushingBackend(ABC):
    """Base of all backends: a cache flush with a buffer of twice the last-level cache, allocated at the first flush.

    Attributes:
        cache_bytes: size of the last-level cache; a large one if it is unknown.
        flush_ns: duration of a flush; 0 before the first.
    """

    def __init__(self, cache_bytes: int | None) -> None:
        """Create the backend.

        Args:
            cache_bytes: size of the last-level cache; None if unknown.
        """
        self.cache_bytes = cache_bytes or _UNKNOWN_CACHE_BYTES
        self._flush_bytes = 2 * self.cache_bytes
        self._flush: Run | None = None
        self.flush_ns = 0

    def flush(self) -> None:
        """Flush; on a GPU the flush is only queued, in the stream of the work."""
        if self._flush is None:
            self._flush = self._buffer_pass(self._flush_bytes)
            self._flush()
            # From now on its pages are mapped and its code is compiled.
            self._synchronize()
            began = time.perf_counter_ns()
            self._flush()
            self._synchronize()
            self.flush_ns = time.perf_counter_ns() - began
        self._flush()

    def record(self, run: Run, layer: str | None, phase: str | None) -> StepRows | None:  # noqa: ARG002
        """No profile: only the torch backend has a profiler; the kernels of the others are timed alone."""
        return None

    @abstractmethod
    def _buffer_pass(self, size_bytes: int) -> Run:
        """Allocate a zeroed buffer and return a function that reads and writes all of it on every processor.

        A plain fill does not serve: it may use streaming stores, which bypass the caches. On a GPU the function ends
        with a pass that only reads: else L2 is full of changed lines, and every line that the timed kernel brings in
        first writes one of them back.
        """

    def _synchronize(self) -> None:  # noqa: B027 - nothing to do on a CPU
        """Wait for the device."""
