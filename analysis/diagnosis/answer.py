"""Answers: for each anomaly and the fixed cost of a step, what it is, where, why, what to do, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pandas as pd

from ...base.numbers import number, signed
from ...profiling.recording.axis import Axis, axis_of
from ...profiling.recording.experiments import Scope, Stage
from ...profiling.recording.store import Recording
from ..causes import (
    NOT_SIGNIFICANT,
    UNEXPLAINED,
    CauseTotal,
    Intervention,
    interventions,
    interventions_with,
    outcomes_of_steps,
    page_faults,
)
from ..causes.context import weights_of
from ..decompose.functionals import FIXED_COST, Functional
from ..decompose.statistics import Estimate
from ..decompose.terms import KERNELS, OPTIMIZER, Share
from ..verdicts.outcome import Outcome
from ..verdicts.proof import about, decisive, isolated_of, reproduces
from ..verdicts.shape import Shape, shape
from ..verdicts.words import Reproduction, Verdict
from .remedies import find_remedies, naming

if TYPE_CHECKING:
    from .result import Diagnosis, Explanation

_LEAST_LEADING = 0.1  # of an anomaly; a smaller cause does not lead the answer
_MOSTLY = 0.5  # of an anomaly that a term makes
# Least gain that is worth a remedy, as a share of the step, and of a term that was only run alone.
_LEAST_STEP_GAIN, _LEAST_TERM_GAIN = 0.01, 0.05
_GONE = 0.9  # share removed that leaves nothing worth a word
_FRESH = (Stage.CONFIRM, Stage.REMEDY)
# Evidence that counts something, by cause, to begin the sentence with.
_COUNTED = {page_faults.CAUSE: page_faults.COUNT}
THE_STEP = "the step"


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """Something to do, with its measured gain.

    Attributes:
        factor: name of the factor that helped.
        where: label of the term that it was tried on; "the step" for complete steps.
        what: an instruction, e.g. "run fc6 forward through oneDNN".
        how: instructions to set it; None if `what` says it.
        batch: batch size of the gain: the largest of the experiment, for a fixed cost the smallest.
        term_gain: share of the term's time saved at that batch size; None if it was not run in isolation.
        step_gain: share of the complete step saved at that batch size; None if it was not measured on the step.
        step_gains: share saved at every batch size of the experiment, as (batch size, gain); empty as for `step_gain`.
        changed_results: differences, if it changes the results beyond rounding; else None.
    """

    factor: str
    where: str
    what: str
    how: str | None
    batch: int
    term_gain: Estimate | None
    step_gain: Estimate | None
    step_gains: tuple[tuple[int, Estimate], ...] = ()
    changed_results: str | None = None


@dataclass(frozen=True)
class TermEvidence:
    """The experiments on one term of an anomaly, or on the complete step.

    Attributes:
        label: label of the term; "the step" for complete steps.
        share: the term's share in the step, in the functional's unit; None for the complete step.
        alone: the term in isolation, unmodified; None if it was not run. For the complete step, the unmodified step.
        reproduction: see `words.Reproduction`; None for the complete step, or if it was not run in isolation.
        shape: shape of the curve on a finer grid; None if it was not run.
        factors: one outcome per factor, the decisive one: the last of those that were confirmed or refuted on fresh
            rounds, else the last; confirmed ones first.
    """

    label: str
    share: Estimate | None
    alone: Outcome | None
    reproduction: Reproduction | None
    shape: Shape | None
    factors: tuple[Outcome, ...]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer on one anomaly, or on the fixed cost.

    Attributes:
        functional: the anomaly.
        value: its value and interval.
        name: name of the anomaly, e.g. "the bend at 4".
        what: the same with its value, e.g. "The bend at 4 (−28.9 ms)".
        where: label of the term that makes most of it; None if no term does.
        line: line of the program with most of that term's time, e.g. `model.py:41`; None if unknown.
        cause: the largest confirmed cause, else the largest that the recording suggests; None without any.
        verdict: verdict on that cause.
        why: the cause as a clause, e.g. "MKL's product; through oneDNN the bend is gone"; None without a cause.
        taken: share that the decisive factor removes; None if nothing was tested.
        remedy: the remedy with the largest gain; None if no remedy was measured.
        how_sure: verdict and interval, e.g. "confirmed, 83 % removed, 71 to 95 %".
        finding: what, where, why and how sure, in one or two sentences.
        advice: what to do and what it gains, in a sentence; empty without a remedy.
        evidence: experiments behind it, by term, the largest first.
        sentence: finding and advice.
    """

    functional: Functional
    value: Estimate
    name: str
    what: str
    where: str | None
    line: str | None = None
    cause: str | None = None
    verdict: Verdict = Verdict.UNTESTED
    why: str | None = None
    taken: Estimate | None = None
    remedy: Remedy | None = None
    how_sure: str
    finding: str
    advice: str = ""
    evidence: tuple[TermEvidence, ...]
    sentence: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", f"{self.finding} {self.advice}".rstrip())


def answered(diagnosis: Diagnosis, recording: Recording, outcomes: tuple[Outcome, ...]) -> Diagnosis:
    """The diagnosis of a recording with the outcomes of its experiments, and with the answers."""
    weights = weights_of(diagnosis.recorded.operands) if diagnosis.recorded else ()
    diagnosis = replace(diagnosis, outcomes=outcomes, remedies=find_remedies(outcomes, weights))
    return replace(diagnosis, answers=answers(diagnosis, recording))


def answers(diagnosis: Diagnosis, recording: Recording) -> tuple[Answer, ...]:
    """The answer on every explained anomaly, the largest first, and last on the fixed cost, if it is significant."""
    axis = axis_of(recording.meta)
    explained = [*diagnosis.explanations, *([diagnosis.fixed_cost] if diagnosis.fixed_cost else [])]
    rows = pd.DataFrame()
    if any(outcome.experiment.stage == Stage.GRID for outcome in diagnosis.outcomes):
        rows = recording.frame("experiments")
    return tuple(_answer(explanation, diagnosis, rows, axis) for explanation in explained)


def _answer(explanation: Explanation, diagnosis: Diagnosis, rows: pd.DataFrame, axis: Axis) -> Answer:
    """The answer on one anomaly."""
    evidence = tuple(_evidence(explanation, diagnosis.outcomes, rows, axis))
    what = _what(explanation)
    if explanation.attribution.noise:
        sentence = f"{what} is not significant: measure more rounds on a quiet machine."
        return _plain(explanation, what, sentence, evidence)
    total = _leading(explanation)
    if total is None:
        largest = _largest(explanation.shares, explanation.value)
        sentence = f"{what} has no term that can be distinguished from 0: measure more rounds."
        return _plain(explanation, what, sentence, evidence, largest)
    alone = _confirmed_alone(total, evidence)
    on_step = total.confirmed_on_steps and alone is None
    where = None if on_step else alone or total.terms[0].label
    deciding = _decisive(total, where, evidence)
    remedy = _remedy(explanation, evidence, diagnosis)
    how_sure = _how_sure(total, deciding, on_step)
    cause = None if total.cause == UNEXPLAINED else total.cause
    why = None if cause is None else _why(total, deciding, _portion(explanation, where))
    return Answer(
        functional=explanation.functional,
        value=explanation.value,
        name=_name(explanation.functional),
        what=what,
        where=where,
        line=_line(explanation, where),
        cause=cause,
        verdict=Verdict.UNTESTED if cause is None else total.verdict,
        why=why,
        taken=deciding.taken if deciding else None,
        remedy=remedy,
        how_sure=how_sure,
        finding=_sentence(explanation, what, total, where, why, how_sure, evidence),
        advice="" if remedy is None else remedy_sentence(remedy, axis),
        evidence=evidence,
    )


def _confirmed_alone(total: CauseTotal, evidence: Sequence[TermEvidence]) -> str | None:
    """Label of the largest term that confirms a cause alone; None without one."""
    intervention = _intervention(total)
    names = intervention.term if intervention else ()
    confirmed = {
        of_term.label
        for of_term in evidence
        if of_term.share is not None
        and any(outcome.factor in names and outcome.verdict == Verdict.CONFIRMED for outcome in of_term.factors)
    }
    return next((term.label for term in total.terms if term.label in confirmed), None)


def _plain(
    explanation: Explanation, what: str, sentence: str, evidence: tuple[TermEvidence, ...], where: str | None = None
) -> Answer:
    """An answer without a cause."""
    return Answer(
        functional=explanation.functional,
        value=explanation.value,
        name=_name(explanation.functional),
        what=what,
        where=where,
        line=_line(explanation, where),
        how_sure="not significant",
        finding=sentence,
        evidence=evidence,
    )


def _what(explanation: Explanation) -> str:
    """The anomaly with its value."""
    name = _name(explanation.functional)
    return f"{name[0].upper()}{name[1:]} ({_value(explanation)})"


def _name(functional: Functional) -> str:
    if functional.kind == FIXED_COST:
        return "the fixed cost of a step"
    if functional.kind == "excess":
        return f"the excess from {functional.at} to {functional.to}"
    return f"the {functional.kind} at {functional.at}"


def _value(explanation: Explanation) -> str:
    value, functional = explanation.value.value, explanation.functional
    text = number(value, 3) if functional.kind == FIXED_COST else signed(value)
    return f"{text} {functional.unit}"


def _leading(explanation: Explanation) -> CauseTotal | None:
    """The largest confirmed cause, else the largest cause; None if both are small: most is not significant."""
    value = explanation.value.value
    agreeing = [t for t in explanation.attribution.causes if t.amount * value > 0 and t.cause != NOT_SIGNIFICANT]
    large = [t for t in agreeing if abs(t.amount) >= _LEAST_LEADING * abs(value)]
    return max(large, key=lambda t: (t.verdict == Verdict.CONFIRMED, abs(t.amount)), default=None)


def _largest(shares: Iterable[Share], value: Estimate) -> str | None:
    """Label of the term that makes most of an anomaly."""
    agreeing = [share for share in shares if share.value.value * value.value > 0]
    return max(agreeing, key=lambda share: abs(share.value.value)).label if agreeing else None


def _evidence(
    explanation: Explanation, outcomes: Sequence[Outcome], rows: pd.DataFrame, axis: Axis
) -> Iterable[TermEvidence]:
    """The experiments on each term, the largest first, then those on complete steps."""
    shares = sorted(explanation.shares, key=lambda share: -abs(share.value.value))
    by_step = outcomes_of_steps(explanation.functional, explanation.value, explanation.weighed, outcomes)
    for share in (*(share for share in shares if share.key.kind == KERNELS), None):
        tests = by_step if share is None else about(outcomes, explanation.functional, share)
        if not tests:
            continue
        alone = isolated_of(tests) or next(test for test in tests if test.factor is None)
        grids = [test for test in tests if test.factor is None and test.experiment.stage == Stage.GRID and test.value]
        grid = grids[-1] if grids else None
        yield TermEvidence(
            THE_STEP if share is None else share.label,
            None if share is None else share.value,
            alone,
            None if share is None else reproduces(tests, share),
            None if grid is None else shape(grid, rows[rows["experiment"] == grid.experiment.number], axis),
            tuple(sorted(decisive(tests).values(), key=_by_verdict)),
        )


def _by_verdict(outcome: Outcome) -> tuple[int, float]:
    return outcome.verdict.rank, -(outcome.taken.value if outcome.taken else 0.0)


def _intervention(total: CauseTotal) -> Intervention | None:
    """The experiment of a cause, with the factors that causes share where the recording has evidence of them."""
    evident = {claim.cause for term in total.terms for claim in (term.claim, *term.rivals) if claim}
    return interventions_with(evident).get(total.cause)


def _decisive(total: CauseTotal, where: str | None, evidence: Sequence[TermEvidence]) -> Outcome | None:
    """The outcome that decides on a cause: in the term where it is largest; on complete steps without one."""
    intervention = _intervention(total)
    if intervention is None:
        return None
    for label, names in ((where, intervention.term), (THE_STEP, intervention.step)):
        of_label = next((term for term in evidence if term.label == label), None)
        tested = (
            [outcome for outcome in of_label.factors if outcome.factor in names and outcome.taken] if of_label else []
        )
        if tested:
            return tested[0]
    return None


def _portion(explanation: Explanation, where: str | None) -> float:
    """Share of a term in an anomaly; 1 for complete steps."""
    value = next((s.value.value for s in explanation.shares if s.label == where), 0.0)
    return 1.0 if where is None else value / explanation.value.value


def _why(total: CauseTotal, outcome: Outcome | None, portion: float) -> str:
    """The cause, and what happens without it, as a clause; `portion` is the share of the term in the anomaly."""
    claim = total.terms[0].claim if total.terms else None
    cause = f"{total.cause} {claim.detail}" if claim and claim.detail else total.cause
    if outcome is None or outcome.taken is None or total.verdict != Verdict.CONFIRMED:
        return cause
    what = "it" if portion > _MOSTLY else "that share"
    rest = what if outcome.taken.value >= _GONE else f"most of {what}"
    return f"{cause}; when {_facts(outcome)}, {rest} is gone"


def _facts(outcome: Outcome) -> str:
    return outcome.facts.what if outcome.facts else f"{outcome.factor} is changed"


def _how_sure(total: CauseTotal, outcome: Outcome | None, on_step: bool) -> str:
    """Verdict and interval."""
    if total.cause == UNEXPLAINED:
        return "no cause is known"
    if on_step and (measured := total.measured) is not None:
        ends = f"{number(measured.low, 3)} to {number(measured.high, 3)} ms"
        # The amount is at most the anomaly; a change may remove more.
        more = not measured.low <= total.amount <= measured.high
        return f"confirmed, {f'{number(measured.value, 3)} ms removed, ' if more else ''}{ends}"
    if outcome is None or outcome.taken is None or total.verdict == Verdict.UNTESTED:
        return f"{total.verdict}: {total.reason}" if total.reason else str(total.verdict)
    taken = outcome.taken
    of_term_only = outcome.verdict == Verdict.CONFIRMED != total.verdict
    if of_term_only or not math.isfinite(taken.low):
        return f"{total.verdict}: {total.reason}" if total.reason else str(total.verdict)
    interval = f"{100 * taken.low:.0f} to {_percent(taken.high)}"
    return f"{total.verdict}, {_percent(taken.value)} removed, {interval}"


def _sentence(
    explanation: Explanation,
    what: str,
    total: CauseTotal,
    where: str | None,
    why: str | None,
    how_sure: str,
    evidence: Sequence[TermEvidence],
) -> str:
    """What, where, why and how sure, without the remedy."""
    if where is None:  # measured on complete steps
        subject = f"{total.cause[0].upper()}{total.cause[1:]}"
        counted = [e for t in total.terms if t.claim for e in t.claim.evidence if e.what == _COUNTED.get(total.cause)]
        sides = [side for e in counted[:1] for side in (e.before, e.after) if isinstance(side, float)]
        if sides:
            subject = f"{max(sides):,.0f} {total.cause} a step"
        of = f"{_name(explanation.functional)} of {_value(explanation)}"
        return f"{subject} make{'' if sides else 's'} {number(abs(total.amount), 3)} ms of {of} ({how_sure})."
    if _portion(explanation, where) > _MOSTLY:
        mostly = "is mostly"
    else:
        mostly = "is largest in" if where == _largest(explanation.shares, explanation.value) else "is partly"
    line = _line(explanation, where)
    place = f"{_place(where)} at {line}" if line else _place(where)
    if total.cause == UNEXPLAINED:
        refuted = _refuted(evidence)
        tail = f"; experiments refute {' and '.join(refuted)}" if refuted else ""
        suspected = next((f"; {term.reason}" for term in total.terms if term.label == where and term.reason), "")
        return f"{what} {mostly} {place}; its cause is not known{tail}{suspected}."
    lead = f"{what} {mostly} {place}{'' if where == total.cause else f': {why}'} ({how_sure})."
    of_term = next((one for one in evidence if one.label == where), None)
    if of_term is not None and of_term.reproduction == Reproduction.NOT:
        lead += " Alone, the layer does not show it: the rest of the step makes it."
    return lead


def _line(explanation: Explanation, where: str | None) -> str | None:
    """Line of the program with most of a term's time."""
    return next((share.line for share in explanation.shares if share.label == where), None)


def _place(label: str) -> str:
    """A term's label as words of a sentence."""
    return f"the {label}" if label == OPTIMIZER else label


def _refuted(evidence: Sequence[TermEvidence]) -> list[str]:
    """The causes that experiments refuted, each once."""
    names = {
        (factor.experiment.scope, factor.factor)
        for of_term in evidence
        for factor in of_term.factors
        if factor.verdict == Verdict.REFUTED
    }
    return [
        cause
        for cause, intervention in interventions().items()
        if any((Scope.TERM, name) in names for name in intervention.term)
        or any((Scope.STEP, name) in names for name in intervention.step)
    ]


def _remedy(explanation: Explanation, evidence: Sequence[TermEvidence], diagnosis: Diagnosis) -> Remedy | None:
    """What helped most: on complete steps if that was measured, in any experiment, else on the largest term."""
    weights = {term.label: term.case.operands(term.case.after).weights for term in explanation.weighed}
    weights[THE_STEP] = weights_of(diagnosis.recorded.operands) if diagnosis.recorded else ()
    of_step = {saving.factor: saving for saving in diagnosis.remedies.savings if saving.fresh}
    candidates: list[tuple[bool, float, Remedy]] = []
    for of_term in evidence:
        for outcome in of_term.factors:
            if (
                not _measured(outcome)
                or outcome.facts is None
                or outcome.facts.remedy is None
                or outcome.factor is None
            ):
                continue
            step = of_step.get(outcome.factor)
            gain, batch = outcome.gains[outcome.gain_index], outcome.batches[outcome.gain_index]
            step_gain = dict(step.gains).get(batch) if step else None
            least = _LEAST_TERM_GAIN if step_gain is None else _LEAST_STEP_GAIN
            judged = gain if step_gain is None else step_gain
            if judged.low <= 0 or judged.value < least:
                continue
            where = of_term.label
            remedy = Remedy(
                factor=outcome.factor,
                where=where,
                what=outcome.facts.remedy.format(where=where),
                how=naming(
                    (outcome.facts.how_training if _trains(diagnosis) else None) or outcome.facts.how,
                    weights.get(where, ()),
                ),
                batch=batch,
                term_gain=None if of_term.share is None else gain,
                step_gain=step_gain,
                step_gains=step.gains if step else (),
                changed_results=outcome.changed_results or (step.changed_results if step else None),
            )
            # A gain of the complete step counts more than any of a term; else what is saved, in ms.
            times_ms = dict(zip(outcome.batches, outcome.times_ms, strict=True))
            whole_ms = times_ms[batch] if step_gain is None else diagnosis.curve.at(batch).time_ms
            saved_ms = judged.value * whole_ms.value
            candidates.append((step_gain is not None, saved_ms, remedy))
    return max(candidates, key=lambda item: item[:2])[2] if candidates else None


def _trains(diagnosis: Diagnosis) -> bool:
    """Whether the steps have a backward pass."""
    return diagnosis.terms is not None and any(key.phase == "backward" for key in diagnosis.terms.keys)


def _measured(outcome: Outcome) -> bool:
    """Whether the gain of a factor was measured on fresh rounds."""
    return bool(outcome.gains) and outcome.experiment.stage in _FRESH


def remedy_sentence(remedy: Remedy, axis: Axis) -> str:
    """What to do, and what it gains."""
    at = f"at {axis.name} {remedy.batch}"
    gains = []
    if remedy.term_gain is not None:
        gains.append(f"-{_percent(remedy.term_gain.value)} of {remedy.where} {at}")
    if remedy.step_gain is not None:
        gains.append(f"-{_percent(remedy.step_gain.value)} of the step{'' if gains else f' {at}'}")
    text = f"{remedy.what[0].upper()}{remedy.what[1:]}: {', '.join(gains)}"
    return f"{text}; it changes the results: {remedy.changed_results}." if remedy.changed_results else f"{text}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
