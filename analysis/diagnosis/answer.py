"""Answers: for each anomaly and the fixed cost of a step, what it is, where, why, what to do, and
how sure that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from ...profiling.recording.axis import Axis, axis_of
from ...profiling.recording.experiments import Stage
from ...profiling.recording.store import Recording
from ..causes import NOT_SIGNIFICANT, UNEXPLAINED, CauseTotal, Intervention, interventions_with
from ..causes.context import weights_of
from ..decompose.functionals import Functional
from ..decompose.statistics import Estimate
from ..decompose.terms import KERNELS
from ..verdicts.outcome import Outcome
from ..verdicts.proof import about, decisive, isolated_of, reproduces
from ..verdicts.shape import Shape, shape
from ..verdicts.words import Reproduction, Verdict
from .remedies import find_remedies, naming
from .result import Diagnosis, Drawn, Explanation

_LEAST_LEADING = 0.1  # of an anomaly; a smaller cause does not lead the answer
# Least gain that is worth a remedy, as a share of the step, and of a term that was only run alone.
_LEAST_STEP_GAIN, _LEAST_TERM_GAIN = 0.01, 0.05
THE_STEP = "the step"


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """Something to do, with its measured gain."""

    factor: str  # name of the factor that helped
    where: str  # label of the term that it was tried on; "the step" for complete steps
    what: str  # an instruction, e.g. "run fc6 forward through oneDNN"
    how: str | None  # instructions to set it; None if `what` says it
    # batch size of the gain: the largest of the experiment, for a fixed cost the smallest
    batch: int
    # share of the term's time saved at that batch size; None if it was not run in isolation
    term_gain: Estimate | None
    # share of the complete step saved at that batch size; None if it was not measured on the step
    step_gain: Estimate | None
    # share saved at every batch size of the experiment, as (batch size, gain); empty as for
    # `step_gain`
    step_gains: tuple[tuple[int, Estimate], ...] = ()
    # differences, if it changes the results beyond rounding; else None
    changed_results: str | None = None


@dataclass(frozen=True)
class TermEvidence:
    """The experiments on one term of an anomaly, or on the complete step."""

    label: str  # label of the term; "the step" for complete steps
    # the term's share in the step, in the functional's unit; None for the complete step
    share: Estimate | None
    # the term in isolation, unmodified; None if it was not run. For the complete step, the
    # unmodified step
    alone: Outcome | None
    # see `words.Reproduction`; None for the complete step, or if it was not run in isolation
    reproduction: Reproduction | None
    shape: Shape | None  # shape of the curve on a finer grid; None if it was not run
    # one outcome per factor, the decisive one: the last of those that were confirmed or refuted on
    # fresh rounds, else the last; confirmed ones first
    factors: tuple[Outcome, ...]


@dataclass(frozen=True, kw_only=True)
class Answer(Drawn):
    """The answer on one anomaly, or on the fixed cost: numbers, places and verdicts, of which
    `render` makes words.
    """

    axis: Axis
    explanation: Explanation  # the anomaly with its terms and causes
    # what leads: the largest confirmed cause, else the largest that the recording suggests; None
    # where the anomaly, or every term of it, cannot be distinguished from 0
    total: CauseTotal | None = None
    verdict: Verdict = Verdict.UNTESTED  # on that cause
    where: str | None  # label of the term that makes most of it; None if no term does
    on_step: bool = False  # whether only complete steps confirm the cause
    deciding: Outcome | None = None  # of the experiments on the cause; None if nothing was tested
    remedy: Remedy | None = None  # the remedy with the largest gain; None if no remedy was measured
    evidence: tuple[TermEvidence, ...]  # experiments behind it, by term, the largest first

    @property
    def functional(self) -> Functional:
        """The anomaly."""
        return self.explanation.functional

    @property
    def cause(self) -> str | None:
        """Name of the cause that leads; None if none is known."""
        if self.total is None or self.total.cause == UNEXPLAINED:
            return None
        return self.total.cause

    @property
    def line(self) -> str | None:
        """Line of the program with most of the term's time, e.g. `model.py:41`; None if unknown."""
        return self.explanation.line_of(self.where)

    @property
    def taken(self) -> Estimate | None:
        """Share that the decisive factor removes; None if nothing was tested."""
        return None if self.deciding is None else self.deciding.taken


def answered(diagnosis: Diagnosis, recording: Recording) -> Diagnosis:
    """The diagnosis of a recording with the plan of remedies and the answers, from the outcomes in
    it.
    """
    weights = weights_of(diagnosis.recorded.operands) if diagnosis.recorded else ()
    diagnosis = replace(diagnosis, remedies=find_remedies(diagnosis.outcomes, weights))
    return replace(diagnosis, answers=answers(diagnosis, recording))


def answers(diagnosis: Diagnosis, recording: Recording) -> tuple[Answer, ...]:
    """The answer on every explained anomaly, the largest first, and last on the fixed cost, if it
    is significant.
    """
    has_grid = any(outcome.experiment.stage == Stage.GRID for outcome in diagnosis.outcomes)
    rows = recording.frame("experiments") if has_grid else pd.DataFrame()
    axis = axis_of(recording.meta)
    return tuple(_answer(explanation, diagnosis, rows, axis) for explanation in diagnosis.explained)


def _answer(
    explanation: Explanation, diagnosis: Diagnosis, rows: pd.DataFrame, axis: Axis
) -> Answer:
    evidence = tuple(_evidence(explanation, diagnosis.outcomes, rows, axis))
    if explanation.attribution.noise:
        return Answer(axis=axis, explanation=explanation, where=None, evidence=evidence)
    total = _leading(explanation)
    if total is None:
        return Answer(
            axis=axis, explanation=explanation, where=explanation.largest_term, evidence=evidence
        )
    alone = _confirmed_alone(total, evidence)
    on_step = total.confirmed_on_steps and alone is None
    where = None if on_step else alone or total.terms[0].label
    return Answer(
        axis=axis,
        explanation=explanation,
        total=total,
        verdict=total.verdict if total.cause != UNEXPLAINED else Verdict.UNTESTED,
        where=where,
        on_step=on_step,
        deciding=_decisive(total, where, evidence),
        remedy=_remedy(explanation, evidence, diagnosis),
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
        and any(
            outcome.factor in names and outcome.verdict == Verdict.CONFIRMED
            for outcome in of_term.factors
        )
    }
    return next((term.label for term in total.terms if term.label in confirmed), None)


def _leading(explanation: Explanation) -> CauseTotal | None:
    """The largest confirmed cause, else the largest cause; None if both are small: most is not
    significant.
    """
    value = explanation.value.value
    agreeing = [
        t
        for t in explanation.attribution.causes
        if t.amount * value > 0 and t.cause != NOT_SIGNIFICANT
    ]
    large = [t for t in agreeing if abs(t.amount) >= _LEAST_LEADING * abs(value)]
    return max(large, key=lambda t: (t.verdict == Verdict.CONFIRMED, abs(t.amount)), default=None)


def _evidence(
    explanation: Explanation, outcomes: Sequence[Outcome], rows: pd.DataFrame, axis: Axis
) -> Iterable[TermEvidence]:
    """The experiments on each term, the largest first, then those on complete steps."""
    shares = sorted(explanation.shares, key=lambda share: -abs(share.value.value))
    for share in (*(share for share in shares if share.key.kind == KERNELS), None):
        tests = about(outcomes, explanation.functional, share)
        if not tests:
            continue
        alone = isolated_of(tests) or next(test for test in tests if test.factor is None)
        grids = [
            test
            for test in tests
            if test.factor is None and test.experiment.stage == Stage.GRID and test.value
        ]
        grid = grids[-1] if grids else None
        yield TermEvidence(
            THE_STEP if share is None else share.label,
            None if share is None else share.value,
            alone,
            None if share is None else reproduces(tests, share),
            None
            if grid is None
            else shape(grid, rows[rows["experiment"] == grid.experiment.number], axis),
            tuple(sorted(decisive(tests).values(), key=_by_verdict)),
        )


def _by_verdict(outcome: Outcome) -> tuple[int, float]:
    return outcome.verdict.rank, -(outcome.taken.value if outcome.taken else 0.0)


def _intervention(total: CauseTotal) -> Intervention | None:
    """The experiment of a cause, with the factors that causes share where the recording has
    evidence of them.
    """
    evident = {claim.cause for term in total.terms for claim in (term.claim, *term.rivals) if claim}
    return interventions_with(evident).get(total.cause)


def _decisive(
    total: CauseTotal, where: str | None, evidence: Sequence[TermEvidence]
) -> Outcome | None:
    """The outcome that decides on a cause: in the term where it is largest; on complete steps
    without one.
    """
    intervention = _intervention(total)
    if intervention is None:
        return None
    of_place = ((where, intervention.term), (THE_STEP, intervention.step))
    tested = (
        outcome
        for label, names in of_place
        for of_term in evidence
        for outcome in of_term.factors
        if of_term.label == label and outcome.factor in names and outcome.taken
    )
    return next(tested, None)


def _remedy(
    explanation: Explanation, evidence: Sequence[TermEvidence], diagnosis: Diagnosis
) -> Remedy | None:
    """What helped most: on complete steps if that was measured, in any experiment, else on the
    largest term.
    """
    weights = {
        term.label: term.case.operands(term.case.after).weights for term in explanation.weighed
    }
    weights[THE_STEP] = weights_of(diagnosis.recorded.operands) if diagnosis.recorded else ()
    of_step = {saving.factor: saving for saving in diagnosis.remedies.savings if saving.fresh}
    trains = diagnosis.terms is not None and any(
        key.phase == "backward" for key in diagnosis.terms.keys
    )
    candidates: list[tuple[bool, float, Remedy]] = []
    for term, outcome in ((one, outcome) for one in evidence for outcome in one.factors):
        factor, facts, at, where = outcome.factor, outcome.facts, outcome.gain_index, term.label
        on_fresh_rounds = outcome.gains and outcome.experiment.stage in (
            Stage.CONFIRM,
            Stage.REMEDY,
        )
        if not on_fresh_rounds or factor is None or facts is None or facts.remedy is None:
            continue
        step = of_step.get(factor)
        gain, batch, whole_ms = outcome.gains[at], outcome.batches[at], outcome.times_ms[at]
        judged, least = gain, _LEAST_TERM_GAIN
        if (step_gain := dict(step.gains).get(batch) if step else None) is not None:
            judged, least, whole_ms = step_gain, _LEAST_STEP_GAIN, diagnosis.curve.at(batch).time_ms
        # What the table of savings calls undecided is no advice either.
        unproven = step is not None and step_gain is not None and batch not in step.proven
        if unproven or judged.low <= 0 or judged.value < least:
            continue
        remedy = Remedy(
            factor=factor,
            where=where,
            what=facts.remedy.format(where=where),
            how=naming(
                (facts.how_training if trains else None) or facts.how, weights.get(where, ())
            ),
            batch=batch,
            term_gain=None if term.share is None else gain,
            step_gain=step_gain,
            step_gains=step.gains if step else (),
            changed_results=outcome.changed_results or (step.changed_results if step else None),
        )
        # A gain of the complete step counts more than any of a term; else what is saved, in ms.
        candidates.append((step_gain is not None, judged.value * whole_ms.value, remedy))
    return max(candidates, key=lambda item: item[:2])[2] if candidates else None
