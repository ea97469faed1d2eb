"""Results in memory that the process has used before."""

from __future__ import annotations

from ...profiling.hardware import heap
from ..factor import Factor, TermChange

FACTOR = Factor(
    name="reused_memory",
    what="results go to memory that the process has used before, so that they cause no page faults",
    remedy="keep freed memory for {where}",
    refuses={"cuda": "PyTorch's allocator keeps the GPU's memory already"},
    term=TermChange(
        how=heap.HOW_TO_KEEP,
        screen=4,
        reason_against=lambda _: heap.reason_against_change(),
        around=heap.keep_freed_memory,
        discarded=2,  # a second run may take other free blocks than the first
        same_work=True,
    ),
)
