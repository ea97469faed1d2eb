"""Sentences on an anomaly: its name, place, cause and certainty, and what to do."""

from __future__ import annotations

import math

from ...base.counted import counted
from ...base.numbers import number, percent, with_sign
from ...profiling.recording.axis import Axis
from ...profiling.recording.experiments import Scope
from ..causes import UNEXPLAINED, CauseTotal, interventions
from ..causes.memory import COUNTED_FAULTS, PAGE_FAULTS
from ..decompose.functionals import FIXED_COST, OUTLIER, Functional
from ..decompose.terms import OPTIMIZER, OVERHEAD
from ..diagnosis.explanation import Explanation, Remedy
from ..diagnosis.library_choice import LibraryChoice, library_choice
from ..verdicts.outcome import Outcome
from ..verdicts.words import Reproduction, Verdict
from .words import begin_sentence, join_texts, show_ends, show_ms

_MOSTLY = 0.5  # of an anomaly that a term makes
_GONE = 0.9  # share removed that leaves nothing worth a word
# Evidence that counts something, by cause, to begin the sentence with.
_COUNTED = {PAGE_FAULTS: COUNTED_FAULTS}


def sentence(answer: Explanation) -> str:
    """The finding and the remedy, in one to four sentences."""
    return join_texts([finding(answer), library(answer), advice(answer)], " ")


def finding(answer: Explanation) -> str:
    """What, where, why and how sure, without the remedy."""
    what, total = anomaly(answer), answer.leading
    if answer.noise:
        return f"{what} is not significant: its interval holds 0."
    if total is None:
        return f"{what} has no term that can be distinguished from 0."
    if answer.where is None:
        return _of_steps(answer, total)
    is_most = _portion(answer) > _MOSTLY
    if total.cause == OVERHEAD:
        much = "mostly" if is_most else "partly"
        return (
            f"{what} is {much} not in the profiled steps, whose times the profiler changed: where "
            "it lies is not known."
        )
    mostly = "is partly"
    if is_most:
        mostly = "is mostly"
    elif answer.where == answer.largest_term:
        mostly = "is largest in"
    article = "the " if answer.where == OPTIMIZER else ""
    at_line = f" at {answer.line}" if answer.line else ""
    lead = f"{what} {mostly} {article}{answer.where}{at_line}"
    if total.cause == UNEXPLAINED:
        return f"{lead}; its cause is not known{_suspicion(answer, total)}."
    because = "" if answer.where == total.cause else f": {why(answer)}"
    lead += f"{because} ({how_sure(answer)})."
    for evidence in answer.evidence or ():
        if evidence.label == answer.where and evidence.reproduction == Reproduction.NOT:
            return f"{lead} Alone, the layer does not show it: the rest of the step makes it."
    return lead


def library(answer: Explanation) -> str:
    """How much better than its default a library does for the named term, in a sentence; empty
    where that is not known.
    """
    choice = choose_library(answer)
    if choice is None:
        return ""
    changed = choice.best.facts.what if choice.best.facts else str(choice.best.factor)
    ratio = choice.ratio
    times = f"{number(ratio.value, 3)} ({number(ratio.low, 3)} … {number(ratio.high, 3)}) times"
    return (
        f"Alone, at {answer.axis.name_size(choice.batch)} the library's default takes {times} as "
        f"long as the best of {choice.ways}: {changed} ({counted(choice.rounds, 'round')})."
    )


def choose_library(answer: Explanation) -> LibraryChoice | None:
    """The best library of the named term; None where none is known."""
    factors: list[Outcome] = []
    for evidence in answer.evidence or ():
        if evidence.label == answer.where:
            factors += evidence.factors
    return library_choice(factors)


def _of_steps(answer: Explanation, total: CauseTotal) -> str:
    """The finding where complete steps confirm the cause, and no term alone does."""
    subject = f"{begin_sentence(total.cause)} makes"
    counts = _count_evidence(total)
    if counts:
        subject = f"{max(counts):,.0f} {total.cause} a step make"
    anomaly = f"{anomaly_name(answer.functional)} of {_value(answer)}"
    return f"{subject} {show_ms(abs(total.amount), 3)} of {anomaly} ({how_sure(answer)})."


def _count_evidence(total: CauseTotal) -> list[float]:
    """The counts before and after that the first claim of a cause names; empty without any."""
    for term in total.terms:
        for fact in term.claim.evidence if term.claim else ():
            if fact.what == _COUNTED.get(total.cause):
                return [side for side in (fact.before, fact.after) if isinstance(side, float)]
    return []


def _suspicion(answer: Explanation, total: CauseTotal) -> str:
    """Refuted causes of a term without a known cause, and the suspected one, as clauses."""
    reason, suspected = "", None
    for term in total.terms:
        if term.label == answer.where and term.reason:
            reason = f"; {term.reason}"
            suspected = term.claim.cause if term.claim else None
            break
    refuted = [cause for cause in _say_refuted(answer) if cause != suspected]
    tail = f"; experiments refute {' and '.join(refuted)}" if refuted else ""
    return f"{tail}{reason}"


def advice(answer: Explanation) -> str:
    """The remedy and its gain, in a sentence; empty without a remedy."""
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
    return f"{begin_sentence(name)} ({_value(explanation)})"


def _value(explanation: Explanation) -> str:
    value, functional = explanation.value.value, explanation.functional
    shown = number(value, 3) if functional.kind == FIXED_COST else with_sign(value)
    return f"{shown} {functional.unit}"


def _portion(answer: Explanation) -> float:
    """Share of the named term in an anomaly; 1 for complete steps."""
    if answer.where is None:
        return 1.0
    for share in answer.shares:
        if share.label == answer.where:
            return share.value.value / answer.value.value
    return 0.0


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
    if outcome.taken.value < _GONE:
        what = f"most of {what}"
    return f"{cause}; when {changed}, {what} is gone"


def how_sure(answer: Explanation) -> str:
    """Verdict and interval."""
    total, outcome = answer.leading, answer.deciding
    if total is None:
        return "not significant"
    if total.cause == UNEXPLAINED:
        return "no cause is known"
    measured = total.measured
    if answer.on_step and measured is not None:
        ends = f"{number(measured.low, 3)} to {show_ms(measured.high, 3)}"
        # The amount is at most the anomaly; a change may remove more.
        if measured.low <= total.amount <= measured.high:
            return f"confirmed, {ends}"
        return f"confirmed, {show_ms(measured.value, 3)} removed, {ends}"
    taken = outcome.taken if outcome else None
    of_term_only = outcome is not None and outcome.verdict == Verdict.CONFIRMED != total.verdict
    is_open = total.verdict == Verdict.UNTESTED or of_term_only
    if taken is None or is_open or not math.isfinite(taken.low):
        return f"{total.verdict}: {total.reason}" if total.reason else str(total.verdict)
    said = f"{total.verdict}, {percent(taken.value)} removed, {show_ends(taken)}"
    # A large share alone decides nothing, e.g. where it is removed by slowing the other batch
    # sizes.
    reason = total.reason or (outcome.reason if outcome else None)
    return f"{said}; {reason}" if total.verdict == Verdict.UNDECIDED and reason else said


def _say_refuted(answer: Explanation) -> list[str]:
    """The causes that experiments on the named term, or on complete steps, refuted, each once."""
    refuted = set()
    for evidence in answer.evidence or ():
        for factor in evidence.factors:
            scope = factor.experiment.scope
            counts = evidence.label == answer.where or scope == Scope.STEP
            if counts and factor.verdict == Verdict.REFUTED:
                refuted.add((scope, factor.factor))
    causes = []
    for cause, intervention in interventions().items():
        on_term = {(Scope.TERM, name) for name in intervention.term}
        on_step = {(Scope.STEP, name) for name in intervention.step}
        if refuted & (on_term | on_step):
            causes.append(cause)
    return causes


def remedy(remedy: Remedy, axis: Axis) -> str:
    """The remedy and its gain."""
    at = f" at {axis.name_size(remedy.batch)}"
    gains = []
    if remedy.term_gain is not None:
        what = "its time" if remedy.where in remedy.what else remedy.where
        gains.append(f"-{percent(remedy.term_gain.value)} of {what}{at}")
        at = ""
    if remedy.step_gain is not None:
        gains.append(f"-{percent(remedy.step_gain.value)} of the step{at}")
    said = f"{begin_sentence(remedy.what)}: {', '.join(gains)}"
    if remedy.padding is not None and remedy.padding.times_ms is not None:
        alone_ms, padded_ms = remedy.padding.times_ms
        said += (
            f"; {remedy.padding.to} takes {show_ms(padded_ms, 3)} in place of {number(alone_ms, 3)}"
        )
    if remedy.changed_results:
        said += f"; it changes the results: {remedy.changed_results}"
    return f"{said}."
