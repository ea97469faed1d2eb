"""Memory that a step frees stays with the process, instead of going back to the system and being mapped again.

By default glibc maps large blocks one by one and unmaps them when they are freed, so each step takes its page faults
again, one for each 4 KiB.
"""

from __future__ import annotations

import os
from dataclasses import replace

from ...base.errors import CurvescopeError
from ...profiling.hardware import heap
from ...profiling.recording.experiments import FactorFacts
from .factor import StepFactor

_EXPANDABLE = "expandable_segments:True"


class KeptMemory(StepFactor):
    """glibc keeps freed memory; on CUDA, torch's allocator grows its segments instead of replacing them."""

    FACTS = FactorFacts(
        "kept_memory",
        "freed memory stays with the process",
        "keep freed memory in the process",
        heap.HOW_TO_KEEP,
    )

    @property
    def facts(self) -> FactorFacts:
        """See `StepFactor`."""
        how = f"PYTORCH_CUDA_ALLOC_CONF={_EXPANDABLE} in the environment of the process"
        return replace(self.FACTS, how=how) if self.target.cuda else self.FACTS

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        if self.target.cuda:
            is_set = "expandable_segments" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
            return "PYTORCH_CUDA_ALLOC_CONF already sets expandable_segments" if is_set else None
        can = heap.can_change()
        return None if can else "the C library is not glibc, or its thresholds are set in the environment"

    def prepare(self) -> None:
        """See `StepFactor`."""
        if self.target.cuda:
            import torch

            # The variable itself may have been read when torch was loaded. Newer versions of torch have the first name.
            set_anew = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
            (set_anew or torch.cuda.memory._set_allocator_settings)(_EXPANDABLE)
            return
        if not heap.keep_all_memory():
            raise CurvescopeError("this version of glibc does not accept a threshold of 2 GiB")
