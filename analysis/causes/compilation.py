"""Causes in what torch.compile made of the step: nothing beyond its limit, or code for any size.

Torch's own counters tell the code that a size runs, when it ran first. Compiled and uncompiled
steps have different kernels, so a size is held against the rate per sample of the nearest size
that ran other code, in every term alike.
"""

from __future__ import annotations

from ...profiling.collect.compilations import NONE, OWN, SHARED
from ..decompose.terms import COMMUNICATION
from .case import Case, Cause, Intervention
from .evidence import Claim, Evidence, Strength, cite

RECOMPILE_LIMIT = "recompile limit"
_WORDS = {
    OWN: "code compiled for this size",
    SHARED: "code compiled at other sizes",
    NONE: "no compiled code",
}


def weigh_recompile_limit(case: Case) -> Claim | None:
    """Claim the time beyond that at the rate of the nearest size that ran compiled code."""
    return _weigh(
        case,
        RECOMPILE_LIMIT,
        (NONE, (OWN, SHARED)),
        Strength.FACT,
        "With more versions allowed, or one version for all sizes, the excess is as large.",
    )


def _weigh(
    case: Case,
    name: str,
    codes: tuple[str, tuple[str, ...]],
    strength: Strength,
    refutation: str,
) -> Claim | None:
    """Claim the time of the sizes that run one code beyond the rate of the nearest that run others.

    Args:
        case: the term.
        name: name of the cause.
        codes: the code that is slow, and those that are not.
        strength: of the evidence.
        refutation: what would refute the claim.
    """
    slow, usual = codes
    if case.share.key.kind == COMMUNICATION:
        return None
    ran = {batch: case.facts[batch].compiled_code for batch in case.functional.conditions}
    others = [batch for batch, code in ran.items() if code in usual]
    if not others or slow not in ran.values():
        return None

    def beyond(batch: int) -> float:
        if ran[batch] != slow:
            return 0.0
        nearest: int = min(others, key=lambda other: (abs(other - batch), other))
        return case.time_ms(batch) - batch * case.time_ms(nearest) / nearest

    amount = case.evaluate(beyond)
    if not amount:
        return None
    what = "what torch.compile's counters tell of the size"
    code = cite(
        what, (_WORDS.get(ran[side] or "") for side in case.sides), "", "steps.compiled_code"
    )
    compiled = Evidence("sizes that run it", None, ", ".join(_sizes(ran, slow)), "", code.table)
    return Claim(name, amount, strength, (code, compiled), refutation)


def _sizes(ran: dict[int, str | None], code: str) -> list[str]:
    return [str(batch) for batch, ran_there in sorted(ran.items()) if ran_there == code]


recompile_limit = Cause(
    name=RECOMPILE_LIMIT,
    weigh=weigh_recompile_limit,
    intervention=Intervention(
        expected=(
            "With more versions of a function allowed, or one of dynamic shapes, the step runs "
            "compiled code at every size and the excess goes away."
        ),
        step=("more_versions", "dynamic_shapes"),
    ),
)


# Dynamic shapes: one code for any size, whose kernels cannot be fitted to this one.

DYNAMIC_SHAPES = "kernels of dynamic shapes"


def weigh_dynamic_shapes(case: Case) -> Claim | None:
    """Claim the time beyond that at the rate of the nearest size with code of its own."""
    return _weigh(
        case,
        DYNAMIC_SHAPES,
        (SHARED, (OWN,)),
        Strength.HINT,
        "With code compiled for each size the excess is as large.",
    )


dynamic_shapes = Cause(
    name=DYNAMIC_SHAPES,
    weigh=weigh_dynamic_shapes,
    intervention=Intervention(
        expected="With code compiled for each size alone, the excess goes away.",
        step=("static_shapes",),
    ),
)
