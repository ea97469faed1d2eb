"""Answers and experiments as entries of the report's JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...base.numbers import with_minus_signs
from ...profiling.recording.axis import Axis
from ...profiling.recording.experiments import Experiment, Stage
from ..decompose.functionals import Condition, Functional
from ..decompose.statistics import Estimate
from ..decompose.terms import KERNELS, Key
from ..diagnosis.answer import Answer, TermEvidence, remedy_sentence
from ..diagnosis.result import Diagnosis
from ..verdicts.outcome import Outcome, subject
from ..verdicts.rule import CONFIRMED_ABOVE, REFUTED_BELOW
from .answers import factor_text, gain_batch, notes, remedy_text, reproduction_sentence, shape_sentence
from .report_rows import estimate_document, finite


def answer_entry(answer: Answer, axis: Axis) -> dict[str, Any]:
    """One answer, as the page shows it; its sentence ends with what to do."""
    remedy = "" if answer.remedy is None else with_minus_signs(remedy_sentence(answer.remedy, axis))
    return {
        "label": answer.functional.label,
        "sentence": with_minus_signs(answer.sentence),
        "remedy": remedy,
        "verdict": answer.verdict,
        "how": remedy_text(answer.remedy),
    }


def experiments_entry(answer: Answer, found: Diagnosis) -> dict[str, Any] | None:
    """The experiments behind an answer, a part per term; None if there are none."""
    if not answer.evidence:
        return None
    return {
        "label": answer.functional.label,
        "value": answer.value.value,
        "unit": answer.functional.unit,
        "refuted_below": REFUTED_BELOW,
        "confirmed_above": CONFIRMED_ABOVE,
        "terms": [_evidence(evidence, answer, found) for evidence in answer.evidence],
    }


def _evidence(evidence: TermEvidence, answer: Answer, found: Diagnosis) -> dict[str, Any]:
    ran = [one for one in (evidence.alone, *evidence.factors) if one is not None]
    experiment = ran[0].experiment if ran else None
    return {
        "label": evidence.label,
        "whole": evidence.share is None,
        "sentence": with_minus_signs(reproduction_sentence(evidence, answer.functional.unit)),
        "shape": shape_sentence(evidence.shape) if evidence.shape is not None else None,
        "step": _in_step(experiment, evidence, found),
        "alone": [] if evidence.alone is None else _points(evidence.alone.batches, evidence.alone.times_ms),
        "grid": _grid(evidence.alone, found.outcomes),
        "factors": [_factor(one) for one in evidence.factors],
        "notes": notes(evidence),
    }


def _factor(one: Outcome) -> dict[str, Any]:
    return {
        "name": one.factor,
        "experiment": one.experiment.number,
        "what": factor_text(one),
        "verdict": one.verdict,
        "reason": one.reason,
        "taken": _estimate(one.taken),
        "before": _estimate(one.value),
        "after": _estimate(one.changed),
        "gain": _estimate(one.gain),
        "gain_batch": gain_batch(one),
        "times": _points(one.batches, one.changed_ms),
        "base": _points(one.batches, one.times_ms),
        "rounds": one.rounds,
        "changed_results": one.changed_results,
    }


def _points(batches: Iterable[Condition], times: Sequence[Estimate]) -> list[dict[str, Any]]:
    if not times:
        return []
    return [
        {"batch": batch, "ms": time.value, "low": finite(time.low), "high": finite(time.high)}
        for batch, time in zip(batches, times, strict=True)
    ]


def _in_step(experiment: Experiment | None, evidence: TermEvidence, found: Diagnosis) -> list[dict[str, Any]]:
    """Time of the term in a step at every batch size; of the complete step if that was tested."""
    if evidence.share is None:
        points = found.curve.points
        return _points([point.condition for point in points], [point.time_ms for point in points])
    if experiment is None or found.terms is None:
        return []
    wanted = Key(experiment.layer, experiment.phase, KERNELS)
    batches = found.terms.conditions
    times = [found.terms.sum(_time_at(batch), lambda key: key == wanted) for batch in batches]
    return _points(batches, times)


def _time_at(batch: Condition) -> Functional:
    return Functional("time", batch, None, ((batch, 1.0),))


def _grid(alone: Outcome | None, outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Times of the term alone on the finer grid; empty if there is none beside `alone`."""
    if alone is None:
        return []
    for one in outcomes:
        its = one.experiment
        same = subject(its) == subject(alone.experiment)
        if same and its.stage == Stage.GRID and one.factor is None and one.batches != alone.batches:
            return _points(one.batches, one.times_ms)
    return []


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else estimate_document(estimate)
