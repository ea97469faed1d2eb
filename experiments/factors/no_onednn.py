"""Operators without oneDNN on a CPU: torch's own kernels and MKL instead."""

from __future__ import annotations

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.operator_kinds import is_convolution, is_half, is_product, ran_through_onednn
from ..replay.recorded_call import CallFamily
from ..replay.runnable import setting


def _reason_against(family: CallFamily) -> str | None:
    call, ran = family.largest, ran_through_onednn(family)
    if ran is False or (ran is None and not is_convolution(call) and not (is_product(call) and is_half(call))):
        return "PyTorch does not run this operator through oneDNN"
    return None if import_torch().backends.mkldnn.is_available() else "this PyTorch has no oneDNN"


def _prepare(_: Target) -> None:
    mkldnn = import_torch().backends.mkldnn
    if not (mkldnn.is_available() and mkldnn.enabled):
        raise CurvescopeError("this torch runs without oneDNN")
    mkldnn.set_flags(False)


FACTOR = Factor(
    name="no_onednn",
    what="operators run without oneDNN",
    remedy="run {where} without oneDNN",
    refuses={"cuda": "oneDNN runs on CPUs"},
    term=TermChange(
        how="with torch.backends.mkldnn.flags(enabled=False): around the layer's call",
        screen=5,
        reason_against=_reason_against,
        around=lambda: setting(import_torch().backends.mkldnn, "enabled", False),
    ),
    step=StepChange(how="torch.backends.mkldnn.enabled = False", screen=5, prepare=_prepare),
    levels=True,
)
