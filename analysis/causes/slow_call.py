"""Slow library call: a library runs an operator at a lower rate at one batch size than at another.

Amount: the time beyond that of the best rate at any of the batch sizes. Rates are shares of the roofline's time, so a
crossing of the ridge is no lower rate; without roofs they are FLOP per second.
"""

from __future__ import annotations

from .case import Case, Claim, Intervention, seen, total

CAUSE = "slow library call"
INTERVENTION = Intervention(
    expected="Through another library, or with operands stored in another order, the term's share goes away.",
    remedy="run the operator through another library, or store its operands in another order",
    term=("onednn", "no_onednn", "no_cudnn", "cublaslt", "other_layout", "channels_last"),
    step=("no_onednn", "channels_last"),
)
# Rates of the same kernel differ by some percent anyway.
_FALLEN = 0.9
# Below causes that say why the rate is low.
_SCORE = 0.4


def weigh(case: Case) -> Claim | None:
    """Claim the time lost to lower rates, for kernels that run at both sizes."""
    if case.share.key.kind != "kernels" or case.main_kernel(case.before) != case.main_kernel(case.after):
        return None
    ideal = {batch: _ideal(case, batch) for batch in case.functional.conditions}
    rates = {batch: size / case.time_ms(batch) for batch, size in ideal.items() if size and case.time_ms(batch) > 0}
    if len(rates) < len(ideal) or min(rates.values()) > _FALLEN * max(rates.values()):
        return None
    best = max(rates.values())
    amount = sum(case.coefficient(batch) * case.time_ms(batch) * (1 - rate / best) for batch, rate in rates.items())
    evidence = (
        seen(
            "rate, as a share of the best", (rates[b] / best for b in (case.before, case.after)), "1", "kernels.flops"
        ),
        seen("time per step", map(case.time_ms, (case.before, case.after)), "ms", "kernels.duration_ns"),
    )
    return Claim(CAUSE, amount, _SCORE, evidence, "Through another library the term keeps its value.")


def _ideal(case: Case, batch: int) -> float | None:
    """Time in ms by the roofline; without roofs the FLOPs; None if unknown."""
    flops, size = total(case.at(batch), "flops"), total(case.at(batch), "bytes_compulsory")
    compute, dram = case.hardware.roof("compute"), case.hardware.roof("DRAM")
    if compute is None or dram is None or not size:
        return flops
    return 1e3 * max((flops or 0.0) / compute.per_s, size / dram.per_s)
