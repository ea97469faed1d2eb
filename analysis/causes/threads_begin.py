"""Start of threads: from some size on an operator runs on more threads, which costs more than it saves. CPU only.

PyTorch divides an elementwise operator from 32,768 elements on. The amount is an upper bound. Threads that sleep until
they begin are no evidence of themselves: they look idle. What one thread makes faster shows them.
"""

from __future__ import annotations

from .case import Case, Claim, Intervention
from .idle_threads import evidence_of_threads, threads_at_work

CAUSE = "start of threads"
INTERVENTION = Intervention(
    expected="On one thread, or on fewer of them, the larger sizes get faster.",
    step=("half_threads",),
    shared=("one_thread",),
    slows=True,
)
# Threads at work; one thread alone has at most one core, whatever it waits for.
_ABOUT_ONE = 1.25


def weigh(case: Case) -> Claim | None:
    """Claim the time beyond that with fewer threads."""
    if not (busy := threads_at_work(case, with_core=True)):
        return None
    amount = case.beyond_fastest(lambda batch, fastest: busy[fastest] <= _ABOUT_ONE < busy[batch])
    if not amount:
        return None
    return Claim(
        CAUSE,
        amount,
        0.5,
        evidence_of_threads(case, busy),
        "On one thread the larger sizes take as long.",
    )
