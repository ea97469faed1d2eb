"""The one door to the native library: its C boundary, typed.

The library is plain C behind ctypes, so that one build serves every Python and can be injected into any process.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from .errors import BackendMissingError

LIBRARY_NAME = "libcurvescope_collector.so"
READER_NAME = "libcurvescope_reader.so"


def library_path(name: str = LIBRARY_NAME) -> Path:
    """Where a library, by default the collector, lies: beside this module, in wheels and in editable installs alike.

    Raises:
        BackendMissingError: the package was installed without its native build.
    """
    from . import __path__ as folders

    for folder in map(Path, folders):
        if (folder / name).is_file():
            return folder / name
    raise BackendMissingError(
        f"{name} is not installed beside {Path(__file__).parent}: reinstall with `pip install .` "
        "on a machine with a C++17 compiler, or install the wheel."
    )


@cache
def load() -> ctypes.CDLL:
    """The loaded library, its functions declared."""
    library = ctypes.CDLL(str(library_path()))
    library.curvescope_clock_ns.argtypes = []
    library.curvescope_clock_ns.restype = ctypes.c_int64
    library.curvescope_record_start.argtypes = [ctypes.c_char_p]
    library.curvescope_record_start.restype = ctypes.c_int
    library.curvescope_record_stop.argtypes = []
    library.curvescope_record_stop.restype = None
    return library


@cache
def load_reader() -> ctypes.CDLL | None:
    """The library that reads SQLite tables and JSON traces, its functions declared; null where it was not built."""
    try:
        library = ctypes.CDLL(str(library_path(READER_NAME)))
    except (BackendMissingError, OSError):
        return None
    pointers = ctypes.POINTER(ctypes.c_void_p)
    library.curvescope_table_scan_open.argtypes = [
        ctypes.c_char_p,
        ctypes.c_int64,
        ctypes.c_int32,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    library.curvescope_table_scan_open.restype = ctypes.c_void_p
    library.curvescope_table_scan_next.argtypes = [ctypes.c_void_p, ctypes.c_int64, pointers, pointers]
    library.curvescope_table_scan_next.restype = ctypes.c_int64
    library.curvescope_table_scan_text.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.curvescope_table_scan_text.restype = ctypes.c_void_p
    library.curvescope_table_scan_close.argtypes = [ctypes.c_void_p]
    library.curvescope_table_scan_close.restype = None
    handle, whole, bytes_of = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_char_p
    functions: dict[str, tuple[Any, list[Any]]] = {
        "open": (handle, [ctypes.c_int32, ctypes.POINTER(bytes_of), bytes_of, bytes_of]),
        "next": (
            ctypes.c_int64,
            [handle, bytes_of, ctypes.c_int64, ctypes.c_uint8, whole, whole, ctypes.POINTER(ctypes.c_uint8)],
        ),
        "values": (ctypes.c_void_p, [handle, ctypes.c_int32]),
        "valid": (ctypes.c_void_p, [handle, ctypes.c_int32]),
        "odd": (ctypes.c_void_p, [handle]),
        "texts": (ctypes.c_int64, [handle]),
        "text": (ctypes.c_void_p, [handle, ctypes.c_int64, whole]),
        "close": (None, [handle]),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(library, f"curvescope_event_scan_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def demangle(name: str) -> str:
    """The C++ name behind a mangled one; the name itself where it is none."""
    if not name.startswith("_Z"):
        return name
    # Not ours: the C++ library that the collector is linked to exports it.
    function, free = load()["__cxa_demangle"], load()["free"]
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    function.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    status = ctypes.c_int()
    found = function(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return name
    try:
        return ctypes.string_at(found).decode("utf-8", errors="replace")
    finally:
        free(found)


def clock_ns() -> int:
    """CLOCK_MONOTONIC in nanoseconds, the clock every recorded time is aligned to."""
    return int(load().curvescope_clock_ns())


def record_start(folder: Path) -> bool:
    """Record this process into chunk files in `folder`; false where it is being recorded already."""
    return bool(load().curvescope_record_start(str(folder).encode()))


def record_stop() -> None:
    """End the recording; when this returns, everything is in the folder."""
    load().curvescope_record_stop()
