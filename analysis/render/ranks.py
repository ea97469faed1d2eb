"""Ranks of a job as text for a terminal: stragglers, balance, waiting, and differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, smaller_terms, with_sign
from ..decompose.statistics import Estimate
from ..decompose.terms import KERNELS, total_ms, work_label
from ..ranks.difference import RankDifference
from ..ranks.stragglers import SLOW, Ranks, Straggler, TermExcess
from .names import CHANGE
from .tables import table
from .words import interval, join_texts, note_hidden, show_ms

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
    limit = None if everything else _ROWS
    blocks: list[RenderableType] = [Text(_verdict(ranks), "bold"), Text(), Text(_head(ranks))]
    blocks += [Text(), *_stragglers(ranks, limit)]
    blocks += [Text("Balance by layer, mean over steps", "bold"), _imbalances(ranks, limit)]
    if ranks.waits:
        title = Text("Waiting in collectives, per step and rank", "bold")
        blocks += [Text(), title, _waits(ranks, limit)]
        waiting = (
            "Waiting: duration of a collective minus its shortest duration on any rank, the last "
            "to arrive."
        )
        blocks.append(Text(waiting, "dim"))
    lines = []
    for name, count in ranks.unmatched.items():
        if count:
            lines.append(f"{counted(count, *_SENTENCES[name])}.")
    blocks += [Text(line, "yellow") for line in (*lines, *_list_unreadable(ranks, everything))]
    return Group(*blocks)


def _head(ranks: Ranks) -> str:
    """The size of the job, and its median step."""
    nodes = f" on {counted(ranks.nodes, 'node')}" if ranks.nodes else ""
    job = f"{counted(ranks.ranks, 'rank')}{nodes}, {counted(ranks.steps, 'step')}"
    step = f"median step {show_ms(ranks.step_ms)}, {show_ms(ranks.own_ms)} of it"
    waiting = ""
    if ranks.waiting_ms is not None:
        waiting = f"; mean waiting in collectives {show_ms(ranks.waiting_ms, 3)}"
    return f"{job}, {ranks.kernels:,} kernels: {step} without communication{waiting}."


def _list_unreadable(ranks: Ranks, everything: bool) -> list[str]:
    """The recordings that could not be read, and why."""
    unreadable = ranks.unreadable
    if not unreadable:
        return []
    shown = unreadable[: None if everything else _UNREADABLE]
    lines = [f"Not included, as unreadable: {counted(len(unreadable), 'recording')}."]
    lines += [f"  {path}: {reason}" for path, reason in shown]
    if len(unreadable) > len(shown):
        lines.append(f"  {len(unreadable) - len(shown)} more; --all shows them.")
    return lines


def _verdict(ranks: Ranks) -> str:
    """The rank that delays the others most, by how much and where; or that none does."""
    if not ranks.stragglers:
        return (
            "No straggler: no rank's own time is longer than the others' significantly and by at "
            "least 2 % of the step."
        )
    first, *others = ranks.stragglers
    when = "" if first.verdict == SLOW else f" in {len(first.slow_steps)} of {first.steps} steps"
    excess = f"{show_ms(first.excess_ms.value, 3)} ({first.share:.1%} of the step)"
    where = f", most of it in {_term(first.terms[0])}" if first.terms else ""
    lead = f"Rank {first.rank} delays the others{when}"
    sentence = f"{lead}: without communication its step takes {excess} longer than theirs{where}."
    if not others:
        return sentence
    do = "does" if len(others) == 1 else "do"
    return f"{sentence} So {do} {len(others)} more."


def _stragglers(ranks: Ranks, limit: int | None) -> list[RenderableType]:
    """The table of stragglers and an empty line; nothing without stragglers."""
    if not ranks.stragglers:
        return []
    heads = ("rank", "node", "excess ms", "of step", "slow steps", "others wait ms", "where")
    rows = table(*heads, words=("where",))
    for straggler in ranks.stragglers[:limit]:
        excess_ms = straggler.excess_ms.value
        places = []
        for term in straggler.terms:
            if term.excess_ms >= _LEAST_SHARE * excess_ms:
                places.append(f"{_term(term)} {with_sign(term.excess_ms)}")
        style = "" if straggler.verdict == SLOW else "yellow"
        rows.add_row(
            str(straggler.rank),
            "?" if straggler.node is None else str(straggler.node),
            with_sign(excess_ms),
            f"{straggler.share:+.1%}",
            Text(_when(straggler), style),
            number(straggler.waited_for_ms, 3),
            ", ".join(places[:2]),
        )
    count = len(ranks.stragglers)
    hidden = note_hidden(count - len(ranks.stragglers[:limit]), "other straggler")
    note = "Own time (without communication) over the median of the other ranks, mean over steps."
    return [Text(f"Stragglers: {count}", "bold"), rows, *hidden, Text(note, "dim"), Text()]


def _when(straggler: Straggler) -> str:
    slow, steps = straggler.slow_steps, straggler.steps
    if len(slow) == steps:
        return f"all {steps}"
    if not slow:
        return f"none of {steps} alone"
    return f"{len(slow)} of {steps}, {slow[0]} to {slow[-1]}"


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
    heads = ("collective", "channel", "ranks", "calls", "ms", "waiting ms", "for rank: ms")
    rows = table(*heads, left=("channel",))
    for wait in ranks.waits[:limit]:
        last = ", ".join(f"{rank}: {number(ms, 3)}" for rank, ms in wait.last[:3])
        calls, ms, waiting_ms = number(wait.calls, 3), wait.duration_ms, wait.waiting_ms
        times = (number(ms), number(waiting_ms))
        rows.add_row(wait.operation, wait.channel, str(wait.ranks), calls, *times, last)
    return rows


def _sign(value_ms: float) -> str:
    return with_sign(value_ms) if abs(value_ms) >= _NOTHING_MS else "0"


def _interval(value: Estimate) -> str:
    return interval(value) if max(abs(value.low), abs(value.high)) >= _NOTHING_MS else "0"


def render_difference(difference: RankDifference, *, everything: bool = False) -> RenderableType:
    """The split of the difference of two ranks or groups."""
    count, other = difference.ranks
    steps, used = difference.steps
    side = f"{difference.name} ({counted(count, 'rank')})"
    against = f"{difference.against} ({counted(other, 'rank')})"
    own = f"{with_sign(difference.own.value)} ms without communication ({interval(difference.own)})"
    head = f"{side} less {against}: {_sign(difference.value.value)} ms a step, {own}"
    rows = table("term", "ms", "95 % interval", "kernel", left=("kernel",))
    for share in difference.shares[: None if everything else _ROWS]:
        key = share.key
        label = key.label
        if key.kind != KERNELS:
            label = join_texts((key.layer, key.phase, key.kind), " ")
        both = dict.fromkeys((share.kernel_before, share.kernel_after))
        marked = Text(f"{label} *", "bold") if share.real else Text(label, "dim")
        names = join_texts(both, CHANGE)
        rows.add_row(marked, _sign(share.value.value), _interval(share.value), names)
    rest = difference.shares[_ROWS:]
    if rest and not everything:
        rows.add_row(smaller_terms(len(rest)), with_sign(total_ms(rest)), "", "")
    pairs = f"Mean of {used} of {steps} steps, in pairs (disturbed steps are excluded)"
    return Group(Text(head, "bold"), rows, Text(f"{pairs}; * significant (Holm).", "dim"))


@dataclass(frozen=True, kw_only=True)
class RanksDocument(Ranks):
    """Many ranks of one job: `scale read`."""

    interrupted: bool  # whether it covers only some of the ranks
    asked: int  # number of recordings that were found
    # the largest stragglers explained, or the groups asked for
    differences: Sequence[RankDifference]
