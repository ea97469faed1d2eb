"""The optimizer runs each of its operators once for lists of parameters, instead of once for each parameter."""

from __future__ import annotations

from ..factor import Factor, StepChange
from ..optimizer_flags import OptimizerForm, reason_against

FACTOR = Factor(
    name="foreach_optimizer",
    what="the optimizer runs on lists of parameters",
    remedy="let the optimizer run on lists of parameters",
    refuses={"cuda": "torch's optimizers run on lists of parameters there by default"},
    step=StepChange(
        how="foreach=True where the optimizer is created, e.g. torch.optim.AdamW(parameters, foreach=True)",
        common=3,
        reason_against=reason_against,
        change=lambda workload, _: OptimizerForm(workload, "foreach"),
    ),
    partial=True,
    sets="optimizer",
)
