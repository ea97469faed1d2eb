"""Fixed cost amortised: time that does not grow with the batch makes an excess negative, which is no anomaly.

The implied fixed time, excess/(1 - k), must not exceed the smaller size's time.
"""

from __future__ import annotations

from ..decompose.terms import OVERHEAD
from .case import Case, Claim, Evidence, Intervention, seen

CAUSE = "fixed cost amortised"
INTERVENTION = Intervention(
    expected="At other sizes the term lies on the same straight line.",
    untested="the causes of the fixed cost itself are tested instead",
)
# Below every cause that says why the time does not grow.
_SCORE = 0.3


def weigh(case: Case) -> Claim | None:
    """Claim negative terms of an excess."""
    value = case.share.value.value
    if case.functional.kind != "excess" or value >= 0 or case.share.key.kind == OVERHEAD:
        return None
    times = [case.time_ms(batch) for batch in case.sides]
    fixed_ms = -value / (case.factor - 1)
    if fixed_ms > times[0] * 1.05:
        return None
    evidence = (
        seen("time per step", times, "ms", "kernels.duration_ns"),
        Evidence(
            "fixed part, if the rest is proportional", fixed_ms, fixed_ms, "ms", "the two above"
        ),
    )
    return Claim(
        CAUSE,
        value,
        _SCORE,
        evidence,
        "At other sizes the term does not lie on the same straight line.",
    )
