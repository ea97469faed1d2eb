"""What glibc does with memory that a process frees, as far as it can be set while the process runs.

It maps a block above a threshold by itself and unmaps it when it is freed, so that the next use
takes a page fault for each 4 KiB again. The threshold follows the largest block freed so far, up to
32 MiB, until a program sets it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

# Numbers of malloc.h.
_TRIM_THRESHOLD = -1
_TOP_PAD = -2
_MMAP_THRESHOLD = -3
_MMAP_MAX = -4
_DEFAULT_MMAP_MAX = 65_536
_SMALLEST_THRESHOLD, LARGEST_THRESHOLD = 128 << 10, 32 << 20  # bytes
# a step causes some hundred page faults anyway; 1024 of 4 KiB are one large tensor
FEW_FAULTS = 1024
VARIABLES = (
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_MAX_",
    "MALLOC_TOP_PAD_",
    "GLIBC_TUNABLES",
)
# What keeps all freed memory from the start of a process: no block below 2 GiB is mapped by itself,
# nothing is given back, and growth takes 64 MiB at a time.
_NEVER_MMAP_BYTES = 2**31 - 1
_AHEAD_BYTES = 64 << 20
KEEPING = {
    "MALLOC_MMAP_THRESHOLD_": str(_NEVER_MMAP_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),  # more than any process has
    "MALLOC_TOP_PAD_": str(_AHEAD_BYTES),
}
_SETTINGS = " ".join(f"{name}={value}" for name, value in KEEPING.items())
HOW_TO_KEEP = (
    f"{_SETTINGS} in the environment of the process (glibc); the process then holds its peak "
    "memory to its end"
)
_threshold_bytes = LARGEST_THRESHOLD
_occupied: list[int] = []  # addresses of blocks that nothing uses


def can_change() -> bool:
    """Whether the process uses glibc, and nothing in its environment sets the thresholds."""
    glibc = all(hasattr(_library(), name) for name in ("gnu_get_libc_version", "mallinfo2"))
    return glibc and not any(name in os.environ for name in VARIABLES)


def reason_against_change() -> str | None:
    """The reason why this process cannot change what glibc keeps, as a clause; None if it can."""
    if can_change():
        return None
    return "the C library is not glibc, or its thresholds are set in the environment"


def keep_all_memory() -> bool:
    """Do for the rest of this process what the variables of `KEEPING` do from its start; returns
    whether that worked.

    Until version 2.34, glibc refuses a threshold above 32 MiB.
    """
    library = _library()
    settings = (
        (_MMAP_THRESHOLD, _NEVER_MMAP_BYTES),
        (_TRIM_THRESHOLD, -1),
        (_TOP_PAD, _AHEAD_BYTES),
    )
    return all(library.mallopt(name, value) == 1 for name, value in settings)


def hold_thresholds(block_bytes: Iterable[int]) -> None:
    """Set the thresholds for the rest of the process to what glibc chooses once it has freed such
    blocks, up to 32 MiB.

    Else they depend on what the process did before, and a first call of `keep_freed_memory` would
    change them.
    """
    global _threshold_bytes
    smaller = [size for size in block_bytes if size <= LARGEST_THRESHOLD]
    _threshold_bytes = max([_SMALLEST_THRESHOLD, *smaller])
    library = _library()
    library.mallopt(_MMAP_THRESHOLD, _threshold_bytes)
    library.mallopt(_TRIM_THRESHOLD, 2 * _threshold_bytes)


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Let the process keep all memory that it frees; at the end give it back to the system.

    A program gets a free block between blocks in use, without pages, instead of a new mapping, and
    the process keeps it when it is freed. So those above the threshold are occupied until the next
    call.
    """
    library = _library()
    while _occupied:
        library.free(ctypes.c_void_p(_occupied.pop()))
    library.mallopt(_MMAP_MAX, 0)
    library.mallopt(_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        library.mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)
        library.mallopt(_TRIM_THRESHOLD, 2 * _threshold_bytes)
        library.malloc_trim(0)
        _occupy_free_blocks(library)


def _occupy_free_blocks(library: Any) -> None:
    library.mallinfo2.restype = _MallocInfo
    library.malloc.restype = ctypes.c_void_p
    while True:  # without touching them
        mapped = library.mallinfo2().hblks
        block = library.malloc(ctypes.c_size_t(_threshold_bytes))
        if (
            block is None or library.mallinfo2().hblks != mapped
        ):  # a new mapping: no free block was left
            library.free(ctypes.c_void_p(block))
            return
        _occupied.append(block)


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of malloc.h; hblks is the number of blocks that are mapped by
    themselves.
    """

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *(
            (name, ctypes.c_size_t)
            for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
        ),
    )


def _library() -> Any:
    return ctypes.CDLL(None)
