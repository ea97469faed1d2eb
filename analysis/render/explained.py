"""The document of `explain`, `diagnose` and `confirm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...profiling.recording.disturbed import Disturbances
from ...profiling.recording.store import Recording, Status, is_modelled
from ..causes import Attribution
from ..decompose.curve import Point, known_batch
from ..decompose.findings import Finding
from ..decompose.functionals import Functional
from ..decompose.rare_steps import RareSteps
from ..decompose.statistics import Estimate
from ..decompose.terms import Share
from ..diagnosis.result import Diagnosis, Explanation
from ..verdicts.outcome import Outcome
from .answer_words import ShownAnswer, shown, shown_answers
from .causes import verdict_sentence
from .headline import answer_on, headline
from .remedies import RemedyTable, batch_sentence, remedy_table


@dataclass(frozen=True)
class CurvePoint:
    """One batch size of the cost curve."""

    batch: int | None  # the batch size, or the value of another axis; None if a profile names none
    time_ms: Estimate  # time of a step
    spread: float | None  # interquartile range over the time; null for a single step
    n: int  # number of timed steps
    rounds: int  # number of their rounds
    stable: bool | None  # whether the spread is within 2 %; null for a single step

    @classmethod
    def of(cls, point: Point) -> CurvePoint:
        """The point of a curve over batch sizes."""
        return cls(
            known_batch(point.condition),
            point.time_ms,
            point.spread,
            point.n,
            point.rounds,
            point.stable,
        )


@dataclass(frozen=True)
class SplitAnomaly:
    """One anomaly with its shares and causes."""

    functional: Functional  # the functional
    value: Estimate  # its value
    shares: Sequence[Share]  # one per term; idle and profiling overhead last
    attribution: Attribution  # causes of the shares; their amounts add up to the value too
    also: Sequence[str]  # labels of other findings from the same term at the same batch size
    verdict: str  # the verdict in a sentence

    @classmethod
    def of(cls, one: Explanation, diagnosis: Diagnosis) -> SplitAnomaly:
        """An explanation with its answer."""
        answer = answer_on(one, diagnosis.answers)
        verdict = verdict_sentence(one.attribution) if answer is None else shown(answer).sentence
        return cls(one.functional, one.value, one.shares, one.attribution, one.also, verdict)


@dataclass(frozen=True, kw_only=True)
class ExplainDocument:
    """A recording, explained: `diagnose`, `explain` and `confirm`."""

    recording: str  # folder or URL of the recording
    headline: str  # what the curve shows, in a sentence
    # what changes of complete steps save, by batch size: what to do, how, and what it costs
    remedies: RemedyTable
    batch_size: str | None  # the batch size as advice, in a sentence; null for other axes
    # the answer on every anomaly, and last on the fixed cost: what, where, why, what to do, how
    # sure
    answers: Sequence[ShownAnswer]
    modelled: bool  # whether the cost model predicted the times
    complete: bool  # whether everything that was asked for is recorded
    network: str | None  # name of the network or step
    device: Mapping[str, Any] | None  # device that ran, as in `recording.json`
    protocol: Mapping[str, Any] | None  # how it was measured
    locked_sm_clock_hz: int | None  # clock that Curvescope locked the SMs at; null if it did not
    lost: Mapping[str, Any] | None  # what the recording lost, by name: count, severity, sentence
    # batch sizes without a measurement: batch, round in which it was last tried, why, and detail
    empty: Sequence[Mapping[str, Any]]
    warnings: Sequence[Any]  # disturbances that were noticed while measuring
    notes: Sequence[str]  # sentences on the choice of the steps
    # visits whose counters say that something disturbed them; null without one
    disturbances: Disturbances | None
    # rare slow steps, which the curve leaves out: how many, when, their cost, what they have in
    # common
    rare_steps: Sequence[RareSteps]
    unit: str  # what the times are of: step, or recording where no step is known
    curve: Sequence[CurvePoint]  # time of a step, or of the recording, by batch size
    statistic: str  # statistic of the steps that a time is
    rounds: int  # number of rounds in which every batch size was measured
    profiled: bool  # whether every step was profiled, so that times include the profiler's cost
    findings: Sequence[Finding]  # every excess, then every curvature
    # the anomalies among them, the largest first, or those asked for
    anomalies: Sequence[SplitAnomaly]
    fixed_cost: SplitAnomaly | None  # the fixed cost of a step; null if it is not significant
    experiments: Sequence[Outcome]  # outcomes of the experiments on the causes

    @classmethod
    def of(
        cls,
        recording: Recording,
        diagnosis: Diagnosis,
        explanations: Sequence[Explanation] | None = None,
    ) -> ExplainDocument:
        """The document of a diagnosis, with the anomalies that were asked for; default: all of
        them.
        """
        meta, fixed = recording.meta, diagnosis.fixed_cost
        chosen = diagnosis.explanations if explanations is None else explanations
        return cls(
            recording=str(recording.path),
            headline=headline(meta, diagnosis),
            remedies=remedy_table(diagnosis.remedies, diagnosis.axis),
            batch_size=batch_sentence(diagnosis.curve, diagnosis.axis, meta),
            answers=shown_answers(diagnosis),
            notes=diagnosis.notes,
            disturbances=diagnosis.disturbances,
            rare_steps=diagnosis.rare_steps,
            modelled=is_modelled(meta),
            complete=meta["status"] == Status.COMPLETE,
            **{
                name: meta.get(name)
                for name in ("network", "device", "protocol", "locked_sm_clock_hz", "lost")
            },
            empty=meta.get("unmeasured", []),
            warnings=meta.get("warnings", []),
            unit=diagnosis.curve.unit,
            curve=[CurvePoint.of(point) for point in diagnosis.curve.points],
            statistic=diagnosis.curve.statistic,
            rounds=diagnosis.curve.rounds,
            profiled=diagnosis.curve.profiled,
            findings=diagnosis.findings,
            anomalies=[SplitAnomaly.of(one, diagnosis) for one in chosen],
            fixed_cost=None if fixed is None else SplitAnomaly.of(fixed, diagnosis),
            experiments=diagnosis.outcomes,
        )
