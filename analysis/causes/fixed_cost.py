"""Fixed cost amortised: time that does not grow with the batch makes an excess negative, which is no anomaly.

Amount: the whole negative term of an excess if its kernels are the same at both sizes. The implied fixed time,
excess/(1 - k), must not exceed the smaller size's time.
"""

from __future__ import annotations

from ..decompose.terms import LEFT_OVER, OVERHEAD
from .case import Case, Claim, Evidence, seen

CAUSE = "fixed cost shared"


def weigh(case: Case) -> Claim | None:
    """Claim negative terms of an excess."""
    value = case.share.value.value
    if case.functional.kind != "excess" or value >= 0 or case.share.key.kind in (LEFT_OVER, OVERHEAD):
        return None
    times = [
        case.facts[batch].idle_ms if case.share.key.kind == "idle" else case.time_ms(batch)
        for batch in (case.before, case.after)
    ]
    fixed_ms = -value / (case.factor - 1)
    if fixed_ms > times[0] * 1.05:
        return None
    evidence = (
        seen("time per step", times, "ms", "kernels.duration_ns"),
        Evidence("fixed part, if the rest is proportional", fixed_ms, fixed_ms, "ms", "the two above"),
    )
    return Claim(CAUSE, value, 0.55, evidence, "At other batch sizes the term does not lie on the same straight line.")
