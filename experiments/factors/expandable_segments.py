"""PyTorch's allocator on CUDA grows its segments instead of replacing them, so that memory does not break up."""

from __future__ import annotations

import os

from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, Target

VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
_SETTING = "expandable_segments:True"


def reason_against(_: Target) -> str | None:
    """The reason why the allocator gets no other setting; None if it does."""
    return f"{VARIABLE} is set already" if os.environ.get(VARIABLE) else None


def _prepare(_: Target) -> None:
    torch = import_torch()
    # The variable itself was read when torch was loaded. Newer versions of torch have the first name.
    set_anew = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    (set_anew or torch.cuda.memory._set_allocator_settings)(_SETTING)


FACTOR = Factor(
    name="expandable_segments",
    what="the GPU's memory is allocated in segments that grow",
    remedy="let PyTorch's allocator grow its segments",
    refuses={"cpu": "PyTorch allocates only a GPU's memory in segments"},
    step=StepChange(
        how=f"{VARIABLE}={_SETTING} in the environment of the process",
        variables=lambda: {VARIABLE: _SETTING},
        screen=1,
        screen_on=("cuda",),
        common=1,
        reason_against=reason_against,
        prepare=_prepare,
    ),
    partial=True,
)
