"""numba: compiled loops on the CPU, its CUDA kernels on a device."""

from __future__ import annotations

from . import Backend


def open_backend(device: str | None) -> Backend:
    """The backend on a device, on the CPU unless CUDA is asked for; see `backends.open_backend`."""
    if device in (None, "cpu"):
        from .numba_cpu import open_backend as open_cpu

        return open_cpu()
    from .numba_cuda import open_backend as open_cuda

    return open_cuda(device)
