"""What torch's profiler is asked for on a GPU, and which of its events are calls of CUDA.

The program's own Python loads this file by path, and `torch_step.py` imports it, so it needs only
the standard library and torch.
"""

from __future__ import annotations

import re
from typing import Any

USER_SCOPE = 7  # torch.profiler's number for user annotations (c10's RecordScope)
# names of runtime and driver API functions, e.g. cuLaunchKernelEx
_API_CALL = re.compile(r"(cu|cuda|hip)[A-Z]\w+")


def exposing_config() -> Any:
    """Configuration of torch's profiler that hands out metadata; None if this torch has none."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(expose_kineto_event_metadata=True)
    except TypeError:
        return None


def take_buffers(device: str) -> None:
    """Run and wait for tiny kernels, so that the profiler's first buffers are taken outside the
    step.

    At the first CUDA call of a session CUPTI asks for a buffer and zeroes it: 1.5 ms in a trace of
    a B200. Since CUDA 13.0 each thread has its own, and autograd launches in another thread.
    """
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        torch.ones(1, device=device, requires_grad=True).sum().backward()
    torch.cuda.synchronize(device)


def is_api_call(event: Any) -> bool:
    """Whether an event of the host is a call of CUDA's runtime or driver API.

    Its correlation id is CUPTI's. An operator's is torch's own number; both count from 1.
    """
    if event.scope() == USER_SCOPE or event.shapes():
        return False
    return bool(event.linked_correlation_id()) or _API_CALL.fullmatch(event.name()) is not None
