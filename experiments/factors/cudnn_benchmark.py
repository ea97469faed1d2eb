"""cuDNN times its convolution algorithms for each shape and keeps the fastest, instead of choosing by a heuristic."""

from __future__ import annotations

from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, TermChange
from ..replay.operator_kinds import is_convolution
from ..replay.recorded_call import CallFamily
from ..replay.runnable import setting


def _reason_against(family: CallFamily) -> str | None:
    if not is_convolution(family.largest):
        return "PyTorch lets cuDNN choose for convolutions only"
    return "cuDNN times its algorithms already" if import_torch().backends.cudnn.benchmark else None


_HOW = "torch.backends.cudnn.benchmark = True"
FACTOR = Factor(
    name="cudnn_benchmark",
    what="cuDNN times its algorithms and takes the fastest",
    remedy="let cuDNN choose the algorithms of {where} by timing",
    refuses={"cpu": "cuDNN runs on NVIDIA's GPUs"},
    term=TermChange(
        how=_HOW,
        reason_against=_reason_against,
        around=lambda: setting(import_torch().backends.cudnn, "benchmark", True),
    ),
    # In the steps that are not recorded.
    step=StepChange(
        how=_HOW,
        screen=3,
        common=14,
        prepare=lambda _: setattr(import_torch().backends.cudnn, "benchmark", True),
    ),
)
