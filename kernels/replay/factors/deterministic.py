"""Deterministic algorithms only."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, on_cuda

FACTS = FactorFacts(
    "deterministic",
    what="only deterministic algorithms run",
    remedy="use deterministic algorithms in {where}",
    how="torch.use_deterministic_algorithms(True), and CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment",
)


def reason_against(call: Call, device: str) -> str | None:  # noqa: ARG001 - any operator
    """See `factors.FactorModule`."""
    return None if on_cuda(device) else "PyTorch's operators on a CPU are deterministic but for few that scatter"
