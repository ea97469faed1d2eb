"""Factors of memory: how it is allocated, kept and filled."""

from __future__ import annotations

import os
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.hardware import heap
from ...profiling.hardware.memory_usage import allocatable_bytes, empty_cache, limit_memory
from ...profiling.workload.steps import ChangedSteps
from ..factor import Factor, StepChange, Target, TermChange, change_environment, set_by

# PyTorch's allocator on CUDA in another form: segments that grow, so that memory does not break up,
# or CUDA's pool.

_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
_GROWING = "expandable_segments:True"


def _reason_against_allocator(_: Target) -> str | None:
    return f"{_VARIABLE} is set already" if os.environ.get(_VARIABLE) else None


def _let_grow(_: Target) -> None:
    torch = import_torch()
    # The variable itself was read when torch was loaded. Newer versions of torch have the first
    # name.
    change = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    if change is None:
        change = torch.cuda.memory._set_allocator_settings
    change(_GROWING)


def _check_pool(workload: Any, _: Target) -> Any:
    if import_torch().cuda.memory.get_allocator_backend() != "cudaMallocAsync":
        raise CurvescopeError("this PyTorch does not take its allocator from the environment")
    return workload


EXPANDABLE_SEGMENTS = Factor(
    name="expandable_segments",
    what="the GPU's memory is allocated in segments that grow",
    remedy="let PyTorch's allocator grow its segments",
    refuses={"cpu": "PyTorch allocates only a GPU's memory in segments"},
    step=StepChange(
        how=set_by({_VARIABLE: _GROWING}),
        variables=lambda: {_VARIABLE: _GROWING},
        screen=1,
        screen_on=("cuda",),
        common=1,
        reason_against=_reason_against_allocator,
        prepare=_let_grow,
    ),
    partial=True,
)
MALLOC_ASYNC = Factor(
    name="malloc_async",
    what="the GPU's memory comes from cudaMallocAsync",
    remedy="let PyTorch allocate with cudaMallocAsync",
    refuses={"cpu": "cudaMallocAsync allocates a GPU's memory"},
    step=change_environment(
        {_VARIABLE: "backend:cudaMallocAsync"},
        screen=11,
        screen_on=("cuda",),
        reason_against=_reason_against_allocator,
        change=_check_pool,
    ),
    partial=True,
)


# Memory that the process keeps: a whole step's that it frees, or what a term's results take, that
# it used before.
#
# By default glibc maps large blocks one by one and unmaps them when they are freed, so each step
# takes its page faults again, one for each 4 KiB.

_REFUSES = {"cuda": "PyTorch's allocator keeps the GPU's memory already"}


def _prepare(_: Target) -> None:
    if not heap.keep_all_memory():
        raise CurvescopeError("this version of glibc does not accept a threshold of 2 GiB")


KEPT_MEMORY = Factor(
    name="kept_memory",
    what="freed memory stays with the process",
    remedy="keep freed memory in the process",
    refuses=_REFUSES,
    step=StepChange(
        how=heap.HOW_TO_KEEP,
        variables=lambda: heap.KEEPING,
        screen=1,
        screen_on=("cpu",),
        common=1,
        reason_against=lambda _: heap.reason_against_change(),
        prepare=_prepare,
    ),
    any_framework=True,
)
REUSED_MEMORY = Factor(
    name="reused_memory",
    what="results go to memory that the process has used before, so that they cause no page faults",
    remedy="keep freed memory for {where}",
    refuses=_REFUSES,
    term=TermChange(
        how=heap.HOW_TO_KEEP,
        screen=4,
        reason_against=lambda _: heap.reason_against_change(),
        around=heap.keep_freed_memory,
        discarded=2,  # a second run may take other free blocks than the first
        same_work=True,
    ),
)


# Steps whose memory is as full as that of the largest batch size: what memory pressure costs begins
# earlier.
#
# This brings a cause about instead of removing it: if memory pressure makes an anomaly at the
# largest batch size, the other batch sizes must become slower by as much.


class _FullSteps(ChangedSteps):
    """Steps with a limit for each batch size, and without the blocks that another batch size left
    in the allocator.

    The limit is a share of the memory that this process can have now, beside the contexts of all
    processes.
    """

    def __init__(self, workload: Any, target: Target) -> None:
        super().__init__(workload)
        self._shares = target.memory_shares
        self._limit_bytes = target.configuration.memory_limit_bytes

    def load(self, batch: int) -> None:
        empty_cache(self.device)
        most = allocatable_bytes(self.device)
        whole = min(most, self._limit_bytes or most)
        limit_memory(self.device, round(self._shares[batch] * whole))
        super().load(batch)


def _reason_against_smaller_memory(target: Target) -> str | None:
    are_measured = set(target.batches) <= set(target.memory_shares)
    return None if are_measured else "the recording does not say how much memory its steps take"


SMALLER_MEMORY = Factor(
    name="smaller_memory",
    what="the memory is as full at every size as at the largest",
    refuses={"cpu": "on a CPU a memory limit ends a step but does not slow it down"},
    step=StepChange(reason_against=_reason_against_smaller_memory, change=_FullSteps),
    brings_about=True,
)
