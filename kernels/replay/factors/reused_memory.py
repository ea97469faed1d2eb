"""Results in memory that the process has used before."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call

FACTS = FactorFacts(
    "reused_memory",
    what="results go to memory that the process has used before, so that they cause no page faults",
    remedy="keep freed memory for {where}",
    how="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1 in the environment of the process (glibc)",
)


def reason_against(call: Call, device: str) -> str | None:  # noqa: ARG001 - any operator
    """See `factors.FactorModule`."""
    return None if device == "cpu" else "PyTorch's allocator keeps the GPU's memory already"
