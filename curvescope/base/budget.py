"""What reading one file may take in all: computing time, steps, and bytes that it unfolds to.

`limits` bounds what a file holds. A budget bounds what the parts of a file make together, e.g. a
text that a million rows share: no count of parts shows that. A reader charges what grows faster
than the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from .errors import CurvescopeError
from .limits import (
    READ_BYTES_PER_BYTE,
    READ_CPU_S,
    READ_CPU_S_PER_MIB,
    READ_FREE_BYTES,
    READ_FREE_STEPS,
    READ_STEPS_PER_BYTE,
    say_how_to_raise,
    times,
)

_LONG_TEXT = 1000  # characters; names and layers of real profiles are shorter, but for a few


class Budget:
    """The budget of one read; every charge raises `CurvescopeError` once any part is spent."""

    def __init__(self, clock_s: Callable[[], float] = time.process_time) -> None:
        """Begin a read; the clock gives CPU seconds of this process."""
        self._clock_s = clock_s
        self._times = times(1)  # read once: a reader charges as often as a file has lines
        self._began_s = clock_s()
        self._packed_bytes = self._content_bytes = 0
        self._steps = self._unfolded_bytes = 0

    def begin_file(self, size_bytes: int) -> None:
        """Add one more file, as large as it is on disk."""
        self._packed_bytes += size_bytes
        self.note_content(size_bytes)

    def note_content(self, size_bytes: int) -> None:
        """Note so many bytes of unpacked content."""
        self._content_bytes = max(self._content_bytes, size_bytes)
        self.check_time()

    def check_time(self) -> None:
        """Refuse a read that has taken its computing time."""
        most_s = self._times * (READ_CPU_S + READ_CPU_S_PER_MIB * (self._packed_bytes >> 20))
        if self._clock_s() - self._began_s > most_s:
            raise self._refusal(f"{most_s:,} seconds of computing")

    def take_steps(self, count: int) -> None:
        """Charge so many steps of a search or of a chain of references."""
        self._steps += count
        most = self._times * max(READ_FREE_STEPS, READ_STEPS_PER_BYTE * self._content_bytes)
        if self._steps > most:
            raise self._refusal(f"{most:,} steps through its references")
        self.check_time()

    def take_bytes(self, count: int) -> None:
        """Charge so many bytes that parts of the file unfold to."""
        self._unfolded_bytes += count
        most = self._times * max(READ_FREE_BYTES, READ_BYTES_PER_BYTE * self._content_bytes)
        if self._unfolded_bytes > most:
            raise self._refusal(f"{most >> 20:,} MiB of memory")
        self.check_time()

    def take_texts(self, texts: Iterable[str | None]) -> None:
        """Charge the long texts of rows, each as often as it comes: a reader copies each."""
        self.take_bytes(sum(len(text) for text in texts if text and len(text) > _LONG_TEXT))

    def _refusal(self, what: str) -> CurvescopeError:
        return CurvescopeError(
            f"reading it takes more than {what}, out of proportion to its "
            f"{self._packed_bytes:,} bytes. {say_how_to_raise()}"
        )
