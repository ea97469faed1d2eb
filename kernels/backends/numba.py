"""numba backends: compiled loops on the CPU, numba's CUDA kernels on a GPU."""

from __future__ import annotations

from . import Backend


def open_backend(device: str | None) -> Backend:
    """Open the backend, on the CPU unless `device` is a CUDA device; see `backends.open_backend`."""
    if device in (None, "cpu"):
        from .numba_cpu import open_backend as open_cpu

        return open_cpu()
    from .numba_cuda import open_backend as open_cuda

    return open_cuda(device)
