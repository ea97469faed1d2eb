"""Steps whose memory is as full as that of the largest batch size: what memory pressure costs begins earlier.

This brings a cause about instead of removing it: if memory pressure makes an anomaly at the largest batch size, the
other batch sizes must become slower by as much.
"""

from __future__ import annotations

from typing import Any

from ...profiling.hardware.memory_usage import allocatable_bytes, empty_cache, limit_memory
from ..changed_steps import ChangedSteps
from ..factor import Factor, StepChange, Target


class _FullSteps(ChangedSteps):
    """Steps with a limit for each batch size, and without the blocks that another batch size left in the allocator.

    The limit is a share of what this process can have now: without the contexts of all processes on the device.
    """

    def __init__(self, workload: Any, target: Target) -> None:
        super().__init__(workload)
        self._shares, self._limit_bytes = (
            target.memory_shares,
            target.configuration.memory_limit_bytes,
        )

    def load(self, batch: int) -> None:
        empty_cache(self.device)
        most = allocatable_bytes(self.device)
        limit_memory(self.device, round(self._shares[batch] * min(most, self._limit_bytes or most)))
        super().load(batch)


def _reason_against(target: Target) -> str | None:
    known = set(target.batches) <= set(target.memory_shares)
    return None if known else "the recording does not say how much memory its steps take"


FACTOR = Factor(
    name="smaller_memory",
    what="the memory is as full at every size as at the largest",
    refuses={"cpu": "on a CPU a memory limit ends a step but does not slow it down"},
    step=StepChange(reason_against=_reason_against, change=_FullSteps),
    brings_about=True,
)
