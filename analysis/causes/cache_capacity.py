"""Cache capacity: a kernel's data fits the cache (L2; the last level of a CPU) at one size and not at the other.

The working set is the compulsory bytes of one launch, a lower bound.
"""

from __future__ import annotations

from ...profiling.attribution.kernel_names import short_name
from .case import Case, Claim, Evidence, Intervention, counted_total, seen, total

CAUSE = "cache capacity"
INTERVENTION = Intervention(
    expected="With cold caches the smaller sizes are as slow per byte as the larger ones.",
    term=("cold_caches",),
)
# A claim needs bandwidth to fall to this share: cache and DRAM differ by far more, noise by less.
_FALLEN = 0.9
# Measured traffic per compulsory byte must rise by this factor: what no longer fits the cache comes from DRAM again.
_RISEN = 1.1


def possible(case: Case, amount: float) -> bool:
    """Steps whose kernels move no more than the cache holds have all their data there; True if that is not known."""
    del amount
    moved = max(case.facts[batch].kernel_bytes for batch in case.functional.conditions)
    return case.hardware.cache_bytes is None or not moved or moved > case.hardware.cache_bytes


def weigh(case: Case) -> Claim | None:
    """Claim the time that kernels lose when their data no longer fits the cache."""
    cache = case.hardware.cache_bytes
    if cache is None or case.share.key.kind != "kernels":
        return None
    amount = 0.0
    evidence: list[Evidence] = []
    for name in case.common_names():
        low, high = case.at(case.before, name), case.at(case.after, name)
        before_bytes, after_bytes = total(low, "bytes_compulsory"), total(high, "bytes_compulsory")
        before_ms, after_ms = case.time_ms(case.before, name), case.time_ms(case.after, name)
        if not before_bytes or not after_bytes or before_ms <= 0 or after_ms <= 0:
            continue
        sets = (before_bytes / sum(u.calls for u in low), after_bytes / sum(u.calls for u in high))
        bandwidth = (before_bytes / before_ms / 1e6, after_bytes / after_ms / 1e6)
        if not sets[0] <= cache < sets[1] or bandwidth[1] > _FALLEN * bandwidth[0]:
            continue
        measured = (counted_total(low, "dram_bytes"), counted_total(high, "dram_bytes"))
        traffic = None
        if measured[0] is not None and measured[1] is not None:
            traffic = (measured[0] / before_bytes, measured[1] / after_bytes)
            if traffic[1] < _RISEN * traffic[0]:
                continue
        amount += case.coefficient(case.after) * (after_ms - after_bytes / bandwidth[0] / 1e6)
        evidence += [
            seen(
                f"bytes of one launch of {short_name(name)}", sets, "B", "kernels.bytes_compulsory"
            ),
            Evidence("the cache", float(cache), float(cache), "B", "recording.json"),
            seen("its bandwidth", bandwidth, "GB/s", "kernels.bytes_compulsory, duration_ns"),
        ]
        if traffic is not None:
            evidence.append(
                seen(
                    "its measured DRAM bytes per compulsory byte",
                    traffic,
                    "1",
                    "kernels.dram_bytes",
                )
            )
    if not evidence:
        return None
    refutation = (
        "Sizes that both fit the cache, or both exceed it, show the same drop in bandwidth."
    )
    return Claim(CAUSE, amount, 0.8, tuple(evidence), refutation)
