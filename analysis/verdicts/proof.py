"""What experiments prove of the causes of an anomaly: by term, from its operators alone, and for complete steps.

A term's experiment counts for its cause only if the term alone shows its share of the anomaly, wholly or in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...profiling.recording.experiments import Scope, Stage
from ..decompose.functionals import Functional
from ..decompose.statistics import LEVEL, Estimate
from ..decompose.terms import KERNELS, Share
from .outcome import (
    CONFIRMED_ABOVE,
    LEVELLED,
    ONLY_SCREENED,
    OVERTAKEN,
    REFUTED_BELOW,
    TOO_WIDE,
    Outcome,
    Reproduction,
    Verdict,
    reproduction,
)

_ORDER = (Verdict.CONFIRMED, Verdict.UNDECIDED, Verdict.REFUTED, Verdict.UNTESTED)


@dataclass(frozen=True)
class Proof:
    """What experiments say of one cause.

    Attributes:
        verdict: see `Verdict`.
        outcome: the outcome that decides; None if nothing ran.
        amount: amount that taking the cause away takes away, in the functional's unit; 0 unless confirmed.
        reason: reason for an undecided or untested verdict; None otherwise, or if nobody tried.
    """

    verdict: str
    outcome: Outcome | None = None
    amount: float = 0.0
    reason: str | None = None


def decisive(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    """The outcome that counts for each factor, by name.

    That is the last one on fresh rounds (the stages confirm and remedy) that decides; else the last one that ran; else
    the last.
    """
    found: dict[str, Outcome] = {}
    for outcome in outcomes:
        if outcome.factor is not None:
            known = found.get(outcome.factor)
            if known is None or _weight(outcome) >= _weight(known):
                found[outcome.factor] = outcome
    return found


def _weight(outcome: Outcome) -> tuple[bool, bool, bool]:
    decided = outcome.verdict in (Verdict.CONFIRMED, Verdict.REFUTED)
    fresh = outcome.experiment.stage in (Stage.CONFIRM, Stage.REMEDY)
    return outcome.taken is not None, decided and fresh, fresh


def about(outcomes: Iterable[Outcome], functional: Functional, share: Share | None) -> list[Outcome]:
    """The outcomes that test a functional on one term; on complete steps without one."""
    of_subject = (Scope.STEP, None, None) if share is None else (Scope.TERM, share.key.layer, share.key.phase)
    if share is not None and share.key.kind != KERNELS:
        return []
    return [
        one
        for one in outcomes
        if one.experiment.functional == functional.weights
        and (one.experiment.scope, one.experiment.layer, one.experiment.phase) == of_subject
    ]


def alone_of(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The narrowest measurement of what runs as it is; None if there is none."""
    measured = [one for one in outcomes if one.factor is None and one.value is not None]
    return min(measured, key=lambda one: one.value.high - one.value.low if one.value else np.inf, default=None)


def reproduces(outcomes: Iterable[Outcome], share: Share) -> str | None:
    """Whether the term alone shows its share; see `Reproduction`. None if it was not run alone."""
    alone = alone_of(outcomes)
    return None if alone is None or alone.value is None else reproduction(share.value, alone.value)


def prove_term(outcomes: Sequence[Outcome], share: Share, factors: Sequence[str]) -> Proof:
    """What the experiments on a term say of a cause.

    Args:
        outcomes: outcomes of the term, see `about`.
        share: the term.
        factors: factors that take the cause away.
    """
    known = decisive(outcomes)
    shown = reproduces(outcomes, share)
    found = [_of_term(known[name], share, shown) for name in factors if name in known]
    return _together(found)


def _of_term(outcome: Outcome, share: Share, shown: str | None) -> Proof:
    if outcome.taken is None or outcome.value is None or outcome.removed is None:
        return Proof(Verdict.UNTESTED, outcome, reason=outcome.reason)
    if outcome.value.value * share.value.value <= 0 or shown not in (Reproduction.REPRODUCES, Reproduction.PARTLY):
        return Proof(Verdict.UNDECIDED, outcome, reason="the term alone does not show its share")
    if outcome.verdict != Verdict.CONFIRMED:
        return Proof(outcome.verdict, outcome, reason=outcome.reason)
    whole = abs(share.value.value)
    size = min(outcome.taken.value, 1.0) * whole if shown == Reproduction.REPRODUCES else abs(outcome.removed.value)
    return Proof(Verdict.CONFIRMED, outcome, float(np.copysign(min(size, whole), share.value.value)))


def prove_step(outcomes: Sequence[Outcome], value: Estimate, claimed: float, factors: Sequence[str]) -> Proof:
    """What the experiments on complete steps say of a cause.

    It is confirmed if what the factor takes away is more than half of what the cause claims, with an interval that
    leaves out 0; a cause without a claim, one that the factor brings about, and one of which the factor takes away a
    part only, by the share of the functional.

    Args:
        outcomes: outcomes of complete steps, see `about`.
        value: the functional.
        claimed: amount that the cause claims without experiments, in the functional's unit.
        factors: factors that take the cause away.
    """
    known = decisive(outcomes)
    found = [_of_step(known[name], value, claimed, len(known)) for name in factors if name in known]
    return _together(found)


def _of_step(outcome: Outcome, value: Estimate, claimed: float, tried: int) -> Proof:
    removed, taken = outcome.removed, outcome.taken
    if removed is None or taken is None:
        return Proof(Verdict.UNTESTED, outcome, reason=outcome.reason)
    sign = float(np.sign(value.value))
    high = max(sign * removed.low, sign * removed.high)
    claim = min(abs(claimed), abs(value.value))  # claims of terms add up to more where other terms have the other sign
    if claimed * value.value <= 0 or outcome.brings_about or outcome.partial:
        amount = min(sign * removed.value, abs(value.value))
        return Proof(outcome.verdict, outcome, sign * amount * (outcome.verdict == Verdict.CONFIRMED), outcome.reason)
    if high < REFUTED_BELOW * claim:
        return Proof(Verdict.REFUTED, outcome)
    if outcome.reason in (LEVELLED, OVERTAKEN):
        return Proof(Verdict.UNDECIDED, outcome, reason=outcome.reason)
    # Bonferroni over the factors that were tried on complete steps.
    if sign * removed.value <= CONFIRMED_ABOVE * claim or removed.p * tried >= LEVEL:
        return Proof(Verdict.UNDECIDED, outcome, reason=TOO_WIDE)
    if outcome.experiment.stage == Stage.SCREEN:
        return Proof(Verdict.UNDECIDED, outcome, reason=ONLY_SCREENED)
    return Proof(Verdict.CONFIRMED, outcome, sign * min(sign * removed.value, abs(value.value)))


def _together(found: Sequence[Proof]) -> Proof:
    """The verdict on a cause with several factors: one that confirms is enough; all that ran must refute."""
    ordered = sorted(found, key=lambda proof: (_ORDER.index(proof.verdict), -abs(proof.amount)))
    return ordered[0] if ordered else Proof(Verdict.UNTESTED)


def spread(amount: float, left: Sequence[float], claimed: Sequence[float]) -> list[float]:
    """Spread an amount of the whole functional over its terms, each up to what is left of it.

    First by what the cause claims of each term, then in proportion to what is left of terms of the same sign.

    Args:
        amount: amount to spread.
        left: amount that is left of each term.
        claimed: amount that the cause claims of each term.
    """
    room = np.maximum(np.sign(amount) * np.array(left, np.float64), 0.0)
    wanted = np.minimum(np.maximum(np.sign(amount) * np.array(claimed, np.float64), 0.0), room)
    rest = abs(amount)
    given = np.zeros(len(room))
    for weights in (wanted, room):
        free = np.minimum(weights, room - given)
        if rest > 0 and free.sum() > 0:
            taken = free * min(rest / free.sum(), 1.0)
            given += taken
            rest -= taken.sum()
    return [float(one) for one in np.sign(amount) * given]


def by_cause(proofs: Mapping[str, Proof], verdict: str) -> list[tuple[str, Proof]]:
    """The causes with a verdict, the largest amount first."""
    found = [(cause, proof) for cause, proof in proofs.items() if proof.verdict == verdict]
    return sorted(found, key=lambda item: (-abs(item[1].amount), item[0]))
