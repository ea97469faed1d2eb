"""Idle threads: fewer threads work at one batch size than at another, as work is small or unevenly divided. CPU only.

Amount: the time beyond what as many threads as at the best size would have needed: an upper bound.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .case import Case, Claim, Evidence, Intervention, seen

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
    busy = threads_at_work(case)
    best = max(busy.values(), default=0.0)
    if min(busy.values(), default=0.0) > _FALLEN * best or not busy:
        return None
    amount = sum(
        case.coefficient(b) * case.time_ms(b) * (1 - threads / best) for b, threads in busy.items()
    )
    return Claim(
        CAUSE,
        amount,
        0.5,
        evidence_of_threads(case, busy),
        "On one thread the term keeps its value.",
    )


def threads_at_work(case: Case, *, with_core: bool = False) -> dict[int, float]:
    """Mean number of threads of a step that work, by batch size; empty if unknown, with one thread, and on a GPU.

    `with_core` leaves out threads that have work and wait for a core.
    """
    busy: dict[int, float] = {}
    if (
        case.share.key.kind != "kernels"
        or case.hardware.kind != "cpu"
        or case.hardware.threads == 1
    ):
        return busy
    for batch in case.functional.conditions:
        facts = case.facts[batch]
        if facts.host_use is None or facts.host_use.cpu_ms <= 0 or not len(facts.timed_ms):
            return {}
        # Threads that wait for a core have work.
        waiting_ms = 0.0 if with_core else facts.host_use.run_queue_wait_ms or 0.0
        busy[batch] = (facts.host_use.cpu_ms + waiting_ms) / float(np.median(facts.timed_ms))
    return busy


def evidence_of_threads(case: Case, busy: Mapping[int, float]) -> tuple[Evidence, ...]:
    """The threads at work and the time of the term at both batch sizes."""
    return (
        seen(
            "threads at work",
            map(busy.get, case.sides),
            "threads",
            "steps.cpu_time_ns, run_queue_wait_ns",
        ),
        seen("time per step", map(case.time_ms, case.sides), "ms", "kernels.duration_ns"),
    )
