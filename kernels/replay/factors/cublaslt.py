"""Matrix products through cuBLASLt."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, is_product, on_cuda

FACTS = FactorFacts(
    "cublaslt",
    what="matrix products run through cuBLASLt instead of cuBLAS",
    remedy="run {where} through cuBLASLt",
    how="torch.backends.cuda.preferred_blas_library('cublaslt')",
)


def reason_against(call: Call, device: str) -> str | None:
    """See `factors.FactorModule`."""
    if not on_cuda(device):
        return "cuBLASLt runs on NVIDIA's GPUs"
    return None if is_product(call) else "no matrix product"
