"""The CUDA device index in `--device`, for backends that only run on CUDA."""

from __future__ import annotations

import re

from ...profiling.errors import CurvescopeError


def device_index(device: str | None, backend: str) -> int:
    """The number in `cuda:N`; 0 for `cuda` or None.

    Raises:
        CurvescopeError: the device is not a CUDA device.
    """
    match = re.fullmatch(r"cuda(?::(\d+))?", device or "cuda")
    if match is None:
        raise CurvescopeError(f"The backend {backend} runs on CUDA devices: --device cuda or cuda:N, not {device}.")
    return int(match[1] or 0)
