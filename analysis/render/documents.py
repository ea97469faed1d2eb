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

from ...profiling.recording.disturbed import Disturbances
from ...profiling.recording.store import Recording, Status, is_modelled
from ..causes import Attribution
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
from ..diagnosis.answer import Answer
from ..diagnosis.result import Diagnosis, Explanation
from ..ranks.difference import RankDifference
from ..ranks.stragglers import Ranks
from ..roofline import Roofline
from ..scaling import Series
from ..verdicts.outcome import Outcome
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
    """One batch size of the cost curve.

    Attributes:
        batch: the batch size, or the value of another axis; None if a profile names none.
        time_ms: time of a step.
        spread: interquartile range over the time; null for a single step.
        n: number of timed steps.
        rounds: number of their rounds.
        stable: whether the spread is within 2 %; null for a single step.
    """

    batch: int | None
    time_ms: Estimate
    spread: float | None
    n: int
    rounds: int
    stable: bool | None

    @classmethod
    def of(cls, point: Point) -> CurvePoint:
        """The point of a curve over batch sizes."""
        return cls(known_batch(point.condition), point.time_ms, point.spread, point.n, point.rounds, point.stable)


@dataclass(frozen=True)
class SplitAnomaly:
    """One anomaly with its shares and causes.

    Attributes:
        functional: the functional.
        value: its value.
        shares: one per term; idle and profiling overhead last.
        attribution: causes of the shares; their amounts add up to the value too.
        also: labels of other findings from the same term at the same batch size.
        verdict: the verdict in a sentence.
    """

    functional: Functional
    value: Estimate
    shares: Sequence[Share]
    attribution: Attribution
    also: Sequence[str]
    verdict: str

    @classmethod
    def of(cls, one: Explanation, diagnosis: Diagnosis) -> SplitAnomaly:
        """An explanation with its answer."""
        answer = answer_on(one, diagnosis.answers)
        verdict = verdict_sentence(one.attribution) if answer is None else answer.sentence
        return cls(one.functional, one.value, one.shares, one.attribution, one.also, verdict)


@dataclass(frozen=True, kw_only=True)
class ExplainDocument:
    """A recording, explained: `diagnose`, `explain` and `confirm`.

    Attributes:
        recording: folder or URL of the recording.
        headline: what the curve shows, in a sentence.
        remedies: what changes of complete steps save, by batch size: what to do, how, and what it costs.
        batch_size: the batch size as advice, in a sentence; null for other axes.
        answers: the answer on every anomaly, and last on the fixed cost: what, where, why, what to do, how sure.
        modelled: whether the cost model predicted the times.
        complete: whether everything that was asked for is recorded.
        network: name of the network or step.
        device: device that ran, as in `recording.json`.
        protocol: how it was measured.
        locked_sm_clock_hz: clock that Curvescope locked the SMs at; null if it did not.
        lost: what the recording lost, by name: count, severity, sentence.
        empty: batch sizes without a measurement: batch, round in which it was last tried, why, and detail.
        warnings: disturbances that were noticed while measuring.
        notes: sentences on the choice of the steps.
        disturbances: visits whose counters say that something disturbed them; null without one.
        rare_steps: rare slow steps, which the curve leaves out: how many, when, their cost, what they have in common.
        unit: what the times are of: step, or recording where no step is known.
        curve: time of a step, or of the recording, by batch size.
        statistic: statistic of the steps that a time is.
        rounds: number of rounds in which every batch size was measured.
        profiled: whether every step was profiled, so that times include the profiler's cost.
        findings: every excess, then every curvature.
        anomalies: the anomalies among them, the largest first, or those asked for.
        fixed_cost: the fixed cost of a step; null if it is not significant.
        experiments: outcomes of the experiments on the causes.
    """

    recording: str
    headline: str
    remedies: RemedyTable
    batch_size: str | None
    answers: Sequence[Answer]
    modelled: bool
    complete: bool
    network: str | None
    device: Mapping[str, Any] | None
    protocol: Mapping[str, Any] | None
    locked_sm_clock_hz: int | None
    lost: Mapping[str, Any] | None
    empty: Sequence[Mapping[str, Any]]
    warnings: Sequence[Any]
    notes: Sequence[str]
    disturbances: Disturbances | None
    rare_steps: Sequence[RareSteps]
    unit: str
    curve: Sequence[CurvePoint]
    statistic: str
    rounds: int
    profiled: bool
    findings: Sequence[Finding]
    anomalies: Sequence[SplitAnomaly]
    fixed_cost: SplitAnomaly | None
    experiments: Sequence[Outcome]

    @classmethod
    def of(
        cls, recording: Recording, diagnosis: Diagnosis, explanations: Sequence[Explanation] | None = None
    ) -> ExplainDocument:
        """The document of a diagnosis, with the anomalies that were asked for; default: all of them."""
        meta, fixed = recording.meta, diagnosis.fixed_cost
        chosen = diagnosis.explanations if explanations is None else explanations
        return cls(
            recording=str(recording.path),
            headline=headline(meta, diagnosis),
            remedies=remedy_table(diagnosis.remedies, diagnosis.axis),
            batch_size=batch_sentence(diagnosis.curve, diagnosis.axis, meta),
            answers=diagnosis.answers,
            notes=diagnosis.notes,
            disturbances=diagnosis.disturbances,
            rare_steps=diagnosis.rare_steps,
            modelled=is_modelled(meta),
            complete=meta["status"] == Status.COMPLETE,
            **{name: meta.get(name) for name in ("network", "device", "protocol", "locked_sm_clock_hz", "lost")},
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
    """One group of a breakdown.

    Attributes:
        exceeded_roofs: roofs of the device that the rates are above, so that they cannot be right.
    """

    exceeded_roofs: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class BreakdownDocument(Breakdown):
    """The time of a step by layer, kernel, phase or operator: `breakdown`.

    Attributes:
        by: layer, kernel, phase or op.
        modelled: whether the cost model predicted the times.
        communication: collectives of the step, and kernels beside them; null without communication.
        idle: idle time by what the host did meanwhile, the longest first; empty if less than 5 % of the step is idle.
        mfu: model FLOPs utilisation of the step; null if no step, no FLOPs or no peak is known.
    """

    by: str
    modelled: bool
    rows: tuple[RatedRow, ...]
    communication: Communication | None
    idle: Sequence[IdleTime]
    mfu: Mfu | None


@dataclass(frozen=True)
class ComparedRecording:
    """One recording of a comparison.

    Attributes:
        name: folder or URL.
        device: name of its device; null if unknown.
        profiled_steps_only: whether all its steps were profiled, so that times include the profiler's cost.
    """

    name: str
    device: str | None
    profiled_steps_only: bool


@dataclass(frozen=True)
class RoofRatio:
    """A roof over that of the first recording.

    Attributes:
        ratio: the ratio.
        kind: ceiling if both were measured, else peak.
    """

    ratio: float
    kind: str


@dataclass(frozen=True, kw_only=True)
class CompareDocument:
    """Recordings compared with the first: `compare`.

    Attributes:
        recordings: the recordings.
        without_device_work: names of recordings with profiled steps, but without device work.
        differences: settings that differ, one value per recording.
        steps: one line per common batch size.
        batch: batch size of the rows; null if the profiles name none.
        by: layer, operator, family or kernel.
        rows: largest time first; idle last.
        roof_ratios: one per recording after the first, by memory level or precision.
        fail_over: growth that fails the check; null if none was asked for.
        failed: whether a step time grew by more and significantly.
        undecided: whether the measurement does not rule it out at another batch size, or at all.
    """

    recordings: Sequence[ComparedRecording]
    without_device_work: Sequence[str]
    differences: Mapping[str, Sequence[str]]
    steps: Sequence[ComparedLine]
    batch: int | None
    by: str
    rows: Sequence[ComparedLine]
    roof_ratios: Sequence[Mapping[str, RoofRatio]]
    fail_over: float | None
    failed: bool
    undecided: bool

    @classmethod
    def of(cls, comparison: Comparison, fail_over: float | None = None) -> CompareDocument:
        """The document of a comparison, see the attributes."""
        return cls(
            recordings=[
                ComparedRecording(side.name, side.hardware.name, side.name in comparison.profiled)
                for side in comparison.sides
            ],
            without_device_work=comparison.unseen,
            **{name: getattr(comparison, name) for name in ("differences", "steps", "batch", "by", "rows")},
            roof_ratios=[
                {level: RoofRatio(*ratio) for level, ratio in ratios.items()} for ratios in comparison.roof_ratios
            ],
            fail_over=fail_over,
            failed=fail_over is not None and bool(comparison.regressions(fail_over)),
            undecided=fail_over is not None and bool(comparison.undecided(fail_over)),
        )


@dataclass(frozen=True, kw_only=True)
class RooflineDocument(Roofline):
    """Points under the roofs of the device: `roofline`. The older pair `format` and `version` stays.

    Attributes:
        format: `curvescope roofline`.
        version: version of this document before all documents had one.
        device: name of the device; null if unknown.
    """

    format: str = "curvescope roofline"
    version: int = 1
    device: str | None


@dataclass(frozen=True, kw_only=True)
class RanksDocument(Ranks):
    """Many ranks of one job: `ranks`.

    Attributes:
        interrupted: whether it covers only some of the ranks.
        asked: number of recordings that were found.
        differences: the largest stragglers explained, or the groups asked for.
    """

    interrupted: bool
    asked: int
    differences: Sequence[RankDifference]


@dataclass(frozen=True, kw_only=True)
class ScalingDocument:
    """A scaling run: `scale`, and `explain` of its folder.

    Attributes:
        run: folder of the run.
        complete: whether every point is measured.
        network: name of the network.
        mode: what a step runs.
        precision: precision of a step.
        device: device of the first rank.
        threads: threads per process on a CPU.
        input: source of the samples.
        protocol: how it was measured.
        versions: versions of the libraries.
        lost: what the first rank lost, by name.
        empty: points without a measurement.
        series: weak and strong scaling.
    """

    run: str
    complete: bool
    network: str
    mode: str
    precision: str | None
    device: Mapping[str, Any] | None
    threads: int | None
    input: str
    protocol: Mapping[str, Any] | None
    versions: Mapping[str, Any] | None
    lost: Mapping[str, Any] | None
    empty: Sequence[Mapping[str, Any]]
    series: Sequence[Series]
