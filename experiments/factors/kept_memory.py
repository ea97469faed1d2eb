"""Memory that a step frees stays with the process, instead of going back to the system and being mapped again.

By default glibc maps large blocks one by one and unmaps them when they are freed, so each step takes its page faults
again, one for each 4 KiB.
"""

from __future__ import annotations

from ...base.errors import CurvescopeError
from ...profiling.hardware import heap
from ..factor import Factor, StepChange, Target


def _prepare(_: Target) -> None:
    if not heap.keep_all_memory():
        raise CurvescopeError("this version of glibc does not accept a threshold of 2 GiB")


FACTOR = Factor(
    name="kept_memory",
    what="freed memory stays with the process",
    remedy="keep freed memory in the process",
    refuses={"cuda": "PyTorch's allocator keeps the GPU's memory already"},
    step=StepChange(
        how=heap.HOW_TO_KEEP,
        variables=lambda: heap.KEEPING,
        screen=1,
        screen_on=("cpu",),
        common=1,
        reason_against=lambda _: heap.reason_against_change(),
        prepare=_prepare,
    ),
)
