"""Sentences on an anomaly: what it is, where, why, how sure that is, and what to do."""

from __future__ import annotations

import math

from ...base.counted import counted
from ...base.numbers import number, signed
from ...profiling.recording.axis import Axis
from ...profiling.recording.experiments import Scope
from ..causes import UNEXPLAINED, CauseTotal, interventions
from ..causes.memory import COUNTED_FAULTS, PAGE_FAULTS
from ..decompose.functionals import FIXED_COST, OUTLIER, Functional
from ..decompose.terms import OPTIMIZER, OVERHEAD
from ..diagnosis.explanation import Explanation, Remedy
from ..diagnosis.library_choice import library_choice
from ..verdicts.words import Reproduction, Verdict

_MOSTLY = 0.5  # of an anomaly that a term makes
_GONE = 0.9  # share removed that leaves nothing worth a word
# Evidence that counts something, by cause, to begin the sentence with.
_COUNTED = {PAGE_FAULTS: COUNTED_FAULTS}


def sentence(answer: Explanation) -> str:
    """What was found and what to do, in one to four sentences."""
    return " ".join(filter(None, (finding(answer), library(answer), advice(answer))))


def finding(answer: Explanation) -> str:
    """What, where, why and how sure, without the remedy."""
    what, total = anomaly(answer), answer.leading
    if answer.noise:
        return f"{what} is not significant: its interval holds 0."
    if total is None:
        return f"{what} has no term that can be distinguished from 0."
    if answer.where is None:
        return _of_steps(answer, total)
    if total.cause == OVERHEAD:
        much = "mostly" if _portion(answer) > _MOSTLY else "partly"
        return (
            f"{what} is {much} not in the profiled steps, whose times the profiler changed: where "
            "it lies is not known."
        )
    if _portion(answer) > _MOSTLY:
        mostly = "is mostly"
    else:
        mostly = "is largest in" if answer.where == answer.largest_term else "is partly"
    at_line = f" at {answer.line}" if answer.line else ""
    place = f"{'the ' if answer.where == OPTIMIZER else ''}{answer.where}{at_line}"
    if total.cause == UNEXPLAINED:
        return f"{what} {mostly} {place}; its cause is not known{_suspicion(answer, total)}."
    because = "" if answer.where == total.cause else f": {why(answer)}"
    lead = f"{what} {mostly} {place}{because} ({how_sure(answer)})."
    if any(
        evidence.label == answer.where and evidence.reproduction == Reproduction.NOT
        for evidence in answer.evidence or ()
    ):
        lead += " Alone, the layer does not show it: the rest of the step makes it."
    return lead


def library(answer: Explanation) -> str:
    """How much better than its default a library does for the named term, in a sentence; empty
    where that is not known.
    """
    of_term = [line for line in answer.evidence or () if line.label == answer.where]
    outcomes = (factor for evidence in of_term for factor in evidence.factors)
    if (choice := library_choice(outcomes)) is None:
        return ""
    changed = choice.best.facts.what if choice.best.facts else str(choice.best.factor)
    return (
        f"Alone, at {answer.axis.name} {choice.batch} the library's default takes "
        f"{number(choice.ratio.value, 3)} ({number(choice.ratio.low, 3)} … "
        f"{number(choice.ratio.high, 3)}) times as long as the best of {choice.ways}: {changed} "
        f"({counted(choice.rounds, 'round')})."
    )


def _of_steps(answer: Explanation, total: CauseTotal) -> str:
    """The finding where complete steps confirm the cause, and no term alone does."""
    subject = f"{total.cause[0].upper()}{total.cause[1:]}"
    counted = [
        fact
        for term in total.terms
        if term.claim
        for fact in term.claim.evidence
        if fact.what == _COUNTED.get(total.cause)
    ]
    values = (value for fact in counted[:1] for value in (fact.before, fact.after))
    sides = [value for value in values if isinstance(value, float)]
    if sides:
        subject = f"{max(sides):,.0f} {total.cause} a step"
    anomaly = f"{anomaly_name(answer.functional)} of {_value(answer)}"
    return (
        f"{subject} make{'' if sides else 's'} {number(abs(total.amount), 3)} ms of {anomaly} "
        f"({how_sure(answer)})."
    )


def _suspicion(answer: Explanation, total: CauseTotal) -> str:
    """What experiments refute of a term without a known cause, and what is suspected there, as
    clauses.
    """
    suspect = next(
        (term for term in total.terms if term.label == answer.where and term.reason), None
    )
    suspected = suspect.claim.cause if suspect and suspect.claim else None
    refuted = [cause for cause in _say_refuted(answer) if cause != suspected]
    tail = f"; experiments refute {' and '.join(refuted)}" if refuted else ""
    return f"{tail}{f'; {suspect.reason}' if suspect else ''}"


def advice(answer: Explanation) -> str:
    """What to do, and what it gains, in a sentence; empty without a remedy."""
    return "" if answer.remedy is None else remedy(answer.remedy, answer.axis)


def anomaly_name(functional: Functional) -> str:
    """E.g. "the bend at 4"."""
    if functional.kind == FIXED_COST:
        return "the fixed cost of a step"
    if functional.kind == OUTLIER:
        return f"slow size {functional.at}"
    if functional.kind == "excess":
        return f"the excess from {functional.at} to {functional.to}"
    return f"the {functional.kind} at {functional.at}"


def anomaly(explanation: Explanation) -> str:
    """The anomaly with its value."""
    name = anomaly_name(explanation.functional)
    return f"{name[0].upper()}{name[1:]} ({_value(explanation)})"


def _value(explanation: Explanation) -> str:
    value, functional = explanation.value.value, explanation.functional
    return (
        f"{number(value, 3) if functional.kind == FIXED_COST else signed(value)} {functional.unit}"
    )


def _portion(answer: Explanation) -> float:
    """Share of the named term in an anomaly; 1 for complete steps."""
    if answer.where is None:
        return 1.0
    value = next((share.value.value for share in answer.shares if share.label == answer.where), 0.0)
    return value / answer.value.value


def why(answer: Explanation) -> str | None:
    """The cause, and what happens without it, as a clause; None without a cause."""
    total, outcome = answer.leading, answer.deciding
    if total is None or answer.cause is None:
        return None
    claim = total.terms[0].claim if total.terms else None
    cause = f"{total.cause} {claim.detail}" if claim and claim.detail else total.cause
    if outcome is None or outcome.taken is None or total.verdict != Verdict.CONFIRMED:
        return cause
    changed = outcome.facts.what if outcome.facts else f"{outcome.factor} is changed"
    what = "it" if _portion(answer) > _MOSTLY else "that share"
    return (
        f"{cause}; when {changed}, {what if outcome.taken.value >= _GONE else f'most of {what}'} "
        "is gone"
    )


def how_sure(answer: Explanation) -> str:
    """Verdict and interval."""
    total, outcome = answer.leading, answer.deciding
    if total is None:
        return "not significant"
    if total.cause == UNEXPLAINED:
        return "no cause is known"
    if answer.on_step and (measured := total.measured) is not None:
        ends = f"{number(measured.low, 3)} to {number(measured.high, 3)} ms"
        # The amount is at most the anomaly; a change may remove more.
        more = not measured.low <= total.amount <= measured.high
        return f"confirmed, {f'{number(measured.value, 3)} ms removed, ' if more else ''}{ends}"
    taken = outcome.taken if outcome else None
    of_term_only = outcome is not None and outcome.verdict == Verdict.CONFIRMED != total.verdict
    if (
        taken is None
        or total.verdict == Verdict.UNTESTED
        or of_term_only
        or not math.isfinite(taken.low)
    ):
        return f"{total.verdict}: {total.reason}" if total.reason else str(total.verdict)
    interval = f"{100 * taken.low:.0f} to {_percent(taken.high)}"
    said = f"{total.verdict}, {_percent(taken.value)} removed, {interval}"
    # A large share alone decides nothing, e.g. where it is removed by slowing the other batch
    # sizes.
    reason = total.reason or (outcome.reason if outcome else None)
    return f"{said}; {reason}" if total.verdict == Verdict.UNDECIDED and reason else said


def _say_refuted(answer: Explanation) -> list[str]:
    """The causes that experiments on the named term, or on complete steps, refuted, each once."""
    refuted = {
        (factor.experiment.scope, factor.factor)
        for of_term in answer.evidence or ()
        for factor in of_term.factors
        if factor.verdict == Verdict.REFUTED
        and (of_term.label == answer.where or factor.experiment.scope == Scope.STEP)
    }
    return [
        cause
        for cause, intervention in interventions().items()
        if refuted
        & {
            *((Scope.TERM, name) for name in intervention.term),
            *((Scope.STEP, name) for name in intervention.step),
        }
    ]


def remedy(remedy: Remedy, axis: Axis) -> str:
    """What to do, and what it gains."""
    at = f"at {axis.name} {remedy.batch}"
    gains = []
    if remedy.term_gain is not None:
        what = "it" if remedy.where in remedy.what else remedy.where
        gains.append(f"-{_percent(remedy.term_gain.value)} of {what} {at}")
    if remedy.step_gain is not None:
        gains.append(f"-{_percent(remedy.step_gain.value)} of the step{'' if gains else f' {at}'}")
    results = (
        f"; it changes the results: {remedy.changed_results}" if remedy.changed_results else ""
    )
    return f"{remedy.what[0].upper()}{remedy.what[1:]}: {', '.join(gains)}{results}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
