"""Steps whose memory is as full as that of the largest batch size: what memory pressure costs begins earlier.

This brings a cause about instead of removing it: if memory pressure makes an anomaly at the largest batch size, the
other batch sizes must become slower by as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...profiling.hardware.memory_usage import limit_memory
from ..changed_steps import ChangedSteps
from ..factor import Factor, StepChange, Target


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


def _reason_against(target: Target) -> str | None:
    known = set(target.batches) <= set(target.full_bytes)
    return None if known else "the recording does not say how much memory its steps and its device have"


FACTOR = Factor(
    name="smaller_memory",
    what="the memory is as full at every size as at the largest",
    refuses={"cpu": "on a CPU a memory limit ends a step but does not slow it down"},
    step=StepChange(
        reason_against=_reason_against, change=lambda workload, target: _FullSteps(workload, target.full_bytes)
    ),
    brings_about=True,
)
