"""Matrix products through oneDNN on a CPU, where PyTorch takes MKL."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import FLOAT32, Call, tensors_of

FACTS = FactorFacts(
    "onednn",
    what="matrix products run through oneDNN instead of MKL",
    remedy="run {where} through oneDNN",
    how=(
        "for inference: torch.utils.mkldnn.to_mkldnn(layer), or torch.compile(model) with TORCHINDUCTOR_FREEZING=1; "
        "else in the layer's forward: torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'none', [], '')"
    ),
)

# fp32 products only: PyTorch takes oneDNN by itself for bf16 and fp16.
_PRODUCTS = frozenset({"aten::linear", "aten::addmm", "aten::mm"})


def reason_against(call: Call, device: str) -> str | None:
    """See `factors.FactorModule`."""
    if device != "cpu":
        return "oneDNN runs on CPUs"
    if call.op not in _PRODUCTS:
        return "no matrix product that oneDNN can take"
    if any(one.dtype not in FLOAT32 for one in tensors_of(call)):
        return "PyTorch runs products of this type through oneDNN already"
    return None
