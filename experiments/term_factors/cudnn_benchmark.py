"""cuDNN's algorithms chosen by timing."""

from __future__ import annotations

from ...base.torch_runtime import import_torch
from ...profiling.recording.experiments import FactorFacts
from ..replay.operator_kinds import is_convolution, on_cuda
from ..replay.recorded_call import CallFamily
from .change import Change, setting

FACTS = FactorFacts(
    "cudnn_benchmark",
    what="cuDNN times its algorithms and takes the fastest",
    remedy="let cuDNN choose the algorithms of {where} by timing",
    how="torch.backends.cudnn.benchmark = True",
)


def reason_against(family: CallFamily, device: str) -> str | None:
    """See `FactorModule`."""
    if not on_cuda(device):
        return "cuDNN runs on NVIDIA's GPUs"
    if not is_convolution(family.largest):
        return "PyTorch lets cuDNN choose for convolutions only"
    return "cuDNN times its algorithms already" if import_torch().backends.cudnn.benchmark else None


CHANGE = Change(around=lambda: setting(import_torch().backends.cudnn, "benchmark", True))
