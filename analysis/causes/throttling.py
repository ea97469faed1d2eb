"""Throttling: the clock was lower while the larger batch was measured, or its threads waited for a core.

Amount: the time at the larger size beyond what the smaller size's pace would have needed, were all of it bound to the
clock: an upper bound for kernels that wait for memory. On a CPU the pace is the share of the time that threads were
ready in which they had a core: less of it with a busy neighbour, a quota, or fewer cores to run on.
"""

from __future__ import annotations

from .case import Case, Claim, Evidence, seen

CAUSE = "throttling"
# Clocks are sampled coarsely and breathe; less than that is no change.
_FALLEN = 0.97
# A few threads always wait a little for each other's cores.
_FALLEN_CORES = 0.95


def weigh(case: Case) -> Claim | None:
    """Claim the time that a lower clock, or missing cores, account for."""
    if case.share.key.kind != "kernels":
        return None
    return _clock(case) or (_cores(case) if case.hardware.kind == "cpu" else None)


def _cores(case: Case) -> Claim | None:
    sides = [case.facts[batch].host_use for batch in (case.before, case.after)]
    uses = [use for use in sides if use is not None and use.pace is not None]
    if len(uses) < 2:
        return None
    paces = before, after = [use.pace or 0.0 for use in uses]
    if after > _FALLEN_CORES * before:
        return None
    evidence = (
        seen("ready threads that had a core", paces, "1", "steps.cpu_time_ns, core_wait_ns"),
        seen("CPU time per step", (use.cpu_ms for use in uses), "ms", "steps.cpu_time_ns"),
        seen("wait for a core per step", (use.core_wait_ms for use in uses), "ms", "steps.core_wait_ns"),
    )
    amount = case.coefficient(case.after) * case.time_ms(case.after) * (1 - after / before)
    refutation = (
        "With as many cores as threads at both sizes, and nothing else running on them, the excess is as large."
    )
    return Claim(CAUSE, amount, 0.88, evidence, refutation)


def _clock(case: Case) -> Claim | None:
    before, after = case.facts[case.before], case.facts[case.after]
    if not before.sm_clock_hz or not after.sm_clock_hz:
        return None
    ratio = after.sm_clock_hz / before.sm_clock_hz
    if ratio > _FALLEN:
        return None
    reasons = after.throttle_reasons - before.throttle_reasons
    evidence = [Evidence("SM clock", before.sm_clock_hz / 1e6, after.sm_clock_hz / 1e6, "MHz", "clocks.sm_clock_hz")]
    if reasons:
        evidence.append(
            Evidence(
                "throttle reasons",
                ", ".join(sorted(before.throttle_reasons)) or "none",
                ", ".join(sorted(after.throttle_reasons)),
                "",
                "clocks.throttle_reasons",
            )
        )
    amount = case.coefficient(case.after) * case.time_ms(case.after) * (1 - ratio)
    score = 0.93 if reasons else 0.82
    return Claim(CAUSE, amount, score, tuple(evidence), "At locked clocks the excess is as large.")
