"""Sentences on an anomaly: what it is, where, why, how sure that is, and what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...base.numbers import number, signed
from ...profiling.recording.axis import Axis
from ...profiling.recording.experiments import Scope
from ..causes import UNEXPLAINED, CauseTotal, interventions
from ..causes.memory import COUNTED_FAULTS, PAGE_FAULTS
from ..decompose.functionals import FIXED_COST, Functional
from ..decompose.statistics import Estimate
from ..decompose.terms import OPTIMIZER
from ..diagnosis.answer import Answer, Remedy, TermEvidence
from ..diagnosis.result import Diagnosis, Explanation
from ..verdicts.outcome import Outcome
from ..verdicts.words import Reproduction, Verdict

_MOSTLY = 0.5  # of an anomaly that a term makes
_GONE = 0.9  # share removed that leaves nothing worth a word
# Evidence that counts something, by cause, to begin the sentence with.
_COUNTED = {PAGE_FAULTS: COUNTED_FAULTS}


@dataclass(frozen=True, kw_only=True)
class ShownAnswer:
    """The answer on one anomaly, or on the fixed cost, in words and numbers."""

    functional: Functional  # the anomaly
    value: Estimate  # its value and interval
    name: str  # name of the anomaly, e.g. "the bend at 4"
    what: str  # the same with its value, e.g. "The bend at 4 (−28.9 ms)"
    where: str | None  # label of the term that makes most of it; None if no term does
    # line of the program with most of that term's time, e.g. `model.py:41`; None if unknown
    line: str | None
    # the largest confirmed cause, else the largest that the recording suggests; None without any
    cause: str | None
    verdict: Verdict  # verdict on that cause
    # the cause as a clause, e.g. "MKL's product; through oneDNN the bend is gone"; None without a
    # cause
    why: str | None
    # share that the decisive factor removes; None if nothing was tested
    taken: Estimate | None
    remedy: Remedy | None  # the remedy with the largest gain; None if no remedy was measured
    how_sure: str  # verdict and interval, e.g. "confirmed, 83 % removed, 71 to 95 %"
    finding: str  # what, where, why and how sure, in one or two sentences
    advice: str  # what to do and what it gains, in a sentence; empty without a remedy
    evidence: tuple[TermEvidence, ...]  # experiments behind it, by term, the largest first
    sentence: str  # finding and advice


def shown_answers(found: Diagnosis) -> tuple[ShownAnswer, ...]:
    """The answers of a diagnosis in words."""
    return tuple(shown(answer) for answer in found.answers)


def shown(answer: Answer) -> ShownAnswer:
    """An answer in words."""
    explanation, total = answer.explanation, answer.total
    why = None
    if total is None:
        sure, said = "not significant", _of_noise(explanation)
    else:
        sure = how_sure(total, answer.deciding, answer.on_step)
        if answer.cause is not None:
            why = cause(explanation, total, answer.deciding, answer.where)
        said = finding(explanation, total, answer.where, why, sure, answer.evidence)
    to_do = advice(answer)
    return ShownAnswer(
        functional=answer.functional,
        value=explanation.value,
        name=anomaly_name(answer.functional),
        what=anomaly(explanation),
        where=answer.where,
        line=answer.line,
        cause=answer.cause,
        verdict=answer.verdict,
        why=why,
        taken=answer.taken,
        remedy=answer.remedy,
        how_sure=sure,
        finding=said,
        advice=to_do,
        evidence=answer.evidence,
        sentence=f"{said} {to_do}".rstrip(),
    )


def _of_noise(explanation: Explanation) -> str:
    """What is said where the anomaly, or every term of it, cannot be distinguished from 0."""
    what = anomaly(explanation)
    if explanation.attribution.noise:
        return f"{what} is not significant: measure more rounds on a quiet machine."
    return f"{what} has no term that can be distinguished from 0: measure more rounds."


def advice(answer: Answer) -> str:
    """What to do, and what it gains, in a sentence; empty without a remedy."""
    return "" if answer.remedy is None else remedy(answer.remedy, answer.axis)


def anomaly_name(functional: Functional) -> str:
    """E.g. "the bend at 4"."""
    if functional.kind == FIXED_COST:
        return "the fixed cost of a step"
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


def _portion(explanation: Explanation, where: str | None) -> float:
    """Share of a term in an anomaly; 1 for complete steps."""
    value = next((s.value.value for s in explanation.shares if s.label == where), 0.0)
    return 1.0 if where is None else value / explanation.value.value


def cause(
    explanation: Explanation, total: CauseTotal, outcome: Outcome | None, where: str | None
) -> str:
    """The cause, and what happens without it, as a clause."""
    claim = total.terms[0].claim if total.terms else None
    cause = f"{total.cause} {claim.detail}" if claim and claim.detail else total.cause
    if outcome is None or outcome.taken is None or total.verdict != Verdict.CONFIRMED:
        return cause
    changed = outcome.facts.what if outcome.facts else f"{outcome.factor} is changed"
    what = "it" if _portion(explanation, where) > _MOSTLY else "that share"
    return (
        f"{cause}; when {changed}, {what if outcome.taken.value >= _GONE else f'most of {what}'} "
        "is gone"
    )


def how_sure(total: CauseTotal, outcome: Outcome | None, on_step: bool) -> str:
    """Verdict and interval."""
    if total.cause == UNEXPLAINED:
        return "no cause is known"
    if on_step and (measured := total.measured) is not None:
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


def finding(
    explanation: Explanation,
    total: CauseTotal,
    where: str | None,
    why: str | None,
    how_sure: str,
    evidence: Sequence[TermEvidence],
) -> str:
    """What, where, why and how sure, without the remedy."""
    if where is None:  # measured on complete steps
        subject = f"{total.cause[0].upper()}{total.cause[1:]}"
        counted = [
            e
            for t in total.terms
            if t.claim
            for e in t.claim.evidence
            if e.what == _COUNTED.get(total.cause)
        ]
        sides = [
            side for e in counted[:1] for side in (e.before, e.after) if isinstance(side, float)
        ]
        if sides:
            subject = f"{max(sides):,.0f} {total.cause} a step"
        of = f"{anomaly_name(explanation.functional)} of {_value(explanation)}"
        return (
            f"{subject} make{'' if sides else 's'} {number(abs(total.amount), 3)} ms of {of} "
            f"({how_sure})."
        )
    what = anomaly(explanation)
    if _portion(explanation, where) > _MOSTLY:
        mostly = "is mostly"
    else:
        mostly = "is largest in" if where == explanation.largest_term else "is partly"
    line = explanation.line_of(where)
    place = f"{'the ' if where == OPTIMIZER else ''}{where}{f' at {line}' if line else ''}"
    if total.cause == UNEXPLAINED:
        suspect = next((term for term in total.terms if term.label == where and term.reason), None)
        suspected = suspect.claim.cause if suspect and suspect.claim else None
        refuted = [cause for cause in _refuted(evidence, where) if cause != suspected]
        tail = f"; experiments refute {' and '.join(refuted)}" if refuted else ""
        return (
            f"{what} {mostly} {place}; its cause is not "
            f"known{tail}{f'; {suspect.reason}' if suspect else ''}."
        )
    lead = f"{what} {mostly} {place}{'' if where == total.cause else f': {why}'} ({how_sure})."
    if any(one.label == where and one.reproduction == Reproduction.NOT for one in evidence):
        lead += " Alone, the layer does not show it: the rest of the step makes it."
    return lead


def _refuted(evidence: Sequence[TermEvidence], where: str) -> list[str]:
    """The causes that experiments on a term, or on complete steps, refuted, each once."""
    refuted = {
        (factor.experiment.scope, factor.factor)
        for of_term in evidence
        for factor in of_term.factors
        if factor.verdict == Verdict.REFUTED
        and (of_term.label == where or factor.experiment.scope == Scope.STEP)
    }
    return [
        cause
        for cause, one in interventions().items()
        if refuted
        & {*((Scope.TERM, name) for name in one.term), *((Scope.STEP, name) for name in one.step)}
    ]


def remedy(remedy: Remedy, axis: Axis) -> str:
    """What to do, and what it gains."""
    at = f"at {axis.name} {remedy.batch}"
    gains = []
    if remedy.term_gain is not None:
        gains.append(f"-{_percent(remedy.term_gain.value)} of {remedy.where} {at}")
    if remedy.step_gain is not None:
        gains.append(f"-{_percent(remedy.step_gain.value)} of the step{'' if gains else f' {at}'}")
    results = (
        f"; it changes the results: {remedy.changed_results}" if remedy.changed_results else ""
    )
    return f"{remedy.what[0].upper()}{remedy.what[1:]}: {', '.join(gains)}{results}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
