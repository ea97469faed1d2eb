"""Instability: the term differs by less than its own noise, or the steps of a batch size fall into two groups.

Amount: all of the term. Where statistics cannot tell a term from nothing, no physical cause is named for it.
"""

from __future__ import annotations

import math

import numpy as np

from ..decompose.terms import OVERHEAD
from .case import Case, Claim, Evidence, Floats

CAUSE = "instability"
LEVEL = 0.05


def weigh(case: Case) -> Claim | None:
    """Claim terms whose interval holds 0, and the profiling overhead of steps with two paces."""
    value = case.share.value
    evidence = []
    if math.isfinite(value.low) and value.p >= LEVEL:
        unit = case.functional.unit
        evidence.append(Evidence("95 % interval of the term holds 0", value.low, value.high, unit, "kernels, steps"))
    if case.share.key.kind == OVERHEAD:
        for batch in (case.before, case.after):
            if groups := two_groups(case.facts[batch].timed_ms):
                evidence.append(Evidence(f"steps of batch {batch} have two paces", *groups, "ms", "steps.duration_ns"))
    if not evidence:
        return None
    refutation = "With more rounds, on a quiet machine, the interval excludes 0 and the steps have one pace."
    return Claim(CAUSE, value.value, 0.99, tuple(evidence), refutation)


def two_groups(times_ms: Floats) -> tuple[float, float] | None:
    """The medians of two groups that the times fall into; null where one group describes them.

    Split at the widest gap that leaves at least a fifth, and three, on each side: two groups if the gap is wider than
    4 times the larger group's interquartile range and than 5 % of the median.
    """
    times = np.sort(times_ms)
    least = max(3, math.ceil(len(times) / 5))
    if len(times) < 2 * least:
        return None
    gaps = np.diff(times)[least - 1 : len(times) - least]
    place = int(np.argmax(gaps)) + least
    low, high = times[:place], times[place:]
    spread = max(float(np.subtract(*np.percentile(group, [75, 25]))) for group in (low, high))
    gap = float(high[0] - low[-1])
    if gap <= 4 * spread or gap <= 0.05 * float(np.median(times)):
        return None
    return float(np.median(low)), float(np.median(high))
