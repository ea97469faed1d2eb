"""Operators without oneDNN on a CPU."""

from __future__ import annotations

from ...base.torch_runtime import import_torch
from ...profiling.recording.experiments import FactorFacts
from ..replay.operator_kinds import is_convolution, is_half, is_product, on_cuda, ran_through_onednn
from ..replay.recorded_call import CallFamily
from .change import Change, setting

FACTS = FactorFacts(
    "no_onednn",
    what="operators run without oneDNN",
    remedy="run {where} without oneDNN",
    how="with torch.backends.mkldnn.flags(enabled=False): around the layer's call",
)


def reason_against(family: CallFamily, device: str) -> str | None:
    """See `FactorModule`."""
    if on_cuda(device):
        return "oneDNN runs on CPUs"
    call, ran = family.largest, ran_through_onednn(family)
    if ran is False or (ran is None and not is_convolution(call) and not (is_product(call) and is_half(call))):
        return "PyTorch does not run this operator through oneDNN"
    return None if import_torch().backends.mkldnn.is_available() else "this PyTorch has no oneDNN"


CHANGE = Change(around=lambda: setting(import_torch().backends.mkldnn, "enabled", False))
