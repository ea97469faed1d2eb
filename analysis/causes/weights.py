"""Weights read every step: bytes that do not depend on the batch size are moved once per step.

Amount: their time at the DRAM roof, else at the bandwidth of the smaller size, an upper bound; a bend has none.
"""

from __future__ import annotations

import math

from .case import Case, Claim, Evidence, Intervention, seen, total

CAUSE = "weights read every step"
INTERVENTION = Intervention(
    expected="With operands that stay in the caches, the share shrinks.",
    term=("warm_caches",),
)
_LEAST_SHARE = 0.2  # of the bytes at the smaller size that do not grow
_ROUNDING = 1e-9  # of coefficients
_MEMORY_BOUND = 0.3  # least share of the time that moving the bytes takes


def possible(case: Case, amount: float) -> bool:
    """Weights make a fixed cost, and neither a bend nor a positive excess; without bytes that stay there are none."""
    of_constant = math.fsum(weight for _, weight in case.functional.coefficients)
    if of_constant * amount <= 0 or abs(of_constant) <= _ROUNDING:
        return False
    before, after = (total(case.at(batch), "bytes_compulsory") for batch in case.sides)
    return not before or not after or _fixed_bytes(case, before, after) >= _LEAST_SHARE * before


def weigh(case: Case) -> Claim | None:
    """Claim the time of bytes that do not grow with the batch."""
    if case.share.key.kind != "kernels" or case.share.key.phase == "optimizer":
        return None
    sizes = {
        batch: total(case.at(batch), "bytes_compulsory") or 0.0
        for batch in case.functional.conditions
    }
    before, after, time_ms = sizes[case.before], sizes[case.after], case.time_ms(case.before)
    fixed = _fixed_bytes(case, before, after)
    if before <= 0 or after <= 0 or time_ms <= 0 or fixed < _LEAST_SHARE * before:
        return None
    dram, compute = case.hardware.roof("DRAM"), case.hardware.roof("compute")
    flops = total(case.at(case.before), "flops") or 0.0
    per_ms = before / time_ms if dram is None else dram.per_s / 1e3
    if before / per_ms < _MEMORY_BOUND * time_ms or (
        compute and before / per_ms < 1e3 * flops / compute.per_s
    ):
        return None
    # Kernels cannot spend more on their bytes than they take.
    fixed_ms = min(fixed / per_ms, *(case.time_ms(batch) for batch in sizes))
    amount = fixed_ms * math.fsum(weight for _, weight in case.functional.coefficients)
    evidence = (
        seen("compulsory bytes per step", (before, after), "B", "kernels.bytes_compulsory"),
        Evidence("bytes that do not grow", fixed, fixed, "B", "the two above"),
        seen("time per step", (time_ms, case.time_ms(case.after)), "ms", "kernels.duration_ns"),
    )
    refutation = "With weights of half as many bytes, the term keeps its value."
    return Claim(CAUSE, amount, 0.6 if dram else 0.5, evidence, refutation)


def _fixed_bytes(case: Case, before: float, after: float) -> float:
    """Bytes that do not grow with the batch, from those of the smaller and of the larger size."""
    return (case.factor * before - after) / (case.factor - 1)
