"""The batch is padded to the next multiple of 8: a cost of sizes that kernels handle badly goes away."""

from __future__ import annotations

from typing import Any

from ...recording.axis import BATCH
from ...recording.experiments import FactorFacts
from ..visit import Steps
from .factor import ChangedSteps, StepFactor

# Blocked kernels of CPUs take 8 or 16 fp32 lanes (AVX2, AVX-512), and tensor cores of GPUs sizes of 8 in 16 bits.
MULTIPLE = 8


def padded(batch: int) -> int:
    """The next multiple of `MULTIPLE`; the batch size itself if it is one."""
    return -(-batch // MULTIPLE) * MULTIPLE


class _PaddedSteps(ChangedSteps):
    def load(self, batch: int) -> None:
        super().load(padded(batch))


class PaddedBatch(StepFactor):
    """Steps of the next multiple of 8; the time is still that of a step of the smaller batch."""

    FACTS = FactorFacts(
        "padded_batch",
        f"the batch is padded to the next multiple of {MULTIPLE}",
        f"pad the batch of {{where}} to a multiple of {MULTIPLE}",
        "append samples, and leave them out of the loss",
    )

    SAME_INPUTS = False

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        if self.target.configuration.axis != BATCH:
            return f"the axis is {self.target.configuration.axis}, and only a batch is padded"
        whole = all(padded(batch) == batch for batch in self.target.batches)
        return f"every batch size is a multiple of {MULTIPLE}" if whole else None

    def changed_results(self) -> str | None:
        """See `StepFactor`."""
        return "the samples that pad the batch belong to the result, unless the step leaves them out of its loss"

    def change(self, workload: Any) -> Steps:
        """See `StepFactor`."""
        return _PaddedSteps(workload)
