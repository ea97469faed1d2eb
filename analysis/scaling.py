"""Scaling over devices: throughput, speed-up, efficiency, and the lost time split exactly.

T_N, the time of a step of N ranks, is the mean of theirs, each a sum of terms (`rank_parts`). The
loss is a linear functional, with b samples on every device (weak scaling) T_N(b) − T_1(b), with B
in all (strong scaling) T_N(B/N) − T_1(B)/N, and splits without a model: each kind of term on N
devices minus that on one. See docs/internals/other-measures.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..profiling.measure.scaling_plan import ScalingPoint
from .decompose.curve import Curve, cost_curve
from .decompose.functionals import Functional
from .decompose.statistics import Estimate, Floats, estimate
from .decompose.terms import (
    COMMUNICATION,
    IDLE,
    KERNELS,
    OVERHEAD,
    SLOW_STEPS,
    Key,
    Share,
    Terms,
    estimate_terms,
    test_family,
    work_label,
)
from .ranks.parts import INPUT, WAITING, RankTables, find_common_steps, rank_parts
from .ranks.stragglers import over_others

SMALLER_BATCH = "smaller batch"
# Names of the kinds of lost time, in the order of display.
SLOWER_KERNELS, IMBALANCE = "slower kernels", "load imbalance"
_NAMES = {COMMUNICATION: COMMUNICATION, WAITING: IMBALANCE, KERNELS: SLOWER_KERNELS}
_NAMES |= {kind: kind for kind in (INPUT, IDLE, SMALLER_BATCH, OVERHEAD, SLOW_STEPS)}
LOSS_KINDS = tuple(_NAMES.values())


@dataclass(frozen=True)
class PointTables:
    """Recorded tables of one point."""

    point: ScalingPoint  # number of devices, and the batch size of each
    ranks: tuple[RankTables, ...]  # one per device, with the steps of this batch size only
    discarded: int  # number of discarded steps


@dataclass(frozen=True)
class LossShare:
    """One share of the time that more devices lose."""

    kind: str  # one of `LOSS_KINDS`
    layer: str | None  # module path; None for work outside layers, and for a whole kind
    phase: str | None  # forward, backward or optimizer; None without a phase, and for a whole kind
    ms: Estimate  # the share
    real: bool  # whether it is significant

    @property
    def label(self) -> str:
        """Layer and phase of kernels, else the kind."""
        if self.kind == SLOWER_KERNELS:
            return work_label(self.layer, self.phase)
        return self.kind


def _loss_shares(shares: Iterable[Share]) -> tuple[LossShare, ...]:
    lost = []
    for share in shares:
        key = share.key
        lost.append(LossShare(_NAMES[key.kind], key.layer, key.phase, share.value, share.real))
    return tuple(lost)


@dataclass(frozen=True)
class Lateness:
    """The rank that the others wait for, and the terms in which it takes longer.

    It has the most own time (all but communication and waiting) over the median of the other ranks,
    as stragglers have in `ranks.stragglers`: own time needs no common clock, and the others wait
    meanwhile.
    """

    rank: int  # number of the rank
    node: int | None  # number of its node; None if unknown
    waits_less_ms: Estimate  # mean waiting of the others minus its own waiting
    latest_in: int  # number of profiled steps in which no rank had more own time over the others
    profiled_steps: int  # number of profiled steps
    # its terms minus the mean of the other ranks', largest first; with the difference of the step
    # lengths they add up to `waits_less_ms`
    shares: tuple[LossShare, ...]


@dataclass(frozen=True)
class EfficiencyLoss:
    """The time that a step loses to scaling."""

    ms: Estimate  # the loss
    shares: tuple[LossShare, ...]  # one per kind; they add up to the loss
    kernels: tuple[LossShare, ...]  # the share of kind kernels by layer and phase, largest first
    late: Lateness  # the rank that the others wait for


@dataclass(frozen=True, kw_only=True)
class ScaledPoint:
    """One number of devices."""

    devices: int  # number of devices
    batch_per_device: int  # samples per device in a step
    nodes: int | None  # number of nodes; None if unknown
    step_ms: Estimate  # time of a step, mean over ranks
    samples_per_s: Estimate  # samples of all devices per second
    speedup: Estimate  # speed-up over one device
    efficiency: Estimate  # speed-up over number of devices
    n: int  # number of timed steps
    rounds: int  # number of their rounds
    spread: float | None  # interquartile range of the steps over their time; None for a single step
    discarded_steps: int  # number of discarded steps
    incomplete_steps: int  # number of steps of visits that some rank did not finish
    # number of profiled steps whose collectives differ between ranks; their waiting is in
    # communication
    unmatched_steps: int
    loss: EfficiencyLoss | None  # None for one device, and if no step was profiled


@dataclass(frozen=True)
class Series:
    """Weak or strong scaling."""

    kind: str  # weak or strong
    points: tuple[ScaledPoint, ...]  # one per number of devices; the first has one device


def scale(
    measured: Sequence[PointTables],
    weak: Sequence[ScalingPoint],
    strong: Sequence[ScalingPoint],
    statistic: str,
) -> tuple[Series, ...]:
    """Compare every number of devices with one device.

    Of weak and strong scaling, one device first, points that were not measured are left out, and so
    is a series without a measured point of one device.
    """
    run = _Run(measured, statistic)
    series = (
        Series("weak", run.series(weak, strong=False)),
        Series("strong", run.series(strong, strong=True)),
    )
    return tuple(curve for curve in series if curve.points)


class _Run:
    """T and its terms at all measured points; the conditions are the points."""

    def __init__(self, measured: Sequence[PointTables], statistic: str) -> None:
        self._tables: dict[ScalingPoint, PointTables] = {}
        self._parts: dict[ScalingPoint, pd.DataFrame] = {}
        self._unmatched: dict[ScalingPoint, int] = {}
        self._curve: Curve | None = None
        self._terms: Terms | None = None
        steps, parts = [], []
        for tables in measured:
            timed = find_common_steps(tables.ranks, profiled=False)
            profiled = find_common_steps(tables.ranks, profiled=True)
            if timed.empty:
                continue
            point = tables.point
            self._tables[point] = tables
            self._parts[point], self._unmatched[point] = rank_parts(tables.ranks)
            # `rank_parts` numbers the profiled steps that the ranks share.
            mean_profiled = _mean_steps(profiled, point)
            steps += [_mean_steps(timed, point), mean_profiled.assign(profiled=True)]
            mean_ms = self._parts[point]["exclusive_ms"] / len(tables.ranks)
            if len(mean_ms):
                parts.append(self._parts[point].assign(point=point, exclusive_ms=mean_ms))
        if steps:
            self._curve = cost_curve(pd.concat(steps), statistic, by="point")
        if parts:
            self._terms = estimate_terms(pd.concat(parts), pd.concat(steps), "point", statistic)

    def series(self, points: Sequence[ScalingPoint], strong: bool) -> tuple[ScaledPoint, ...]:
        present = [point for point in points if point in self._tables]
        if not points or points[0] not in present:
            return ()
        return tuple(self._scale(point, points[0], strong) for point in present)

    def _scale(self, point: ScalingPoint, alone: ScalingPoint, strong: bool) -> ScaledPoint:
        curve = self._curve
        assert curve is not None
        here = curve.conditions.index(point)
        base = curve.conditions.index(alone)
        tables, joint = self._tables[point], curve.joint[here]
        time, times, rounds = joint.time_ms, curve.replicates_ms, curve.rounds
        samples, each = point.total_batch * 1e3, point.devices
        rate = _ratio(samples / time.value, samples / times[:, here], rounds)
        speedup = efficiency = _exactly(1.0)
        if point != alone:
            more = 1 if strong else each
            faster = more * curve.joint[base].time_ms.value / time.value
            drawn = more * times[:, base] / times[:, here]
            speedup = _ratio(faster, drawn, rounds)
            efficiency = _ratio(faster / each, drawn / each, rounds)
        nodes = {rank.node for rank in tables.ranks}
        timed = []
        for rank in tables.ranks:
            profiled = rank.steps["profiled"].astype(bool)
            timed.append(int((~profiled).sum()))
        count = None if None in nodes else len(nodes)
        loss = None if point == alone else self._loss(point, alone, strong)
        return ScaledPoint(
            devices=each,
            batch_per_device=point.batch,
            nodes=count,
            step_ms=time,
            samples_per_s=rate,
            speedup=speedup,
            efficiency=efficiency,
            n=joint.n,
            rounds=joint.rounds,
            spread=joint.spread,
            discarded_steps=tables.discarded,
            incomplete_steps=max(timed) - joint.n,
            unmatched_steps=self._unmatched[point],
            loss=loss,
        )

    def _loss(self, point: ScalingPoint, base: ScalingPoint, strong: bool) -> EfficiencyLoss | None:
        curve, terms = self._curve, self._terms
        alone = ScalingPoint(1, point.batch)
        if curve is None or terms is None:
            return None
        if not {point, alone, base} <= set(terms.conditions):
            return None
        others = _functional({point: 1.0, alone: -1.0})
        lost = _functional({point: 1.0, base: -1.0 / point.devices}) if strong else others
        by_kind = terms.group_by(lambda key: Key(None, None, key.kind))
        shares = by_kind.decompose(others)
        if strong:
            smaller = terms.sum(_functional({alone: 1.0, base: -1.0 / point.devices}))
            shares.append(Share(Key(None, None, SMALLER_BATCH), smaller))
        for share in by_kind.decompose(lost, curve):
            if share.key.kind in (OVERHEAD, SLOW_STEPS):
                shares.append(share)
        kernels = [share for share in terms.decompose(others) if share.key.kind == KERNELS]
        order = list(_NAMES)
        by_order = sorted(test_family(shares), key=lambda share: order.index(share.key.kind))
        largest = sorted(test_family(kernels), key=lambda share: -abs(share.value.value))
        return EfficiencyLoss(
            ms=curve.evaluate(lost),
            shares=_loss_shares(by_order),
            kernels=_loss_shares(largest),
            late=_lateness(self._parts[point], self._tables[point].ranks),
        )


def _functional(coefficients: dict[ScalingPoint, float]) -> Functional:
    weights = tuple(sorted(coefficients.items()))
    return Functional("loss", next(iter(coefficients)), None, weights)


def _ratio(value: float, replicates: Floats, rounds: int) -> Estimate:
    """A ratio with an interval of its logarithm, which stays above 0; `p` tests a ratio of 1."""
    smallest = np.finfo(float).tiny
    logs = np.log(np.maximum(replicates, smallest))
    log = estimate(float(np.log(value)), logs, rounds, 1.0)
    with np.errstate(over="ignore"):  # one round gives no interval: from 0 to infinity
        low, high = float(np.exp(log.low)), float(np.exp(log.high))
        return Estimate(value, low, high, log.p)


def _exactly(value: float) -> Estimate:
    return Estimate(value, value, value, 1.0)


def _mean_steps(shared: pd.DataFrame, point: ScalingPoint) -> pd.DataFrame:
    duration_ns = shared.filter(regex=r"^duration_ns_").mean(axis=1)
    numbered = shared[["round", "index"]].assign(step=range(len(shared)), duration_ns=duration_ns)
    return numbered.assign(profiled=False, point=[point] * len(shared))


def _lateness(parts: pd.DataFrame, ranks: Sequence[RankTables]) -> Lateness:
    is_own = ~parts["kind"].isin([COMMUNICATION, WAITING])
    timed = parts.assign(own_ms=parts["exclusive_ms"].where(is_own, 0.0))
    by_rank = timed.groupby(["rank", "step"])["own_ms"]
    own_ms = by_rank.sum().unstack("step")
    in_order = own_ms.loc[[rank.rank for rank in ranks]]
    excess = over_others(in_order.to_numpy(np.float64))
    position = int(np.argmax(excess.mean(axis=1)))
    latest = ranks[position]
    steps = parts.groupby(["rank", "step"], as_index=False).agg(
        duration_ns=("exclusive_ms", lambda ms: ms.sum() * 1e6)
    )
    steps = steps.assign(round=steps["step"], profiled=True)
    terms = estimate_terms(parts, steps, "rank")
    less = {rank.rank: -1.0 / (len(ranks) - 1) for rank in ranks}
    less[latest.rank] = 1.0
    functional = Functional("difference", latest.rank, None, tuple(less.items()))
    waits_more = terms.sum(functional, lambda key: key.kind == WAITING)
    shares = [share for share in terms.decompose(functional) if share.key.kind != WAITING]
    longest = sorted(test_family(shares), key=lambda share: -share.value.value)
    low, high = -waits_more.high, -waits_more.low
    is_latest = excess.argmax(axis=0) == position
    return Lateness(
        rank=latest.rank,
        node=latest.node,
        waits_less_ms=replace(waits_more, value=-waits_more.value, low=low, high=high),
        latest_in=int(is_latest.sum()),
        profiled_steps=excess.shape[1],
        shares=_loss_shares(longest),
    )
