"""Products and convolutions of fp32 in TF32 on tensor cores, Ampere or later."""

from __future__ import annotations

from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, Target


def _reason_against(target: Target) -> str | None:
    precision = target.configuration.precision
    return None if precision in (None, "fp32") else f"the steps run in {precision}"


def _switch(target: Target) -> None:
    """Switch it on once the steps are built: networks by name set it from their precision."""
    torch = import_torch()
    if torch.cuda.get_device_capability(target.configuration.device)[0] < 8:
        raise CurvescopeError("this GPU has no TF32")
    if torch.backends.cuda.matmul.allow_tf32:
        raise CurvescopeError("the steps use TF32 already")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def _change(workload: Any, target: Target) -> Any:
    _switch(target)
    return workload


FACTOR = Factor(
    name="tf32",
    what="products of fp32 compute in TF32",
    remedy="run the products of {where} in TF32",
    refuses={"cpu": "TF32 is a format of NVIDIA's GPUs"},
    step=StepChange(
        how="torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True",
        common=15,
        reason_against=_reason_against,
        changed_results=lambda _: "products and convolutions have 11 significant bits",
        change=_change,
    ),
)
