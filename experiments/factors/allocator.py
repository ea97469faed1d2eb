"""PyTorch's allocator on CUDA in another form: segments that grow, so that memory does not break up, or CUDA's pool."""

from __future__ import annotations

import os
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, Target

_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
_GROWING, _POOL = "expandable_segments:True", "backend:cudaMallocAsync"


def _reason_against(_: Target) -> str | None:
    return f"{_VARIABLE} is set already" if os.environ.get(_VARIABLE) else None


def _let_grow(_: Target) -> None:
    torch = import_torch()
    # The variable itself was read when torch was loaded. Newer versions of torch have the first name.
    set_anew = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    (set_anew or torch.cuda.memory._set_allocator_settings)(_GROWING)


def _check_pool(workload: Any, _: Target) -> Any:
    if import_torch().cuda.memory.get_allocator_backend() != "cudaMallocAsync":
        raise CurvescopeError("this PyTorch does not take its allocator from the environment")
    return workload


SEGMENTS = Factor(
    name="expandable_segments",
    what="the GPU's memory is allocated in segments that grow",
    remedy="let PyTorch's allocator grow its segments",
    refuses={"cpu": "PyTorch allocates only a GPU's memory in segments"},
    step=StepChange(
        how=f"{_VARIABLE}={_GROWING} in the environment of the process",
        variables=lambda: {_VARIABLE: _GROWING},
        screen=1,
        screen_on=("cuda",),
        common=1,
        reason_against=_reason_against,
        prepare=_let_grow,
    ),
    partial=True,
)
POOL = Factor(
    name="malloc_async",
    what="the GPU's memory comes from cudaMallocAsync",
    remedy="let PyTorch allocate with cudaMallocAsync",
    refuses={"cpu": "cudaMallocAsync allocates a GPU's memory"},
    step=StepChange(
        how=f"{_VARIABLE}={_POOL} in the environment of the process",
        screen=11,
        screen_on=("cuda",),
        reason_against=_reason_against,
        environment={_VARIABLE: _POOL},
        change=_check_pool,
    ),
    partial=True,
)
