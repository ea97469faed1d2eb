"""More calls: a layer runs the same kernels more often in a phase at the larger batch size; needs no model.

Amount: the calls beyond the fewest at any batch size of the functional, each at the mean time of its kernel's there.
"""

from __future__ import annotations

import math

from .case import Case, Claim, Intervention, seen

CAUSE = "more calls"
INTERVENTION = Intervention(
    expected="With as many calls at all sizes, the term's share goes away.",
    untested="how often a step calls an operator is the program's or the library's choice",
)
# Calls beyond the fewest take at least this share of the term's time at the larger batch size.
_LEAST_SHARE = 0.1
_REFUTATION = "With the smaller size's number of calls at both, the term keeps its value."


def weigh(case: Case) -> Claim | None:
    """Claim the contribution of calls beyond the fewest."""
    if case.share.key.kind != "kernels" or not (names := case.common_names()):
        return None
    conditions = case.functional.conditions
    extra_ms = {
        batch: math.fsum(_extra_ms(case, batch, name) for name in names) for batch in conditions
    }
    if extra_ms[case.after] < _LEAST_SHARE * case.time_ms(case.after):
        return None
    main = max(names, key=lambda name: _extra_ms(case, case.after, name))
    evidence = (
        seen(
            f"calls of {main} per step",
            (_calls(case, batch, main) for batch in case.sides),
            "",
            "kernels.name",
        ),
        seen(
            "time of calls beyond the fewest",
            map(extra_ms.get, case.sides),
            "ms",
            "kernels.duration_ns",
        ),
    )
    return Claim(CAUSE, case.evaluate(extra_ms.__getitem__), 0.9, evidence, _REFUTATION)


def _extra_ms(case: Case, batch: int, name: str) -> float:
    """Time of a kernel's calls at a batch size beyond the fewest at any."""
    calls = {batch: _calls(case, batch, name) for batch in case.functional.conditions}
    fewest = min((number for number in calls.values() if number), default=0.0)
    return case.time_ms(batch, name) * (1 - fewest / calls[batch]) if calls[batch] else 0.0


def _calls(case: Case, batch: int, name: str) -> float:
    return math.fsum(use.calls for use in case.at(batch, name))
