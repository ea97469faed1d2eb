"""A small workspace for cuBLAS."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, is_product, on_cuda

FACTS = FactorFacts(
    "small_workspace",
    what="cuBLAS gets a workspace of 128 KiB",
    remedy="limit cuBLAS's workspace in {where}",
    how="CUBLAS_WORKSPACE_CONFIG=:16:8 in the environment of the process",
)


def reason_against(call: Call, device: str) -> str | None:
    """See `factors.FactorModule`."""
    if not on_cuda(device):
        return "cuBLAS runs on NVIDIA's GPUs"
    return None if is_product(call) else "no matrix product"
