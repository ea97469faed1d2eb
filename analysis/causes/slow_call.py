"""Slow library call: a library runs an operator at a lower rate at one batch size than at another.

Rates are shares of the roofline's time, so a crossing of the ridge is no lower rate. Without roofs both FLOP per second
and bytes per second must be lower.
"""

from __future__ import annotations

from .case import Case, Claim, Intervention, seen, total

CAUSE = "slow library call"
INTERVENTION = Intervention(
    expected="Through another library, or with operands stored in another order, the term's share goes away.",
    term=("onednn", "no_onednn", "no_cudnn", "cublaslt", "other_layout", "channels_last"),
    step=("no_onednn", "channels_last", "other_layout"),
)
# Rates of the same kernel differ by some percent anyway.
_FALLEN = 0.9
# Below causes that say why the rate is low.
_SCORE = 0.4


def weigh(case: Case) -> Claim | None:
    """Claim the time lost to lower rates, for kernels that run at both sizes."""
    if case.share.key.kind != "kernels" or case.switched:
        return None
    rates = _rates(case)
    if not rates or min(rates.values()) > _FALLEN:
        return None
    amount = sum(
        case.coefficient(batch) * case.time_ms(batch) * (1 - rate) for batch, rate in rates.items()
    )
    evidence = (
        seen("rate, as a share of the best", (rates[b] for b in case.sides), "1", "kernels.flops"),
        seen("time per step", map(case.time_ms, case.sides), "ms", "kernels.duration_ns"),
    )
    return Claim(
        CAUSE, amount, _SCORE, evidence, "Through another library the term keeps its value."
    )


def _rates(case: Case) -> dict[int, float]:
    """Rate at each batch size as a share of the best, the highest of what can be its limit; empty if unknown."""
    batches = case.functional.conditions
    compute, dram = case.hardware.roof("compute"), case.hardware.roof("DRAM")
    work = {
        batch: (
            total(case.at(batch), "flops") or 0.0,
            total(case.at(batch), "bytes_compulsory") or 0.0,
        )
        for batch in batches
    }
    if any(case.time_ms(batch) <= 0 for batch in batches):
        return {}
    limits: list[dict[int, float]] = []
    if compute is not None and dram is not None and all(size for _, size in work.values()):
        limits.append(
            {b: max(flops / compute.per_s, size / dram.per_s) for b, (flops, size) in work.items()}
        )
    else:
        limits += [{b: amounts[index] for b, amounts in work.items()} for index in (0, 1)]
    shares = []
    for ideal in limits:
        rates = {batch: size / case.time_ms(batch) for batch, size in ideal.items()}
        best = max(rates.values())
        if min(rates.values()) > 0:
            shares.append({batch: rate / best for batch, rate in rates.items()})
    return {batch: max(share[batch] for share in shares) for batch in batches} if shares else {}
