"""Documents of what was measured: `explain`, energy, tables of times and scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..analysis.causes import Attribution
from ..analysis.decompose.functionals import Functional
from ..analysis.decompose.statistics import Estimate
from ..analysis.decompose.terms import Key
from ..analysis.diagnosis.answer import Answer
from ..analysis.time_tables import Pooled
from ..analysis.verdicts.outcome import Outcome


@dataclass(frozen=True)
class Gap:
    """A batch size without a measurement.

    Attributes:
        batch: the batch size.
        round: round in which it was last tried.
        why: reason, e.g. out of memory, killed or failed.
        detail: message of the library or the operating system.
    """

    batch: int
    round: int
    why: str
    detail: str


@dataclass(frozen=True)
class CurvePoint:
    """One batch size of the cost curve.

    Attributes:
        batch: the batch size, or the value of another axis.
        time_ms: time of a step.
        spread: interquartile range over the time.
        n: number of timed steps.
        rounds: number of their rounds.
    """

    batch: int
    time_ms: Estimate
    spread: float
    n: int
    rounds: int


@dataclass(frozen=True)
class ShapedFinding:
    """A tested functional of the curve.

    Attributes:
        shown: the displayed functional: excess, or curvature on the chosen axis.
        value: its value.
        tested: the functional behind the verdict: the excess itself, or the bend for a curvature.
        tested_value: its value, in ms.
        p_adjusted: p of `tested`, adjusted over the family.
        verdict: anomaly, amortised fixed cost, below 2 % of the step, or not significant.
        shape: super-linear or sub-linear; concave-up or concave-down.
    """

    shown: Functional
    value: Estimate
    tested: Functional
    tested_value: Estimate
    p_adjusted: float
    verdict: str
    shape: str


@dataclass(frozen=True)
class NamedShare:
    """Contribution of a term to an anomaly.

    Attributes:
        key: the term.
        label: name of the term.
        value: the contribution, in the functional's unit; the values of all shares add up to the anomaly.
        real: whether it is significant, tested over all shares (Holm).
        kernel_before: kernel with the most time in the term at the condition that the functional is taken at.
        kernel_after: kernel with the most time at the condition compared with it.
        layer_class: class of the layer, e.g. Conv2d.
    """

    key: Key
    label: str
    value: Estimate
    real: bool
    kernel_before: str | None
    kernel_after: str | None
    layer_class: str | None


@dataclass(frozen=True)
class SplitAnomaly:
    """One anomaly with its shares and causes.

    Attributes:
        functional: the functional.
        value: its value.
        shares: one per term; left over, idle and profiling overhead last.
        attribution: causes of the shares; their amounts add up to the value too.
        also: labels of other findings from the same term at the same batch size.
        verdict: the verdict in a sentence.
    """

    functional: Functional
    value: Estimate
    shares: Sequence[NamedShare]
    attribution: Attribution
    also: Sequence[str]
    verdict: str


@dataclass(frozen=True)
class ExplainDocument:
    """A recording, explained: `diagnose`, `explain` and `confirm`.

    Attributes:
        recording: folder or URL of the recording.
        headline: what the curve shows, in a sentence.
        answers: the answer on every anomaly, and last on the fixed cost: what, where, why, what to do, how sure.
        modelled: whether the cost model predicted the times.
        complete: whether everything that was asked for is recorded.
        network: name of the network or step.
        device: device that ran, as in `recording.json`.
        protocol: how it was measured.
        locked_sm_clock_hz: clock that Curvescope locked the SMs at; null if it did not.
        lost: what the recording lost, by name: count, severity, sentence.
        empty: batch sizes without a measurement.
        warnings: disturbances that were noticed while measuring.
        notes: sentences on the choice of the steps.
        curve: time of a step by batch size.
        findings: every excess, then every curvature.
        anomalies: the anomalies among them, the largest first, or those asked for.
        fixed_cost: the fixed cost of a step; null if it is not significant.
        experiments: outcomes of the experiments on the causes.
    """

    recording: str
    headline: str
    answers: Sequence[Answer]
    modelled: bool
    complete: bool
    network: str | None
    device: Mapping[str, Any] | None
    protocol: Mapping[str, Any] | None
    locked_sm_clock_hz: int | None
    lost: Mapping[str, Any] | None
    empty: Sequence[Gap]
    warnings: Sequence[Any]
    notes: Sequence[str]
    curve: Sequence[CurvePoint]
    findings: Sequence[ShapedFinding]
    anomalies: Sequence[SplitAnomaly]
    fixed_cost: SplitAnomaly | None
    experiments: Sequence[Outcome]


@dataclass(frozen=True)
class EnergyPoint:
    """Energy at one batch size.

    Attributes:
        batch: the batch size.
        energy_j: energy of a step.
        j_per_sample: energy of a sample.
        power_w: mean power in the steps.
        spread: interquartile range over the energy.
        n: number of steps with an energy.
        rounds: number of their rounds.
    """

    batch: int
    energy_j: Estimate
    j_per_sample: float
    power_w: float
    spread: float
    n: int
    rounds: int


@dataclass(frozen=True)
class EnergyFinding:
    """A tested functional of the curve of energy.

    Attributes:
        functional: its label.
        unit: its unit.
        value: its value.
        verdict: as for times.
        p_adjusted: p, adjusted over the family.
        by_time_j: the functional of time, at the power of the smallest batch size in it.
        by_power_j: what the other powers at the other batch sizes add.
    """

    functional: str
    unit: str
    value: Estimate
    verdict: str
    p_adjusted: float
    by_time_j: float
    by_power_j: float


@dataclass(frozen=True)
class EnergyDocument:
    """The curve of energy of a recording: `diagnose` and `explain` with `--of energy`.

    Attributes:
        recording: folder or URL of the recording.
        complete: whether everything that was asked for is recorded.
        lost: what the recording lost, by name.
        source: what measured the energy, and of what.
        locked_sm_clock_hz: clock that Curvescope locked the SMs at; null if it did not.
        unmeasured_steps: number of timed steps without an energy.
        curve: energy by batch size.
        findings: every excess, then every curvature.
        fixed_cost_j: energy that does not grow with the batch size; null if it is not significant.
    """

    recording: str
    complete: bool
    lost: Mapping[str, Any] | None
    source: Mapping[str, Any]
    locked_sm_clock_hz: int | None
    unmeasured_steps: int
    curve: Sequence[EnergyPoint]
    findings: Sequence[EnergyFinding]
    fixed_cost_j: Estimate | None


@dataclass(frozen=True)
class TimedPoint:
    """One point of a curve from a table of times.

    Attributes:
        condition: value of the axis.
        time_ms: time.
        spread: interquartile range over the time.
        n: number of times.
        rounds: number of rounds.
    """

    condition: int
    time_ms: Estimate
    spread: float
    n: int
    rounds: int


@dataclass(frozen=True)
class TimedSeries:
    """One curve of a table of times.

    Attributes:
        problem: name of the problem.
        device_name: name of the device; empty if the table names none.
        curve: its points.
        findings: every excess, then every curvature.
    """

    problem: str
    device_name: str | None
    curve: Sequence[TimedPoint]
    findings: Sequence[ShapedFinding]


@dataclass(frozen=True)
class TimesDocument:
    """The curves of a table of times: `explain` of an `import --table`.

    Attributes:
        recording: folder or URL of the recording.
        noise: standard error of times without repeats, as a share.
        noise_origin: stated, estimated from the table, or assumed.
        series: the curves.
        pooled: means of bends over the curves of a problem.
    """

    recording: str
    noise: float
    noise_origin: str
    series: Sequence[TimedSeries]
    pooled: Sequence[Pooled]


@dataclass(frozen=True)
class Bounds:
    """A value with its interval.

    Attributes:
        value: the estimate.
        low: lower end of the 95 % interval; null if unknown.
        high: upper end; null if unknown.
    """

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class LossShare:
    """One share of the time that more devices lose.

    Attributes:
        kind: kernels, communication, waiting, input, idle and so on.
        layer: module path.
        phase: forward, backward or optimizer.
        ms: the share.
        real: whether it is significant.
    """

    kind: str
    layer: str | None
    phase: str | None
    ms: Bounds
    real: bool


@dataclass(frozen=True)
class LateRank:
    """The rank that the others wait for most.

    Attributes:
        rank: the rank; null if none is latest.
        node: its node.
        waits_less_ms: how much less it waits than the others.
        latest_in: number of profiled steps in which it is the latest.
        profiled_steps: number of profiled steps.
        shares: why it is late.
    """

    rank: int | None
    node: int | None
    waits_less_ms: Bounds
    latest_in: int
    profiled_steps: int
    shares: Sequence[LossShare]


@dataclass(frozen=True)
class ScalingLoss:
    """The time that a step on more devices takes longer than on one.

    Attributes:
        ms: the loss.
        shares: its shares; they add up to it.
        kernels: the share of slower kernels by layer.
        late: the latest rank.
    """

    ms: Bounds
    shares: Sequence[LossShare]
    kernels: Sequence[LossShare]
    late: LateRank


@dataclass(frozen=True)
class ScalingResult:
    """One number of devices.

    Attributes:
        devices: number of devices.
        nodes: number of nodes.
        batch_per_device: samples per device in a step.
        step_ms: time of a step.
        samples_per_s: samples of all devices per second.
        speedup: over one device.
        efficiency: of the scaling, 1 is perfect.
        n: number of timed steps.
        rounds: number of their rounds.
        spread: interquartile range over the time.
        discarded_steps: steps that were disturbed and left out.
        incomplete_steps: steps that not every rank recorded.
        unmatched_steps: profiled steps whose collectives could not be matched.
        clock_error_ns: error of the alignment of the ranks' clocks.
        loss: the lost time; null on one device, and without profiled steps.
    """

    devices: int
    nodes: int | None
    batch_per_device: int
    step_ms: Bounds
    samples_per_s: Bounds
    speedup: Bounds
    efficiency: Bounds
    n: int
    rounds: int
    spread: float
    discarded_steps: int
    incomplete_steps: int
    unmatched_steps: int
    clock_error_ns: float | None
    loss: ScalingLoss | None


@dataclass(frozen=True)
class ScalingSeries:
    """Weak or strong scaling.

    Attributes:
        kind: weak or strong.
        points: one per number of devices.
    """

    kind: str
    points: Sequence[ScalingResult]


@dataclass(frozen=True)
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
    series: Sequence[ScalingSeries]
