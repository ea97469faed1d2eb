"""Standard output is for results: what a user's own code prints goes to standard error."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Send to standard error what the block and the processes that it starts print on standard output, also from C."""
    sys.stdout.flush()
    kept = None
    with suppress(OSError):  # standard output is closed
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            ctypes.CDLL(None).fflush(None)  # what C has buffered
            os.dup2(kept, 1)
            os.close(kept)
