"""The device rests between steps: a cost of throttling under sustained load becomes smaller.

The variants of an experiment take turns, so the device also works during the visits of the others. The pauses can only
show a throttling that a few steps in a row cause, and none that a power cap causes inside of one.
"""

from __future__ import annotations

import time

from ..changed_steps import ChangedSteps
from ..factor import Factor, StepChange

_LONGEST_S = 1.0


class _RestedSteps(ChangedSteps):
    _pause_s = 0.0

    def time_step(self) -> tuple[int, int]:
        time.sleep(self._pause_s)
        timed = super().time_step()
        self._pause_s = min(timed[1] / 1e9, _LONGEST_S)
        return timed


FACTOR = Factor(
    name="pauses",
    what="the device rests before each step for as long as a step takes",
    step=StepChange(
        screen=8, screen_on=("cuda",), change=lambda workload, _: _RestedSteps(workload)
    ),
    partial=True,
    any_framework=True,
)
