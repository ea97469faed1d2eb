"""The optimizer updates all parameters in one kernel, instead of a few small operators for each parameter."""

from __future__ import annotations

from ..factor import Factor, StepChange
from ..optimizer_flags import OptimizerForm, reason_against

FACTOR = Factor(
    name="fused_optimizer",
    what="the optimizer is fused",
    remedy="fuse the optimizer",
    step=StepChange(
        how="fused=True where the optimizer is created, e.g. torch.optim.AdamW(parameters, fused=True)",
        common=2,
        reason_against=reason_against,
        change=lambda workload, _: OptimizerForm(workload, "fused"),
    ),
    partial=True,
    sets="optimizer",
)
