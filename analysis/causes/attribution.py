"""Attribute an anomaly to causes: what experiments confirmed, then what the evidence suggests, the
strongest evidence first.

The rest is *unexplained*, a cause with an amount of its own. So the amounts of all causes over all
terms add up to the anomaly.

Experiments are judged in one pass. Those on terms come first, as what they prove of a term leaves
less of it to other causes. That says what each cause claims of complete steps, by which the
experiments on these are judged.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...profiling.recording.experiments import TIME_IS_UP
from ..decompose.functionals import Functional
from ..verdicts.measurement import Measurement
from ..verdicts.outcome import Claims, Outcome, judge_steps, judge_terms
from ..verdicts.proof import (
    Proof,
    about,
    list_confirmed,
    prove_step,
    prove_term,
    reproduces,
    spread,
)
from ..verdicts.words import Reproduction, Verdict
from .case import Anomaly, WeighedTerm
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
from .evidence import Claim, Strength, cite
from .totals import CauseTotal, TermCause, order, totals

# A smaller claim, as a share of its term, is not worth a line; its amount stays unexplained.
_LEAST_OF_WHOLE = 0.01


class Part(NamedTuple):
    """What one cause has of a term."""

    cause: str
    of_term: TermCause


@dataclass(frozen=True)
class ProvenTerm:
    """One term after the experiments on it: their proofs and the proof by shapes, and the rest."""

    term: WeighedTerm
    claims: tuple[Claim, ...]  # on what is left, the strongest evidence first
    proofs: Mapping[str, Proof]  # of the experiments on the term, by cause
    parts: tuple[Part, ...]  # of the causes that are proven
    left: float

    @property
    def whole(self) -> float:
        """The value of the term."""
        return self.term.case.share.value.value

    def claim_of(self, cause: str) -> float:
        """Amount that a cause claims of the rest, in the direction of the term."""
        for claim in self.claims:
            if claim.cause == cause:
                return _fit(claim.amount, self.left, self.whole)
        return 0.0

    def amount_of(self, cause: str) -> float:
        """Amount that is proven to be of a cause."""
        return math.fsum(part.of_term.amount for part in self.parts if part.cause == cause)


@dataclass(frozen=True)
class Judged:
    """The outcomes of all experiments, and the rest of each term."""

    outcomes: tuple[Outcome, ...]  # in the order of the measurements
    claims: Claims  # what the causes of factors of complete steps claim
    terms: Mapping[Functional, tuple[ProvenTerm, ...]]  # by anomaly


def judge(anomalies: Iterable[Anomaly], measured: Sequence[Measurement]) -> Judged:
    """Judge all experiments of a recording, those on complete steps by what the causes of these
    anomalies claim.
    """
    on_terms = judge_terms(measured)
    terms: dict[Functional, tuple[ProvenTerm, ...]] = {}
    claims: dict[tuple[tuple[tuple[int, float], ...], str], float] = {}
    for anomaly in anomalies:
        functional = anomaly.functional
        proven = []
        for term in anomaly.terms:
            outcomes = about(on_terms.values(), functional, term.case.share)
            proven.append(prove_alone(term, outcomes))
        terms[functional] = tuple(proven)
        for name, amount in claim_steps(proven, anomaly.value.value).items():
            claims[functional.weights, name] = amount
    return Judged(judge_steps(measured, on_terms, claims), claims, terms)


def prove_alone(term: WeighedTerm, outcomes: Sequence[Outcome]) -> ProvenTerm:
    """A term with what its shapes and these outcomes, of experiments on it, prove."""
    share = term.case.share
    whole = left = share.value.value
    claims = _order_claims(term, outcomes)
    proofs = _prove_causes(term, outcomes)
    parts = []
    work = term.claims.get(MORE_WORK)
    amount = 0.0 if work is None else _fit(work.amount, left, whole)
    if work is not None and amount:
        shown = TermCause(share.label, amount, work, claims, Verdict.FROM_SHAPES)
        parts.append(Part(MORE_WORK, shown))
        left -= amount
    for cause, proof in sorted(list_confirmed(proofs), key=_yields):
        amount = _fit_worth(proof.amount, left, whole)
        if amount:
            parts.append(_confirm(term, claims, cause, amount, proof))
            left -= amount
    return ProvenTerm(term, claims, proofs, tuple(parts), left)


def _order_claims(term: WeighedTerm, outcomes: Sequence[Outcome]) -> tuple[Claim, ...]:
    """The claims on a term, the strongest evidence first; more work, which is counted, has its
    amount without weighing.

    A term that shows its share in isolation is significant.
    """
    apart = {MORE_WORK}
    if reproduces(outcomes, term.case.share) == Reproduction.REPRODUCES:
        apart.add(NOT_SIGNIFICANT)
    ordered = sorted(term.claims.values(), key=rank)
    return tuple(claim for claim in ordered if claim.cause not in apart)


def _prove_causes(term: WeighedTerm, outcomes: Sequence[Outcome]) -> dict[str, Proof]:
    """What experiments on a term say of each cause that may make it."""
    proofs: dict[str, Proof] = {}
    if not outcomes:
        return proofs
    share = term.case.share
    for cause, intervention in interventions_with(term.claims, outcomes).items():
        if intervention.term and possible(cause, term.case, share.value.value):
            proofs[cause] = prove_term(outcomes, share, intervention.term)
    return proofs


def _yields(confirmed: tuple[str, Proof]) -> bool:
    """Whether a confirmed cause takes what the others leave."""
    return confirmed[0] in LAST_OF_CONFIRMED


def claim_steps(terms: Sequence[ProvenTerm], value: float) -> dict[str, float]:
    """What the cause of each factor of complete steps claims of all terms of an anomaly; without
    factors whose cause claims nothing.
    """
    claims: dict[str, float] = {}
    claimed = _claim_causes(terms, value)
    for cause, names in _list_step_factors(claimed, ()).items():
        if cause in claimed:
            claims |= dict.fromkeys(names, claimed[cause])
    return claims


def _claim_causes(terms: Sequence[ProvenTerm], value: float) -> dict[str, float]:
    """What each cause claims of all terms, in the direction of the anomaly."""
    claimed = {}
    for cause in interventions():
        amount = math.fsum(term.claim_of(cause) for term in terms)
        if amount * value > 0:
            # Claims of terms add up to more where other terms have the other sign.
            claimed[cause] = math.copysign(min(abs(amount), abs(value)), value)
    return claimed


def _list_step_factors(
    evident: Collection[str], on_steps: Sequence[Outcome]
) -> dict[str, tuple[str, ...]]:
    """The factors of complete steps that test each cause, where some causes have evidence."""
    named = interventions_with(evident, on_steps)
    return {cause: tests.step for cause, tests in named.items() if tests.step}


def attribute(
    anomaly: Anomaly, judged: Judged, *, waits_for_time: bool = False
) -> tuple[CauseTotal, ...]:
    """Attribute every term of an anomaly to causes; the amounts of the causes add up to its value,
    as the terms do.

    Causes that an experiment confirms take its measurement, first those confirmed on a term alone,
    then those confirmed on complete steps. Refuted causes take nothing. The others share the rest
    by the evidence of the recording. The largest cause comes first, and last the insignificant
    rest; a cause that some terms confirm and others do not comes twice. `waits_for_time`:
    whether the time for experiments was up before all were made.
    """
    terms = judged.terms[anomaly.functional]
    steps = _prove_on_steps(anomaly, terms, about(judged.outcomes, anomaly.functional, None))
    decided = {
        cause
        for cause, proof in steps.items()
        if proof.verdict in (Verdict.CONFIRMED, Verdict.REFUTED)
    }
    untried = TIME_IS_UP if waits_for_time else None
    parts: dict[str, list[TermCause]] = defaultdict(list)
    for term in _give_to_confirmed(terms, steps):
        for cause, of_term in (*term.parts, *_share_rest(term, decided, untried)):
            parts[cause].append(of_term)
    sums = []
    for cause, of_terms in parts.items():
        sums += totals(cause, of_terms, steps.get(cause), untried)
    return tuple(sorted(sums, key=order))


def _prove_on_steps(
    anomaly: Anomaly, terms: Sequence[ProvenTerm], on_steps: Sequence[Outcome]
) -> dict[str, Proof]:
    """What experiments on complete steps say of each cause; without one that they confirm and that
    no term can have.
    """
    proofs: dict[str, Proof] = {}
    if not on_steps:
        return proofs
    evident = _claim_causes(terms, anomaly.value.value)
    for cause, factors in _list_step_factors(evident, on_steps).items():
        proof = prove_step(on_steps, anomaly.value, factors)
        if proof.verdict != Verdict.CONFIRMED or _can_make(cause, terms, proof.amount):
            proofs[cause] = proof
    return proofs


def _can_make(cause: str, terms: Iterable[ProvenTerm], amount: float) -> bool:
    """Whether a cause can make an amount in some term."""
    return any(possible(cause, term.term.case, amount) for term in terms)


def _give_to_confirmed(
    terms: Sequence[ProvenTerm], steps: Mapping[str, Proof]
) -> Sequence[ProvenTerm]:
    """The terms after what complete steps confirm of each cause was spread over them."""
    for cause, proof in list_confirmed(steps):
        # Terms that confirm the cause in isolation have a part of what the complete step shows.
        rest = proof.amount - math.fsum(term.amount_of(cause) for term in terms)
        if rest * proof.amount > 0:
            lefts, claimed = [], []
            for term in terms:
                lefts.append(term.left)
                claimed.append(term.claim_of(cause))
            amounts = spread(rest, lefts, claimed)
            given = zip(terms, amounts, strict=True)
            terms = [_give(term, cause, amount, proof) for term, amount in given]
    return terms


def _give(term: ProvenTerm, cause: str, amount: float, proof: Proof) -> ProvenTerm:
    """The term after a confirmed cause took an amount of the rest."""
    amount = _fit_worth(amount, term.left, term.whole)
    if not amount:
        return term
    part = _confirm(term.term, term.claims, cause, amount, proof)
    return replace(term, parts=(*term.parts, part), left=term.left - amount)


def _share_rest(term: ProvenTerm, decided: Collection[str], untried: str | None) -> Iterator[Part]:
    """Share the rest of a term among its claims, the strongest evidence first; the rest is
    unexplained.

    Causes that complete steps `decided` on take nothing more. `untried` is the reason for causes
    that factors could have tested and did not.
    """
    label, left, unexplained = term.term.case.share.label, term.left, 0.0
    suspected: Claim | None = None
    why: str | None = None
    has_parts = bool(term.parts)
    for claim in term.claims:
        proof = term.proofs.get(claim.cause, Proof(Verdict.UNTESTED))
        if claim.cause in decided or proof.verdict in (Verdict.CONFIRMED, Verdict.REFUTED):
            continue
        amount = _fit_worth(claim.amount, left, term.whole)
        if not amount:
            continue
        left -= amount
        if claim.cause in ONLY_CONFIRMED:
            unexplained += amount
            suspected, why = claim, _suspicion(claim.cause, proof.reason or untried)
            continue
        rivals = _list_rivals(term.claims, claim.cause)
        yield Part(
            claim.cause, TermCause(label, amount, claim, rivals, proof.verdict, proof.reason)
        )
        has_parts = True
    unexplained += left
    if unexplained or not has_parts:
        rivals = tuple(claim for claim in term.claims if claim is not suspected)
        yield Part(UNEXPLAINED, TermCause(label, unexplained, suspected, rivals, reason=why))


def _confirm(
    term: WeighedTerm, claims: Sequence[Claim], cause: str, amount: float, proof: Proof
) -> Part:
    """The part of a cause that an experiment confirmed, with its measurement as evidence."""
    outcome = proof.outcome
    weighed = term.claims.get(cause)
    detail = weighed.detail if weighed else None
    strength = weighed.strength if weighed else Strength.FACT
    refuted_by = weighed.refuted_by if weighed else interventions()[cause].expected
    evidence = weighed.evidence if weighed else ()
    if outcome is not None and outcome.value is not None and outcome.changed is not None:
        facts = outcome.facts.what if outcome.facts else outcome.factor
        measured = (outcome.value.value, outcome.changed.value)
        by_experiment = cite(
            f"unmodified, and when {facts}", measured, "ms", "experiments.duration_ns"
        )
        evidence = (by_experiment, *evidence)
    claim = Claim(cause, amount, strength, evidence, refuted_by, detail)
    rivals = _list_rivals(claims, cause)
    return Part(cause, TermCause(term.case.share.label, amount, claim, rivals, Verdict.CONFIRMED))


def _list_rivals(claims: Iterable[Claim], cause: str) -> tuple[Claim, ...]:
    return tuple(claim for claim in claims if claim.cause != cause)


def _fit(amount: float, left: float, whole: float) -> float:
    """An amount, up to the rest of a term; 0 against the direction of the whole term."""
    if amount * whole <= 0 or left * whole <= 0:
        return 0.0
    return math.copysign(min(abs(left), abs(amount)), whole)


def _fit_worth(amount: float, left: float, whole: float) -> float:
    """The same; 0 if it is not worth a line."""
    fitted = _fit(amount, left, whole)
    return 0.0 if abs(fitted) < _LEAST_OF_WHOLE * abs(whole) else fitted


def _suspicion(cause: str, reason: str | None) -> str:
    """What would confirm a cause that evidence only suggests, as a clause."""
    expected = interventions()[cause].expected
    why = f" ({reason})" if reason else ""
    return (
        f"a {cause} is suspected and not confirmed{why}; if it is one, "
        f"{expected[0].lower()}{expected[1:-1]}"
    )
