"""Kernels beside communication: a collective takes SMs and DRAM bandwidth from kernels that run at the same time.

Half of a call beside one collective counts as time of the collective, so that half of the slow-down is claimed in the
term of communication. Calls of kernels that never run alone are left out: the amount is a lower bound.
"""

from __future__ import annotations

import math

from ..decompose.statistics import LEVEL, normal_estimate
from ..decompose.terms import COMMUNICATION, KERNELS
from .case import Case, Claim, Intervention, SlowDown, seen

CAUSE = "kernels beside communication"
INTERVENTION = Intervention(
    expected="With the collectives after the kernels instead of beside them, the kernels are as fast as alone.",
    untested="no factor takes communication out of a step",
)
_NONE = SlowDown(0.0, 0.0, 0.0, 0.0)
_SCORE = 0.86
_TABLE = "kernels.duration_ns"


def weigh(case: Case) -> Claim | None:
    """Claim the slow-down, where it is larger than its error."""
    if case.share.key.kind not in (KERNELS, COMMUNICATION) or not case.slow_downs:
        return None
    slowed = {batch: case.slow_downs.get(batch, _NONE) for batch in case.functional.conditions}
    amount = case.evaluate(lambda batch: slowed[batch].time_ms)
    error = math.hypot(
        *(weight * slowed[batch].error_ms for batch, weight in case.functional.coefficients)
    )
    if normal_estimate(amount, error).p >= LEVEL:
        return None
    sides = [slowed[batch] for batch in case.sides]
    evidence = (
        seen(
            "time of calls beside communication, had they run alone",
            (s.expected_ms for s in sides),
            "ms",
            _TABLE,
        ),
        seen("their slow-down per step", (s.excess_ms for s in sides), "ms", _TABLE),
    )
    return Claim(
        CAUSE, amount, _SCORE, evidence, "Without collectives beside them, the kernels are as slow."
    )
