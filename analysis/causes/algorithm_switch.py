"""Algorithm switch: a layer runs different kernels in a phase at the larger batch size.

Amount: the contribution of kernels that run at only one of the two sizes; computed from the recording without a model.
"""

from __future__ import annotations

from ...profiling.attribution.kernel_names import ALGORITHMS, read_name, short_name
from .case import Case, Claim, Evidence, Intervention

CAUSE = "algorithm switch"
INTERVENTION = Intervention(
    expected=(
        "With the same library at all sizes, with algorithms chosen in another way, or with larger sizes in "
        "pieces of the size before the switch, the term's share goes away."
    ),
    term=("no_nnpack", "cudnn_benchmark", "deterministic", "before_switch"),
    step=("no_nnpack", "cudnn_benchmark", "deterministic"),
    # Another library at all batch sizes removes a switch from one library to another.
    shared=("onednn", "no_onednn", "no_cudnn", "cublaslt"),
)
# A library's helper kernels vary; a switch takes at least this share of the term's time on one side.
_LEAST_SHARE = 0.1
_REFUTATION = "With the smaller size's algorithm forced at both, the term keeps its value."


def weigh(case: Case) -> Claim | None:
    """Claim the contribution of kernels that do not run at both sizes."""
    common = set(case.common_names())
    share = {batch: _switched_share(case, batch, common) for batch in (case.before, case.after)}
    if case.share.key.kind != "kernels" or max(share.values()) < _LEAST_SHARE:
        return None
    if not case.at(case.before) or not case.at(case.after):
        return None
    main = [case.main_kernel(batch) for batch in (case.before, case.after)]
    families = [read_name(name or "").family for name in main]
    if not case.switched:
        score = 0.5
    elif families[0] != families[1] and set(families) <= ALGORITHMS:
        score = 0.95
    else:
        score = 0.85
    evidence = [
        Evidence("kernel with the most time", main[0], main[1], "", "kernels.name"),
        Evidence("its family", families[0], families[1], "", "kernels.name"),
        Evidence(
            "time of kernels that run only at this size",
            share[case.before] * case.time_ms(case.before),
            share[case.after] * case.time_ms(case.after),
            "ms",
            "kernels.duration_ns",
        ),
    ]
    amount = sum(use.share for use in case.uses if use.name not in common)
    names = [short_name(name or "") for name in main]
    detail = f"from {names[0]} to {names[1]}" if names[0] != names[1] else None
    return Claim(CAUSE, amount, score, tuple(evidence), _REFUTATION, detail)


def _switched_share(case: Case, batch: int, common: set[str]) -> float:
    whole = case.time_ms(batch)
    return sum(u.time_ms for u in case.at(batch) if u.name not in common) / whole if whole > 0 else 0.0
