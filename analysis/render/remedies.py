"""The plan of remedies: each change with its saving at each batch size and its cost; or that
nothing helps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, percent
from ...profiling.recording.axis import BATCH, Axis
from ...profiling.recording.experiments import pad
from ..decompose.curve import Curve
from ..decompose.overtaken import Overtaken, find_overtaken
from ..decompose.statistics import MATERIAL, Estimate
from ..diagnosis.remedies import Remedies, cause_of, throughput_of
from ..diagnosis.result import Diagnosis
from ..verdicts.savings import Saving
from ..verdicts.words import Verdict
from .deviations import is_known
from .tables import Indented, table
from .words import dim, join_texts, list_values, show_ends, show_ms

TITLE = "What to do"
UNKNOWN_SAVING = "unknown"  # of a change saves, where its interval spans everything
_NOTED_SETUP_S = 5.0
_NOTED_MEMORY_BYTES = 50 * 10**6
_MOST_NAMED = 3  # changes whose saving is open, in a sentence


@dataclass(frozen=True)
class SavedAt:
    """The saving of a change at one batch size."""

    batch: int  # the batch size
    share: Estimate  # share of the step's time saved; negative where it costs time
    proven: bool  # whether the saving is proven

    @property
    def text(self) -> str:
        """The saving, or what the change costs, in percent with its interval; the interval alone
        where both may be.

        A change that ran in a single start of the processes has no interval; one that spans
        everything says nothing.
        """
        share = self.share
        if not (math.isfinite(share.low) and math.isfinite(share.high)):
            return f"{percent(share.value)} (no interval)"
        if not is_stable(share):
            return UNKNOWN_SAVING
        if share.high < 0:
            return _cost(share)
        if not self.proven:
            return show_ends(share)
        return _with_ends(share.value, share.low, share.high)


def is_stable(saved: Estimate) -> bool:
    """Whether an interval of a share saved says how much that is: the times that it leaves possible
    are within a factor of 3.
    """
    return is_known(1 - saved.high, 1 - saved.low)


def _with_ends(share: float, low: float, high: float) -> str:
    """A share in percent with its interval."""
    return f"{percent(share)} ({100 * low:.0f} to {100 * high:.0f})"


def _cost(share: Estimate) -> str:
    """The cost of a change that makes the step slower."""
    return f"costs {_with_ends(-share.value, -share.high, -share.low)}"


@dataclass(frozen=True, kw_only=True)
class RemedyRow:
    """One line of the plan of remedies."""

    do: str  # an instruction; "together" for several changes
    factors: tuple[str, ...]  # names of the factors that change
    cause: str | None  # the cause that the change removes; None if it tests none
    saves: tuple[SavedAt, ...]  # what it saves, by batch size; empty if it was not tried
    # confirmed if it saves something, refuted if it saves less than 2 %, else undecided or untested
    verdict: Verdict
    costs: str  # memory, changed results and set-up, in words; empty without any
    how: str | None  # instructions to set it; None for several changes
    reason: str | None  # why it is untested; None otherwise


@dataclass(frozen=True, kw_only=True)
class RemedyTable:
    """The plan of remedies, as every view shows it."""

    # the changes that save, first what saves most at the largest batch size; then what several of
    # them save together
    rows: tuple[RemedyRow, ...]
    others: tuple[RemedyRow, ...]  # the changes that do not, or that were not tried
    # how many changes were tried, and what those that are not in `rows` may save at most
    sentence: str | None


def remedy_table(remedies: Remedies, axis: Axis) -> RemedyTable:
    """The plan of remedies as rows."""
    helping, together = remedies.helping, remedies.together
    rows = [remedy_row(saving) for saving in helping]
    if together is not None:
        members = set(together.members)
        numbers = [
            str(index) for index, row in enumerate(rows, 1) if members.issuperset(row.factors)
        ]
        both = " and ".join(numbers)
        rows.append(remedy_row(together, f"{both} together"))
    others = [remedy_row(saving) for saving in remedies.savings if saving not in helping]
    said = (_beside_work_sentence(remedies, axis), _say_tried(remedies, axis))
    sentence = join_texts(said, " ") or None
    return RemedyTable(rows=tuple(rows), others=tuple(others), sentence=sentence)


def _beside_work_sentence(remedies: Remedies, axis: Axis) -> str | None:
    """What helps while other work runs, which a quiet machine may not need; None without any."""
    if not remedies.beside_work:
        return None
    named = []
    for saving in remedies.beside_work:
        batch, _ = saving.leading
        gains = dict(saving.gains)
        gain = SavedAt(batch, gains[batch], proven=False)
        saves = f"saves {gain.text} at {axis.name} {batch}"
        named.append(f"{instruction(saving)} ({saves})")
    changes = "; ".join(named)
    return (
        f"While other work runs on this machine: {changes}. What that saves on a quiet machine is "
        "not known: stop the other work, and measure again."
    )


def render_remedies(shown: RemedyTable, axis: Axis, everything: bool = False) -> RenderableType:
    """The changes that save, as a table, then how to make each, then the other changes."""
    blocks: list[RenderableType] = []
    if shown.rows:
        heads, cells = remedy_cells(shown, axis)
        rows = table(*heads[:-1], words=("do", "costs"))
        for row in cells:
            rows.add_row(*row[:-1])
        blocks += [Text(TITLE, "bold"), rows]
    for index, saved in enumerate(shown.rows, 1):
        if saved.how:
            blocks.append(Indented(Text(saved.how), label=f"How {index}: "))
    if shown.sentence is not None:
        style = "" if shown.rows else "bold"
        blocks.append(Text(shown.sentence, style))
    if everything:
        blocks += dim(_other_line(row, axis) for row in shown.others)
    return Group(*blocks)


def render_row(row: RemedyRow, axis: Axis) -> list[RenderableType]:
    """One change in full: its saving at every batch size, its cost, and how to make it."""
    lines: list[RenderableType] = []
    if row.saves:
        lines.append(Text(f"Saves: {_list_saved(row, axis)}."))
    if row.costs:
        lines.append(Text(f"Costs: {row.costs}."))
    if row.reason:
        lines.append(Text(f"Not tried: {row.reason}."))
    if row.how:
        lines.append(Indented(Text(row.how), label="How: "))
    return lines


def _list_saved(row: RemedyRow, axis: Axis) -> str:
    return ", ".join(f"{saved.text} at {axis.name_size(saved.batch)}" for saved in row.saves)


def remedy_cells(shown: RemedyTable, axis: Axis) -> tuple[list[str], list[list[str]]]:
    """The heads and rows of a table of savings: do, the saving at up to three batch sizes, costs,
    how.
    """
    batches = sorted({saved.batch for row in shown.rows for saved in row.saves})
    if batches:
        middle = batches[len(batches) // 2]
        batches = sorted({batches[0], middle, batches[-1]})
    rows = []
    for index, row in enumerate(shown.rows, 1):
        texts = {saved.batch: saved.text for saved in row.saves}
        saves = [texts.get(batch, "") for batch in batches]
        do = row.do if len(row.factors) > 1 else f"{index}. {row.do}"
        rows.append([do, *saves, row.costs, row.how or ""])
    heads = [f"saves at {axis.name_size(batch)}" for batch in batches]
    return ["do", *heads, "costs", "how"], rows


def saving_sentence(remedies: Remedies, axis: Axis) -> str | None:
    """The largest saving, as a sentence that begins in lower case; None if nothing is proven to
    save. The largest batch size, where one trains, comes first, then the size with the largest
    saving.
    """
    best = remedies.best
    if best is None or best.largest is None:
        return None
    most_at, most = best.largest
    batch, _ = best.leading
    gains = dict(best.gains)
    gain = gains[batch]
    changes = [saving for saving in remedies.savings if saving.factor in best.members]
    what = " and ".join(map(instruction, changes))
    together = "together " if len(best.members) > 1 else ""
    low, high = 100 * gain.low, 100 * gain.high
    saved = f"-{percent(gain.value)} of the step ({low:.0f} to {high:.0f})"
    sentence = f"{what}: {together}{saved} at {axis.name_size(batch)}"
    if most.value >= gain.value + MATERIAL:
        sentence += f", -{percent(most.value)} at {most_at}"
    slower = [size for size, saved_there in gains.items() if saved_there.high < 0]
    if slower:
        size = slower[-1]
        sentence += f"; but it {_cost(gains[size])} at {size}"
    return f"{sentence}."


def size_advice(diagnosis: Diagnosis) -> str | None:
    """The batch size as advice, and sizes of any axis that a larger one overtakes; None without
    either.
    """
    curve, axis = diagnosis.curve, diagnosis.axis
    meta = {} if diagnosis.recording is None else diagnosis.recording.meta
    batch = batch_sentence(curve, axis, meta)
    padding = padding_sentence(curve, axis, diagnosis.probe_times)
    return join_texts((batch, padding), " ") or None


def worst_overtaken(
    curve: Curve, probes: Mapping[int, Sequence[float]]
) -> tuple[Overtaken, int] | None:
    """The size that takes longest beside a larger one that takes less time, and the number of
    further such sizes; None without one.

    `probes` has the times of steps of further sizes, ms.
    """
    overtaken = find_overtaken(curve, probes)
    if not overtaken:
        return None
    worst = max(overtaken, key=lambda pair: pair.small.time_ms.value / pair.time_ms)
    return worst, len(overtaken) - 1


def padding_sentence(curve: Curve, axis: Axis, probes: Mapping[int, Sequence[float]]) -> str | None:
    """The size that takes longest beside a larger one that takes less time; None without one."""
    overtaken = worst_overtaken(curve, probes)
    if overtaken is None:
        return None
    most, more = overtaken
    slow = f"{axis.name.capitalize()} {most.small.condition}"
    slow_ms = show_ms(most.small.time_ms.value)
    times = f"({slow_ms} and {number(most.time_ms)})"
    if more:
        times += f", and {counted(more, 'other size')} likewise"
    return (
        f"{slow} takes longer than {most.size} {times}: where you can, run {most.size} instead, "
        "or pad to it."
    )


def batch_sentence(curve: Curve, axis: Axis, meta: Mapping[str, Any]) -> str | None:
    """The batch size as advice; None for other axes, for curves of one batch size, and for steps
    that the batch size does not reach.
    """
    if axis.name != BATCH or meta.get("same_shapes"):
        return None
    throughput = throughput_of(curve)
    if throughput is None:
        return None
    batch, best = throughput.batch, throughput.best
    rate = number(throughput.per_s, 3)
    most = number(throughput.best_per_s, 3)
    if throughput.grows:
        said = f"samples per second still grow at {batch}, the largest ({rate})"
    elif batch == best:
        said = f"{best} has the most samples per second ({most})"
    else:
        said = f"beyond {batch} samples per second hardly grow: {rate} there, {most} at {best}"
    fits = ""
    if is_memory_full(meta):
        fits = f" {max(curve.conditions)} is the largest that fits the memory."
    return f"Batch size: {said}.{fits}"


def is_memory_full(meta: Mapping[str, Any]) -> bool:
    """Whether a size was left out for want of memory."""
    whys = [str(cell.get("why")) for cell in meta.get("unmeasured", ())]
    return any("memory" in why for why in whys)


def remedy_row(saving: Saving, do: str | None = None) -> RemedyRow:
    """The line of a change; `do` in place of its instruction."""
    saves = [SavedAt(batch, gain, batch in saving.proven) for batch, gain in saving.gains]
    return RemedyRow(
        do=do or instruction(saving),
        factors=saving.members,
        cause=cause_of(saving),
        saves=tuple(saves),
        verdict=saving.verdict,
        costs=_costs(saving),
        how=saving.facts.how if saving.facts else None,
        reason=saving.reason,
    )


def instruction(saving: Saving) -> str:
    """What to do, as an instruction."""
    if saving.multiple is not None and saving.largest is not None:
        batch, _ = saving.largest
        return f"pad the step from {batch} to {pad(batch, saving.multiple)}"
    if saving.facts is None or saving.facts.remedy is None:
        return " and ".join(saving.members)
    return saving.facts.remedy.format(where="the step")


def _costs(saving: Saving) -> str:
    costs = []
    if saving.memory_bytes is not None and saving.memory_bytes >= _NOTED_MEMORY_BYTES:
        costs.append(f"{saving.memory_bytes / 1e9:.2g} GB of memory")
    if saving.changed_results:
        costs.append(f"changes results: {saving.changed_results}")
    if saving.setup_s is not None and saving.setup_s >= _NOTED_SETUP_S:
        costs.append(f"{saving.setup_s:.0f} s to set up")
    return "; ".join(costs)


_SMALL = 0.05  # share of a step; of changes that save less at most, one bound says enough


def _say_tried(remedies: Remedies, axis: Axis) -> str | None:
    """Whether a change without a proven saving may still save 2 %; None without such a change."""
    said = (*remedies.helping, *remedies.beside_work)
    rest = [remedy for remedy in remedies.attempts if remedy not in said]
    if not rest:
        return None
    batches = sorted({batch for remedy in rest for batch, _ in remedy.gains})
    where = f"at {axis.name} {list_values(batches)}"
    lead = _count_changes(len(rest), bool(remedies.helping))
    single = len(rest) == 1
    open_ = [remedy for remedy in rest if _at_most(remedy) >= MATERIAL]
    if not open_:
        least = percent(MATERIAL)
        saves = f"saves less than {least}" if single else f"saves {least}"
        most = 100 * max(map(_at_most, rest))
        ends = f"at most {most:.1f} %"
        if most < 0:
            ends = "it costs time" if single else "each costs time"
        return f"{lead} tried {saves} {where}: {ends}, by the intervals."
    shown = "not shown" if single else "shown"
    lead = f"{lead} tried is {shown} to save anything {where}"
    most = max(map(_at_most, open_))
    if most < _SMALL:
        none = "it saves at most" if single else "none saves more than"
        return f"{lead}; by the intervals {none} {100 * most:.1f} %."
    open_.sort(key=promise, reverse=True)
    named = []
    for remedy in open_[:_MOST_NAMED]:
        named.append(f"{instruction(remedy)} ({_possible(remedy, axis)})")
    if len(open_) > _MOST_NAMED:
        named.append(f"and {len(open_) - _MOST_NAMED} more")
    listed = "; ".join(named)
    return f"{lead}; not ruled out: {listed}."


def _count_changes(count: int, has_others: bool) -> str:
    """The subject of a sentence on changes, where others save."""
    if count == 1:
        return "The one other change" if has_others else "The one change"
    if has_others:
        return f"None of the {count} other changes"
    return f"None of {count} changes"


def _possible(saving: Saving, axis: Axis) -> str:
    """The possible saving of a change without a proven one."""
    at_most = _at_most(saving)
    if at_most < 1:
        return f"up to {percent(at_most)}"
    batch, gain = _largest(saving)
    saved = percent(abs(gain.value))
    if gain.value < 0:
        saved = f"costs {saved}"
    return f"{saved} at {axis.name_size(batch)} in too few starts for an interval"


def _largest(saving: Saving) -> tuple[int, Estimate]:
    """The batch size at which a change saves most, and how much."""
    return max(saving.gains, key=lambda item: item[1].value)


def promise(saving: Saving) -> float:
    """The possible saving of a change; its saving so far where too few starts give no interval."""
    at_most = _at_most(saving)
    if at_most < 1:
        return at_most
    _, gain = _largest(saving)
    return gain.value


def _at_most(saving: Saving) -> float:
    return 1.0 if saving.at_most is None else saving.at_most


def _other_line(row: RemedyRow, axis: Axis) -> str:
    if row.verdict == Verdict.UNTESTED:
        return f"Not tried: {row.do}: {row.reason}."
    saved = _list_saved(row, axis)
    saves = "" if saved.startswith("costs") else "saves "
    return f"Tried: {row.do}: {saves}{saved}."
