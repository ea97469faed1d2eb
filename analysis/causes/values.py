"""Values: the same kernels take longer for the numbers that a batch size has, denormal ones or indices.

The shares of denormal numbers and of distinct indices are those of one step. Amount: the time beyond that at the rate
per sample of the fastest batch size, where a share differs from there: an upper bound. CPU only.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .case import Case, Claim, Evidence, Intervention, TermNumbers, seen

CAUSE = "values of the operands"
INTERVENTION = Intervention(
    expected="With usual numbers in the operands, or with denormal numbers flushed to 0, the term's share goes away.",
    term=("usual_values", "flush_denormal"),
    step=("flush_denormal",),
)
_REFUTATION = "With usual numbers in the operands the term keeps its value."
_MORE_DENORMAL = 0.01  # share of the elements
_LESS_DISTINCT = 0.1  # share of the indices
_SCORE = 0.6


def weigh(case: Case) -> Claim | None:
    """Claim the time beyond that with the numbers of the fastest batch size."""
    if case.share.key.kind != "kernels" or case.hardware.kind != "cpu":
        return None
    batches = case.functional.conditions
    numbers = {batch: of for batch in batches if (of := case.facts[batch].numbers.get(case.share.key)) is not None}
    if len(numbers) < len(batches):
        return None
    fastest = min(batches, key=lambda batch: case.time_ms(batch) / batch)
    others = {batch: _differs(numbers[batch], numbers[fastest]) for batch in batches}
    slow = [batch for batch, differs in others.items() if differs]
    if not slow:
        return None
    beyond = {batch: case.time_ms(batch) - batch * case.time_ms(fastest) / fastest for batch in slow}
    amount = math.fsum(case.coefficient(batch) * time_ms for batch, time_ms in beyond.items())
    sides = (case.before, case.after)
    evidence: tuple[Evidence, ...] = ()
    shares: dict[str, Callable[[TermNumbers], float | None]] = {
        "share of denormal numbers in operands and results": lambda of: of.denormals,
        "share of distinct indices": lambda of: of.distinct,
    }
    for what, share in shares.items():
        found = [share(numbers[batch]) for batch in sides]
        if any(found):
            evidence += (seen(what, found, "1", "operators.numbers"),)
    return Claim(CAUSE, amount, _SCORE, evidence, _REFUTATION)


def _differs(numbers: TermNumbers, fastest: TermNumbers) -> bool:
    if numbers.denormals > fastest.denormals + _MORE_DENORMAL:
        return True
    known = numbers.distinct is not None and fastest.distinct is not None
    return known and abs(numbers.distinct - fastest.distinct) > _LESS_DISTINCT  # type: ignore[operator]
