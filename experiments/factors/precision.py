"""Products and convolutions in fewer bits: bf16, with half the memory traffic too, or TF32 on Ampere and later."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..changed_steps import StepsWithin
from ..factor import Factor, StepChange, Target
from ..replay.operator_kinds import on_cuda


def _reason_against_bf16(target: Target) -> str | None:
    precision = target.configuration.precision
    return None if precision in (None, "fp32", "tf32") else f"the steps run in {precision} already"


def _in_bf16(workload: Any, target: Target) -> StepsWithin:
    torch = import_torch()
    device = "cuda" if on_cuda(target.configuration.device) else "cpu"
    return StepsWithin(workload, partial(torch.autocast, device, torch.bfloat16))


def _reason_against_tf32(target: Target) -> str | None:
    precision = target.configuration.precision
    return None if precision in (None, "fp32") else f"the steps run in {precision}"


def _in_tf32(workload: Any, target: Target) -> Any:
    """Switch it on once the steps are built: networks by name set it from their precision."""
    torch = import_torch()
    if torch.cuda.get_device_capability(target.configuration.device)[0] < 8:
        raise CurvescopeError("this GPU has no TF32")
    if torch.backends.cuda.matmul.allow_tf32:
        raise CurvescopeError("the steps use TF32 already")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    return workload


BF16 = Factor(
    name="bf16_autocast",
    what="products and convolutions compute in bf16",
    remedy="run {where} in bf16 by autocast",
    step=StepChange(
        how={
            device: f'with torch.autocast("{device}", torch.bfloat16): around the forward pass and the loss'
            for device in ("cpu", "cuda")
        },
        common=8,
        reason_against=_reason_against_bf16,
        changed_results=lambda _: "products and convolutions have 8 significant bits",
        change=_in_bf16,
    ),
    is_made_in_programs=True,
)
TF32 = Factor(
    name="tf32",
    what="products of fp32 compute in TF32",
    remedy="run the products of {where} in TF32",
    refuses={"cpu": "TF32 is a format of NVIDIA's GPUs"},
    step=StepChange(
        how="torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True",
        common=15,
        reason_against=_reason_against_tf32,
        changed_results=lambda _: "products and convolutions have 11 significant bits",
        change=_in_tf32,
    ),
    is_made_in_programs=True,
)
