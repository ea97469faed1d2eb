"""The document of `explain`, `diagnose` and `confirm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...profiling.recording.disturbed import Disturbances
from ...profiling.recording.store import Status, is_modelled
from ..causes import CauseTotal
from ..decompose.curve import Point, known_batch
from ..decompose.findings import Finding
from ..decompose.functionals import Functional
from ..decompose.slow_steps import SlowSteps
from ..decompose.statistics import Estimate
from ..decompose.terms import Share
from ..diagnosis.certain import CertainPart
from ..diagnosis.explanation import Explanation, Remedy, TermEvidence
from ..verdicts.outcome import Outcome
from ..verdicts.words import Verdict
from . import answer_words
from .causes import verdict_sentence
from .headline import headline
from .notes import list_notes
from .remedies import RemedyTable, remedy_table, size_advice
from .shown import Shown


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
class Attribution:
    """The causes of one anomaly; their amounts add up to it."""

    functional: Functional  # the explained anomaly
    value: float  # its value, in its unit
    noise: bool  # whether the anomaly is smaller than its noise
    # the largest first, and last, apart from them, what is not significant. A cause that some terms
    # confirm and others do not comes twice
    causes: Sequence[CauseTotal]


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
    def of(cls, explanation: Explanation) -> SplitAnomaly:
        """The entry of an explanation."""
        answered = explanation.evidence is not None
        return cls(
            functional=explanation.functional,
            value=explanation.value,
            shares=explanation.shares,
            attribution=Attribution(
                explanation.functional,
                explanation.value.value,
                explanation.noise,
                explanation.causes,
            ),
            also=explanation.also,
            verdict=answer_words.sentence(explanation)
            if answered
            else verdict_sentence(explanation),
        )


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
    evidence: Sequence[TermEvidence]  # experiments behind it, by term, the largest first
    sentence: str  # finding and advice

    @classmethod
    def of(cls, answer: Explanation) -> ShownAnswer:
        """The entry of an answer."""
        return cls(
            functional=answer.functional,
            value=answer.value,
            name=answer_words.anomaly_name(answer.functional),
            what=answer_words.anomaly(answer),
            where=answer.where,
            line=answer.line,
            cause=answer.cause,
            verdict=answer.verdict,
            why=answer_words.why(answer),
            taken=answer.share_removed,
            remedy=answer.remedy,
            how_sure=answer_words.how_sure(answer),
            finding=answer_words.finding(answer),
            advice=answer_words.advice(answer),
            evidence=answer.evidence or (),
            sentence=answer_words.sentence(answer),
        )


@dataclass(frozen=True, kw_only=True)
class ExplainDocument:
    """A recording, explained: `diagnose`, `explain` and `confirm`."""

    recording: str  # folder or URL of the recording
    headline: str  # what the curve shows, in a sentence
    # what changes of complete steps save, by batch size: what to do, how, and what it costs
    remedies: RemedyTable
    # the size as advice, in sentences; null without one, e.g. for most curves of other axes
    batch_size: str | None
    # the answer on every anomaly, and last on the fixed cost: what, where, why, what to do, how
    # sure
    answers: Sequence[ShownAnswer]
    # layers that cost too much at a batch size for certain, whatever the whole step does; the
    # largest share of a step first
    certain: Sequence[CertainPart] = ()
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
    # slow steps: how many, how often, their cost, what they have in
    # common
    slow_steps: Sequence[SlowSteps]
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
    def of(cls, shown: Shown) -> ExplainDocument:
        """The document of a diagnosis, with the anomalies that are shown."""
        recording, diagnosis = shown.recording, shown.diagnosis
        meta, fixed = recording.meta, diagnosis.fixed_cost
        return cls(
            recording=str(recording.named),
            headline=headline(meta, diagnosis),
            remedies=remedy_table(diagnosis.remedies, diagnosis.axis),
            certain=diagnosis.certain,
            batch_size=size_advice(diagnosis),
            answers=[ShownAnswer.of(answer) for answer in diagnosis.answers],
            notes=list_notes(diagnosis),
            disturbances=diagnosis.disturbances,
            slow_steps=diagnosis.slow_steps,
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
            anomalies=[SplitAnomaly.of(explanation) for explanation in shown.explanations],
            fixed_cost=None if fixed is None else SplitAnomaly.of(fixed),
            experiments=diagnosis.outcomes,
        )
