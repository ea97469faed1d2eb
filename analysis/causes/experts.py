"""The experts of a mixture as a cause: a step reads the weights of every expert that has a token.

A few tokens spread over many experts, so up to some size each more token reads the weights of
others: nothing is shared between samples. From where all experts have a token, their weights are a
fixed cost of the step.
"""

from __future__ import annotations

import math

from .case import Case, Cause, Intervention, total
from .evidence import Claim, Strength, cite
from .expert_tokens import ExpertTokens

EXPERTS = "weights of experts"
_MEMORY_BOUND = 0.3  # least share of the time that moving the bytes takes
_REFUTATION = "Where all experts read the weights of one, the term keeps its value."


def weigh_experts(case: Case) -> Claim | None:
    """Claim the time of the weights of as many experts as have a token."""
    tokens = {batch: case.operands(batch).experts for batch in case.functional.conditions}
    count = {batch: len(of_batch.of_each) for batch, of_batch in tokens.items()}
    if case.share.key.kind != "kernels" or not all(count.values()):
        return None
    per_expert_ms = min(case.time_ms(batch) / count[batch] for batch in count)
    dram = case.hardware.roof("DRAM")
    moved = [total(case.at(batch), "bytes_compulsory") for batch in count]
    if dram is not None and all(moved):
        at_roof_ms = math.inf
        for size, experts in zip(moved, count.values(), strict=True):
            at_roof_ms = min(at_roof_ms, 1e3 * (size or 0.0) / dram.per_s / experts)
        if at_roof_ms < _MEMORY_BOUND * per_expert_ms:
            return None
        per_expert_ms = min(at_roof_ms, per_expert_ms)
    amount = case.evaluate(lambda batch: count[batch] * per_expert_ms)
    if not amount:
        return None
    sides = [tokens[batch] for batch in case.sides]
    whole = max(side.experts for side in sides)
    all_known = all(side.is_known for side in sides)
    what = f"experts {'with' if all_known else 'that can have'} a token, of {whole}"
    evidence = [
        cite(what, map(_number, sides), "", "operators.arguments"),
        cite("tokens that they have together", map(_tokens, sides), "", "operators.arguments"),
    ]
    if all_known:
        busiest = "tokens of the busiest over their mean"
        evidence.append(cite(busiest, map(_load, sides), "", "operators.arguments"))
    times = map(case.time_ms, case.sides)
    evidence.append(cite("time per step", times, "ms", "kernels.duration_ns"))
    before, after = map(_number, sides)
    have = "have" if all_known else "can have"
    detail = f"({before:g} and {after:g} of {whole} {have} a token)"
    return Claim(EXPERTS, amount, Strength.FACT, tuple(evidence), _REFUTATION, detail)


def _number(tokens: ExpertTokens) -> float:
    return float(len(tokens.of_each))


def _tokens(tokens: ExpertTokens) -> float:
    return float(sum(tokens.of_each))


def _load(tokens: ExpertTokens) -> float:
    return max(tokens.of_each) * _number(tokens) / _tokens(tokens)


experts = Cause(
    name=EXPERTS,
    weigh=weigh_experts,
    intervention=Intervention(
        expected="With the weights of one expert in place of those of all, the share goes away.",
        term=("one_expert",),
    ),
)
