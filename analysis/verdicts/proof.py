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
    bounded = share is not None and math.isfinite(share.low)
    return share is not None, decided and fresh, fresh and bounded, fresh


def about(
    outcomes: Iterable[Outcome], functional: Functional, share: Share | None
) -> list[Outcome]:
    """The outcomes that test a functional on one term; on complete steps without one."""
    subject: tuple[str, str | None, str | None] = (Scope.STEP, None, None)
    if share is not None:
        if share.key.kind != KERNELS:
            return []
        subject = Scope.TERM, share.key.layer, share.key.phase
    listed = []
    for outcome in outcomes:
        experiment = outcome.experiment
        tested = experiment.scope, experiment.layer, experiment.phase
        if experiment.functional == functional.weights and tested == subject:
            listed.append(outcome)
    return listed


def find_isolated(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The narrowest measurement of the unmodified runs; None if there is none."""
    narrowest, width = None, math.inf
    for outcome in outcomes:
        if outcome.factor is None and outcome.value:
            own = outcome.value.high - outcome.value.low
            if narrowest is None or own < width:
                narrowest, width = outcome, own
    return narrowest


def reproduces(outcomes: Iterable[Outcome], share: Share) -> Reproduction | None:
    """Whether the term in isolation shows its share; None if it was not run in isolation."""
    isolated = find_isolated(outcomes)
    if isolated is None or isolated.value is None:
        return None
    return reproduction(share.value, isolated.value)


def prove_term(outcomes: Sequence[Outcome], share: Share, factors: Sequence[str]) -> Proof:
    """The proof of the cause that some factors remove, from the outcomes of a term."""
    deciding, shown = decisive(outcomes), reproduces(outcomes, share)
    tested = [deciding[name] for name in factors if name in deciding]
    return _together([_of_term(outcome, share, shown) for outcome in tested])


def _of_term(outcome: Outcome, share: Share, shown: Reproduction | None) -> Proof:
    if outcome.taken is None or outcome.value is None or outcome.removed is None:
        return Proof(Verdict.UNTESTED, outcome, reason=outcome.reason)
    if outcome.value.value * share.value.value <= 0 or shown not in (
        Reproduction.REPRODUCES,
        Reproduction.PARTLY,
    ):
        reason = "the term in isolation does not show its share"
        return Proof(Verdict.UNDECIDED, outcome, reason=reason)
    if outcome.verdict != Verdict.CONFIRMED:
        return Proof(outcome.verdict, outcome, reason=outcome.reason)
    whole = share.value.value
    size = abs(outcome.removed.value)
    if shown == Reproduction.REPRODUCES:
        size = min(outcome.taken.value, 1.0) * abs(whole)
    return Proof(Verdict.CONFIRMED, outcome, float(np.copysign(min(size, abs(whole)), whole)))


def prove_step(outcomes: Sequence[Outcome], value: Estimate, factors: Sequence[str]) -> Proof:
    """The proof of the cause that some factors remove, from the outcomes of complete steps."""
    deciding = decisive(outcomes)
    tested = [deciding[name] for name in factors if name in deciding]
    return _together([_of_step(outcome, value.value) for outcome in tested])


def _of_step(outcome: Outcome, value: float) -> Proof:
    if outcome.removed is None:
        return Proof(Verdict.UNTESTED, outcome, reason=outcome.reason)
    amount = 0.0
    if outcome.verdict == Verdict.CONFIRMED:
        sign = float(np.sign(value))
        amount = sign * min(sign * outcome.removed.value, abs(value))
    return Proof(outcome.verdict, outcome, amount, outcome.reason)


def _together(proofs: Sequence[Proof]) -> Proof:
    """The verdict on a cause with several factors: one that confirms is enough; all that ran and
    can refute must.
    """
    if any(proof.verdict == Verdict.REFUTED for proof in proofs):
        proofs = [proof for proof in proofs if _counts_beside_refuted(proof)]
    none = Proof(Verdict.UNTESTED)
    return min(proofs, key=lambda proof: (proof.verdict.rank, -abs(proof.amount)), default=none)


def _counts_beside_refuted(proof: Proof) -> bool:
    if proof.verdict == Verdict.CONFIRMED:
        return True
    return proof.outcome is not None and proof.outcome.can_refute


def spread(amount: float, left: Sequence[float], claimed: Sequence[float]) -> list[float]:
    """Spread an amount of the whole functional over its terms, each up to its rest in `left`.

    First by the cause's claim on each term, then in proportion to the rests of terms of the same
    sign.
    """
    sign = np.sign(amount)
    room = np.maximum(sign * np.array(left, np.float64), 0.0)
    wanted = np.maximum(sign * np.array(claimed, np.float64), 0.0)
    wanted = np.minimum(wanted, room)
    rest = abs(amount)
    credited = np.zeros(len(room))
    for weights in (wanted, room):
        free = np.minimum(weights, room - credited)
        if rest > 0 and free.sum() > 0:
            taken = free * min(rest / free.sum(), 1.0)
            credited += taken
            rest -= taken.sum()
    return [float(part) for part in sign * credited]


def list_confirmed(proofs: Mapping[str, Proof]) -> list[tuple[str, Proof]]:
    """The confirmed causes, the largest amount first."""
    confirmed = [item for item in proofs.items() if item[1].verdict == Verdict.CONFIRMED]
    return sorted(confirmed, key=lambda item: (-abs(item[1].amount), item[0]))
