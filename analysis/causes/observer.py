"""Observer effect: the profiler slowed the two sizes unlike. Amount: its term, which is measured, less instability."""

from __future__ import annotations

import numpy as np

from .case import Case, Claim, seen

CAUSE = "observer effect"


def weigh(case: Case) -> Claim | None:
    """Claim the observer effect's own term."""
    if case.part.kind != "observer effect":
        return None
    facts = [case.facts[batch] for batch in (case.before, case.after)]
    timed = [float(np.median(f.timed_ms)) if len(f.timed_ms) else None for f in facts]
    evidence = (
        seen("step without a profiler", timed, "ms", "steps.duration_ns"),
        seen("step under it", (f.idle_ms + f.kernel_ms for f in facts), "ms", "steps.duration_ns"),
    )
    refutation = "A recorder that costs less leaves this term as large."
    return Claim(CAUSE, case.part.value.value, 0.7, evidence, refutation)
