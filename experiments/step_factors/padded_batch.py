"""The batch is padded to a multiple of 8, 16 or 32: a cost of sizes that kernels handle badly goes away."""

from __future__ import annotations

from typing import Any

from ...profiling.measure.visit import Steps
from ...profiling.recording.axis import BATCH
from ...profiling.recording.experiments import FactorFacts
from .factor import ChangedSteps, StepFactor

# Blocked kernels of CPUs take 8 or 16 fp32 lanes (AVX2, AVX-512), tensor cores of GPUs sizes of 8 in 16 bits, and
# tiles of products are 16 or 32 rows at least.
MULTIPLES = (8, 16, 32)


def multiple_of(batches: tuple[int, ...]) -> int | None:
    """The multiple to pad to: the smallest that not all batch sizes are already; None if they are of all."""
    return next((multiple for multiple in MULTIPLES if any(batch % multiple for batch in batches)), None)


class _PaddedSteps(ChangedSteps):
    def __init__(self, workload: Any, multiple: int) -> None:
        super().__init__(workload)
        self._multiple = multiple

    def load(self, batch: int) -> None:
        super().load(-(-batch // self._multiple) * self._multiple)


class PaddedBatch(StepFactor):
    """Steps of the next multiple; their time counts for the smaller batch."""

    FACTS = FactorFacts(
        "padded_batch",
        "the batch is padded to the next multiple of 8, 16 or 32",
        "pad the batch of {where} to the next multiple of 8, 16 or 32",
        "append samples, and leave them out of the loss",
    )

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        if self.target.configuration.axis != BATCH:
            return f"the axis is {self.target.configuration.axis}, and only a batch is padded"
        known = multiple_of(self.target.batches)
        return f"every batch size is a multiple of {MULTIPLES[-1]}" if known is None else None

    def changed_results(self) -> str | None:
        """See `StepFactor`."""
        return "the samples that pad the batch belong to the result, unless the step leaves them out of its loss"

    def change(self, workload: Any) -> Steps:
        """See `StepFactor`."""
        return _PaddedSteps(workload, multiple_of(self.target.batches) or 1)
