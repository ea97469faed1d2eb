"""Operators without oneDNN on a CPU."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import HALF, Call, is_convolution, is_product, tensors_of

FACTS = FactorFacts(
    "no_onednn",
    what="operators run without oneDNN",
    remedy="run {where} without oneDNN",
    how="with torch.backends.mkldnn.flags(enabled=False): around the layer's call",
)


def reason_against(call: Call, device: str) -> str | None:
    """See `factors.FactorModule`."""
    if device != "cpu":
        return "oneDNN runs on CPUs"
    if is_convolution(call) or (is_product(call) and any(one.dtype in HALF for one in tensors_of(call))):
        return None
    return "PyTorch does not run this operator through oneDNN"
