"""Optimizer work: the optimizer updates every weight once per step, whatever the batch size."""

from __future__ import annotations

import re

from ..decompose.terms import OPTIMIZER
from .case import Case, Claim, Intervention, seen
from .single_profile import ProfiledStep, Suggestion, fact

CAUSE = "optimizer work"
INTERVENTION = Intervention(
    expected="Without its updates the optimizer's share goes away; with a fused one, or on lists, it shrinks.",
    step=("no_update", "fused_optimizer", "foreach_optimizer"),
)
# Its time may vary a little with the batch size, e.g. by what the caches still have.
_GROWN = 1.2


def weigh(case: Case) -> Claim | None:
    """Claim terms of the optimizer whose time does not grow with the batch."""
    if case.share.key.kind != "kernels" or case.share.key.phase != "optimizer":
        return None
    times = [case.time_ms(batch) for batch in case.sides]
    if times[0] <= 0 or times[1] > _GROWN * times[0]:
        return None
    evidence = (seen("time per step", times, "ms", "kernels.duration_ns"),)
    refutation = "At other sizes its time grows with them."
    return Claim(CAUSE, case.share.value.value, 0.55, evidence, refutation)


_FUSED = re.compile(
    r"fused_?(adam|sgd|adagrad|lamb|optim)|FusedAdam|FusedSgd|_fused_|LAMB", re.IGNORECASE
)
_LISTS = re.compile(r"multi_tensor_apply|_foreach_", re.IGNORECASE)


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest a fused optimizer, where the optimizer runs many kernels."""
    mine = step.groups[step.groups["phase"].eq(OPTIMIZER)]
    idle_ms = step.idle_because(lambda reason: "Optimizer.step" in reason)
    whole_ms = float(mine["ms"].sum()) + idle_ms
    texts = [*mine["name"].dropna(), *mine["op"].dropna()]
    if not step.enough(whole_ms) or mine.empty or any(map(_FUSED.search, texts)):
        return None
    lists = any(map(_LISTS.search, texts))
    evidence = (
        fact("time of the optimizer, per step", whole_ms, "ms", "kernels.phase"),
        fact(
            "its operators" if step.on_host else "its kernels",
            float(mine["calls"].sum()),
            "",
            "kernels",
        ),
        fact(
            "its form",
            "lists of parameters" if lists else "one parameter after another",
            "",
            "kernels.name",
        ),
    )
    return Suggestion(
        cause=CAUSE,
        what="spends its time in an optimizer that is not fused",
        at_most_ms=whole_ms,
        evidence=evidence,
        where="optimizer",
        factors=("fused_optimizer",) if lists else ("fused_optimizer", "foreach_optimizer"),
    )
