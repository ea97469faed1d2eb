"""Values: the same kernels take longer for the numbers that a batch size has, denormal ones or indices. CPU only.

The shares are those of one step. The amount is an upper bound.
"""

from __future__ import annotations

from .case import Case, Claim, Intervention, TermOperands, seen

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
    if not (
        amount := case.beyond_fastest(
            lambda batch, fastest: _differ(case.operands(batch), case.operands(fastest))
        )
    ):
        return None
    sides = [case.operands(batch) for batch in case.sides]
    evidence = [
        seen(what, shares, "1", "operators.numbers")
        for what, shares in (
            ("share of denormal numbers in operands and results", [of.denormals for of in sides]),
            ("share of distinct indices", [of.distinct for of in sides]),
        )
        if any(shares)
    ]
    return Claim(CAUSE, amount, _SCORE, tuple(evidence), _REFUTATION) if evidence else None


def _differ(numbers: TermOperands, fastest: TermOperands) -> bool:
    """Whether the numbers at a batch size may be slower than those at the fastest one; False if unknown."""
    denormal = _difference(numbers.denormals, fastest.denormals) > _MORE_DENORMAL
    return denormal or abs(_difference(numbers.distinct, fastest.distinct)) > _LESS_DISTINCT


def _difference(share: float | None, of_fastest: float | None) -> float:
    return 0.0 if share is None or of_fastest is None else share - of_fastest
