"""Roof change: a term passes the ridge of the roofline between the two sizes, so another limit determines its time.

Amount: the functional of the roofline's time, max(FLOPs/compute roof, bytes/DRAM roof), scaled to the smaller size's.
"""

from __future__ import annotations

from .case import Case, Claim, Evidence, Intervention, counted_total, total

CAUSE = "roof change"
INTERVENTION = Intervention(
    expected="At sizes on one side of the ridge, the excess goes away.",
    untested="no factor changes the FLOPs or the bytes of a kernel",
)


def weigh(case: Case) -> Claim | None:
    """Claim the change that the roofline predicts."""
    compute, dram = case.hardware.roof("compute"), case.hardware.roof("DRAM")
    if compute is None or dram is None or case.share.key.kind != "kernels":
        return None
    ridge = compute.per_s / dram.per_s
    batches = [batch for batch, _ in case.functional.coefficients]
    measured = all(counted_total(case.at(batch), "dram_bytes") for batch in batches)
    column = "dram_bytes" if measured else "bytes_compulsory"
    work = {
        batch: (total(case.at(batch), "flops"), total(case.at(batch), column)) for batch in batches
    }
    if not all(flops and size for flops, size in work.values()):
        return None
    intensity = {batch: (flops or 0) / (size or 1) for batch, (flops, size) in work.items()}
    low, high = intensity[case.before], intensity[case.after]
    if (low < ridge) == (high < ridge):
        return None
    roof_ms = {
        b: 1e3 * max((f or 0) / compute.per_s, (s or 0) / dram.per_s) for b, (f, s) in work.items()
    }
    scale = case.time_ms(case.before) / roof_ms[case.before]
    amount = sum(
        coefficient * scale * roof_ms[batch] for batch, coefficient in case.functional.coefficients
    )
    predicted, recorded = scale * roof_ms[case.after], case.time_ms(case.after)
    miss = abs(predicted - recorded) / recorded if recorded > 0 else 1.0
    score = 0.75 * max(0.0, 1 - miss / 0.5)
    if score == 0:
        return None
    per = f"FLOPs per {'measured' if measured else 'compulsory'} byte (ridge {ridge:.3g})"
    what = "time at the larger size: predicted by the roofline, recorded"
    evidence = (
        Evidence(per, low, high, "FLOP/B", f"kernels.flops, {column}"),
        Evidence(what, predicted, recorded, "ms", f"model ({compute.kind}s); kernels.duration_ns"),
    )
    return Claim(
        CAUSE, amount, score, evidence, "At sizes on one side of the ridge, the excess is as large."
    )
