"""Size of one call: an operator costs more per sample in a large call than in two smaller ones: only tests tell."""

from __future__ import annotations

from .case import Case, Claim, Intervention

CAUSE = "size of one call"
INTERVENTION = Intervention(
    expected="With the batch in two halves, one after the other, the larger sizes get faster.",
    term=("split_batch",),
    step=("split_batch",),
)


def weigh(case: Case) -> Claim | None:  # noqa: ARG001 - see above
    """Claim nothing."""
    return None
