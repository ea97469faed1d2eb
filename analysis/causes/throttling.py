"""Throttling: the clock was lower during the larger batch, or its threads waited for a core.

Amount: the time at the larger size beyond what the smaller size's clock would have needed, if all of it depended on the
clock: an upper bound for kernels that wait for memory. On a CPU, the share of the runnable time in which threads had a
core takes the part of the clock: it falls with a busy neighbour, a quota, or fewer cores.
"""

from __future__ import annotations

from .case import Case, Claim, Evidence, seen

CAUSE = "throttling"
# Clocks are sampled coarsely and fluctuate; a smaller difference is no change.
_FALLEN = 0.97
# A few threads always wait briefly for each other's cores.
_FALLEN_CORES = 0.95


def weigh(case: Case) -> Claim | None:
    """Claim the time explained by a lower clock, or by missing cores."""
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
        seen("share of runnable time with a core", paces, "1", "steps.cpu_time_ns, run_queue_wait_ns"),
        seen("CPU time per step", (use.cpu_ms for use in uses), "ms", "steps.cpu_time_ns"),
        seen("wait for a core per step", (use.run_queue_wait_ms for use in uses), "ms", "steps.run_queue_wait_ns"),
    )
    amount = case.coefficient(case.after) * case.time_ms(case.after) * (1 - after / before)
    refutation = "With as many idle cores as threads at both sizes, the excess is as large."
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
    return Claim(CAUSE, amount, score, tuple(evidence), "With locked clocks, the excess is as large.")
