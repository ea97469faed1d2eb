"""Memory that the process keeps: a whole step's that it frees, or what a term's results take, that it used before.

By default glibc maps large blocks one by one and unmaps them when they are freed, so each step takes its page faults
again, one for each 4 KiB.
"""

from __future__ import annotations

from ...base.errors import CurvescopeError
from ...profiling.hardware import heap
from ..factor import Factor, StepChange, Target, TermChange

_REFUSES = {"cuda": "PyTorch's allocator keeps the GPU's memory already"}


def _prepare(_: Target) -> None:
    if not heap.keep_all_memory():
        raise CurvescopeError("this version of glibc does not accept a threshold of 2 GiB")


KEPT = Factor(
    name="kept_memory",
    what="freed memory stays with the process",
    remedy="keep freed memory in the process",
    refuses=_REFUSES,
    step=StepChange(
        how=heap.HOW_TO_KEEP,
        variables=lambda: heap.KEEPING,
        screen=1,
        screen_on=("cpu",),
        common=1,
        reason_against=lambda _: heap.reason_against_change(),
        prepare=_prepare,
    ),
    any_framework=True,
)
REUSED = Factor(
    name="reused_memory",
    what="results go to memory that the process has used before, so that they cause no page faults",
    remedy="keep freed memory for {where}",
    refuses=_REFUSES,
    term=TermChange(
        how=heap.HOW_TO_KEEP,
        screen=4,
        reason_against=lambda _: heap.reason_against_change(),
        around=heap.keep_freed_memory,
        discarded=2,  # a second run may take other free blocks than the first
        same_work=True,
    ),
)
