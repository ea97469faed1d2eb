"""What experiments prove of the causes of an anomaly: by term, from its operators alone, and for
complete steps.

A term's experiment counts for its cause only if the term alone shows its share of the anomaly,
wholly or in part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...profiling.recording.experiments import Scope, Stage
from ..decompose.functionals import Functional
from ..decompose.statistics import Estimate
from ..decompose.terms import KERNELS, Share
from .outcome import Outcome
from .rule import reproduction
from .words import Reproduction, Verdict


@dataclass(frozen=True)
class Proof:
    """What experiments say of one cause."""

    verdict: Verdict
    outcome: Outcome | None = None  # that decides; None if nothing ran
    # what removing the cause removes, in the functional's unit; 0 unless confirmed
    amount: float = 0.0
    # of an undecided or untested verdict; None otherwise, or if nobody tried
    reason: str | None = None


def decisive(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    """The outcome that counts for each factor, by name.

    That is the last one on fresh rounds (the stages confirm and remedy) that decides; else the last
    one with an interval; else the last one that ran; else the last.
    """
    deciding: dict[str, Outcome] = {}
    for outcome in outcomes:
        if outcome.factor is not None:
            before = deciding.get(outcome.factor)
            if before is None or _weight(outcome) >= _weight(before):
                deciding[outcome.factor] = outcome
    return deciding


def _weight(outcome: Outcome) -> tuple[bool, bool, bool, bool]:
    share = outcome.taken
    decided = outcome.verdict in (Verdict.CONFIRMED, Verdict.REFUTED)
    fresh = outcome.experiment.stage in (Stage.CONFIRM, Stage.REMEDY)
    known = share is not None and math.isfinite(share.low)
    return share is not None, decided and fresh, fresh and known, fresh


def about(
    outcomes: Iterable[Outcome], functional: Functional, share: Share | None
) -> list[Outcome]:
    """The outcomes that test a functional on one term; on complete steps without one."""
    of_subject = (
        (Scope.STEP, None, None)
        if share is None
        else (Scope.TERM, share.key.layer, share.key.phase)
    )
    if share is not None and share.key.kind != KERNELS:
        return []
    return [
        outcome
        for outcome in outcomes
        if outcome.experiment.functional == functional.weights
        and (outcome.experiment.scope, outcome.experiment.layer, outcome.experiment.phase)
        == of_subject
    ]


def find_isolated(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The narrowest measurement of what runs unmodified; None if there is none."""
    measured = [outcome for outcome in outcomes if outcome.factor is None and outcome.value]
    return min(
        measured, key=lambda o: o.value.high - o.value.low if o.value else np.inf, default=None
    )


def reproduces(outcomes: Iterable[Outcome], share: Share) -> Reproduction | None:
    """Whether the term in isolation shows its share; None if it was not run in isolation."""
    isolated = find_isolated(outcomes)
    return (
        None
        if isolated is None or isolated.value is None
        else reproduction(share.value, isolated.value)
    )


def prove_term(outcomes: Sequence[Outcome], share: Share, factors: Sequence[str]) -> Proof:
    """What the outcomes of a term say of the cause that some factors remove."""
    deciding, shown = decisive(outcomes), reproduces(outcomes, share)
    return _together(
        [_of_term(deciding[name], share, shown) for name in factors if name in deciding]
    )


def _of_term(outcome: Outcome, share: Share, shown: Reproduction | None) -> Proof:
    if outcome.taken is None or outcome.value is None or outcome.removed is None:
        return Proof(Verdict.UNTESTED, outcome, reason=outcome.reason)
    if outcome.value.value * share.value.value <= 0 or shown not in (
        Reproduction.REPRODUCES,
        Reproduction.PARTLY,
    ):
        return Proof(
            Verdict.UNDECIDED, outcome, reason="the term in isolation does not show its share"
        )
    if outcome.verdict != Verdict.CONFIRMED:
        return Proof(outcome.verdict, outcome, reason=outcome.reason)
    whole = abs(share.value.value)
    size = (
        min(outcome.taken.value, 1.0) * whole
        if shown == Reproduction.REPRODUCES
        else abs(outcome.removed.value)
    )
    return Proof(
        Verdict.CONFIRMED, outcome, float(np.copysign(min(size, whole), share.value.value))
    )


def prove_step(outcomes: Sequence[Outcome], value: Estimate, factors: Sequence[str]) -> Proof:
    """What the outcomes of complete steps say of the cause that some factors remove."""
    deciding = decisive(outcomes)
    return _together(
        [_of_step(deciding[name], value.value) for name in factors if name in deciding]
    )


def _of_step(outcome: Outcome, value: float) -> Proof:
    if outcome.removed is None:
        return Proof(Verdict.UNTESTED, outcome, reason=outcome.reason)
    sign, confirmed = float(np.sign(value)), outcome.verdict == Verdict.CONFIRMED
    amount = sign * min(sign * outcome.removed.value, abs(value))
    return Proof(outcome.verdict, outcome, amount if confirmed else 0.0, outcome.reason)


def _together(proofs: Sequence[Proof]) -> Proof:
    """The verdict on a cause with several factors: one that confirms is enough; all that ran and
    can refute must.
    """
    if any(proof.verdict == Verdict.REFUTED for proof in proofs):
        proofs = [
            p
            for p in proofs
            if p.verdict == Verdict.CONFIRMED or (p.outcome and p.outcome.can_refute)
        ]
    return min(
        proofs,
        key=lambda proof: (proof.verdict.rank, -abs(proof.amount)),
        default=Proof(Verdict.UNTESTED),
    )


def spread(amount: float, left: Sequence[float], claimed: Sequence[float]) -> list[float]:
    """Spread an amount of the whole functional over its terms, each up to what is left of it.

    First by what the cause claims of each term, then in proportion to what is left of terms of the
    same sign.
    """
    room = np.maximum(np.sign(amount) * np.array(left, np.float64), 0.0)
    wanted = np.minimum(np.maximum(np.sign(amount) * np.array(claimed, np.float64), 0.0), room)
    rest = abs(amount)
    credited = np.zeros(len(room))
    for weights in (wanted, room):
        free = np.minimum(weights, room - credited)
        if rest > 0 and free.sum() > 0:
            taken = free * min(rest / free.sum(), 1.0)
            credited += taken
            rest -= taken.sum()
    return [float(part) for part in np.sign(amount) * credited]


def list_confirmed(proofs: Mapping[str, Proof]) -> list[tuple[str, Proof]]:
    """The confirmed causes, the largest amount first."""
    agreeing = [
        (cause, proof) for cause, proof in proofs.items() if proof.verdict == Verdict.CONFIRMED
    ]
    return sorted(agreeing, key=lambda item: (-abs(item[1].amount), item[0]))
