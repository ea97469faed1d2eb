"""cuDNN's algorithms chosen by timing."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, is_convolution, on_cuda

FACTS = FactorFacts(
    "cudnn_benchmark",
    what="cuDNN times its algorithms and takes the fastest",
    remedy="let cuDNN choose the algorithms of {where} by timing",
    how="torch.backends.cudnn.benchmark = True",
)


def reason_against(call: Call, device: str) -> str | None:
    """See `factors.FactorModule`."""
    if not on_cuda(device):
        return "cuDNN runs on NVIDIA's GPUs"
    return None if is_convolution(call) else "cuDNN chooses among algorithms for convolutions only"
