"""Slow steps: some take far longer than the others, e.g. every second one waits for its loader.

Amount: their term, which is measured.
"""

from __future__ import annotations

from ...profiling.attribution.step_pattern import faster_half
from ..decompose.terms import SLOW_STEPS
from .case import Case, Cause, Intervention
from .evidence import Claim, Strength, cite


def weigh_slow_steps(case: Case) -> Claim | None:
    """Claim the term of the slow steps."""
    if case.share.key.kind != SLOW_STEPS:
        return None
    timed = [case.facts[batch].timed_ms for batch in case.sides]
    means = [float(times.mean()) if len(times) else None for times in timed]
    paces = [float(faster_half(times)) if len(times) else None for times in timed]
    evidence = (
        cite("time per step, of all steps", means, "ms", "steps.duration_ns"),
        cite("of the faster half of the steps", paces, "ms", "steps.duration_ns"),
    )
    refutation = "With more steps in each visit, the term goes away."
    return Claim(SLOW_STEPS, case.share.value.value, Strength.SIGN, evidence, refutation)


slow_steps = Cause(
    name=SLOW_STEPS,
    weigh=weigh_slow_steps,
    intervention=Intervention(
        expected="With every step alike, the term goes away.",
        untested="it is measured directly, by the times of all steps",
    ),
)
