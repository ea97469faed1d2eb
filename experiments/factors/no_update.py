"""The step without the updates of its optimizers: all of their cost goes away. The parameters keep their values."""

from __future__ import annotations

from ..factor import Factor, StepChange
from ..optimizer_flags import NoUpdates, reason_against

FACTOR = Factor(
    name="no_update",
    what="the optimizer updates no parameter",
    step=StepChange(
        reason_against=reason_against,
        change=lambda workload, _: NoUpdates(workload),
    ),
)
