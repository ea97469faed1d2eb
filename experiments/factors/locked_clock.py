"""The SM clock locked to one value, below that of every batch size: what a lower clock of some sizes costs goes away.

The process of the experiment locks it for each visit and unlocks it afterwards, whatever becomes of the worker. A
locked clock holds for all who use the GPU, so this is untested unless it was asked for.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from ...profiling.hardware.locked_clocks import (
    NOT_ASKED,
    locked_clock_hz,
    locked_clocks,
    may_lock_clocks,
)
from ..factor import Factor, StepChange, Target

_BELOW = 0.95  # of the lowest clock; an average of samples may be above the clock of some moments


def _reason_against(target: Target) -> str | None:
    if locked_clock_hz() is not None:
        return "the clock is locked already"
    if not may_lock_clocks():
        return NOT_ASKED
    return None if target.lowest_clock_hz else "the recording has no clocks of its steps"


def _locked(target: Target) -> AbstractContextManager[object]:
    return locked_clocks(
        target.configuration.device, int(_BELOW * (target.lowest_clock_hz or 0) / 1e6)
    )


FACTOR = Factor(
    name="locked_clock",
    what="the clock is locked to one value at all sizes, 5 % below the lowest",
    refuses={"cpu": "only the clock of a GPU is locked"},
    step=StepChange(reason_against=_reason_against, around=_locked),
    any_framework=True,
)
