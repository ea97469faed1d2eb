"""CUDA's own pool of memory instead of PyTorch's allocator."""

from __future__ import annotations

from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.measure.visit import Steps
from ..factor import Factor, StepChange, Target
from .expandable_segments import VARIABLE, reason_against

_SETTING = "backend:cudaMallocAsync"


def _change(workload: Any, _: Target) -> Steps:
    if import_torch().cuda.memory.get_allocator_backend() != "cudaMallocAsync":
        raise CurvescopeError("this PyTorch does not take its allocator from the environment")
    steps: Steps = workload
    return steps


FACTOR = Factor(
    name="malloc_async",
    what="the GPU's memory comes from cudaMallocAsync",
    remedy="let PyTorch allocate with cudaMallocAsync",
    refuses={"cpu": "cudaMallocAsync allocates a GPU's memory"},
    step=StepChange(
        how=f"{VARIABLE}={_SETTING} in the environment of the process",
        screen=11,
        screen_on=("cuda",),
        reason_against=reason_against,
        environment={VARIABLE: _SETTING},
        change=_change,
    ),
    partial=True,
)
