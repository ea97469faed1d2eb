"""The causes of an anomaly's terms: competing causes, each scored by evidence in the recording.

Every cause is a module with `CAUSE`, `weigh(case) -> Claim | None` and `INTERVENTION`, the experiment that tests it. A
module may have `possible(case, amount) -> bool`: where that is False, no experiment confirms the cause for that amount.
For each term, what an experiment confirmed takes the amount that it measured; then the best-scored claim takes the
amount that it explains, then the next, as long as an amount is left and the signs agree. The rest is *unexplained*, a
cause with an amount of its own. So the amounts of all causes over all terms add up to the anomaly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from ...base import plugins
from ...profiling.recording.experiments import TIME_IS_UP, Scope
from ..decompose.functionals import Functional
from ..decompose.statistics import LEVEL, Estimate
from ..verdicts.outcome import Outcome, Reproduction, Verdict
from ..verdicts.proof import Proof, about, by_cause, prove_step, prove_term, reproduces, spread
from . import (
    algorithm_switch,
    beside_communication,
    cache_capacity,
    call_size,
    cpu_contention,
    fixed_cost,
    graph_padding,
    host_bound,
    idle_threads,
    memory_pressure,
    more_calls,
    not_significant,
    optimizer,
    overhead,
    page_faults,
    quantisation,
    roof_change,
    slow_call,
    throttling,
    weights,
)
from .case import Case, Claim, Evidence, Intervention, seen

UNEXPLAINED = "unexplained"
NOT_SIGNIFICANT = not_significant.CAUSE
_MODULES = (
    algorithm_switch,
    more_calls,
    quantisation,
    graph_padding,
    memory_pressure,
    page_faults,
    host_bound,
    cache_capacity,
    roof_change,
    throttling,
    beside_communication,
    cpu_contention,
    idle_threads,
    slow_call,
    call_size,
    weights,
    optimizer,
    not_significant,
    fixed_cost,
    overhead,
)
CAUSES = (*(module.CAUSE for module in _MODULES), UNEXPLAINED)
_SCOPES = (Scope.TERM, Scope.STEP)
# Splitting takes every excess away, whatever causes it: a more telling experiment goes before.
LAST_OF_CONFIRMED = (call_size.CAUSE,)
# A smaller claim, as a share of its term, is not worth a line; its amount stays unexplained.
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class TermCause:
    """The part of one term that one cause explains.

    Attributes:
        label: label of the term.
        amount: explained amount, in the functional's unit.
        claim: claim of the cause; None for unexplained.
        rivals: claims of other causes on the same term, the best first, whatever they explain.
        verdict: verdict of experiments on the cause in this term, see `experiments.outcome.Verdict`.
        reason: reason for an undecided or untested verdict, as a clause without a full stop; None otherwise, or if
            nobody tried.
    """

    label: str
    amount: float
    claim: Claim | None
    rivals: tuple[Claim, ...]
    verdict: str = Verdict.UNTESTED
    reason: str | None = None


@dataclass(frozen=True)
class CauseTotal:
    """One cause summed over terms: over those that confirm it, or over the others.

    Attributes:
        cause: name of the cause.
        amount: its amount, in the functional's unit.
        terms: its part of each of these terms, the largest first.
        verdict: verdict of experiments on these terms, of the largest tested one; see `experiments.outcome.Verdict`.
        measured: amount that an experiment measured on the complete step, with its interval; None without one.
        reason: reason for an undecided or untested verdict, as a clause without a full stop; None otherwise, or if
            nobody tried.
    """

    cause: str
    amount: float
    terms: tuple[TermCause, ...]
    verdict: str = Verdict.UNTESTED
    measured: Estimate | None = None
    reason: str | None = None

    @property
    def confirmed_on_steps(self) -> bool:
        """Whether complete steps have confirmed it, and not its terms alone."""
        return self.verdict == Verdict.CONFIRMED and self.measured is not None


@dataclass(frozen=True)
class Attribution:
    """The causes of one anomaly; their amounts add up to it.

    Attributes:
        functional: the explained anomaly.
        value: its value, in its unit.
        noise: whether the anomaly is smaller than its noise.
        causes: the largest first, and last, apart from them, what is not significant. A cause that some terms confirm
            and others do not comes twice.
    """

    functional: Functional
    value: float
    noise: bool
    causes: tuple[CauseTotal, ...]

    @property
    def verdict(self) -> CauseTotal | None:
        """The cause of most of the anomaly in the anomaly's direction; None for an anomaly of 0.

        What is less than its own noise is not significant, whatever its terms are; of an anomaly that is, the terms
        that are not significant alone stand in for a cause only where there is nothing else.
        """
        if self.noise:
            unstable = (c for c in self.causes if c.cause == NOT_SIGNIFICANT)
            return next(unstable, CauseTotal(NOT_SIGNIFICANT, 0.0, ()))
        agreeing = [c for c in self.causes if c.amount * self.value > 0]
        return max(agreeing, key=lambda c: (c.cause != NOT_SIGNIFICANT, abs(c.amount)), default=None)


@dataclass(frozen=True)
class Weighed:
    """One term with what the causes claim of it, which experiments do not change.

    Attributes:
        label: label of the term.
        case: the term.
        claims: claims by cause.
    """

    label: str
    case: Case
    claims: Mapping[str, Claim]


def weigh_causes(label: str, case: Case) -> Weighed:
    """Ask every cause what it claims of a term."""
    claims = filter(None, (weigh(case) for weigh in _weigh()))
    return Weighed(label, case, {claim.cause: claim for claim in claims})


def claimed(weighed: Iterable[Weighed], cause: str, value: float) -> float:
    """What a cause claims of all terms in the direction of an anomaly, up to it, whatever other causes claim.

    Args:
        weighed: every term.
        cause: name of the cause.
        value: the anomaly.
    """
    amounts = [
        math.copysign(min(abs(one.claims[cause].amount), abs(share)), share)
        for one in weighed
        if cause in one.claims and one.claims[cause].amount * (share := one.case.share.value.value) > 0
    ]
    amount = math.fsum(amounts)
    return math.copysign(min(abs(amount), abs(value)), value) if amount * value > 0 else 0.0


def attribute(
    functional: Functional,
    value: Estimate,
    weighed: Iterable[Weighed],
    outcomes: Sequence[Outcome] = (),
    *,
    waits_for_time: bool = False,
) -> Attribution:
    """Attribute every term of an anomaly to causes.

    Causes that an experiment confirms take what it measured, first those confirmed on a term alone, then those
    confirmed on complete steps. Refuted causes take nothing. The others share what is left by the evidence of the
    recording.

    Args:
        functional: the anomaly.
        value: its value and interval.
        weighed: every term; their values add up to `value`.
        outcomes: outcomes of the recording's experiments.
        waits_for_time: whether the time for experiments was up before all were made.
    """
    terms = [_Term(one, about(outcomes, functional, one.case.share)) for one in weighed]
    of_step = about(outcomes, functional, None)
    steps: dict[str, Proof] = {}
    for cause, (intervention, claimed) in _claimed_of_steps(terms, value.value).items() if of_step else ():
        proof = prove_step(of_step, value, claimed, intervention.step)
        if proof.verdict != Verdict.CONFIRMED or any(_possible(cause, term.case, proof.amount) for term in terms):
            steps[cause] = proof
    for cause, proof in by_cause(steps, Verdict.CONFIRMED):
        # Terms that confirm the cause alone have a part of what the complete step shows.
        rest = proof.amount - math.fsum(term.taken(cause) for term in terms)
        if rest * proof.amount > 0:
            claims = [term.claimed(cause) for term in terms]
            for term, amount in zip(terms, spread(rest, [term.left for term in terms], claims), strict=True):
                term.take(cause, amount, proof)
    refuted = {cause for cause, proof in steps.items() if proof.verdict in (Verdict.CONFIRMED, Verdict.REFUTED)}
    taken: dict[str, list[TermCause]] = {}
    for term in terms:
        for cause, share in term.share_out(refuted):
            taken.setdefault(cause, []).append(share)
    untried = TIME_IS_UP if waits_for_time else None
    totals = [one for cause, shares in taken.items() for one in _totals(cause, shares, steps.get(cause), untried)]
    noise = math.isfinite(value.low) and value.p >= LEVEL
    return Attribution(functional, value.value, noise, tuple(sorted(totals, key=_in_order)))


def claims_of_steps(
    functional: Functional, value: Estimate, weighed: Iterable[Weighed], outcomes: Sequence[Outcome]
) -> dict[str, float]:
    """What each factor of complete steps is judged by: the amount that its cause claims, in the functional's unit.

    Those that bring their cause about, or remove a part of it, are judged by the share of the functional all the same,
    see `proof.prove_step`; for the arguments see `attribute`.
    """
    terms = [_Term(one, about(outcomes, functional, one.case.share)) for one in weighed]
    return {
        name: math.copysign(min(abs(claimed), abs(value.value)), value.value)
        for intervention, claimed in _claimed_of_steps(terms, value.value).values()
        for name in intervention.step
        if claimed * value.value > 0
    }


def _claimed_of_steps(terms: Sequence[_Term], value: float) -> dict[str, tuple[Intervention, float]]:
    """The causes that factors of complete steps test: the experiment, and what the cause claims of all terms."""
    claimed = {cause: math.fsum(term.claimed(cause) for term in terms) for cause in interventions()}
    evident = {cause for cause, amount in claimed.items() if amount * value > 0}
    return {cause: (one, claimed[cause]) for cause, one in interventions_with(evident).items() if one.step}


def _totals(cause: str, shares: list[TermCause], of_step: Proof | None, untried: str | None) -> list[CauseTotal]:
    """One cause over all terms: the part that its terms confirm, and the rest; one total if complete steps decide.

    Args:
        cause: name of the cause.
        shares: what it explains of each term.
        of_step: verdict of complete steps.
        untried: reason for a cause that factors could have tested and did not.
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
    found = [_total_of(cause, confirmed, Verdict.CONFIRMED)] if confirmed else []
    if not rest:
        return found
    if (largest := next((share for share in rest if share.verdict != Verdict.UNTESTED), None)) is not None:
        return [*found, _total_of(cause, rest, largest.verdict, largest.reason)]
    intervention = interventions().get(cause)
    reasons = [share.reason for share in rest] + [of_step.reason if of_step else None]
    if intervention is not None:
        reasons = [intervention.untested, *reasons, untried]
    return [*found, _total_of(cause, rest, Verdict.UNTESTED, next(filter(None, reasons), None))]


def _total_of(
    cause: str,
    shares: Sequence[TermCause],
    verdict: str,
    reason: str | None = None,
    measured: Estimate | None = None,
) -> CauseTotal:
    return CauseTotal(cause, math.fsum(share.amount for share in shares), tuple(shares), verdict, measured, reason)


class _Term:
    """One term while its amount is shared out among causes."""

    def __init__(self, weighed: Weighed, outcomes: Sequence[Outcome]) -> None:
        self.label, self._claims = weighed.label, weighed.claims
        self.case = case = weighed.case
        self._ordered = sorted(self._claims.values(), key=lambda claim: (-claim.score, claim.cause))
        self._proofs = {
            cause: prove_term(outcomes, case.share, intervention.term)
            for cause, intervention in interventions_with(self._claims).items()
            if intervention.term and outcomes and _possible(cause, case, case.share.value.value)
        }
        if reproduces(outcomes, case.share) == Reproduction.REPRODUCES:
            self._ordered = [claim for claim in self._ordered if claim.cause != NOT_SIGNIFICANT]
        self.left = self._value = case.share.value.value
        self._shares: list[tuple[str, TermCause]] = []
        confirmed = by_cause(self._proofs, Verdict.CONFIRMED)
        for cause, proof in sorted(confirmed, key=lambda item: item[0] in LAST_OF_CONFIRMED):
            self.take(cause, proof.amount, proof)

    def claimed(self, cause: str) -> float:
        """Amount that a cause claims without experiments, in the direction of the term, up to what is left."""
        claim = self._claims.get(cause)
        return self._possible(claim.amount) if claim in self._ordered and claim is not None else 0.0

    def taken(self, cause: str) -> float:
        """Amount that a cause has so far."""
        return math.fsum(share.amount for owner, share in self._shares if owner == cause)

    def take(self, cause: str, amount: float, proof: Proof) -> None:
        """Give an amount to a cause that an experiment confirmed."""
        amount = self._possible(amount)
        if abs(amount) < _LEAST_SHARE * abs(self._value) or not amount:
            return
        claim, outcome = self._claims.get(cause), proof.outcome
        evidence = claim.evidence if claim else ()
        if outcome is not None and outcome.value is not None and outcome.changed is not None:
            facts = outcome.facts.what if outcome.facts else outcome.factor
            measured = (outcome.value.value, outcome.changed.value)
            evidence = (seen(f"as it is, and when {facts}", measured, "ms", "experiments.duration_ns"), *evidence)
        refuted_by = claim.refuted_by if claim else interventions()[cause].expected
        shown = Claim(cause, amount, 1.0, evidence, refuted_by, claim.detail if claim else None)
        self._add(cause, amount, shown, Verdict.CONFIRMED)

    def share_out(self, refuted: Collection[str]) -> list[tuple[str, TermCause]]:
        """The causes of the term, the confirmed ones first, then the best-scored; their amounts add up to the term.

        Args:
            refuted: causes that take nothing more, because experiments on complete steps decided on them.
        """
        for claim in self._ordered:
            proof = self._proofs.get(claim.cause, Proof(Verdict.UNTESTED))
            if claim.cause in refuted or proof.verdict in (Verdict.CONFIRMED, Verdict.REFUTED):
                continue
            amount = self._possible(claim.amount)
            if amount and abs(amount) >= _LEAST_SHARE * abs(self._value):
                self._add(claim.cause, amount, claim, proof.verdict, proof.reason)
        if self.left or not self._shares:
            rest = TermCause(self.label, self.left, None, tuple(self._ordered))
            self._shares.append((UNEXPLAINED, rest))
        return self._shares

    def _possible(self, amount: float) -> float:
        """An amount, up to what is left of the term; 0 against its direction."""
        if amount * self._value <= 0 or self.left * self._value <= 0:
            return 0.0
        return math.copysign(min(abs(self.left), abs(amount)), self._value)

    def _add(self, cause: str, amount: float, claim: Claim, verdict: str, reason: str | None = None) -> None:
        rivals = tuple(rival for rival in self._ordered if rival.cause != claim.cause)
        self._shares.append((cause, TermCause(self.label, amount, claim, rivals, verdict, reason)))
        self.left -= amount


def _in_order(total: CauseTotal) -> tuple[bool, float]:
    return total.cause == NOT_SIGNIFICANT, -abs(total.amount)


@cache
def interventions() -> dict[str, Intervention]:
    """The experiment of every cause that names one, built-in causes first."""
    found = {module.CAUSE: module.INTERVENTION for module in _MODULES if hasattr(module, "INTERVENTION")}
    taken = {(scope, name) for one in found.values() for scope in _SCOPES for name in getattr(one, scope)}
    for plugin in plugins.plugins(plugins.CAUSES):
        intervention = getattr(plugin.module, "INTERVENTION", None)
        if intervention is None:
            continue
        if not isinstance(intervention, Intervention):
            plugins.report_broken(plugin.name, plugin.package, "INTERVENTION is no Intervention")
            continue
        named = {(scope, name) for scope in _SCOPES for name in getattr(intervention, scope)}
        if both := named & taken:
            names = ", ".join(sorted(name for _, name in both))
            plugins.report_broken(plugin.name, plugin.package, f"another cause has its factors: {names}")
        else:
            taken |= named
            found[plugin.module.CAUSE] = intervention
    return found


def interventions_with(evident: Collection[str]) -> dict[str, Intervention]:
    """The experiment of every cause in a term where some causes have evidence: they get the factors that they share.

    Args:
        evident: names of causes that claim a part of the term.
    """
    known = interventions()
    taker = {name: cause for cause in evident if cause in known for name in known[cause].shared}
    if not taker:
        return known

    def names(cause: str, scope: str) -> tuple[str, ...]:
        own = [name for name in getattr(known[cause], scope) if taker.get(name, cause) == cause]
        return (*own, *(name for name in factors(scope) if taker.get(name) == cause and name not in own))

    return {c: replace(one, term=names(c, Scope.TERM), step=names(c, Scope.STEP)) for c, one in known.items()}


def factors(scope: str, evident: Collection[str] = ()) -> dict[str, str]:
    """The factors of a scope, with the cause that each takes away.

    Args:
        scope: see `profiling.recording.experiments.Scope`.
        evident: see `interventions_with`.
    """
    return {name: cause for cause, one in interventions_with(evident).items() for name in getattr(one, scope)}


def _possible(cause: str, case: Case, amount: float) -> bool:
    """Whether a cause can make an amount at all in a term, by what was recorded of the step."""
    module = next((module for module in _MODULES if cause == module.CAUSE), None)
    possible = getattr(module, "possible", None)
    return possible is None or bool(possible(case, amount))


@cache
def _weigh() -> tuple[Callable[[Case], Claim | None], ...]:
    """The `weigh` functions of the built-in causes, then of plugins."""
    return (
        *(module.weigh for module in _MODULES),
        *(_guarded(plugin) for plugin in plugins.plugins(plugins.CAUSES)),
    )


def _guarded(plugin: plugins.Plugin) -> Callable[[Case], Claim | None]:
    """A plugin's `weigh`; if it fails, it claims nothing and is reported."""

    def weigh(case: Case) -> Claim | None:
        try:
            claim = plugin.module.weigh(case)
            if claim is None or (isinstance(claim, Claim) and claim.evidence and math.isfinite(claim.amount)):
                return claim
            why = "weigh() returned no Claim with evidence and a finite amount"
        except Exception as error:  # third-party code may raise anything; the other causes continue
            why = f"weigh() failed ({type(error).__name__}: {error})"
        plugins.report_broken(plugin.name, plugin.package, why)
        return None

    return weigh


__all__ = [
    "CAUSES",
    "NOT_SIGNIFICANT",
    "UNEXPLAINED",
    "Attribution",
    "Case",
    "CauseTotal",
    "Claim",
    "Evidence",
    "Intervention",
    "TermCause",
    "Weighed",
    "attribute",
    "claimed",
    "claims_of_steps",
    "factors",
    "interventions",
    "interventions_with",
    "weigh_causes",
]
