"""The step's operators run one after the other without the code between them: the host's share of the step goes away.

What stays is the dispatch of each operator, so what this removes is a lower bound of the host's share.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import mean
from typing import Any

from ...base.errors import CurvescopeError
from ...profiling.hardware.heap import FEW_FAULTS
from ...profiling.measure.stopping import StepRow
from ..changed_steps import LEAST_WAIT, ChangedSteps, waiting_share
from ..factor import Factor, StepChange, Target

# Only the host's work goes away, not page faults or waits for a core: a replay has most of those of the step.
_LEFT = 0.5


class _ReplayedSteps(ChangedSteps):
    """Replays of a step; loading a batch size records it."""

    _tape: Any = None
    _batch: int | None = None

    def __init__(self, workload: Any) -> None:
        super().__init__(workload)
        self._compiled_before = _compiled_frames()
        self._checked: set[int] = set()

    def load(self, batch: int) -> None:
        from ..replay.operator_tape import OperatorTape

        if batch == self._batch:
            return
        self._tape = self._batch = None
        self.workload.load(batch)
        self.workload.submit()  # makes what later steps keep, e.g. the state of an optimizer
        self._tape = OperatorTape(self.workload.submit, check=batch not in self._checked)
        self._checked.add(batch)
        if _compiled_frames() > self._compiled_before:
            raise CurvescopeError("the step runs compiled code, whose operators cannot be seen")
        self._batch = batch

    def submit(self) -> object:
        return self._tape.replay()

    def time_step(self) -> tuple[int, int]:
        start_ns, duration_ns = self.workload.time_run(self._tape.replay)
        return start_ns, duration_ns


def _compiled_frames() -> int:
    counted = sys.modules.get("torch._dynamo.utils")
    return 0 if counted is None else int(counted.counters["frames"]["ok"])


def _reason_against(target: Target) -> str | None:
    if target.configuration.compiled:
        return "the steps are compiled, and compiled code has no operators"
    return "the steps are replays of a graph already" if target.configuration.graphed else None


def _without_effect(unmodified: Sequence[StepRow], changed: Sequence[StepRow]) -> str | None:
    faults = [
        mean([row.get("page_faults") or 0 for row in rows] or [0]) for rows in (unmodified, changed)
    ]
    if faults[0] >= FEW_FAULTS and faults[1] < _LEFT * faults[0]:
        return f"it takes {faults[1]:,.0f} page faults a step, and the unmodified step {faults[0]:,.0f}"
    waits = [waiting_share(rows) or 0.0 for rows in (unmodified, changed)]
    if waits[0] >= LEAST_WAIT and waits[1] < _LEFT * waits[0]:
        return (
            f"its threads wait for a core in {waits[1]:.0%} of their time, and those of the unmodified step in "
            f"{waits[0]:.0%}: what else runs on the cores went away too"
        )
    return None


FACTOR = Factor(
    name="replayed_operators",
    what="the step's operators run without the code between them",
    step=StepChange(
        reason_against=_reason_against,
        changed_results=lambda _: (
            "what the host computes, e.g. a learning rate, stays that of one step"
        ),
        change=lambda workload, _: _ReplayedSteps(workload),
        without_effect=_without_effect,
    ),
    partial=True,
)
