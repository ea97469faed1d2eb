"""One thread on a CPU."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call

FACTS = FactorFacts(
    "one_thread",
    what="the work runs on one thread",
    remedy="run {where} on one thread",
    how="torch.set_num_threads(1) before it and the former number after it; OMP_NUM_THREADS=1 for the whole process",
)


def reason_against(call: Call, device: str) -> str | None:  # noqa: ARG001 - any operator
    """See `factors.FactorModule`."""
    return None if device == "cpu" else "the work runs on the GPU"
