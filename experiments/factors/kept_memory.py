"""Memory that a step frees stays with the process, instead of going back to the system and being mapped again.

By default glibc maps large blocks one by one and unmaps them when they are freed, so each step takes its page faults
again, one for each 4 KiB. On CUDA, torch's allocator grows its segments instead of replacing them.
"""

from __future__ import annotations

import os

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.hardware import heap
from ..factor import Factor, StepChange, Target
from ..replay.operator_kinds import on_cuda

_EXPANDABLE = "expandable_segments:True"


def _reason_against(target: Target) -> str | None:
    if on_cuda(target.configuration.device):
        is_set = "expandable_segments" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        return "PYTORCH_CUDA_ALLOC_CONF already sets expandable_segments" if is_set else None
    return heap.reason_against_change()


def _prepare(target: Target) -> None:
    if on_cuda(target.configuration.device):
        torch = import_torch()
        # The variable itself may have been read when torch was loaded. Newer versions of torch have the first name.
        set_anew = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
        (set_anew or torch.cuda.memory._set_allocator_settings)(_EXPANDABLE)
    elif not heap.keep_all_memory():
        raise CurvescopeError("this version of glibc does not accept a threshold of 2 GiB")


FACTOR = Factor(
    name="kept_memory",
    what="freed memory stays with the process",
    remedy="keep freed memory in the process",
    step=StepChange(
        how={
            "cpu": heap.HOW_TO_KEEP,
            "cuda": f"PYTORCH_CUDA_ALLOC_CONF={_EXPANDABLE} in the environment of the process",
        },
        screen=1,
        screen_on=("cpu",),
        common=1,
        reason_against=_reason_against,
        prepare=_prepare,
    ),
)
