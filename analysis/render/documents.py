"""The documents that `--json` prints: one type per kind, encoded by msgspec. A value that is infinite or NaN is null.

Fields in `_s`, `_ms`, `_ns` are times, in `_bytes` sizes, in `_per_s` rates; a share is a fraction of 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ...profiling.recording.axis import axis_of
from ...profiling.recording.disturbed import Disturbances
from ...profiling.recording.store import Recording, Status, is_modelled
from ..causes import Attribution, Evidence
from ..compare import ComparedLine, Comparison
from ..decompose.breakdown import Breakdown, Row
from ..decompose.communication import Communication
from ..decompose.curve import UNKNOWN, Point
from ..decompose.findings import Finding
from ..decompose.functionals import Condition, Functional
from ..decompose.idle import IdleTime
from ..decompose.mfu import Mfu
from ..decompose.rare_steps import RareSteps
from ..decompose.statistics import Estimate
from ..decompose.terms import Share
from ..diagnosis.result import Diagnosis, Explanation
from ..diagnosis.suggested import Advice, LongGap
from ..ranks.difference import RankDifference
from ..ranks.stragglers import Ranks
from ..roofline import Roofline
from ..scaling import Series
from ..verdicts.outcome import Outcome
from ..verdicts.words import Verdict
from .answer_words import ShownAnswer, shown, shown_answers
from .causes import verdict_sentence
from .headline import answer_on, headline
from .remedies import RemedyTable, batch_sentence, remedy_table

# A field that is renamed, removed or gets another meaning makes it the next number; new fields do not.
DOCUMENT_VERSION = 1
_BEYOND_ASCII = re.compile("[^ -~]")


def kind_of(document: type) -> str:
    """The kind and version of a type of documents, e.g. `curvescope.explain/1` of `ExplainDocument`."""
    return f"curvescope.{document.__name__.removesuffix('Document').lower()}/{DOCUMENT_VERSION}"


def json_text(document: Any) -> str:
    """Anything made of documents as JSON."""
    return msgspec.json.encode(document, enc_hook=_plain).decode()


def document_text(document: Any) -> str:
    """A document as JSON on one line; its first field, `schema`, names its kind and version."""
    return f'{{"schema":"{kind_of(type(document))}",{json_text(document)[1:]}'


def print_document(document: Any) -> None:
    """Print a document on standard output; what a terminal may obey is escaped, as everything beyond ASCII."""
    print(_BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], document_text(document)))


def _plain(value: Any) -> Any:
    """A mapping of any type, or a number of NumPy, as msgspec takes it."""
    return dict(value) if isinstance(value, Mapping) else value.item()


def known_batch(condition: Condition) -> int | None:
    """The batch size of a condition; None if no one knows it."""
    return None if condition == UNKNOWN else condition


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
class SuggestedChange:
    """What one cause suggests of a profile; nothing was tried."""

    cause: str  # name of the cause
    verdict: str  # untested
    what: str  # what the step does or waits for, as a clause
    do: str  # what to do, as an instruction
    how: str | None  # how to do it; null if `do` says it
    at_most_ms: float  # what it saves at most, per step
    at_most_share: float | None  # the same as a share of the step; null for a step without time
    where: str | None  # layer, operator, range or call with most of it; null if unknown
    stack: Sequence[str]  # functions of the program, the outermost first; empty if unknown
    factors: Sequence[str]  # factors of complete steps that `diagnose` tests it with
    evidence: Sequence[Evidence]  # facts of the profile: each value is `after`


@dataclass(frozen=True, kw_only=True)
class AdviceDocument:
    """What one profile, or one batch size, suggests: `explain` without a curve."""

    recording: str  # folder or URL of the recording
    headline: str  # how long a step takes, and where that goes, in a sentence
    unit: str  # what the times are of: step, or recording where no step is known
    batch: int | None  # samples in a step; null if unknown
    time_ms: float  # mean time of the steps used
    steps: int  # number of these steps
    suggested: Sequence[SuggestedChange]  # the largest bound first; bounds do not add up
    gaps: Sequence[LongGap]  # the longest gaps in the device work, one by one
    families: Sequence[tuple[str, float, float]]  # kernel family, ms and calls per step
    commands: Sequence[str]  # what to run next

    @classmethod
    def of(cls, path: object, recording: Recording, advice: Advice) -> AdviceDocument:
        """The document of advice on the recording or profile that a user named by a path."""
        from .advice import next_commands
        from .breakdown import breakdown_verdict

        whole_ms = advice.step.time_ms
        return cls(
            recording=str(path),
            headline=breakdown_verdict(advice.breakdown, axis_of(recording.meta), advice.step.idle),
            unit=advice.breakdown.unit,
            batch=advice.breakdown.batch,
            time_ms=whole_ms,
            steps=advice.step.steps,
            suggested=[
                SuggestedChange(
                    cause=one.suggestion.cause,
                    verdict=Verdict.UNTESTED,
                    what=one.suggestion.what,
                    do=one.do,
                    how=one.how,
                    at_most_ms=one.suggestion.at_most_ms,
                    at_most_share=one.suggestion.at_most_ms / whole_ms if whole_ms else None,
                    where=one.suggestion.where,
                    stack=one.suggestion.stack,
                    factors=one.suggestion.factors,
                    evidence=one.suggestion.evidence,
                )
                for one in advice.advised
            ],
            gaps=advice.gaps,
            families=advice.families,
            commands=[command for _, command in next_commands(path, advice)],
        )


@dataclass(frozen=True, kw_only=True)
class ExplainDocument:
    """A recording, explained: `diagnose`, `explain` and `confirm`."""

    recording: str  # folder or URL of the recording
    headline: str  # what the curve shows, in a sentence
    remedies: RemedyTable  # what changes of complete steps save, by batch size: what to do, how, and what it costs
    batch_size: str | None  # the batch size as advice, in a sentence; null for other axes
    # the answer on every anomaly, and last on the fixed cost: what, where, why, what to do, how sure
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
    # rare slow steps, which the curve leaves out: how many, when, their cost, what they have in common
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
        """The document of a diagnosis, with the anomalies that were asked for; default: all of them."""
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


@dataclass(frozen=True, kw_only=True)
class RatedRow(Row):
    """One group of a breakdown."""

    # roofs of the device that the rates are above, so that they cannot be right
    exceeded_roofs: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class BreakdownDocument(Breakdown):
    """The time of a step by layer, kernel, phase or operator: `breakdown`."""

    by: str  # layer, kernel, phase or op
    modelled: bool  # whether the cost model predicted the times
    rows: tuple[RatedRow, ...]
    # collectives of the step, and kernels beside them; null without communication
    communication: Communication | None
    # idle time by what the host did meanwhile, the longest first; empty if less than 5 % of the step is idle
    idle: Sequence[IdleTime]
    # model FLOPs utilisation of the step; null if no step, no FLOPs or no peak is known
    mfu: Mfu | None


@dataclass(frozen=True)
class ComparedRecording:
    """One recording of a comparison."""

    name: str  # folder or URL
    device: str | None  # name of its device; null if unknown
    # whether all its steps were profiled, so that times include the profiler's cost
    profiled_steps_only: bool


@dataclass(frozen=True)
class RoofRatio:
    """A roof over that of the first recording."""

    ratio: float  # the ratio
    kind: str  # ceiling if both were measured, else peak


@dataclass(frozen=True, kw_only=True)
class CompareDocument:
    """Recordings compared with the first: `compare`."""

    recordings: Sequence[ComparedRecording]  # the recordings
    # names of recordings with profiled steps, but without device work
    without_device_work: Sequence[str]
    differences: Mapping[str, Sequence[str]]  # settings that differ, one value per recording
    steps: Sequence[ComparedLine]  # one line per common batch size
    batch: int | None  # batch size of the rows; null if the profiles name none
    by: str  # layer, operator, family or kernel
    rows: Sequence[ComparedLine]  # largest time first; idle last
    # one per recording after the first, by memory level or precision
    roof_ratios: Sequence[Mapping[str, RoofRatio]]
    fail_over: float | None  # growth that fails the check; null if none was asked for
    failed: bool  # whether a step time grew by more and significantly
    undecided: bool  # whether the measurement does not rule it out at another batch size, or at all

    @classmethod
    def of(cls, comparison: Comparison, fail_over: float | None = None) -> CompareDocument:
        """The document of a comparison, see the attributes."""
        return cls(
            recordings=[
                ComparedRecording(side.name, side.hardware.name, side.name in comparison.profiled)
                for side in comparison.sides
            ],
            without_device_work=comparison.unseen,
            **{
                name: getattr(comparison, name)
                for name in ("differences", "steps", "batch", "by", "rows")
            },
            roof_ratios=[
                {level: RoofRatio(*ratio) for level, ratio in ratios.items()}
                for ratios in comparison.roof_ratios
            ],
            fail_over=fail_over,
            failed=fail_over is not None and bool(comparison.regressions(fail_over)),
            undecided=fail_over is not None and bool(comparison.undecided(fail_over)),
        )


@dataclass(frozen=True, kw_only=True)
class RooflineDocument(Roofline):
    """Points under the roofs of the device: `roofline`. The older pair `format` and `version` stays."""

    format: str = "curvescope roofline"  # `curvescope roofline`
    version: int = 1  # version of this document before all documents had one
    device: str | None  # name of the device; null if unknown


@dataclass(frozen=True, kw_only=True)
class RanksDocument(Ranks):
    """Many ranks of one job: `ranks`."""

    interrupted: bool  # whether it covers only some of the ranks
    asked: int  # number of recordings that were found
    # the largest stragglers explained, or the groups asked for
    differences: Sequence[RankDifference]


@dataclass(frozen=True, kw_only=True)
class ScalingDocument:
    """A scaling run: `scale`, and `explain` of its folder."""

    run: str  # folder of the run
    complete: bool  # whether every point is measured
    network: str  # name of the network
    mode: str  # what a step runs
    precision: str | None  # precision of a step
    device: Mapping[str, Any] | None  # device of the first rank
    threads: int | None  # threads per process on a CPU
    input: str  # source of the samples
    protocol: Mapping[str, Any] | None  # how it was measured
    versions: Mapping[str, Any] | None  # versions of the libraries
    lost: Mapping[str, Any] | None  # what the first rank lost, by name
    empty: Sequence[Mapping[str, Any]]  # points without a measurement
    series: Sequence[Series]  # weak and strong scaling
