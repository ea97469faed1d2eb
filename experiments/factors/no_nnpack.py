"""Convolutions without NNPACK on a CPU: PyTorch takes it from a batch of 16 on, where oneDNN does not run."""

from __future__ import annotations

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.operator_kinds import is_convolution, ran_kernel
from ..replay.recorded_call import CallFamily

_MISSING = "this torch has no NNPACK for this CPU"


def _reason_against(family: CallFamily) -> str | None:
    if not is_convolution(family.largest) or ran_kernel(family, "nnpack") is False:
        return "PyTorch does not run this operator through NNPACK"
    return None if import_torch().backends.nnpack.is_available() else _MISSING


def _prepare(_: Target) -> None:
    nnpack = import_torch().backends.nnpack
    if not nnpack.is_available():
        raise CurvescopeError(_MISSING)
    (was_enabled,) = nnpack.set_flags(False)
    if not was_enabled:
        raise CurvescopeError("the steps run without NNPACK already")


FACTOR = Factor(
    name="no_nnpack",
    what="convolutions run without NNPACK",
    remedy="run {where} without NNPACK",
    refuses={"cuda": "NNPACK runs on CPUs"},
    term=TermChange(
        how="with torch.backends.nnpack.flags(enabled=False): around the layer's call",
        reason_against=_reason_against,
        around=lambda: import_torch().backends.nnpack.flags(enabled=False),
    ),
    step=StepChange(how="torch.backends.nnpack.set_flags(False)", prepare=_prepare),
)
