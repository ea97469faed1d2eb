"""The device rests between steps: a cost of throttling under sustained load becomes smaller.

The variants of an experiment take turns, so the device also works during the visits of the others. The pauses can only
show a throttling that a few steps in a row cause.
"""

from __future__ import annotations

import time
from typing import Any

from ...profiling.measure.visit import Steps
from ...profiling.recording.experiments import FactorFacts
from .factor import ChangedSteps, StepFactor

_LONGEST_S = 1.0


class _RestedSteps(ChangedSteps):
    """Steps that begin after a pause as long as the last step took."""

    _pause_s = 0.0

    def time_step(self) -> tuple[int, int]:
        time.sleep(self._pause_s)
        timed = super().time_step()
        self._pause_s = min(timed[1] / 1e9, _LONGEST_S)
        return timed


class Pauses(StepFactor):
    """A pause before each step, as long as a step; at most a second."""

    FACTS = FactorFacts("pauses", "the device rests before each step for as long as a step takes")

    def change(self, workload: Any) -> Steps:
        """See `StepFactor`."""
        return _RestedSteps(workload)
