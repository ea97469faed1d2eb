"""numba: njit on the CPU, and its CUDA kernels on a device."""

from __future__ import annotations

from . import Backend


def open_backend(device: str | None) -> Backend:
    """The backend on a device; see `backends.open_backend`."""
    from ...profiling.errors import CurvescopeError
    from .numba_cpu import open_backend as open_cpu

    if device not in (None, "cpu"):
        raise CurvescopeError("numba's CUDA kernels are not here yet: use --device cpu.")
    return open_cpu()
