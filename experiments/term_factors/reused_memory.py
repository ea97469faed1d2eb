"""Results in memory that the process has used before."""

from __future__ import annotations

from ...profiling.hardware import heap
from ...profiling.recording.experiments import FactorFacts
from ..replay.operator_kinds import on_cuda
from ..replay.recorded_call import CallFamily
from .change import Change

FACTS = FactorFacts(
    "reused_memory",
    what="results go to memory that the process has used before, so that they cause no page faults",
    remedy="keep freed memory for {where}",
    how=heap.HOW_TO_KEEP,
)


def reason_against(family: CallFamily, device: str) -> str | None:  # noqa: ARG001 - any operator
    """See `FactorModule`."""
    if on_cuda(device):
        return "PyTorch's allocator keeps the GPU's memory already"
    return None if heap.can_change() else "the C library is not glibc, or its thresholds are set in the environment"


# A second run may take other free blocks than the first.
CHANGE = Change(around=heap.keep_freed_memory, discarded=2, same_work=True)
