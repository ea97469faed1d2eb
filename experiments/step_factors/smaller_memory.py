"""Steps whose memory is as full as that of the largest batch size: what memory pressure costs begins earlier.

This brings a cause about instead of taking it away: if memory pressure makes an anomaly at the largest batch size, the
other batch sizes must become slower by as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...profiling.hardware.memory_usage import limit_memory
from ...profiling.measure.visit import Steps
from ...profiling.recording.experiments import FactorFacts
from .factor import ChangedSteps, StepFactor


class _FullSteps(ChangedSteps):
    """Steps with a limit for each batch size, and without the blocks that another batch size left in the allocator."""

    def __init__(self, workload: Any, limits_bytes: Mapping[int, int]) -> None:
        super().__init__(workload)
        self._limits_bytes = limits_bytes

    def load(self, batch: int) -> None:
        import torch

        torch.cuda.empty_cache()
        limit_memory(self.device, self._limits_bytes[batch])
        super().load(batch)


class SmallerMemory(StepFactor):
    """The CUDA allocator gets as little memory for each batch size as the largest one has, for what it needs."""

    FACTS = FactorFacts("smaller_memory", "the memory is as full at every size as at the largest")

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        if not self.target.cuda:
            return "on a CPU a memory limit ends a step but does not slow it down"
        known = set(self.target.batches) <= set(self.target.full_bytes)
        return None if known else "the recording does not say how much memory its steps and its device have"

    def change(self, workload: Any) -> Steps:
        """See `StepFactor`."""
        return _FullSteps(workload, self.target.full_bytes)
