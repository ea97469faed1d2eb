"""Steps with less memory than they used in the recording: a cost of memory pressure becomes larger."""

from __future__ import annotations

from dataclasses import replace

from ...recording.experiments import FactorFacts
from ..configuration import Configuration
from .factor import StepFactor

_SHARE = 0.75  # of the reserved memory: less than that often does not hold the tensors of a step


class SmallerMemory(StepFactor):
    """The CUDA allocator gets three quarters of the memory that the recording's steps reserved."""

    FACTS = FactorFacts("smaller_memory", "the allocator gets three quarters of the memory that it reserved before")

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        if not self.target.cuda:
            return "on a CPU a memory limit ends a step but does not slow it down"
        return None if self.target.reserved_bytes else "the recording does not say how much memory its steps reserved"

    def configure(self) -> Configuration:
        """See `StepFactor`."""
        return replace(self.target.configuration, memory_limit_bytes=round(_SHARE * (self.target.reserved_bytes or 0)))
