"""Precision: an operator of a term runs in another floating-point type at another batch size."""

from __future__ import annotations

from .case import Case, Claim, Evidence, Intervention

CAUSE = "precision"
INTERVENTION = Intervention(
    expected="In one precision at all sizes, the term's share goes away.",
    step=("bf16_autocast",),
    shared=("before_switch",),
)
# Other kernels follow from it.
_SCORE = 0.97


def weigh(case: Case) -> Claim | None:
    """Claim the time beyond that in the type of the fastest batch size."""
    if case.share.key.kind != "kernels":
        return None
    if not (amount := case.beyond_fastest(lambda batch, fastest: bool(_changed(case, batch, fastest)))):
        return None
    op = next(iter(_changed(case, case.before, case.after)), None)
    if op is None:
        return None
    before, after = (" and ".join(sorted(case.operands(batch).dtypes[op])) for batch in case.sides)
    evidence = Evidence(f"type of the operands of {op}", before, after, "", "operators.arguments")
    detail = f"(from {before} to {after})"
    return Claim(CAUSE, amount, _SCORE, (evidence,), "In one precision at all sizes the term keeps its value.", detail)


def _changed(case: Case, batch: int, other: int) -> list[str]:
    """The operators that have no type in common at two batch sizes."""
    types, others = case.operands(batch).dtypes, case.operands(other).dtypes
    return [op for op in types if op in others and types[op].isdisjoint(others[op])]
