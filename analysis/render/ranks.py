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
_LEAST_OF_EXCESS = 0.2  # share of an excess below which a term is not named
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
    verdict = Text(_verdict(ranks), "bold")
    blocks: list[RenderableType] = [verdict, Text(), Text(_head(ranks)), Text()]
    blocks += _stragglers(ranks, limit)
    blocks.append(Text("Balance by layer, mean over steps", "bold"))
    blocks.append(_imbalances(ranks, limit))
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
            said = counted(count, *_SENTENCES[name])
            lines.append(f"{said}.")
    lines += _list_unreadable(ranks, everything)
    for line in lines:
        blocks.append(Text(line, "yellow"))
    return Group(*blocks)


def _head(ranks: Ranks) -> str:
    """The size of the job, and its median step."""
    job = counted(ranks.ranks, "rank")
    if ranks.nodes:
        job += f" on {counted(ranks.nodes, 'node')}"
    job += f", {counted(ranks.steps, 'step')}"
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
    shown = unreadable
    if not everything:
        shown = unreadable[:_UNREADABLE]
    count = counted(len(unreadable), "recording")
    lines = [f"Not included, as unreadable: {count}."]
    for path, reason in shown:
        lines.append(f"  {path}: {reason}")
    more = len(unreadable) - len(shown)
    if more:
        lines.append(f"  {more} more; --all shows them.")
    return lines


def _verdict(ranks: Ranks) -> str:
    """The rank that delays the others most, by how much and where; or that none does."""
    if not ranks.stragglers:
        return (
            "No straggler: no rank's own time is longer than the others' significantly and by at "
            "least 2 % of the step."
        )
    first, *others = ranks.stragglers
    lead = f"Rank {first.rank} delays the others"
    if first.verdict != SLOW:
        lead += f" in {len(first.slow_steps)} of {first.steps} steps"
    excess = show_ms(first.excess_ms.value, 3)
    where = ""
    if first.terms:
        where = f", most of it in {_term(first.terms[0])}"
    longer = f"{excess} ({first.share:.1%} of the step) longer than theirs{where}"
    sentence = f"{lead}: without communication its step takes {longer}."
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
        node = "?" if straggler.node is None else str(straggler.node)
        style = "" if straggler.verdict == SLOW else "yellow"
        rows.add_row(
            str(straggler.rank),
            node,
            with_sign(straggler.excess_ms.value),
            f"{straggler.share:+.1%}",
            Text(_when(straggler), style),
            number(straggler.waited_for_ms, 3),
            _where(straggler),
        )
    count = len(ranks.stragglers)
    shown = len(ranks.stragglers[:limit])
    hidden = note_hidden(count - shown, "other straggler")
    note = "Own time (without communication) over the median of the other ranks, mean over steps."
    title = Text(f"Stragglers: {count}", "bold")
    return [title, rows, *hidden, Text(note, "dim"), Text()]


def _where(straggler: Straggler) -> str:
    """The two largest parts of a straggler's excess."""
    places = []
    for term in straggler.terms:
        if term.excess_ms >= _LEAST_OF_EXCESS * straggler.excess_ms.value:
            excess = with_sign(term.excess_ms)
            places.append(f"{_term(term)} {excess}")
    return ", ".join(places[:2])


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
        rows.add_row(
            imbalance.layer or "-",
            imbalance.phase or "-",
            number(imbalance.mean_ms),
            number(imbalance.slowest_ms),
            str(imbalance.slowest_rank),
            f"{imbalance.imbalance:+.1%}",
        )
    return rows


def _waits(ranks: Ranks, limit: int | None) -> RenderableType:
    heads = ("collective", "channel", "ranks", "calls", "ms", "waiting ms", "for rank: ms")
    rows = table(*heads, left=("channel",))
    for wait in ranks.waits[:limit]:
        last = [f"{rank}: {number(ms, 3)}" for rank, ms in wait.last[:3]]
        rows.add_row(
            wait.operation,
            wait.channel,
            str(wait.ranks),
            number(wait.calls, 3),
            number(wait.duration_ms),
            number(wait.waiting_ms),
            ", ".join(last),
        )
    return rows


def _sign(value_ms: float) -> str:
    return with_sign(value_ms) if abs(value_ms) >= _NOTHING_MS else "0"


def _interval(value: Estimate) -> str:
    largest = max(abs(value.low), abs(value.high))
    return interval(value) if largest >= _NOTHING_MS else "0"


def render_difference(difference: RankDifference, *, everything: bool = False) -> RenderableType:
    """The split of the difference of two ranks or groups."""
    count, other = difference.ranks
    steps, used = difference.steps
    side = f"{difference.name} ({counted(count, 'rank')})"
    against = f"{difference.against} ({counted(other, 'rank')})"
    own = with_sign(difference.own.value)
    own_interval = interval(difference.own)
    whole = _sign(difference.value.value)
    head = f"{side} less {against}: {whole} ms a step, "
    head += f"{own} ms without communication ({own_interval})"
    rows = table("term", "ms", "95 % interval", "kernel", left=("kernel",))
    shown = len(difference.shares) if everything else _ROWS
    for share in difference.shares[:shown]:
        key = share.key
        label = key.label
        if key.kind != KERNELS:
            label = join_texts((key.layer, key.phase, key.kind), " ")
        both = dict.fromkeys((share.kernel_before, share.kernel_after))
        marked = Text(f"{label} *", "bold") if share.real else Text(label, "dim")
        names = join_texts(both, CHANGE)
        amount = _sign(share.value.value)
        rows.add_row(marked, amount, _interval(share.value), names)
    rest = difference.shares[shown:]
    if rest:
        more = smaller_terms(len(rest))
        rows.add_row(more, with_sign(total_ms(rest)), "", "")
    pairs = f"Mean of {used} of {steps} steps, in pairs (disturbed steps are excluded)"
    return Group(Text(head, "bold"), rows, Text(f"{pairs}; * significant (Holm).", "dim"))


@dataclass(frozen=True, kw_only=True)
class RanksDocument(Ranks):
    """Many ranks of one job: `scale read`."""

    interrupted: bool  # whether it covers only some of the ranks
    asked: int  # number of recordings that were found
    # the largest stragglers explained, or the groups asked for
    differences: Sequence[RankDifference]
