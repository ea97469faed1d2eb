"""Answers: for each anomaly and the fixed cost of a step, the experiments on its causes, and what
to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pandas as pd

from ...profiling.recording.axis import Axis, axis_of
from ...profiling.recording.experiments import Stage
from ...profiling.recording.store import Recording
from ..causes.context import weights_of
from ..decompose.terms import KERNELS
from ..verdicts.outcome import Outcome
from ..verdicts.proof import about, decisive, isolated_of, reproduces
from ..verdicts.rule import LEAST_SAVING, LEAST_TERM_SAVING
from ..verdicts.shape import shape
from .explanation import THE_STEP, Explanation, Remedy, TermEvidence
from .remedies import find_remedies, naming
from .result import Diagnosis


def answered(diagnosis: Diagnosis, recording: Recording) -> Diagnosis:
    """The diagnosis of a recording with the plan of remedies, and its explanations with their
    answers, from the outcomes in it.
    """
    weights = weights_of(diagnosis.recorded.operands) if diagnosis.recorded else ()
    diagnosis = replace(diagnosis, remedies=find_remedies(diagnosis.outcomes, weights))
    has_grid = any(outcome.experiment.stage == Stage.GRID for outcome in diagnosis.outcomes)
    rows = recording.frame("experiments") if has_grid else pd.DataFrame()
    axis = axis_of(recording.meta)

    def answer(explanation: Explanation) -> Explanation:
        evidence = tuple(_evidence(explanation, diagnosis.outcomes, rows, axis))
        explanation = replace(explanation, axis=axis, evidence=evidence, remedy=None)
        if explanation.leading is None:
            return explanation
        return replace(explanation, remedy=_remedy(explanation, evidence, diagnosis))

    return replace(
        diagnosis,
        recording=recording,
        explanations=tuple(map(answer, diagnosis.explanations)),
        fixed_cost=answer(diagnosis.fixed_cost) if diagnosis.fixed_cost else None,
    )


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


def _remedy(
    explanation: Explanation, evidence: Sequence[TermEvidence], diagnosis: Diagnosis
) -> Remedy | None:
    """What helped most: on complete steps if that was measured, in any experiment, else on the
    largest term.
    """
    weights = {case.share.label: case.operands(case.after).weights for case in explanation.cases}
    weights[THE_STEP] = weights_of(diagnosis.recorded.operands) if diagnosis.recorded else ()
    of_step = {saving.factor: saving for saving in diagnosis.remedies.savings if saving.fresh}
    trains = diagnosis.terms is not None and any(
        key.phase == "backward" for key in diagnosis.terms.keys
    )
    candidates: list[tuple[bool, float, Remedy]] = []
    for term, outcome in (
        (term_evidence, outcome) for term_evidence in evidence for outcome in term_evidence.factors
    ):
        factor, facts, at, where = outcome.factor, outcome.facts, outcome.gain_index, term.label
        on_fresh_rounds = outcome.gains and outcome.experiment.stage in (
            Stage.CONFIRM,
            Stage.REMEDY,
        )
        if not on_fresh_rounds or factor is None or facts is None or facts.remedy is None:
            continue
        step = of_step.get(factor)
        tests = explanation.intervention
        if step is None and tests and factor not in (*tests.term, *tests.step):
            continue
        gain, batch, whole_ms = outcome.gains[at], outcome.batches[at], outcome.times_ms[at]
        judged, least = gain, LEAST_TERM_SAVING
        if (step_gain := dict(step.gains).get(batch) if step else None) is not None:
            judged, least, whole_ms = step_gain, LEAST_SAVING, diagnosis.curve.at(batch).time_ms
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
