"""The batch runs as two halves, one after the other: a cost of large working sets or of a slow size goes away.

In training, two steps of half the batch are not one step: they update the parameters twice, unless the user's code
accumulates the gradients of both halves before it updates. So the change is said, and the time contains two updates:
the measured gain is at least that of accumulation.
"""

from __future__ import annotations

from typing import Any

from ...recording.axis import BATCH
from ...recording.experiments import FactorFacts
from ..visit import Steps
from .factor import ChangedSteps, StepFactor


class _HalvedSteps(ChangedSteps):
    """Steps as two halves; an odd batch size is divided into n and n + 1, and 1 stays whole."""

    def load(self, batch: int) -> None:
        self._halves = [half for half in (batch // 2, batch - batch // 2) if half]
        self.workload.load(self._halves[0])

    def time_step(self) -> tuple[int, int]:
        timed = []
        for half in self._halves:
            self.workload.load(half)  # outside the timed interval, and without effect for equal halves
            timed.append(super().time_step())
        return timed[0][0], sum(duration_ns for _, duration_ns in timed)


class SplitBatch(StepFactor):
    """Two steps of half the batch, one after the other."""

    FACTS = FactorFacts(
        "split_batch",
        "the batch runs as two halves, one after the other",
        "run {where} on the two halves of the batch, one after the other",
        "divide the batch with torch.chunk; in training add the gradients of both halves before the update",
    )

    SAME_INPUTS = False

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        if self.target.configuration.axis != BATCH:
            return f"the axis is {self.target.configuration.axis}, and only a batch has halves"
        return "a batch of one sample has no halves" if max(self.target.batches) < 2 else None

    def changed_results(self) -> str | None:
        """See `StepFactor`."""
        if self.target.configuration.mode == "forward":
            return None
        return "each half computes its own loss and gradients; the step must add them before it updates the parameters"

    def change(self, workload: Any) -> Steps:
        """See `StepFactor`."""
        return _HalvedSteps(workload)
