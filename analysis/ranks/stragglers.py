"""Which ranks hold the others up, where their layers are out of balance, and which collectives wait, and for whom.

A rank's *own time* in a step is its wall time without communication: ranks that step together have one wall time, and
what the others do meanwhile is wait inside a collective. A *straggler* has more own time than the median of the other
ranks: on average over the steps, more than noise (bootstrap over steps, Holm over ranks) and by at least 2 % of the
step; or, *at times*, in single steps by at least a tenth of the step and farther from the others than any of as many
normal deviates would be.

The waiting of a rank in a collective is its duration less the shortest duration of that collective on any rank: who
begins it last waits for nobody, and the others wait for it. Clocks need not agree. A collective is told by its channel,
its order there and its step (see `rank_reduction`); where the ranks of a channel did not call the same ones in a step,
none of that step and channel is used, and they are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ..decompose.anomalies import MATERIAL
from ..decompose.statistics import LEVEL, Estimate, estimate, holm, resample_rounds
from .tables import COMMUNICATION, KERNELS, Ints, Reduction, shortest_of

Floats = npt.NDArray[np.float64]

SLOW, AT_TIMES = "slow", "slow at times"
_BURST = 0.10  # of the step
_ENOUGH_RANKS = 8  # fewer do not tell how far apart ranks lie
_NORMAL_MAD = 1.4826  # standard deviation of normal deviates over their median absolute deviation
_TOP = 5


@dataclass(frozen=True)
class TermExcess:
    """A term of a rank against the median of the other ranks, mean over steps.

    Attributes:
        layer: module path; null where not known.
        phase: forward, backward or optimizer; null where not known.
        kind: kernels, communication or idle.
        time_ms: the rank's own.
        excess_ms: how much more than the others' median.
    """

    layer: str | None
    phase: str | None
    kind: str
    time_ms: float
    excess_ms: float


@dataclass(frozen=True)
class Straggler:
    """A rank that holds the others up.

    Attributes:
        rank: its number; `node` and `local_rank` where known.
        verdict: slow, or slow at times.
        excess_ms: own time over the median of the others', mean over its steps.
        share: of the median step, in which it is `excess_ms`.
        p_adjusted: of no excess, over all ranks.
        steps: how many it has.
        slow_steps: in which it is slower than the others by 2 % of the step; at times: those single ones.
        waited_for_ms: how long each other rank waited for it in a step, on average.
        terms: where it spends more than the others, the most first.
    """

    rank: int
    node: int | None
    local_rank: int | None
    verdict: str
    excess_ms: Estimate
    share: float
    p_adjusted: float
    steps: int
    slow_steps: tuple[int, ...]
    waited_for_ms: float
    terms: tuple[TermExcess, ...]


@dataclass(frozen=True)
class Imbalance:
    """A layer over all ranks, mean over steps.

    Attributes:
        layer: module path; null where not known.
        phase: forward, backward or optimizer; null where not known.
        mean_ms: over ranks.
        slowest_ms: of the rank with the most.
        slowest_rank: which that is.
        imbalance: slowest over mean, less 1.
    """

    layer: str | None
    phase: str | None
    mean_ms: float
    slowest_ms: float
    slowest_rank: int
    imbalance: float


@dataclass(frozen=True)
class Waiting:
    """What ranks wait in one kind of collective.

    Attributes:
        operation: AllReduce, AllGather, …
        channel: the communicator, or the place of its stream.
        ranks: that take part.
        calls: per step.
        duration_ms: of all calls of a step, mean over ranks.
        waiting_ms: how much of that is waiting.
        last: (rank, ms): ranks that the others wait for, and how long each of them does per step, most first.
    """

    operation: str
    channel: str
    ranks: int
    calls: float
    duration_ms: float
    waiting_ms: float
    last: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Ranks:
    """Everything `curvescope ranks` shows of all ranks.

    Attributes:
        ranks: how many were read.
        nodes: on how many nodes, where they are known.
        steps: how many steps any of them has.
        kernels: rows of device work in those.
        step_ms: median wall time of a step.
        own_ms: median own time of a step.
        waiting_ms: in collectives, mean over ranks and steps; null where nothing could be matched.
        stragglers: largest excess first.
        imbalances: by layer and phase, the most lost first.
        waits: by operation and channel, the most waiting first.
        unmatched: sends and receives, which are between two ranks, and collectives that differ between ranks.
        unreadable: (place, reason) of recordings that could not be read.
    """

    ranks: int
    nodes: int | None
    steps: int
    kernels: int
    step_ms: float
    own_ms: float
    waiting_ms: float | None
    stragglers: tuple[Straggler, ...]
    imbalances: tuple[Imbalance, ...]
    waits: tuple[Waiting, ...]
    unmatched: dict[str, int]
    unreadable: tuple[tuple[str, str], ...]


def analyse(reduction: Reduction) -> Ranks:
    """What the ranks of a job tell together; the reduction holds at least one."""
    step, rank_of, wall_ms, own_ms = _matrices(reduction)
    waits, waited_for_ms, waiting_ms, differing = _waits(reduction, rank_of)
    nodes = {n for n in reduction["ranks"]["node"].to_pylist() if n is not None}
    terms = _term_times(reduction, rank_of)
    sends = int(reduction.column("ranks", "sends").sum())
    return Ranks(
        ranks=len(rank_of),
        nodes=len(nodes) or None,
        steps=len(step),
        kernels=int(reduction.column("ranks", "kernels").sum()),
        step_ms=float(np.nanmedian(wall_ms)),
        own_ms=float(np.nanmedian(own_ms)),
        waiting_ms=waiting_ms,
        stragglers=_stragglers(reduction, step, rank_of, wall_ms, own_ms, waited_for_ms, terms),
        imbalances=_imbalances(reduction, rank_of, terms),
        waits=waits,
        unmatched={"point_to_point": sends, "collectives_that_differ": differing},
        unreadable=reduction.unreadable,
    )


def _matrices(reduction: Reduction) -> tuple[Ints, Ints, Floats, Floats]:
    """Steps, ranks; wall and own time in ms, shape (ranks, steps), NaN where not there."""
    rank_of, row = np.unique(reduction.column("steps", "rank"), return_inverse=True)
    step, place = np.unique(reduction.column("steps", "step"), return_inverse=True)
    wall, own = np.full((2, len(rank_of), len(step)), np.nan)
    wall[row, place] = reduction.column("steps", "wall_ns") / 1e6
    own[row, place] = wall[row, place] - reduction.column("steps", "communication_ns") / 1e6
    return step, rank_of, wall, own


def over_others(times: Floats) -> Floats:
    """Each time less the median of the other ranks', step by step; NaN where there is no other.

    Args:
        times: shape (ranks, steps); NaN where a rank has no such step.
    """
    found = np.full_like(times, np.nan)
    for place in range(times.shape[1]):
        here = np.flatnonzero(~np.isnan(times[:, place]))
        if len(here) < 2:
            continue
        order = here[np.argsort(times[here, place], kind="stable")]
        values, position = times[order, place], np.arange(len(order))
        # Without one of them the middle is at these places of the others, which lie one further from it on.
        lower, upper = (len(order) - 2) // 2, (len(order) - 1) // 2
        median = (values[lower + (position <= lower)] + values[upper + (position <= upper)]) / 2
        found[order, place] = values - median
    return found


def _stragglers(
    reduction: Reduction,
    step: Ints,
    rank_of: Ints,
    wall_ms: Floats,
    own_ms: Floats,
    waited_for_ms: dict[int, float],
    terms: tuple[Ints, Floats],
) -> tuple[Straggler, ...]:
    excess = over_others(own_ms)
    there = ~np.isnan(excess)
    steps = there.sum(axis=1)
    if not there.any():
        return ()
    step_ms = float(np.nanmedian(wall_ms))
    filled = np.where(there, excess, 0.0)
    mean = filled.sum(axis=1) / np.maximum(steps, 1)
    drawn = resample_rounds(len(step))
    times_drawn = np.stack([np.bincount(row, minlength=len(step)) for row in drawn]).astype(np.float64)
    count = times_drawn @ there.T.astype(np.float64)
    replicates = np.divide(times_drawn @ filled.T, count, out=np.zeros_like(count), where=count > 0)
    values = [estimate(float(mean[i]), replicates[:, i], int(steps[i]), step_ms) for i in range(len(rank_of))]
    adjusted = holm([value.p for value in values])
    bursts = _bursts(own_ms, excess, wall_ms)
    places = {row["rank"]: (row["node"], row["local_rank"]) for row in reduction["ranks"].to_pylist()}
    found = []
    for i, (value, p) in enumerate(zip(values, adjusted, strict=True)):
        slow = p < LEVEL and value.value >= MATERIAL * step_ms
        if not slow and not bursts[i].any():
            continue
        over = there[i] & (filled[i] > MATERIAL * step_ms) if slow else bursts[i]
        rank = int(rank_of[i])
        found.append(
            Straggler(
                rank,
                *places[rank],
                SLOW if slow else AT_TIMES,
                value,
                value.value / step_ms,
                p,
                int(steps[i]),
                tuple(step[over].tolist()),
                waited_for_ms.get(rank, 0.0),
                _terms_over(reduction, terms, i),
            )
        )
    return tuple(sorted(found, key=lambda s: -s.excess_ms.value))


def _bursts(own_ms: Floats, excess: Floats, wall_ms: Floats) -> npt.NDArray[np.bool_]:
    """Steps in which a rank is out by far more than ranks lie apart in that step, shape (ranks, steps)."""
    if len(own_ms) < _ENOUGH_RANKS:
        return np.zeros(own_ms.shape, bool)
    with np.errstate(invalid="ignore"):
        middle = np.nanmedian(own_ms, axis=0)
        spread = _NORMAL_MAD * np.nanmedian(np.abs(own_ms - middle), axis=0)
        farthest = float(ndtri(1 - LEVEL / 2 / own_ms.size))
        return np.asarray((excess > farthest * spread) & (excess > _BURST * np.nanmedian(wall_ms, axis=0)))


def _term_times(reduction: Reduction, rank_of: Ints) -> tuple[Ints, Floats]:
    """Ids of the terms, and the mean time of each in a step of each rank in ms, shape (ranks, terms)."""
    ids, column = np.unique(reduction.column("terms", "term"), return_inverse=True)
    row = np.searchsorted(rank_of, reduction.column("terms", "rank"))
    times = np.zeros((len(rank_of), len(ids)))
    times[row, column] = reduction.column("terms", "exclusive_ns") / 1e6
    # Of one rank there may be more than one row in `ranks`, where its pieces do not agree on the node.
    steps = np.bincount(np.searchsorted(rank_of, reduction.column("ranks", "rank")), reduction.column("ranks", "steps"))
    return ids, times / steps[:, None]


def _terms_over(reduction: Reduction, terms: tuple[Ints, Floats], row: int) -> tuple[TermExcess, ...]:
    ids, times = terms
    others = np.median(np.delete(times, row, axis=0), axis=0)
    excess = times[row] - others
    named = reduction.named()
    found = []
    for place in np.argsort(-excess, kind="stable").tolist():
        layer, phase, kind, _, _ = named[int(ids[place])]
        if excess[place] > 0 and kind != COMMUNICATION:
            found.append(TermExcess(layer, phase, kind, float(times[row, place]), float(excess[place])))
    return tuple(found[:_TOP])


def _imbalances(reduction: Reduction, rank_of: Ints, terms: tuple[Ints, Floats]) -> tuple[Imbalance, ...]:
    ids, times = terms
    named = reduction.named()
    found = []
    for place, term in enumerate(ids.tolist()):
        layer, phase, kind, _, _ = named[term]
        mean, slowest = float(times[:, place].mean()), int(times[:, place].argmax())
        if kind == KERNELS and mean > 0:
            most = float(times[slowest, place])
            found.append(Imbalance(layer, phase, mean, most, int(rank_of[slowest]), most / mean - 1))
    return tuple(sorted(found, key=lambda i: i.mean_ms - i.slowest_ms))


def _waits(reduction: Reduction, rank_of: Ints) -> tuple[tuple[Waiting, ...], dict[int, float], float | None, int]:
    """Waiting by operation and channel, by rank that is waited for, in all; and collectives that were not used."""
    groups = _matching(reduction)
    step, channel, operation, ranks, duration = (
        reduction.column("collectives", c) for c in ("step", "channel", "operation", "ranks", "duration_ns")
    )
    least, last = shortest_of(reduction.column("collectives", "shortest"))
    several = ranks > 1
    used = np.fromiter((key in groups for key in zip(step.tolist(), channel.tolist(), strict=True)), bool, len(step))
    differing = int((several & ~used).sum())
    used &= several
    if not used.any():
        return (), {}, None, differing
    waiting = np.where(used, duration - ranks * least, 0)
    steps = len(np.unique(reduction.column("steps", "step")))
    named = reduction.named()
    found: list[Waiting] = []
    caused = np.zeros(len(rank_of))
    keys = sorted(set(zip(operation[used].tolist(), channel[used].tolist(), strict=True)))
    for one_operation, one_channel in keys:
        rows = np.flatnonzero(used & (operation == one_operation) & (channel == one_channel))
        each_ms = waiting[rows] / (ranks[rows] - 1) / 1e6 / steps
        by_rank = np.bincount(np.searchsorted(rank_of, last[rows]), each_ms, minlength=len(rank_of))
        caused += by_rank
        most = [(int(rank_of[i]), float(by_rank[i])) for i in np.argsort(-by_rank)[:_TOP] if by_rank[i] > 0]
        found.append(
            Waiting(
                operation=str(named[one_operation][3]),
                channel=str(named[one_channel][3]),
                ranks=int(ranks[rows].max()),
                calls=len(rows) / steps,
                duration_ms=float((duration[rows] / ranks[rows]).sum()) / 1e6 / steps,
                waiting_ms=float((waiting[rows] / ranks[rows]).sum()) / 1e6 / steps,
                last=tuple(most),
            )
        )
    total = float(waiting.sum()) / 1e6 / max(reduction["steps"].num_rows, 1)
    found.sort(key=lambda w: -w.waiting_ms)
    return tuple(found), dict(zip(rank_of.tolist(), caused.tolist(), strict=True)), total, differing


def _matching(reduction: Reduction) -> set[tuple[int, int]]:
    """(step, channel) in which all ranks called the same collectives."""
    calls: dict[tuple[int, int], set[int]] = {}
    members: dict[tuple[int, int], int] = {}
    columns = (reduction.column("calls", c).tolist() for c in ("step", "channel", "calls"))
    for step, channel, count in zip(*columns, strict=True):
        calls.setdefault((step, channel), set()).add(count)
        members[step, channel] = members.get((step, channel), 0) + 1
    differ = {key for key, counts in calls.items() if len(counts) > 1}
    columns = (reduction.column("collectives", c).tolist() for c in ("step", "channel", "ranks"))
    # Where ranks call another operation at one place in the order, neither has all of them.
    differ |= {(step, channel) for step, channel, n in zip(*columns, strict=True) if n != members[step, channel]}
    return set(calls) - differ
