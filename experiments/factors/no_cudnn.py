"""Operators without cuDNN."""

from __future__ import annotations

from ...base.torch_runtime import import_torch
from ..factor import Factor, TermChange
from ..replay.operator_kinds import is_batch_norm, is_convolution
from ..replay.recorded_call import CallFamily
from ..replay.runnable import setting


def _reason_against(family: CallFamily) -> str | None:
    call = family.largest
    return None if is_convolution(call) or is_batch_norm(call) else "PyTorch does not run this operator through cuDNN"


FACTOR = Factor(
    name="no_cudnn",
    what="operators run without cuDNN",
    remedy="run {where} without cuDNN",
    refuses={"cpu": "cuDNN runs on NVIDIA's GPUs"},
    term=TermChange(
        how="with torch.backends.cudnn.flags(enabled=False): around the layer's call",
        reason_against=_reason_against,
        around=lambda: setting(import_torch().backends.cudnn, "enabled", False),
    ),
    levels=True,
)
