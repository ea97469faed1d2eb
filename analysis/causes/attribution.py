"""Attribute an anomaly to causes: what experiments confirmed, then what the evidence suggests, the
strongest evidence first.

The rest is *unexplained*, a cause with an amount of its own. So the amounts of all causes over all
terms add up to the anomaly.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ...profiling.recording.experiments import TIME_IS_UP
from ..decompose.functionals import Functional
from ..decompose.statistics import Estimate
from ..verdicts.measurement import Measurement
from ..verdicts.outcome import Claims, Outcome, judged
from ..verdicts.proof import Proof, about, confirmed, prove_step, prove_term, reproduces, spread
from ..verdicts.words import Reproduction, Verdict
from .case import Case
from .catalogue import (
    LAST_OF_CONFIRMED,
    MORE_WORK,
    NOT_SIGNIFICANT,
    ONLY_CONFIRMED,
    UNEXPLAINED,
    interventions,
    interventions_with,
    possible,
    rank,
)
from .evidence import Claim, Strength, seen
from .totals import CauseTotal, TermCause, order, totals

# A smaller claim, as a share of its term, is not worth a line; its amount stays unexplained.
_LEAST_SHARE = 0.01


def attribute(
    functional: Functional,
    value: Estimate,
    cases: Iterable[Case],
    outcomes: Sequence[Outcome] = (),
    *,
    waits_for_time: bool = False,
) -> tuple[CauseTotal, ...]:
    """Attribute every term of an anomaly to causes; the amounts of the causes add up to its value,
    as the terms do.

    Causes that an experiment confirms take what it measured, first those confirmed on a term alone,
    then those confirmed on complete steps. Refuted causes take nothing. The others share what is
    left by the evidence of the recording. The largest cause comes first, and last what is not
    significant; a cause that some terms confirm and others do not comes twice. `waits_for_time`:
    whether the time for experiments was up before all were made.
    """
    terms = _terms(functional, cases, outcomes)
    on_steps = about(outcomes, functional, None)
    causes, _ = _claims_of_steps(terms, value.value, on_steps)
    steps: dict[str, Proof] = {}
    for cause, factors in causes.items() if on_steps else ():
        proof = prove_step(on_steps, value, factors)
        if proof.verdict != Verdict.CONFIRMED or any(
            possible(cause, term.case, proof.amount) for term in terms
        ):
            steps[cause] = proof
    for cause, proof in confirmed(steps):
        # Terms that confirm the cause in isolation have a part of what the complete step shows.
        rest = proof.amount - math.fsum(term.given(cause) for term in terms)
        if rest * proof.amount > 0:
            claimed = [term.claimed(cause) for term in terms]
            for term, amount in zip(
                terms, spread(rest, [term.left for term in terms], claimed), strict=True
            ):
                term.give(cause, amount, proof)
    refuted = {
        cause
        for cause, proof in steps.items()
        if proof.verdict in (Verdict.CONFIRMED, Verdict.REFUTED)
    }
    parts: dict[str, list[TermCause]] = {}
    untried = TIME_IS_UP if waits_for_time else None
    for term in terms:
        for cause, part in term.share_out(refuted, untried):
            parts.setdefault(cause, []).append(part)
    sums = [
        total
        for cause, of_terms in parts.items()
        for total in totals(cause, of_terms, steps.get(cause), untried)
    ]
    return tuple(sorted(sums, key=order))


class Anomaly(Protocol):
    """A functional with what the causes claim of its terms."""

    @property
    def functional(self) -> Functional:
        """The functional."""

    @property
    def value(self) -> Estimate:
        """Its value."""

    @property
    def cases(self) -> Sequence[Case]:
        """Its terms, with what causes claim of each."""


def judge(anomalies: Iterable[Anomaly], measured: Sequence[Measurement]) -> tuple[Outcome, ...]:
    """The outcomes of all experiments of a recording, of complete steps by what causes claim of
    these anomalies.
    """
    return judged(measured, claims_of_steps(anomalies, judged(measured)))


def claims_of_steps(anomalies: Iterable[Anomaly], outcomes: Sequence[Outcome]) -> Claims:
    """What the cause of each factor of complete steps claims of each anomaly, after the outcomes of
    terms in isolation.

    Factors whose cause claims nothing are left out.
    """
    return {
        (anomaly.functional.weights, name): amount
        for anomaly in anomalies
        for name, amount in _claims_of_steps(
            _terms(anomaly.functional, anomaly.cases, outcomes), anomaly.value.value, ()
        )[1].items()
    }


def _claims_of_steps(
    terms: Sequence[_Term], value: float, on_steps: Sequence[Outcome]
) -> tuple[dict[str, tuple[str, ...]], dict[str, float]]:
    """The factors of complete steps by cause, and what the cause of each claims of all terms."""
    claimed = {cause: math.fsum(term.claimed(cause) for term in terms) for cause in interventions()}
    evident = {cause for cause, amount in claimed.items() if amount * value > 0}
    factors = {
        cause: named.step
        for cause, named in interventions_with(evident, on_steps).items()
        if named.step
    }
    claims = {
        # Claims of terms add up to more where other terms have the other sign.
        name: math.copysign(min(abs(claimed[cause]), abs(value)), value)
        for cause, names in factors.items()
        for name in names
        if cause in evident
    }
    return factors, claims


def _terms(
    functional: Functional, cases: Iterable[Case], outcomes: Sequence[Outcome]
) -> list[_Term]:
    return [_Term(case, about(outcomes, functional, case.share)) for case in cases]


class _Term:
    """One term while its amount is shared out among causes."""

    def __init__(self, case: Case, outcomes: Sequence[Outcome]) -> None:
        self.case, self.label, self._claims = case, case.share.label, case.claims
        self._ordered = sorted(self._claims.values(), key=rank)
        self._proofs = {
            cause: prove_term(outcomes, case.share, intervention.term)
            for cause, intervention in interventions_with(self._claims, outcomes).items()
            if intervention.term and outcomes and possible(cause, case, case.share.value.value)
        }
        if reproduces(outcomes, case.share) == Reproduction.REPRODUCES:
            self._ordered = [claim for claim in self._ordered if claim.cause != NOT_SIGNIFICANT]
        self.left = self._value = case.share.value.value
        self._shares: list[tuple[str, TermCause]] = []
        if (work := self._claims.get(MORE_WORK)) is not None:
            if amount := self._up_to_rest(work.amount):
                self._add(MORE_WORK, amount, work, Verdict.FROM_SHAPES)
            self._ordered.remove(work)
        for cause, proof in sorted(
            confirmed(self._proofs), key=lambda item: item[0] in LAST_OF_CONFIRMED
        ):
            self.give(cause, proof.amount, proof)

    def claimed(self, cause: str) -> float:
        """Amount that a cause claims without experiments, in the direction of the term, up to what
        is left.
        """
        claim = self._claims.get(cause)
        return (
            self._up_to_rest(claim.amount) if claim in self._ordered and claim is not None else 0.0
        )

    def given(self, cause: str) -> float:
        """Amount that a cause has so far."""
        return math.fsum(share.amount for owner, share in self._shares if owner == cause)

    def give(self, cause: str, amount: float, proof: Proof) -> None:
        """Give an amount to a cause that an experiment confirmed."""
        amount = self._up_to_rest(amount)
        if abs(amount) < _LEAST_SHARE * abs(self._value) or not amount:
            return
        claim, outcome = self._claims.get(cause), proof.outcome
        claim = claim or Claim(cause, amount, Strength.FACT, (), interventions()[cause].expected)
        evidence = claim.evidence
        if outcome is not None and outcome.value is not None and outcome.changed is not None:
            facts = outcome.facts.what if outcome.facts else outcome.factor
            measured = (outcome.value.value, outcome.changed.value)
            evidence = (
                seen(f"unmodified, and when {facts}", measured, "ms", "experiments.duration_ns"),
                *evidence,
            )
        self._add(
            cause,
            amount,
            replace(claim, amount=amount, evidence=evidence),
            Verdict.CONFIRMED,
        )

    def share_out(
        self, refuted: Collection[str], untried: str | None
    ) -> list[tuple[str, TermCause]]:
        """The causes of the term, the confirmed ones first, then the strongest evidence; their
        amounts add up to the term.

        Causes in `refuted` take nothing more: complete steps decided on them. `untried` is the
        reason for causes that factors could have tested and did not.
        """
        unexplained = 0.0
        suspected: Claim | None = None
        why: str | None = None
        for claim in self._ordered:
            proof = self._proofs.get(claim.cause, Proof(Verdict.UNTESTED))
            if claim.cause in refuted or proof.verdict in (Verdict.CONFIRMED, Verdict.REFUTED):
                continue
            amount = self._up_to_rest(claim.amount)
            if not amount or abs(amount) < _LEAST_SHARE * abs(self._value):
                continue
            if claim.cause in ONLY_CONFIRMED:
                unexplained, self.left = unexplained + amount, self.left - amount
                suspected, why = claim, _suspicion(claim.cause, proof.reason or untried)
            else:
                self._add(claim.cause, amount, claim, proof.verdict, proof.reason)
        if (unexplained := unexplained + self.left) or not self._shares:
            rivals = tuple(claim for claim in self._ordered if claim is not suspected)
            rest = TermCause(self.label, unexplained, suspected, rivals, reason=why)
            self._shares.append((UNEXPLAINED, rest))
        return self._shares

    def _up_to_rest(self, amount: float) -> float:
        """An amount, up to what is left of the term; 0 against its direction."""
        if amount * self._value <= 0 or self.left * self._value <= 0:
            return 0.0
        return math.copysign(min(abs(self.left), abs(amount)), self._value)

    def _add(
        self, cause: str, amount: float, claim: Claim, verdict: Verdict, reason: str | None = None
    ) -> None:
        rivals = tuple(rival for rival in self._ordered if rival.cause != claim.cause)
        self._shares.append((cause, TermCause(self.label, amount, claim, rivals, verdict, reason)))
        self.left -= amount


def _suspicion(cause: str, reason: str | None) -> str:
    """What would confirm a cause that evidence only suggests, as a clause."""
    expected = interventions()[cause].expected
    why = f" ({reason})" if reason else ""
    return (
        f"a {cause} is suspected and not confirmed{why}; if it is one, "
        f"{expected[0].lower()}{expected[1:-1]}"
    )
