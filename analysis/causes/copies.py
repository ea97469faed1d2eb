"""Copies: an operator copies an operand before it works, as it is expanded, not contiguous or of another type.

`torch.bmm` on a CPU copies a matrix that all samples share, once for each sample.
"""

from __future__ import annotations

import math
import re

from ...profiling.attribution.kernel_names import LAYOUT, read_name
from ..decompose.terms import OPTIMIZER
from .case import Case, Claim, Intervention, Use, seen
from .single_profile import ProfiledStep, Suggestion, fact

CAUSE = "copies of operands"
INTERVENTION = Intervention(
    expected="With operands that are stored as the operator reads them, the term's share goes away.",
    term=("stored_operands",),
    shared=("channels_last",),
)
_COPY = re.compile(r"(?!Mem)(.*(copy|clone|contiguous|nchw|nhwc|permute)|reorder\b)", re.IGNORECASE)
_LEAST_SHARE = 0.1  # of the term's time at one of the sizes
_SCORE = 0.7


def weigh(case: Case) -> Claim | None:
    """Claim the contribution of copying kernels."""
    if case.share.key.kind != "kernels" or case.share.key.phase == OPTIMIZER:
        return None
    copying = [use for use in case.uses if use.op is not None and _copies(use.name)]
    # A layer whose work is to copy has no operand that it copies before it.
    if all(_copies(use.op or "") for use in case.uses):
        return None
    sides = [_ms(copying, batch) for batch in case.sides]
    shares = [
        time_ms / case.time_ms(b) for b, time_ms in zip(case.sides, sides, strict=True) if time_ms
    ]
    if max(shares, default=0.0) < _LEAST_SHARE:
        return None
    most = max(copying, key=lambda use: (use.batch == case.after, use.time_ms))
    inside = f" in {most.op}" if most.op != most.name else ""
    evidence = (
        seen(
            f"time of {most.name}{inside} and other copies per step",
            sides,
            "ms",
            "kernels.duration_ns",
        ),
    )
    amount = math.fsum(use.share for use in copying)
    return Claim(CAUSE, amount, _SCORE, evidence, "Without the copies the term keeps its value.")


def _copies(name: str) -> bool:
    """Whether a kernel or operator copies; many others name the layout that they work on, e.g. `nchw`."""
    return _COPY.match(name) is not None and read_name(name).family == LAYOUT


def _ms(uses: list[Use], batch: int) -> float:
    return math.fsum(use.time_ms for use in uses if use.batch == batch)


_LAYOUT = re.compile(
    r"nchwToNhwc|nhwcToNchw|batched_transpose|tensorTransformGeneric|SubTensorOpWithTransform|reorder",
    re.IGNORECASE,
)


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest the memory format that the kernels want, where images are converted for them."""
    converting = step.named(lambda name: _LAYOUT.search(name) is not None)
    spent_ms = float(converting["ms"].sum())
    if not step.enough(spent_ms):
        return None
    evidence = (
        fact("kernels that convert the layout, per step", spent_ms, "ms", "kernels.name"),
        fact("their calls per step", float(converting["calls"].sum()), "", "kernels"),
    )
    return Suggestion(
        cause=CAUSE,
        what="converts images between memory formats",
        at_most_ms=spent_ms,
        evidence=evidence,
        where=step.place_of(converting),
        factors=("channels_last",),
    )
