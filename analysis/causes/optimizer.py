"""Optimizer work: the optimizer updates every weight once per step, whatever the batch size."""

from __future__ import annotations

from .case import Case, Claim, Intervention, seen

CAUSE = "optimizer work"
INTERVENTION = Intervention(
    expected="Without its updates the optimizer's share goes away; with a fused one, or on lists, it shrinks.",
    step=("no_update", "fused_optimizer", "foreach_optimizer"),
)
# Its time may vary a little with the batch size, e.g. by what the caches still have.
_GROWN = 1.2


def weigh(case: Case) -> Claim | None:
    """Claim terms of the optimizer whose time does not grow with the batch."""
    if case.share.key.kind != "kernels" or case.share.key.phase != "optimizer":
        return None
    times = [case.time_ms(batch) for batch in case.sides]
    if times[0] <= 0 or times[1] > _GROWN * times[0]:
        return None
    evidence = (seen("time per step", times, "ms", "kernels.duration_ns"),)
    refutation = "At other sizes its time grows with them."
    return Claim(CAUSE, case.share.value.value, 0.55, evidence, refutation)
