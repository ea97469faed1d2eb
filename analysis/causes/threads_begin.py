"""Start of threads: from some size on an operator runs on more threads, which costs more than it saves. CPU only.

PyTorch divides an elementwise operator from 32,768 elements on. The opposite of idle threads: more threads work, and a
sample takes longer. Amount: the time beyond that at the rate per sample of the fastest batch size, where about one
thread works, at the sizes where more do: an upper bound.
"""

from __future__ import annotations

from .case import Case, Claim, Intervention
from .idle_threads import evidence_of_threads, threads_at_work

CAUSE = "start of threads"
INTERVENTION = Intervention(
    expected="On one thread, or on fewer of them, the larger sizes get faster.",
    step=("half_threads",),
    shared=("one_thread",),
)
_MORE = 1.1  # threads at work, as a factor; they wait briefly for each other in every step
_ABOUT_ONE = 1.25  # threads at work; where several work, more of them are no sign that they begin


def weigh(case: Case) -> Claim | None:
    """Claim the time beyond that with fewer threads."""
    if not (busy := threads_at_work(case)):
        return None
    amount = case.beyond_fastest(lambda b, fastest: busy[b] > _MORE * busy[fastest] and busy[fastest] <= _ABOUT_ONE)
    if not amount:
        return None
    return Claim(CAUSE, amount, 0.5, evidence_of_threads(case, busy), "On one thread the larger sizes take as long.")
