"""Standard output is for results: prints of a user's own code go to standard error."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO


@contextmanager
def redirect_output(stream: TextIO, descriptor: int) -> Iterator[list[bytes]]:
    """Redirect standard output or error of this process, also of its C code; yields the lines,
    empty until the end.
    """
    library, lines = ctypes.CDLL(None), list[bytes]()
    stream.flush()
    library.fflush(None)
    saved = os.dup(descriptor)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), descriptor)
        try:
            yield lines
        finally:
            stream.flush()
            library.fflush(None)
            os.dup2(saved, descriptor)
            os.close(saved)
            file.seek(0)
            lines += file


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Send to standard error what the block and the processes that it starts print on standard
    output, also from C.
    """
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
