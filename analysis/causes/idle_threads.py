"""Idle threads: fewer threads work at one batch size than at another, as work is small or unevenly divided. CPU only.

Amount: the time at each size beyond what as many threads as at the best size would have needed: an upper bound.
"""

from __future__ import annotations

import numpy as np

from .case import Case, Claim, Intervention, seen

CAUSE = "idle threads"
INTERVENTION = Intervention(
    expected="On one thread, which waits for no other, the term's share goes away.",
    term=("one_thread",),
    step=("one_thread",),
)
# Threads wait briefly for each other in every step.
_FALLEN = 0.9


def weigh(case: Case) -> Claim | None:
    """Claim the time explained by fewer working threads."""
    if case.share.key.kind != "kernels" or case.hardware.kind != "cpu":
        return None
    busy = {}
    for batch in case.functional.conditions:
        facts = case.facts[batch]
        if facts.host_use is None or facts.host_use.cpu_ms <= 0 or not len(facts.timed_ms):
            return None
        # Threads that wait for a core have work.
        working_ms = facts.host_use.cpu_ms + (facts.host_use.run_queue_wait_ms or 0.0)
        busy[batch] = working_ms / float(np.median(facts.timed_ms))
    best = max(busy.values())
    if min(busy.values()) > _FALLEN * best:
        return None
    amount = sum(case.coefficient(b) * case.time_ms(b) * (1 - threads / best) for b, threads in busy.items())
    sides = (case.before, case.after)
    evidence = (
        seen("threads at work", (busy[batch] for batch in sides), "threads", "steps.cpu_time_ns, run_queue_wait_ns"),
        seen("time per step", map(case.time_ms, sides), "ms", "kernels.duration_ns"),
    )
    return Claim(CAUSE, amount, 0.5, evidence, "On one thread the term keeps its value.")
