"""Limits of the work that a file may ask of its reader, in one place.

A limit stops work out of proportion to the file, or far beyond any recorder's files. So a small or
broken file takes neither all memory nor hours. `CURVESCOPE_LIMITS=4` in the environment makes every
limit four times as large.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import CurvescopeError

VARIABLE = "CURVESCOPE_LIMITS"

# a `recording.json`; the largest of ours, of a hundred experiments, has 0.5 MB
META_BYTES = 16 << 20
# Unpacked bytes of gzip. It packs at most 1,032 times; profiles pack 10 to 40 times.
UNPACKED_RATIO = 200  # unpacked bytes of one packed byte
UNPACKED_FREE_BYTES = 1 << 30  # below this the ratio does not matter
UNPACKED_BYTES = 1 << 36
# A part of a table: rows packed to nothing take 8 bytes for each column in memory. A million
# launches of one kernel at even times, the most regular of ours, take 160 kB on disk.
PART_FREE_ROWS = 1 << 21
PART_ROWS_PER_BYTE = 8
# Its text, as often as rows name it: 300 characters of a name take half a byte on disk where rows
# repeat it.
PART_FREE_TEXT_BYTES = 1 << 28
PART_TEXT_PER_BYTE = 200
# Rows of the collector's chunk files: some column of a table differs from row to row, so a row
# takes bytes on disk, 4 and more for a kernel.
CHUNK_FREE_ROWS = 1 << 20
CHUNK_ROWS_PER_BYTE = 1
# Messages of an XSpace: an empty one takes 2 bytes, and hundreds in memory. Events of profilers
# take 20 and more.
XSPACE_FREE_EVENTS = 1 << 19
XSPACE_BYTES_PER_EVENT = 12
XSPACE_FREE_EMPTY = 1 << 16  # messages without a field
XSPACE_LINES = 1 << 16  # streams and threads
XSPACE_FREE_INNER = 1 << 14  # facts of an event, instructions of a module, and the like
XSPACE_BYTES_PER_INNER = 16
# A pickle: a list of nothing takes one byte, and 60 in memory. Memory snapshots have one for each
# 40 bytes.
PICKLE_BYTES = 1 << 31
PICKLE_FREE_CONTAINERS = 1 << 20
PICKLE_BYTES_PER_CONTAINER = 8
# Content that is read whole: what is packed more than this is unpacked by its owner first.
WHOLE_FREE_BYTES = 1 << 25
WHOLE_RATIO = 64  # unpacked bytes of one packed byte
# All of one read (`budget`). The slowest of our readers takes 0.1 s for a MiB on one core of 2020,
# and gzip packs 10 to 40 times.
READ_CPU_S = 8
READ_CPU_S_PER_MIB = 5  # of the file on disk
READ_FREE_STEPS = 1 << 22
READ_STEPS_PER_BYTE = 8
READ_FREE_BYTES = 1 << 28
READ_BYTES_PER_BYTE = 8
SERVER_STEPS = 5_000_000  # steps of one log of an inference server: fourteen hours of 10 ms each
PICKLE_OTHER_KEYS = 1000  # keys of dictionaries that are no texts


def times(limit: int) -> int:
    """A limit, as many times as large as the environment says."""
    text = os.environ.get(VARIABLE, "1")
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise CurvescopeError(
            f"{VARIABLE} is {text!r}: set it to a whole number from 1 to 1,000,000, or unset it."
        )
    return limit * int(text)


def check_limit(amount: float, limit: int, what: str) -> None:
    """Refuse more than a limit; `what` is a plural noun with its unit, e.g. "rows of a 900 kB
    part".

    CurvescopeError: the amount is larger. The message says how to raise the limit.
    """
    if amount > times(limit):
        raise CurvescopeError(
            f"it has {int(amount):,} {what}; at most {times(limit):,} are read, because no "
            f"recorder writes more. {say_how_to_raise()}"
        )


def say_how_to_raise() -> str:
    """How to raise the limits, a sentence."""
    return (
        f"If you trust the file, set {VARIABLE}=10 in the environment, which makes every limit 10 "
        "times as large."
    )


def check_regular(path: Path) -> None:
    """Refuse all but regular files: a pipe would be waited for, and a device may have no end.

    CurvescopeError: it is a pipe, a device, or a socket. OSError: it cannot be looked at.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(
        mode
    ):  # opening a folder has a clear error of its own
        raise CurvescopeError("it is no regular file but a pipe, device or socket; give a file.")


def read_small(path: Path, limit: int, what: str) -> bytes:
    """The content of a regular file that is small; CurvescopeError if it is larger than the limit,
    or no file.
    """
    check_regular(path)
    check_limit(path.stat().st_size, limit, what)
    return path.read_bytes()
