"""Convolutions without NNPACK on a CPU: PyTorch takes it from a batch of 16 on, where oneDNN does not run."""

from __future__ import annotations

from ...base.torch_runtime import import_torch
from ...profiling.recording.experiments import FactorFacts
from ..replay.operator_kinds import is_convolution, on_cuda, ran_kernel
from ..replay.recorded_call import CallFamily
from .change import Change

FACTS = FactorFacts(
    "no_nnpack",
    what="convolutions run without NNPACK",
    remedy="run {where} without NNPACK",
    how="with torch.backends.nnpack.flags(enabled=False): around the layer's call",
)


def reason_against(family: CallFamily, device: str) -> str | None:
    """See `FactorModule`."""
    if on_cuda(device):
        return "NNPACK runs on CPUs"
    if not is_convolution(family.largest) or ran_kernel(family, "nnpack") is False:
        return "PyTorch does not run this operator through NNPACK"
    return None if import_torch().backends.nnpack.is_available() else "this PyTorch has no NNPACK for this CPU"


CHANGE = Change(around=lambda: import_torch().backends.nnpack.flags(enabled=False))
