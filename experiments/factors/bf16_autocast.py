"""Products and convolutions in bf16 through autocast: half the memory traffic, and faster units where there are any."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...base.torch_runtime import import_torch
from ..changed_steps import StepsWithin
from ..factor import Factor, StepChange, Target
from ..replay.operator_kinds import on_cuda


def _reason_against(target: Target) -> str | None:
    precision = target.configuration.precision
    return None if precision in (None, "fp32", "tf32") else f"the steps run in {precision} already"


def _change(workload: Any, target: Target) -> StepsWithin:
    torch = import_torch()
    device = "cuda" if on_cuda(target.configuration.device) else "cpu"
    return StepsWithin(workload, partial(torch.autocast, device, torch.bfloat16))


FACTOR = Factor(
    name="bf16_autocast",
    what="products and convolutions compute in bf16",
    remedy="run {where} in bf16 by autocast",
    step=StepChange(
        how={
            "cpu": 'with torch.autocast("cpu", torch.bfloat16): around the forward pass and the loss',
            "cuda": 'with torch.autocast("cuda", torch.bfloat16): around the forward pass and the loss',
        },
        common=8,
        reason_against=_reason_against,
        changed_results=lambda _: "products and convolutions have 8 significant bits",
        change=_change,
    ),
)
