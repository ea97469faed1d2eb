"""Operators without cuDNN."""

from __future__ import annotations

from ...base.torch_runtime import import_torch
from ...profiling.recording.experiments import FactorFacts
from ..replay.operator_kinds import is_batch_norm, is_convolution, on_cuda
from ..replay.recorded_call import CallFamily
from .change import Change, setting

FACTS = FactorFacts(
    "no_cudnn",
    what="operators run without cuDNN",
    remedy="run {where} without cuDNN",
    how="with torch.backends.cudnn.flags(enabled=False): around the layer's call",
)


def reason_against(family: CallFamily, device: str) -> str | None:
    """See `FactorModule`."""
    if not on_cuda(device):
        return "cuDNN runs on NVIDIA's GPUs"
    call = family.largest
    return None if is_convolution(call) or is_batch_norm(call) else "PyTorch does not run this operator through cuDNN"


CHANGE = Change(around=lambda: setting(import_torch().backends.cudnn, "enabled", False))
