"""Throttling: the clock was lower during the larger batch.

Amount: the time at the larger size beyond what the smaller size's clock would have needed, if all of it depended on the
clock: an upper bound for kernels that wait for memory.
"""

from __future__ import annotations

from .case import Case, Claim, Evidence, Intervention

CAUSE = "throttling"
INTERVENTION = Intervention(
    expected="With pauses between the steps the device stays cool, and the excess goes away.",
    remedy="cool the device better, or raise its power limit",
    step=("pauses",),
)
# Clocks are sampled coarsely and fluctuate; a smaller difference is no change.
_FALLEN = 0.97


def weigh(case: Case) -> Claim | None:
    """Claim the time explained by a lower clock."""
    if case.share.key.kind != "kernels":
        return None
    before, after = case.facts[case.before], case.facts[case.after]
    if not before.sm_clock_hz or not after.sm_clock_hz:
        return None
    ratio = after.sm_clock_hz / before.sm_clock_hz
    if ratio > _FALLEN:
        return None
    reasons = after.throttle_reasons - before.throttle_reasons
    evidence = [Evidence("SM clock", before.sm_clock_hz / 1e6, after.sm_clock_hz / 1e6, "MHz", "clocks.sm_clock_hz")]
    if reasons:
        old, new = (", ".join(sorted(facts.throttle_reasons)) or "none" for facts in (before, after))
        evidence.append(Evidence("throttle reasons", old, new, "", "clocks.throttle_reasons"))
    amount = case.coefficient(case.after) * case.time_ms(case.after) * (1 - ratio)
    score = 0.93 if reasons else 0.82
    return Claim(CAUSE, amount, score, tuple(evidence), "With locked clocks, the excess is as large.")
