"""The one door to the native library: its C boundary, typed.

The library is plain C behind ctypes, so that one build serves every Python and can be injected into any process.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from .errors import BackendMissingError

LIBRARY_NAME = "libcurvescope_collector.so"


def library_path() -> Path:
    """Where the collector lies: beside this module, in wheels and in editable installs alike.

    Raises:
        BackendMissingError: the package was installed without its native build.
    """
    from . import __path__ as folders

    for folder in map(Path, folders):
        if (folder / LIBRARY_NAME).is_file():
            return folder / LIBRARY_NAME
    raise BackendMissingError(
        f"{LIBRARY_NAME} is not installed beside {Path(__file__).parent}: reinstall with `pip install .` "
        "on a machine with a C++17 compiler, or install the wheel."
    )


@cache
def load() -> ctypes.CDLL:
    """The loaded library, its functions declared."""
    library = ctypes.CDLL(str(library_path()))
    library.curvescope_clock_ns.argtypes = []
    library.curvescope_clock_ns.restype = ctypes.c_int64
    return library


def clock_ns() -> int:
    """CLOCK_MONOTONIC in nanoseconds, the clock every recorded time is aligned to."""
    return int(load().curvescope_clock_ns())
