"""CPU contention: threads of the larger batch waited for a core.

The share of the runnable time in which threads had a core falls with a busy neighbour, a quota, or fewer cores. Amount:
the time at the larger size beyond what the smaller size's share would have needed: an upper bound.
"""

from __future__ import annotations

from .case import Case, Claim, Intervention, seen

CAUSE = "CPU contention"
INTERVENTION = Intervention(
    expected="With as many idle cores as threads, the excess goes away.",
    remedy="leave as many cores to the process as it has threads",
    untested="no factor takes other work off the machine: measure again while nothing else runs",
)
# A few threads always wait briefly for each other's cores.
_FALLEN = 0.95


def weigh(case: Case) -> Claim | None:
    """Claim the time explained by missing cores."""
    if case.share.key.kind != "kernels" or case.hardware.kind != "cpu":
        return None
    sides = [case.facts[batch].host_use for batch in (case.before, case.after)]
    uses = [use for use in sides if use is not None and use.pace is not None]
    if len(uses) < 2:
        return None
    paces = before, after = [use.pace or 0.0 for use in uses]
    if after > _FALLEN * before:
        return None
    evidence = (
        seen("share of runnable time with a core", paces, "1", "steps.cpu_time_ns, run_queue_wait_ns"),
        seen("CPU time per step", (use.cpu_ms for use in uses), "ms", "steps.cpu_time_ns"),
        seen("wait for a core per step", (use.run_queue_wait_ms for use in uses), "ms", "steps.run_queue_wait_ns"),
    )
    amount = case.coefficient(case.after) * case.time_ms(case.after) * (1 - after / before)
    refutation = "With as many idle cores as threads at both sizes, the excess is as large."
    return Claim(CAUSE, amount, 0.88, evidence, refutation)
