"""Throttling: the clock, a mean over the steps, which they count themselves, was lower during the larger batch.

All of the time is taken to depend on the clock: an upper bound for kernels that wait for memory. Measured cycles of the
term's kernels per recorded time give its own clock, which decides, or stands in for one that is missing.
"""

from __future__ import annotations

from .case import Case, Claim, Evidence, Intervention, counted_total

CAUSE = "throttling"
INTERVENTION = Intervention(
    expected=(
        "With the clock locked to one value below that of all sizes, or with pauses between the steps, the excess goes "
        "away."
    ),
    step=("locked_clock", "pauses"),
)
# Clocks fluctuate; a smaller difference is no change.
_FALLEN = 0.97


def weigh(case: Case) -> Claim | None:
    """Claim the time explained by a lower clock."""
    if case.share.key.kind != "kernels":
        return None
    before, after = case.facts[case.before], case.facts[case.after]
    sources = (
        ("SM clock", before.sm_clock_hz, after.sm_clock_hz, "steps.sm_clock_hz"),
        (
            "SM clock by cycles",
            _own_clock(case, case.before),
            _own_clock(case, case.after),
            "kernels.sm_cycles",
        ),
    )
    evidence, ratio = [], 1.0
    for what, low, high, table in sources:
        if low and high:
            ratio = high / low
            evidence.append(Evidence(what, low / 1e6, high / 1e6, "MHz", table))
            if ratio > _FALLEN:
                return None
    if not evidence:
        return None
    reasons = after.throttle_reasons - before.throttle_reasons
    if reasons:
        old, new = (
            ", ".join(sorted(facts.throttle_reasons)) or "none" for facts in (before, after)
        )
        evidence.append(Evidence("throttle reasons", old, new, "", "clocks.throttle_reasons"))
    amount = case.coefficient(case.after) * case.time_ms(case.after) * (1 - ratio)
    score = 0.93 if reasons else 0.82
    return Claim(
        CAUSE,
        amount,
        score,
        tuple(evidence),
        "With the clock locked below that of all sizes, the excess is as large.",
    )


def _own_clock(case: Case, batch: int) -> float | None:
    """Measured cycles of the term's kernels over their recorded time, Hz; None unless all of them have cycles."""
    cycles, time_ms = counted_total(case.at(batch), "sm_cycles"), case.time_ms(batch)
    return None if cycles is None or time_ms <= 0 else cycles / time_ms * 1e3
