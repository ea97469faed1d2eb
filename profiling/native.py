"""Typed ctypes interface to the native libraries; no other module loads them.

The libraries have a plain C interface, so one build serves every Python and can be injected into
any process.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ..base.errors import BackendMissingError

LIBRARY_NAME = "libcurvescope_collector.so"


def library_path(name: str = LIBRARY_NAME) -> Path:
    """Path of a library (default: the collector), which is beside this module in wheels and in
    editable installs.

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
    """Load the collector library and declare its functions."""
    library = ctypes.CDLL(str(library_path()))
    library.curvescope_clock_ns.argtypes = []
    library.curvescope_clock_ns.restype = ctypes.c_int64
    library.curvescope_record_start.argtypes = [ctypes.c_char_p]
    library.curvescope_record_start.restype = ctypes.c_int
    library.curvescope_record_stop.argtypes = []
    library.curvescope_record_stop.restype = None
    for change in (library.curvescope_cupti_pause, library.curvescope_cupti_resume):
        change.argtypes, change.restype = [], ctypes.c_int
    library.curvescope_cupti_share.argtypes = [ctypes.c_int]
    library.curvescope_cupti_share.restype = None
    return library


@cache
def _demangler() -> tuple[Any, Any] | None:
    """The functions `__cxa_demangle` and `free` of a C++ library; None without one."""
    try:
        library = load()  # it is linked to one
    except (BackendMissingError, OSError):
        try:
            library = ctypes.CDLL("libstdc++.so.6")
        except OSError:
            return None
    function, free = library["__cxa_demangle"], library["free"]
    function.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_int),
    ]
    function.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return function, free


@lru_cache(maxsize=1 << 16)
def demangle(name: str) -> str:
    """Demangle a C++ name; other names, and all names without a C++ library, are returned
    unchanged.
    """
    if not name.startswith("_Z"):
        return name
    plain = name.removesuffix(".kd")  # ROCm's descriptor of a kernel
    if (
        (found := _demangle_name(plain)) is None
        and _BFLOAT16 in plain
        and (found := _demangle_name(plain.replace(_BFLOAT16, "Df")))
    ):
        found = found.replace("decimal32", "__bf16")
    return name if found is None else found


# Libraries before GCC 13 do not know the type bf16. Another built-in type that no GPU has stands
# for it.
_BFLOAT16 = "DF16b"


def _demangle_name(name: str) -> str | None:
    """The demangled name; None if no library can."""
    if (functions := _demangler()) is None:
        return None
    function, free = functions
    status = ctypes.c_int()
    if not (found := function(name.encode(), None, None, ctypes.byref(status))):
        return None
    try:
        return ctypes.string_at(found).decode("utf-8", errors="replace")
    finally:
        free(found)


def clock_ns() -> int:
    """CLOCK_MONOTONIC in nanoseconds, the clock of all recorded times."""
    return int(load().curvescope_clock_ns())


def record_start(folder: Path) -> bool:
    """Start to record this process into chunk files in `folder`; returns False if it is being
    recorded already.
    """
    return bool(load().curvescope_record_start(str(folder).encode()))


def record_stop() -> None:
    """Stop recording; on return all data is in the folder."""
    load().curvescope_record_stop()
