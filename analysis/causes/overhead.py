"""Profiling overhead: the profiler slowed the two sizes differently. Amount: its term, which is measured."""

from __future__ import annotations

import numpy as np

from ..decompose.terms import OVERHEAD
from .case import Case, Claim, Intervention, seen

CAUSE = OVERHEAD
INTERVENTION = Intervention(
    expected="With a recorder of lower overhead, the term goes away.",
    untested="it is measured directly, by steps without the profiler",
)


def weigh(case: Case) -> Claim | None:
    """Claim the term of the profiling overhead."""
    if case.share.key.kind != OVERHEAD:
        return None
    facts = [case.facts[batch] for batch in case.sides]
    timed = [float(np.median(f.timed_ms)) if len(f.timed_ms) else None for f in facts]
    evidence = (
        seen("unprofiled step", timed, "ms", "steps.duration_ns"),
        seen("profiled step", (f.idle_ms + f.kernel_ms for f in facts), "ms", "steps.duration_ns"),
    )
    refutation = "With a recorder of lower overhead, the term stays as large."
    return Claim(CAUSE, case.share.value.value, 0.7, evidence, refutation)
