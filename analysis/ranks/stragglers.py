"""Find ranks that delay the others, layers out of balance, and collectives that wait, with the rank
they wait for.

A *straggler* has more *own time*, wall time without communication, than the median of the other
ranks: on average, more than noise (bootstrap over steps, Holm over ranks) and by at least 2 % of
the step; or, *at times*, in single steps by at least a tenth of the step and farther than any of as
many normal deviates would be. The waiting of a rank in a collective is its duration minus the
shortest on any rank: clocks need not agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..decompose.statistics import (
    LEVEL,
    MATERIAL,
    Estimate,
    Floats,
    Ints,
    estimate,
    holm,
    round_counts,
)
from ..decompose.terms import COMMUNICATION, KERNELS
from .tables import Reduction, shortest_of

SLOW, AT_TIMES = "slow", "slow at times"
_BURST = 0.10  # share of the step
_ENOUGH_RANKS = 8  # fewer ranks do not show their usual spread
_NORMAL_MAD = 1.4826  # standard deviation of normal deviates over their median absolute deviation
_TOP = 5


@dataclass(frozen=True)
class TermExcess:
    """A term of a rank compared with the median of the other ranks, mean over steps."""

    layer: str | None  # module path; None if unknown
    phase: str | None  # forward, backward or optimizer; None if unknown
    kind: str  # kernels, communication or idle
    time_ms: float  # time of the rank
    excess_ms: float  # time beyond the median of the others


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """A rank that delays the others."""

    rank: int  # number of the rank
    node: int | None  # number of its node; None if unknown
    local_rank: int | None  # its number on the node; None if unknown
    verdict: str  # slow, or slow at times
    excess_ms: Estimate  # own time beyond the median of the others, mean over its steps
    share: float  # `excess_ms` over the median step
    p_adjusted: float  # p of no excess, adjusted over all ranks
    steps: int  # number of its steps
    # steps in which it is slower than the others by 2 % of the step; if slow at times, those single
    # ones
    slow_steps: tuple[int, ...]
    waited_for_ms: float  # mean time per step that each other rank waited for it
    # terms with more time than those of the others, largest excess first
    terms: tuple[TermExcess, ...]


@dataclass(frozen=True)
class Imbalance:
    """A layer over all ranks, mean over steps."""

    layer: str | None  # module path; None if unknown
    phase: str | None  # forward, backward or optimizer; None if unknown
    mean_ms: float  # mean over ranks
    slowest_ms: float  # time of the slowest rank
    slowest_rank: int  # number of that rank
    imbalance: float  # slowest over mean, minus 1


@dataclass(frozen=True)
class Waiting:
    """Waiting of the ranks in one kind of collective."""

    operation: str  # AllReduce, AllGather, …
    channel: str  # communicator, or position of the stream
    ranks: int  # number of ranks that take part
    calls: float  # calls per step
    duration_ms: float  # duration of all calls of a step, mean over ranks
    waiting_ms: float  # waiting within that duration
    # (rank, ms): ranks that the others wait for, with the wait of each other rank per step, longest
    # first
    last: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Ranks:
    """Everything `scale read` shows of all ranks."""

    ranks: int  # number of ranks
    nodes: int | None  # number of nodes; None if unknown
    steps: int  # number of steps that any rank has
    kernels: int  # rows of device work in these steps
    step_ms: float  # median wall time of a step
    own_ms: float  # median own time of a step
    # waiting in collectives, mean over ranks and steps; None if no collective could be matched
    waiting_ms: float | None
    stragglers: tuple[Straggler, ...]  # largest excess first
    imbalances: tuple[Imbalance, ...]  # imbalance of each layer and phase, the most lost first
    waits: tuple[Waiting, ...]  # waiting of each operation and channel, the longest first
    # number of sends and receives, which are between two ranks, and of collectives that differ
    unmatched: dict[str, int]
    unreadable: tuple[tuple[str, str], ...]  # (path, reason) of unreadable recordings


def analyse(reduction: Reduction) -> Ranks:
    """Analyse the ranks of a job; the reduction holds at least one."""
    step, rank_of, wall_ms, own_ms = _matrices(reduction)
    waits, waited_for_ms, waiting_ms, differing = _waits(reduction, rank_of)
    nodes = set(reduction["ranks"]["node"].to_pylist()) - {None}
    terms = _term_times(reduction, rank_of)
    sends = reduction.column("ranks", "sends").sum()
    kernels = reduction.column("ranks", "kernels").sum()
    return Ranks(
        ranks=len(rank_of),
        nodes=len(nodes) or None,
        steps=len(step),
        kernels=int(kernels),
        step_ms=float(np.nanmedian(wall_ms)),
        own_ms=float(np.nanmedian(own_ms)),
        waiting_ms=waiting_ms,
        stragglers=_stragglers(reduction, step, rank_of, wall_ms, own_ms, waited_for_ms, terms),
        imbalances=_imbalances(reduction, rank_of, terms),
        waits=waits,
        unmatched={"point_to_point": int(sends), "collectives_that_differ": differing},
        unreadable=reduction.unreadable,
    )


def _matrices(reduction: Reduction) -> tuple[Ints, Ints, Floats, Floats]:
    """Steps, ranks; wall and own time in ms, shape (ranks, steps), NaN if missing."""
    rank_of, row = np.unique(reduction.column("steps", "rank"), return_inverse=True)
    step, column = np.unique(reduction.column("steps", "step"), return_inverse=True)
    wall_ms = reduction.column("steps", "wall_ns") / 1e6
    communication_ms = reduction.column("steps", "communication_ns") / 1e6
    wall, own = np.full((2, len(rank_of), len(step)), np.nan)
    wall[row, column] = wall_ms
    own[row, column] = wall_ms - communication_ms
    return step, rank_of, wall, own


def over_others(times: Floats) -> Floats:
    """Each time minus the median of the other ranks' times in the step, shape (ranks, steps); NaN
    is a missing one.
    """
    excess = np.full_like(times, np.nan)
    for column in range(times.shape[1]):
        present = np.flatnonzero(~np.isnan(times[:, column]))
        if len(present) < 2:
            continue
        order = present[np.argsort(times[present, column], kind="stable")]
        values = times[order, column]
        position = np.arange(len(order))
        # Indices of the median of the others; those from the left-out value on move by one.
        lower = (len(order) - 2) // 2
        upper = (len(order) - 1) // 2
        below = values[lower + (position <= lower)]
        above = values[upper + (position <= upper)]
        excess[order, column] = values - (below + above) / 2
    return excess


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
    if np.isnan(excess).all():
        return ()
    step_ms = float(np.nanmedian(wall_ms))
    least_ms = MATERIAL * step_ms
    steps = np.isfinite(excess).sum(axis=1).tolist()
    values = _mean_excesses(excess, step_ms)
    adjusted = holm([value.p for value in values])
    bursts = _bursts(own_ms, excess, wall_ms)
    places = {}
    for row in reduction["ranks"].to_pylist():
        places[row["rank"]] = row["node"], row["local_rank"]
    stragglers = []
    for i, (value, p) in enumerate(zip(values, adjusted, strict=True)):
        slow = p < LEVEL and value.value >= least_ms
        if not slow and not bursts[i].any():
            continue
        # A missing excess (NaN) is not over.
        over = excess[i] > least_ms if slow else bursts[i]
        rank = int(rank_of[i])
        node, local_rank = places[rank]
        straggler = Straggler(
            rank=rank,
            node=node,
            local_rank=local_rank,
            verdict=SLOW if slow else AT_TIMES,
            excess_ms=value,
            share=value.value / step_ms,
            p_adjusted=p,
            steps=steps[i],
            slow_steps=tuple(step[over].tolist()),
            waited_for_ms=waited_for_ms.get(rank, 0.0),
            terms=_terms_over(reduction, terms, i),
        )
        stragglers.append(straggler)
    return tuple(sorted(stragglers, key=lambda straggler: -straggler.excess_ms.value))


def _mean_excesses(excess: Floats, step_ms: float) -> list[Estimate]:
    """The mean excess of each rank over its steps."""
    is_known = ~np.isnan(excess)
    steps = is_known.sum(axis=1)
    filled = np.where(is_known, excess, 0.0)
    means = filled.sum(axis=1) / np.maximum(steps, 1)
    times_drawn = round_counts(excess.shape[1])
    counts = times_drawn @ is_known.T.astype(np.float64)
    sums = times_drawn @ filled.T
    replicates = np.divide(sums, counts, out=np.zeros_like(counts), where=counts > 0)
    values = []
    for i, mean_ms in enumerate(means.tolist()):
        values.append(estimate(mean_ms, replicates[:, i], int(steps[i]), step_ms))
    return values


def _bursts(own_ms: Floats, excess: Floats, wall_ms: Floats) -> npt.NDArray[np.bool_]:
    """Steps in which a rank is slower by far more than the ranks usually differ, shape (ranks,
    steps).
    """
    if len(own_ms) < _ENOUGH_RANKS:
        return np.zeros(own_ms.shape, bool)
    from scipy.special import ndtri

    farthest = float(ndtri(1 - LEVEL / 2 / own_ms.size))
    with np.errstate(invalid="ignore"):
        away = np.abs(own_ms - np.nanmedian(own_ms, axis=0))
        spread = _NORMAL_MAD * np.nanmedian(away, axis=0)
        least = _BURST * np.nanmedian(wall_ms, axis=0)
        is_burst: npt.NDArray[np.bool_] = (excess > farthest * spread) & (excess > least)
    return is_burst


def _term_times(reduction: Reduction, rank_of: Ints) -> tuple[Ints, Floats]:
    """Ids of the terms, and the mean time of each in a step of each rank in ms, shape (ranks,
    terms).
    """
    ids, column = np.unique(reduction.column("terms", "term"), return_inverse=True)
    row = np.searchsorted(rank_of, reduction.column("terms", "rank"))
    times = np.zeros((len(rank_of), len(ids)))
    times[row, column] = reduction.column("terms", "exclusive_ns") / 1e6
    # A rank has several rows in `ranks` if its pieces name different nodes.
    rank = np.searchsorted(rank_of, reduction.column("ranks", "rank"))
    steps = np.bincount(rank, reduction.column("ranks", "steps"))
    return ids, times / steps[:, None]


def _terms_over(
    reduction: Reduction, terms: tuple[Ints, Floats], row: int
) -> tuple[TermExcess, ...]:
    ids, times = terms
    others = np.median(np.delete(times, row, axis=0), axis=0)
    excess = times[row] - others
    named = reduction.read_names()
    excesses = []
    for i in np.argsort(-excess, kind="stable").tolist():
        term = named[int(ids[i])]
        if excess[i] > 0 and term.kind != COMMUNICATION:
            time_ms, excess_ms = float(times[row, i]), float(excess[i])
            excesses.append(TermExcess(term.layer, term.phase, term.kind, time_ms, excess_ms))
    return tuple(excesses[:_TOP])


def _imbalances(
    reduction: Reduction, rank_of: Ints, terms: tuple[Ints, Floats]
) -> tuple[Imbalance, ...]:
    ids, times = terms
    named = reduction.read_names()
    imbalances = []
    for number, of_ranks in zip(ids.tolist(), times.T, strict=True):
        term = named[number]
        mean = float(of_ranks.mean())
        if term.kind == KERNELS and mean > 0:
            slowest = of_ranks.argmax()
            most, rank = float(of_ranks[slowest]), int(rank_of[slowest])
            imbalance = most / mean - 1
            imbalances.append(Imbalance(term.layer, term.phase, mean, most, rank, imbalance))
    return tuple(sorted(imbalances, key=lambda layer: layer.mean_ms - layer.slowest_ms))


def _waits(
    reduction: Reduction, rank_of: Ints
) -> tuple[tuple[Waiting, ...], dict[int, float], float | None, int]:
    """Waiting by operation and channel, by rank waited for, and in total; and the number of unused
    collectives.
    """
    operation = reduction.column("collectives", "operation")
    channel = reduction.column("collectives", "channel")
    ranks = reduction.column("collectives", "ranks")
    duration = reduction.column("collectives", "duration_ns")
    least, last = shortest_of(reduction.column("collectives", "shortest"))
    groups = _match_calls(reduction)
    matches = [key in groups for key in reduction.rows("collectives", "step", "channel")]
    used = np.array(matches, bool)
    several = ranks > 1
    differing = int((several & ~used).sum())
    used &= several
    if not used.any():
        return (), {}, None, differing
    waiting = np.where(used, duration - ranks * least, 0)
    steps = len(np.unique(reduction.column("steps", "step")))
    named = reduction.read_names()
    waits: list[Waiting] = []
    caused = np.zeros(len(rank_of))
    kinds = set(zip(operation[used].tolist(), channel[used].tolist(), strict=True))
    for operation_id, channel_id in sorted(kinds):
        is_of_kind = (operation == operation_id) & (channel == channel_id)
        rows = np.flatnonzero(used & is_of_kind)
        each_ms = waiting[rows] / (ranks[rows] - 1) / 1e6 / steps
        last_rank = np.searchsorted(rank_of, last[rows])
        by_rank = np.bincount(last_rank, each_ms, minlength=len(rank_of))
        caused += by_rank
        most = []
        for i in np.argsort(-by_rank)[:_TOP]:
            if by_rank[i] > 0:
                most.append((int(rank_of[i]), float(by_rank[i])))
        duration_ns = (duration[rows] / ranks[rows]).sum()
        waiting_ns = (waiting[rows] / ranks[rows]).sum()
        wait = Waiting(
            operation=str(named[operation_id].name),
            channel=str(named[channel_id].name),
            ranks=int(ranks[rows].max()),
            calls=len(rows) / steps,
            duration_ms=float(duration_ns) / 1e6 / steps,
            waiting_ms=float(waiting_ns) / 1e6 / steps,
            last=tuple(most),
        )
        waits.append(wait)
    rank_steps = max(reduction["steps"].num_rows, 1)
    total_ms = float(waiting.sum()) / 1e6 / rank_steps
    waits.sort(key=lambda wait: -wait.waiting_ms)
    by_rank_ms = dict(zip(rank_of.tolist(), caused.tolist(), strict=True))
    return tuple(waits), by_rank_ms, total_ms, differing


def _match_calls(reduction: Reduction) -> set[tuple[int, int]]:
    """(step, channel) in which all ranks called the same collectives."""
    calls: dict[tuple[int, int], list[int]] = {}
    for step, channel, count in reduction.rows("calls", "step", "channel", "calls"):
        calls.setdefault((step, channel), []).append(count)
    matching = {key for key, counts in calls.items() if len(set(counts)) == 1}
    # If ranks call different operations at the same position, neither operation has all ranks.
    for step, channel, ranks in reduction.rows("collectives", "step", "channel", "ranks"):
        if ranks != len(calls[step, channel]):
            matching.discard((step, channel))
    return matching
