"""Not significant: statistics cannot tell the term from nothing, so no physical cause is named for it.

Steps of a batch size that fall into two groups are further evidence that its overhead is noise.
"""

from __future__ import annotations

import math

import numpy as np

from ..decompose.statistics import LEVEL, Floats
from ..decompose.terms import OVERHEAD
from .case import Case, Claim, Evidence

CAUSE = "not significant"


def weigh(case: Case) -> Claim | None:
    """Claim terms with an interval that contains 0."""
    value = case.share.value
    if not math.isfinite(value.low) or value.p < LEVEL:
        return None
    unit = case.functional.unit
    evidence = [
        Evidence(
            "95 % interval of the term contains 0", value.low, value.high, unit, "kernels, steps"
        )
    ]
    if case.share.key.kind == OVERHEAD:
        for batch in case.sides:
            if groups := two_groups(case.facts[batch].timed_ms):
                evidence.append(
                    Evidence(
                        f"steps at {batch} fall into two groups", *groups, "ms", "steps.duration_ns"
                    )
                )
    refutation = "With more rounds on a quiet machine, the interval excludes 0."
    return Claim(CAUSE, value.value, 0.99, tuple(evidence), refutation)


def two_groups(times_ms: Floats) -> tuple[float, float] | None:
    """The medians of two groups in the times; None if one group describes them.

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
