"""Limits of what a file may ask of its reader, in one place; `docs/importing.md` lists them.

A limit is on what is out of proportion to the file, or far beyond what any recorder writes, so that a small or broken
file takes neither all memory nor hours. `CURVESCOPE_LIMITS=4` in the environment makes every limit four times as large.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import CurvescopeError

VARIABLE = "CURVESCOPE_LIMITS"

META_BYTES = 16 << 20  # a `recording.json`; the largest of ours, of a hundred experiments, has 0.5 MB
# Unpacked bytes of gzip. It packs at most 1,032 times; profiles pack 10 to 40 times.
UNPACKED_RATIO = 200  # unpacked bytes of one packed byte
UNPACKED_FREE_BYTES = 1 << 30  # below this the ratio does not matter
UNPACKED_BYTES = 1 << 36


def times(limit: int) -> int:
    """A limit, as many times as large as the environment says."""
    text = os.environ.get(VARIABLE, "1")
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise CurvescopeError(f"{VARIABLE} is {text!r}: set it to a whole number from 1 to 1,000,000, or unset it.")
    return limit * int(text)


def check_limit(amount: float, limit: int, what: str) -> None:
    """Refuse more than a limit; `what` is a plural noun with its unit, e.g. "rows of a 900 kB part".

    CurvescopeError: the amount is larger. The message says how to raise the limit.
    """
    if amount > times(limit):
        raise CurvescopeError(
            f"it has {int(amount):,} {what}; at most {times(limit):,} are read, because no recorder writes more. If "
            f"you trust the file, set {VARIABLE}=10 in the environment, which makes every limit 10 times as large."
        )


def check_regular(path: Path) -> None:
    """Refuse what is no regular file: a pipe would be waited for, and a device may have no end.

    CurvescopeError: it is a pipe, a device, or a socket. OSError: it cannot be looked at.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder has a clear error of its own
        raise CurvescopeError("it is no regular file but a pipe, device or socket; give a file.")


def read_small(path: Path, limit: int, what: str) -> bytes:
    """The content of a regular file that is small; CurvescopeError if it is larger than the limit, or no file."""
    check_regular(path)
    check_limit(path.stat().st_size, limit, what)
    return path.read_bytes()
