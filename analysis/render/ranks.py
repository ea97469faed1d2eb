"""Ranks of a job as text for a terminal: stragglers, balance, waiting, and differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, signed, smaller_terms
from ..decompose.statistics import Estimate
from ..decompose.terms import KERNELS, total_ms, work_label
from ..ranks.difference import RankDifference
from ..ranks.stragglers import SLOW, Ranks, Straggler, TermExcess
from .names import CHANGE
from .tables import table
from .words import interval, note_hidden

_ROWS = 8
_UNREADABLE = 5
_LEAST_SHARE = 0.2  # share of an excess below which a term is not named
_NOTHING_MS = 1e-6  # a picosecond: what subtraction leaves of equal times
_SENTENCES = {
    "point_to_point": (
        "send or receive, whose waiting time is unknown",
        "sends and receives, whose waiting time is unknown",
    ),
    "collectives_that_differ": (
        "collective excluded: the ranks of its channel called different ones in the step",
        "collectives excluded: the ranks of their channel called different ones in the step",
    ),
}


def render_ranks(ranks: Ranks, *, everything: bool = False) -> RenderableType:
    """All results; without `everything`, the first rows of each table."""
    nodes = f" on {counted(ranks.nodes, 'node')}" if ranks.nodes else ""
    waiting = (
        ""
        if ranks.waiting_ms is None
        else f"; mean waiting in collectives {number(ranks.waiting_ms, 3)} ms"
    )
    head = (
        f"{counted(ranks.ranks, 'rank')}{nodes}, {counted(ranks.steps, 'step')}, {ranks.kernels:,} "
        f"kernels: median step {number(ranks.step_ms)} ms, {number(ranks.own_ms)} ms of it without "
        f"communication{waiting}."
    )
    blocks: list[RenderableType] = [Text(_verdict(ranks), "bold"), Text(), Text(head), Text()]
    limit = None if everything else _ROWS
    blocks += _stragglers(ranks, limit)
    blocks += [Text("Balance by layer, mean over steps", "bold"), _imbalances(ranks, limit)]
    if ranks.waits:
        blocks += [
            Text(),
            Text("Waiting in collectives, per step and rank", "bold"),
            _waits(ranks, limit),
        ]
        waiting = (
            "Waiting: duration of a collective minus its shortest duration on any rank, the last "
            "to arrive."
        )
        blocks.append(Text(waiting, "dim"))
    for name, count in ranks.unmatched.items():
        if count:
            blocks.append(Text(f"{counted(count, *_SENTENCES[name])}.", "yellow"))
    if ranks.unreadable:
        blocks.append(
            Text(
                f"Not included, as unreadable: {counted(len(ranks.unreadable), 'recording')}.",
                "yellow",
            )
        )
        for path, reason in ranks.unreadable[: None if everything else _UNREADABLE]:
            blocks.append(Text(f"  {path}: {reason}", "yellow"))
        if not everything and len(ranks.unreadable) > _UNREADABLE:
            blocks.append(
                Text(f"  {len(ranks.unreadable) - _UNREADABLE} more; --all shows them.", "yellow")
            )
    return Group(*blocks)


def _verdict(ranks: Ranks) -> str:
    """The rank that delays the others most, by how much and where; or that none does."""
    if not ranks.stragglers:
        return (
            "No straggler: no rank's own time is longer than the others' significantly and by at "
            "least 2 % of the step."
        )
    first, more = ranks.stragglers[0], len(ranks.stragglers) - 1
    when = "" if first.verdict == SLOW else f" in {len(first.slow_steps)} of {first.steps} steps"
    sentence = (
        f"Rank {first.rank} delays the others{when}: without communication its step takes "
        f"{number(first.excess_ms.value, 3)} ms ({first.share:.1%} of the step) longer than theirs"
    )
    sentence += f", most of it in {_term(first.terms[0])}." if first.terms else "."
    return sentence + (f" So {'does' if more == 1 else 'do'} {more} more." if more else "")


def _stragglers(ranks: Ranks, limit: int | None) -> list[RenderableType]:
    """The table of stragglers and an empty line; nothing without stragglers."""
    if not ranks.stragglers:
        return []
    rows = table(
        "rank",
        "node",
        "excess ms",
        "of step",
        "slow steps",
        "others wait ms",
        "where",
        words=("where",),
    )
    for straggler in ranks.stragglers[:limit]:
        most = [
            term
            for term in straggler.terms
            if term.excess_ms >= _LEAST_SHARE * straggler.excess_ms.value
        ]
        rows.add_row(
            str(straggler.rank),
            "?" if straggler.node is None else str(straggler.node),
            signed(straggler.excess_ms.value),
            f"{straggler.share:+.1%}",
            Text(_when(straggler), "" if straggler.verdict == SLOW else "yellow"),
            number(straggler.waited_for_ms, 3),
            ", ".join(f"{_term(term)} {signed(term.excess_ms)}" for term in most[:2]),
        )
    blocks: list[RenderableType] = [Text(f"Stragglers: {len(ranks.stragglers)}", "bold"), rows]
    blocks += note_hidden(len(ranks.stragglers) - len(ranks.stragglers[:limit]), "other straggler")
    blocks.append(
        Text(
            "Own time (without communication) over the median of the other ranks, mean over steps.",
            "dim",
        )
    )
    return [*blocks, Text()]


def _when(straggler: Straggler) -> str:
    if len(straggler.slow_steps) == straggler.steps:
        return f"all {straggler.steps}"
    if not straggler.slow_steps:
        return f"none of {straggler.steps} alone"
    first, last = straggler.slow_steps[0], straggler.slow_steps[-1]
    return f"{len(straggler.slow_steps)} of {straggler.steps}, {first} to {last}"


def _term(term: TermExcess) -> str:
    return work_label(term.layer, term.phase) if term.kind == KERNELS else term.kind


def _imbalances(ranks: Ranks, limit: int | None) -> RenderableType:
    rows = table("layer", "phase", "mean ms", "slowest ms", "rank", "over the mean")
    for imbalance in ranks.imbalances[:limit]:
        times = (number(imbalance.mean_ms), number(imbalance.slowest_ms))
        rows.add_row(
            imbalance.layer or "-",
            imbalance.phase or "-",
            *times,
            str(imbalance.slowest_rank),
            f"{imbalance.imbalance:+.1%}",
        )
    return rows


def _waits(ranks: Ranks, limit: int | None) -> RenderableType:
    rows = table(
        "collective",
        "channel",
        "ranks",
        "calls",
        "ms",
        "waiting ms",
        "for rank: ms",
        left=("channel",),
    )
    for wait in ranks.waits[:limit]:
        last = ", ".join(f"{rank}: {number(ms, 3)}" for rank, ms in wait.last[:3])
        times = (number(wait.duration_ms), number(wait.waiting_ms))
        rows.add_row(
            wait.operation, wait.channel, str(wait.ranks), number(wait.calls, 3), *times, last
        )
    return rows


def _sign(value_ms: float) -> str:
    return signed(value_ms) if abs(value_ms) >= _NOTHING_MS else "0"


def _interval(value: Estimate) -> str:
    return interval(value) if max(abs(value.low), abs(value.high)) >= _NOTHING_MS else "0"


def render_difference(difference: RankDifference, *, everything: bool = False) -> RenderableType:
    """The split of the difference of two ranks or groups."""
    count, other = difference.ranks
    steps, used = difference.steps
    sides = (
        f"{difference.name} ({counted(count, 'rank')}) less {difference.against} "
        f"({counted(other, 'rank')})"
    )
    own = f"{signed(difference.own.value)} ms without communication ({interval(difference.own)})"
    head = f"{sides}: {_sign(difference.value.value)} ms a step, {own}"
    rows = table("term", "ms", "95 % interval", "kernel", left=("kernel",))
    for share in difference.shares[: None if everything else _ROWS]:
        key = share.key
        label = (
            key.label
            if key.kind == KERNELS
            else " ".join(filter(None, (key.layer, key.phase, key.kind)))
        )
        names = dict.fromkeys(n for n in (share.kernel_before, share.kernel_after) if n)
        marked = Text(f"{label} *", "bold") if share.real else Text(label, "dim")
        rows.add_row(marked, _sign(share.value.value), _interval(share.value), CHANGE.join(names))
    rest = difference.shares[_ROWS:]
    if rest and not everything:
        rows.add_row(smaller_terms(len(rest)), signed(total_ms(rest)), "", "")
    note = (
        f"Mean of {used} of {steps} steps, in pairs (disturbed steps are excluded); * significant "
        "(Holm)."
    )
    return Group(Text(head, "bold"), rows, Text(note, "dim"))


@dataclass(frozen=True, kw_only=True)
class RanksDocument(Ranks):
    """Many ranks of one job: `scale read`."""

    interrupted: bool  # whether it covers only some of the ranks
    asked: int  # number of recordings that were found
    # the largest stragglers explained, or the groups asked for
    differences: Sequence[RankDifference]
