"""Causes summed over the terms of an anomaly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..decompose.statistics import Estimate
from ..verdicts.proof import Proof
from ..verdicts.words import Verdict
from .catalogue import NOT_SIGNIFICANT, interventions
from .evidence import Claim


@dataclass(frozen=True)
class TermCause:
    """The part of one term that one cause explains."""

    label: str  # label of the term
    amount: float  # explained amount, in the functional's unit
    # claim of the cause; of what is unexplained, that of a cause which is only suspected, e.g. a
    # slow library call, or None
    claim: Claim | None
    # claims of other causes on the same term, the best first, whatever they explain
    rivals: tuple[Claim, ...]
    verdict: Verdict = Verdict.UNTESTED  # verdict of experiments on the cause in this term
    # reason for an undecided or untested verdict, as a clause without a full stop; None otherwise,
    # or if nobody tried
    reason: str | None = None


@dataclass(frozen=True)
class CauseTotal:
    """One cause summed over terms: over those that confirm it, or over the others."""

    cause: str  # name of the cause
    amount: float  # its amount, in the functional's unit
    terms: tuple[TermCause, ...]  # its part of each of these terms, the largest first
    # verdict of experiments on these terms, of the largest tested one
    verdict: Verdict = Verdict.UNTESTED
    # amount that an experiment measured on the complete step, with its interval; None without one
    measured: Estimate | None = None
    # reason for an undecided or untested verdict, as a clause without a full stop; None otherwise,
    # or if nobody tried
    reason: str | None = None

    @property
    def confirmed_on_steps(self) -> bool:
        """Whether complete steps have confirmed it, and not its terms alone."""
        return self.verdict == Verdict.CONFIRMED and self.measured is not None


def totals(
    cause: str, shares: list[TermCause], of_step: Proof | None, untried: str | None
) -> list[CauseTotal]:
    """One cause over all terms: the part that its terms confirm, and the rest; one total if
    complete steps decide.

    `untried` is the reason for a cause that factors could have tested and did not.
    """
    shares = sorted(shares, key=lambda share: -abs(share.amount))
    tested = any(share.verdict != Verdict.UNTESTED for share in shares)
    if (
        of_step is not None
        and of_step.verdict != Verdict.UNTESTED
        and (not tested or of_step.verdict == Verdict.CONFIRMED)
    ):
        measured = of_step.outcome.removed if of_step.outcome else None
        return [_total_of(cause, shares, of_step.verdict, of_step.reason, measured)]
    confirmed = [share for share in shares if share.verdict == Verdict.CONFIRMED]
    rest = [share for share in shares if share.verdict != Verdict.CONFIRMED]
    sums = [_total_of(cause, confirmed, Verdict.CONFIRMED)] if confirmed else []
    if not rest:
        return sums
    if (
        largest := next((share for share in rest if share.verdict != Verdict.UNTESTED), None)
    ) is not None:
        return [*sums, _total_of(cause, rest, largest.verdict, largest.reason)]
    intervention = interventions().get(cause)
    reasons = [share.reason for share in rest] + [of_step.reason if of_step else None]
    if intervention is not None:
        reasons = [intervention.untested, *reasons, untried]
    return [*sums, _total_of(cause, rest, Verdict.UNTESTED, next(filter(None, reasons), None))]


def _total_of(
    cause: str,
    shares: Sequence[TermCause],
    verdict: Verdict,
    reason: str | None = None,
    measured: Estimate | None = None,
) -> CauseTotal:
    return CauseTotal(
        cause, math.fsum(share.amount for share in shares), tuple(shares), verdict, measured, reason
    )


def order(total: CauseTotal) -> tuple[bool, float]:
    """Key that sorts totals: the largest first, the insignificant ones last."""
    return total.cause == NOT_SIGNIFICANT, -abs(total.amount)
