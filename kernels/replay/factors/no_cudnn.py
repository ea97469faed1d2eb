"""Operators without cuDNN."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, is_batch_norm, is_convolution, on_cuda

FACTS = FactorFacts(
    "no_cudnn",
    what="operators run without cuDNN",
    remedy="run {where} without cuDNN",
    how="with torch.backends.cudnn.flags(enabled=False): around the layer's call",
)


def reason_against(call: Call, device: str) -> str | None:
    """See `factors.FactorModule`."""
    if not on_cuda(device):
        return "cuDNN runs on NVIDIA's GPUs"
    return None if is_convolution(call) or is_batch_norm(call) else "PyTorch does not run this operator through cuDNN"
