"""Memory that a step frees stays with the process, instead of going back to the system and being mapped again.

By default glibc maps large blocks one by one and unmaps them when they are freed, so each step takes its page faults
again, one for each 4 KiB. The three environment variables below, and `mallopt` inside a process, make it keep them.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace

from ...errors import CurvescopeError
from ...recording.experiments import FactorFacts
from .factor import StepFactor

# Numbers of malloc.h. mallopt takes an int: blocks of 2 GiB and more are still mapped one by one. A trim threshold of
# -1 turns trimming off (mallopt(3)). 64 MiB ahead keep small growth from asking the system each time.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD, _M_TOP_PAD = -3, -1, -2
_LARGEST, _AHEAD = 2**31 - 1, 64 << 20
_MALLOPT = ((_M_MMAP_THRESHOLD, _LARGEST), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, _AHEAD))
VARIABLES = {
    "MALLOC_MMAP_THRESHOLD_": str(_LARGEST),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),  # more than any process has
    "MALLOC_TOP_PAD_": str(_AHEAD),
}
_EXPANDABLE = "expandable_segments:True"


class KeptMemory(StepFactor):
    """glibc keeps freed memory; on CUDA, torch's allocator grows its segments instead of replacing them."""

    FACTS = FactorFacts(
        "kept_memory",
        "freed memory stays with the process",
        "keep freed memory in the process",
        "set " + " ".join(f"{name}={value}" for name, value in VARIABLES.items()) + " in the environment of the "
        "process (glibc); it holds its peak memory from then on",
    )

    @property
    def facts(self) -> FactorFacts:
        """See `StepFactor`."""
        how = f"set PYTORCH_CUDA_ALLOC_CONF={_EXPANDABLE} in the environment of the process"
        return replace(self.FACTS, how=how) if self.target.cuda else self.FACTS

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        if self.target.cuda:
            is_set = "expandable_segments" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
            return "PYTORCH_CUDA_ALLOC_CONF already sets expandable_segments" if is_set else None
        there = [name for name in VARIABLES if name in os.environ]
        return f"the environment already sets {' and '.join(there)}" if there else None

    def prepare(self) -> None:
        """See `StepFactor`."""
        if self.target.cuda:
            import torch

            torch.cuda.memory._set_allocator_settings(_EXPANDABLE)
            return
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is None:
            raise CurvescopeError("the C library of this process is not glibc")
        # Until 2.34, glibc refuses thresholds above 32 MiB (1 is success).
        if not all(mallopt(name, value) == 1 for name, value in _MALLOPT):
            raise CurvescopeError("this C library does not accept the thresholds")
