"""The batch runs as two halves, one after the other: a cost of large working sets or of a slow size goes away.

Networks by name add the gradients of both halves and update the parameters once, so they compute the same, but for
layers that mix samples (batch normalisation). A user's step cannot be opened: it runs twice, with half of the batch
each. Then the time has two updates of the parameters, and the measured gain is less than that of adding gradients.
"""

from __future__ import annotations

from typing import Any

from ...profiling.measure.visit import Steps
from ...profiling.recording.axis import BATCH
from ...profiling.recording.experiments import FactorFacts
from .factor import ChangedSteps, StepFactor


class _TwoSteps(ChangedSteps):
    """Two steps of half the batch; an odd batch size is divided into n and n + 1, and 1 stays whole."""

    def load(self, batch: int) -> None:
        self._halves = [half for half in (batch // 2, batch - batch // 2) if half]
        super().load(self._halves[0])

    def time_step(self) -> tuple[int, int]:
        timed = []
        for half in self._halves:
            super().load(half)  # not timed, and without effect for equal halves
            timed.append(super().time_step())
        return timed[0][0], sum(duration_ns for _, duration_ns in timed)


class SplitBatch(StepFactor):
    """Two halves of the batch, one after the other."""

    FACTS = FactorFacts(
        "split_batch",
        "the batch runs as two halves, one after the other",
        "run {where} on the two halves of the batch, one after the other",
        "divide the batch with torch.chunk; in training add the gradients of both halves before the update",
    )

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        if self.target.configuration.axis != BATCH:
            return f"the axis is {self.target.configuration.axis}, and only a batch has halves"
        return "a batch of one sample has no halves" if max(self.target.batches) < 2 else None

    def changed_results(self) -> str | None:
        """See `StepFactor`."""
        if self.target.configuration.step is None:
            return None
        return "two steps of half the batch ran; in training, add the gradients of both and update once"

    def change(self, workload: Any) -> Steps:
        """See `StepFactor`."""
        if self.target.configuration.step is not None:
            return _TwoSteps(workload)
        workload.halved = True
        steps: Steps = workload
        return steps
