"""What more devices gain, and what eats the rest: throughput, speed-up, efficiency, and the lost time split exactly.

The time of a step of N ranks, T_N, is the mean of theirs; each of theirs is a sum of parts (`rank_parts`), so T_N is
one too. What is lost is a linear functional of such sums,

- weak scaling, batch b on every device: T_N(b) − T_1(b);
- strong scaling, B samples in all: T_N(B/N) − T_1(B)/N, which is [T_N(B/N) − T_1(B/N)], what the other devices cost,
  plus [T_1(B/N) − T_1(B)/N], what the smaller batch costs, measured on one device;

and splits with no model: each kind of part is N devices' minus one device's. The efficiency is ideal over real time,
so what it lacks to 1 is the loss over T_N. See docs/scaling.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..profiling.measure.scaling_plan import ScalingPoint
from .decompose.anomalies import LEVEL
from .decompose.curve import Curve, cost_curve
from .decompose.functionals import Functional
from .decompose.statistics import Estimate, estimate, holm
from .decompose.terms import IDLE, OBSERVER, Part, estimate_terms
from .ranks.parts import COMMUNICATION, INPUT, KERNELS, WAITING, RankTables, rank_parts, shared_steps

Floats = npt.NDArray[np.float64]

SMALLER_BATCH = "smaller batch"
# In the order they are told.
LOSS_KINDS = (COMMUNICATION, WAITING, KERNELS, INPUT, IDLE, SMALLER_BATCH, OBSERVER)
_STEP = "step"


@dataclass(frozen=True)
class PointTables:
    """What was recorded of one point.

    Attributes:
        point: how many devices, and the batch of each.
        ranks: one of every device, their steps of this batch alone.
        discarded: steps that were run and not kept.
    """

    point: ScalingPoint
    ranks: tuple[RankTables, ...]
    discarded: int


@dataclass(frozen=True)
class Lateness:
    """The rank that the others wait for, and what it does longer than they.

    Attributes:
        rank: its number.
        node: of its node; null if not known.
        waited_ms: how much less than the others, on average, it waits itself.
        latest_in: profiled steps in which no rank waited less.
        steps: profiled steps.
        parts: its terms minus the mean of the other ranks', largest first; with the difference of the steps' own
            lengths they add up to `waited_ms`.
    """

    rank: int
    node: int | None
    waited_ms: Estimate
    latest_in: int
    steps: int
    parts: tuple[LossPart, ...]


@dataclass(frozen=True)
class LossPart:
    """A share of the lost time.

    Attributes:
        kind: one of `LOSS_KINDS`.
        layer: module path, where it is split so far.
        phase: forward, backward or optimizer.
        value: in ms of a step; negative where more devices take less.
        real: whether it is more than noise, among the shares it was split with.
    """

    kind: str
    layer: str | None
    phase: str | None
    value: Estimate
    real: bool


@dataclass(frozen=True)
class Loss:
    """The time that a step loses to scaling.

    Attributes:
        value: in ms.
        parts: by kind; they add up to it.
        kernels: those of kind kernels again, by layer and phase, the largest first.
        late: whom the ranks wait for.
    """

    value: Estimate
    parts: tuple[LossPart, ...]
    kernels: tuple[LossPart, ...]
    late: Lateness


@dataclass(frozen=True)
class ScaledPoint:
    """One number of devices.

    Attributes:
        point: how many, and the batch of each.
        nodes: that they are on; null if not known.
        time_ms: of a step, the mean of the ranks'.
        throughput_per_s: samples of all devices per second.
        speedup: over one device.
        efficiency: speed-up over devices.
        n: timed steps.
        rounds: they were taken in.
        spread: interquartile range of the steps over their time.
        discarded: steps that were run and not kept.
        incomplete: steps of visits that some rank did not finish.
        unmatched: profiled steps whose collectives the ranks do not share; their waiting is in communication.
        clock_error_ns: what the ranks' clocks may be apart, at most; 0 where they share one.
        loss: null for one device, and where nothing was profiled.
    """

    point: ScalingPoint
    nodes: int | None
    time_ms: Estimate
    throughput_per_s: Estimate
    speedup: Estimate
    efficiency: Estimate
    n: int
    rounds: int
    spread: float
    discarded: int
    incomplete: int
    unmatched: int
    clock_error_ns: int
    loss: Loss | None


@dataclass(frozen=True)
class Series:
    """Weak or strong scaling: its points, the first of one device."""

    kind: str
    points: tuple[ScaledPoint, ...]


def scale(
    measured: Sequence[PointTables], weak: Sequence[ScalingPoint], strong: Sequence[ScalingPoint], statistic: str
) -> tuple[Series, ...]:
    """Hold every number of devices against one.

    Args:
        measured: all that was recorded.
        weak: points of weak scaling, one device first; points that were not measured are left out.
        strong: of strong scaling.
        statistic: what stands for T: median or mean.

    Returns:
        The series that have their one device, and more.
    """
    run = _Run(measured, statistic)
    series = (Series("weak", run.series(weak, strong=False)), Series("strong", run.series(strong, strong=True)))
    return tuple(one for one in series if one.points)


class _Run:
    """All points as one cost curve over their numbers (their places in `_points`), and its terms."""

    def __init__(self, measured: Sequence[PointTables], statistic: str) -> None:
        usable = [(tables, shared) for tables in measured if len(shared := shared_steps(tables.ranks, profiled=False))]
        self._measured = [tables for tables, _ in usable]
        self._points = [tables.point for tables in self._measured]
        self._curve: Curve | None = None
        if usable:
            timed = pd.concat([_mean_steps(shared).assign(batch=i) for i, (_, shared) in enumerate(usable)])
            self._curve = cost_curve(timed, statistic)
        self._parts: list[pd.DataFrame] = []
        self._unmatched: list[int] = []
        for place, tables in enumerate(self._measured):
            parts, unmatched = rank_parts(tables.ranks)
            mean = parts["exclusive_ms"] / len(tables.ranks)
            self._parts.append(parts.assign(batch=place, exclusive_ms=mean))
            self._unmatched.append(unmatched)
        parts = pd.concat(self._parts) if self._parts else pd.DataFrame(columns=["batch", "name"])
        # All three use the same steps and draws.
        flat = parts.assign(layer=None, phase=None)
        self._by_layer, self._by_kind, self._whole = (
            None if parts.empty else estimate_terms(table) for table in (parts, flat, flat.assign(kind=_STEP))
        )

    def series(self, points: Sequence[ScalingPoint], strong: bool) -> tuple[ScaledPoint, ...]:
        present = [point for point in points if point in self._points]
        if not points or points[0] not in present:
            return ()
        return tuple(self._scaled(point, points[0], strong) for point in present)

    def _scaled(self, point: ScalingPoint, alone: ScalingPoint, strong: bool) -> ScaledPoint:
        assert self._curve is not None
        here, base = self._points.index(point), self._points.index(alone)
        tables, of_curve = self._measured[here], self._curve.points[here]
        time, times = of_curve.time_ms, self._curve.replicates_ms
        samples = point.total_batch * 1e3
        faster = (1 if strong else point.devices) * self._curve.points[base].time_ms.value / time.value
        drawn = (1 if strong else point.devices) * times[:, base] / times[:, here]

        rounds = self._curve.rounds
        nodes = {rank.node for rank in tables.ranks}
        shared = int(of_curve.n)
        kept = [int((~rank.steps["profiled"].astype(bool)).sum()) for rank in tables.ranks]
        return ScaledPoint(
            point,
            None if None in nodes else len(nodes),
            time,
            _ratio(samples / time.value, samples / times[:, here], rounds),
            _ratio(faster, drawn, rounds) if point != alone else _exactly(1.0),
            _ratio(faster / point.devices, drawn / point.devices, rounds) if point != alone else _exactly(1.0),
            shared,
            of_curve.rounds,
            of_curve.spread,
            tables.discarded,
            max(kept) - shared,
            self._unmatched[here],
            _clock_error_ns(tables.ranks),
            None if point == alone else self._loss(here, base, strong),
        )

    def _loss(self, here: int, base: int, strong: bool) -> Loss | None:
        assert self._curve is not None
        point = self._points[here]
        same_batch = ScalingPoint(1, point.batch)
        if same_batch not in self._points:
            return None
        alone = self._points.index(same_batch)
        needed = {here, alone, base} if strong else {here, alone}
        if self._by_layer is None or self._by_kind is None or self._whole is None:
            return None
        if not needed <= set(self._by_kind.batches):
            return None
        devices = point.devices
        others = _functional({here: 1.0, alone: -1.0})
        lost = _functional({here: 1.0, base: -1.0 / devices}) if strong else others
        parts = [part for part in self._by_kind.decompose(others, self._curve) if part.kind != OBSERVER]
        if strong:
            smaller = _functional({alone: 1.0, base: -1.0 / devices})
            whole = self._whole.decompose(smaller, self._curve)[0]
            parts.append(Part(None, None, SMALLER_BATCH, whole.value))
        parts.append(self._whole.decompose(lost, self._curve)[-1])
        kernels = [part for part in self._by_layer.decompose(others, self._curve) if part.kind == KERNELS]
        told = sorted(_tested(parts), key=lambda part: LOSS_KINDS.index(part.kind))
        return Loss(
            self._curve.evaluate(lost),
            tuple(told),
            tuple(sorted(_tested(kernels), key=lambda part: -abs(part.value.value))),
            _lateness(self._parts[here], self._measured[here].ranks),
        )


def _functional(coefficients: dict[int, float]) -> Functional:
    return Functional("loss", 0, None, tuple(sorted(coefficients.items())), "ms")


def _ratio(value: float, replicates: Floats, rounds: int) -> Estimate:
    """The interval is taken of the logarithm, so that it stays above 0; `p` is of the ratio being 1."""
    smallest = np.finfo(float).tiny
    log = estimate(float(np.log(value)), np.log(np.maximum(replicates, smallest)), rounds, 1.0)
    with np.errstate(over="ignore"):  # one round tells nothing: from 0 to infinity
        return Estimate(value, float(np.exp(log.low)), float(np.exp(log.high)), log.p)


def _exactly(value: float) -> Estimate:
    return Estimate(value, value, value, 1.0)


def _mean_steps(shared: pd.DataFrame) -> pd.DataFrame:
    """Steps of all ranks as one each: its time is the mean of theirs."""
    durations = shared.filter(regex=r"^duration_ns_")
    return shared[["repeat", "index"]].assign(duration_ns=durations.mean(axis=1), profiled=False)


def _tested(parts: Sequence[Part]) -> list[LossPart]:
    adjusted = holm([part.value.p for part in parts])
    return [
        LossPart(part.kind, part.layer, part.phase, part.value, p < LEVEL)
        for part, p in zip(parts, adjusted, strict=True)
    ]


def _clock_error_ns(ranks: Sequence[RankTables]) -> int:
    return max(
        (int(rank.clock.error_ns(int(at))) for rank in ranks for at in rank.steps["start_ns"].dropna()), default=0
    )


def _lateness(parts: pd.DataFrame, ranks: Sequence[RankTables]) -> Lateness:
    """Who waits least, and what it does longer than the others meanwhile.

    Args:
        parts: of `rank_parts` of one point, divided by the number of ranks.
        ranks: their tables.
    """
    count = len(ranks)
    coded = parts["rank"].astype(str) + "|" + parts["layer"].fillna("").astype(str)
    terms = estimate_terms(parts.assign(layer=coded))
    rank_of = np.array([int(str(layer).partition("|")[0]) for layer, _, _ in terms.keys])
    told = [(str(layer).partition("|")[2] or None, phase, kind) for layer, phase, kind in terms.keys]
    values, replicates = terms.values_ms[0] * count, terms.replicates_ms[:, 0] * count
    ((steps, _),) = terms.profiled.values()
    waits = np.array([kind == WAITING for _, _, kind in told])
    waited = {rank.rank: float(values[waits & (rank_of == rank.rank)].sum()) for rank in ranks}
    latest = min(waited, key=lambda rank: waited[rank])
    # Its own term minus the mean of the others'.
    weight = np.where(rank_of == latest, 1.0, -1.0 / (count - 1))
    keys = sorted({key for key, wait in zip(told, waits, strict=True) if not wait}, key=str)
    shares = []
    for key in keys:
        chosen = weight * np.array([one == key for one in told])
        value = estimate(float(chosen @ values), replicates @ chosen, steps, float(np.abs(chosen * values).max()))
        shares.append(Part(key[0], key[1], key[2], value))
    of_steps = parts[parts["kind"] == WAITING].groupby(["step", "rank"])["exclusive_ms"].sum()
    numbers = [rank.rank for rank in ranks]
    table = of_steps.unstack("rank").reindex(columns=numbers).fillna(0.0)
    latest_in = int((table[latest] <= table.min(axis=1)).sum()) if len(table) else 0
    less = -weight * waits
    return Lateness(
        latest,
        next(rank.node for rank in ranks if rank.rank == latest),
        estimate(float(less @ values), replicates @ less, steps, float(values[waits].max(initial=0.0))),
        latest_in,
        steps,
        tuple(sorted(_tested(shares), key=lambda part: -part.value.value)),
    )
