"""Algorithm switch: a layer runs different kernels in a phase at the larger batch size; needs no model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...profiling.attribution.kernel_names import ALGORITHMS, read_name, short_name
from ..decompose.terms import KERNELS
from .case import Case, Claim, Intervention, seen

if TYPE_CHECKING:
    import pandas as pd

    from .context import Recorded

CAUSE = "algorithm switch"
INTERVENTION = Intervention(
    expected=(
        "With the same library at all sizes, with algorithms chosen in another way, or with larger sizes in "
        "pieces of the size before the switch, the term's share goes away."
    ),
    term=("no_nnpack", "cudnn_benchmark", "deterministic", "before_switch"),
    step=("no_nnpack", "cudnn_benchmark", "deterministic"),
    # Another library at all batch sizes removes a switch between two; a padded batch runs as the larger one.
    shared=("onednn", "no_onednn", "no_cudnn", "cublaslt", "padded_batch"),
)
# A library's helper kernels vary; a switch takes at least this share of the term's time on one side.
_LEAST_SHARE = 0.1
_REFUTATION = "With the smaller size's algorithm forced at both, the term keeps its value."


def weigh(case: Case) -> Claim | None:
    """Claim the contribution of kernels that do not run at both sizes."""
    common = set(case.common_names())
    share = {batch: _switched_share(case, batch, common) for batch in case.sides}
    if (
        case.share.key.kind != KERNELS
        or max(share.values()) < _LEAST_SHARE
        or not all(map(case.at, case.sides))
    ):
        return None
    main = [case.main_kernel(batch) for batch in case.sides]
    families = [read_name(name or "").family for name in main]
    if not case.switched:
        score = 0.5
    elif families[0] != families[1] and set(families) <= ALGORITHMS:
        score = 0.95
    else:
        score = 0.85
    times = [share[batch] * case.time_ms(batch) for batch in case.sides]
    evidence = (
        seen("kernel with the most time", main, "", "kernels.name"),
        seen("its family", families, "", "kernels.name"),
        seen("time of kernels that run only at this size", times, "ms", "kernels.duration_ns"),
    )
    amount = sum(use.share for use in case.uses if use.name not in common)
    names = [short_name(name or "") for name in main]
    detail = f"from {names[0]} to {names[1]}" if names[0] != names[1] else None
    return Claim(CAUSE, amount, score, evidence, _REFUTATION, detail)


def _switched_share(case: Case, batch: int, common: set[str]) -> float:
    whole = case.time_ms(batch)
    return (
        sum(u.time_ms for u in case.at(batch) if u.name not in common) / whole if whole > 0 else 0.0
    )


def changed_for_good(kernel_times: pd.DataFrame, recorded: Recorded) -> list[str]:
    """A sentence on each batch size of a GPU that runs other kernels from some round of the sweep on.

    A library that chooses an algorithm when memory is short keeps it for the life of the process.
    """
    if recorded.hardware.kind == "cpu" or kernel_times.empty or "round" not in recorded.steps:
        return []
    of_step = recorded.steps.set_index("step")["round"]
    kernels = kernel_times[kernel_times["kind"] == KERNELS]
    kernels = kernels.assign(round=kernels["step"].map(of_step))
    said = []
    for batch, rows in kernels.groupby("batch"):
        times = rows.groupby(["name", "round"])["exclusive_ms"].sum().unstack(fill_value=0.0)
        shares = times / times.sum()
        for first in times.columns[1:]:
            earlier, later = shares.loc[:, : first - 1], shares.loc[:, first:]
            new, old = shares.index[earlier.sum(axis=1) == 0], shares.index[later.sum(axis=1) == 0]
            if later.loc[new].sum().min() >= _LEAST_SHARE <= earlier.loc[old].sum().min():
                names = [short_name(shares.loc[one].sum(axis=1).idxmax()) for one in (new, old)]
                said.append(
                    f"{recorded.axis.name.capitalize()} {batch}: from round {first + 1} on {names[0]} runs in place of "
                    f"{names[1]}, so its times are of two algorithms. A library that chose one when memory was short "
                    "keeps it; `sweep` measures each visit in a process of its own."
                )
                break
    return said
