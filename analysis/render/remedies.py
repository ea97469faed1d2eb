"""The plan of remedies: what to do, what it saves at each batch size and what it costs; or that
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
from ...base.numbers import number
from ...profiling.recording.axis import BATCH, Axis
from ..decompose.curve import Curve
from ..decompose.overtaken import find_overtaken
from ..decompose.statistics import MATERIAL, Estimate
from ..diagnosis.remedies import Remedies, cause_of, throughput_of
from ..diagnosis.result import Diagnosis
from ..verdicts.savings import Saving
from ..verdicts.words import Verdict
from .deviations import is_known
from .tables import Indented, table

TITLE = "What to do"
UNKNOWN_SAVING = "unknown"  # of a change saves, where its interval spans everything
_NOTED_SETUP_S = 5.0
_NOTED_MEMORY_BYTES = 50 * 10**6
_MOST_NAMED = 3  # changes whose saving is open, in a sentence


@dataclass(frozen=True)
class SavedAt:
    """What a change saves at one batch size."""

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
        if not (math.isfinite(self.share.low) and math.isfinite(self.share.high)):
            return f"{100 * self.share.value:.0f} % (no interval)"
        if not is_stable(self.share):
            return UNKNOWN_SAVING
        if self.share.high < 0:
            return _cost(self.share)
        interval = f"{100 * self.share.low:.0f} to {100 * self.share.high:.0f}"
        return f"{100 * self.share.value:.0f} % ({interval})" if self.proven else f"{interval} %"


def is_stable(saved: Estimate) -> bool:
    """Whether an interval of a share saved says how much that is: the times that it leaves possible
    are within a factor of 3.
    """
    return is_known(1 - saved.high, 1 - saved.low)


def _cost(share: Estimate) -> str:
    """What a change costs that makes the step slower."""
    interval = f"{-100 * share.high:.0f} to {-100 * share.low:.0f}"
    return f"costs {-100 * share.value:.0f} % ({interval})"


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
    helping = remedies.helping
    rows = [remedy_row(saving) for saving in helping]
    if remedies.together is not None:
        members = set(remedies.together.members)
        numbers = [str(index) for index, row in enumerate(rows, 1) if set(row.factors) <= members]
        rows.append(remedy_row(remedies.together, f"{' and '.join(numbers)} together"))
    others = [remedy_row(saving) for saving in remedies.savings if saving not in helping]
    sentences = filter(None, (_beside_work_sentence(remedies, axis), _say_tried(remedies, axis)))
    return RemedyTable(rows=tuple(rows), others=tuple(others), sentence=" ".join(sentences) or None)


def _beside_work_sentence(remedies: Remedies, axis: Axis) -> str | None:
    """What helps while other work runs, which a quiet machine may not need; None without any."""
    if not remedies.beside_work:
        return None
    named = []
    for saving in remedies.beside_work:
        batch, _ = saving.leading
        gain = SavedAt(batch, dict(saving.gains)[batch], proven=False)
        saves = f"saves {gain.text} at {axis.name} {batch}"
        named.append(f"{instruction(saving)} ({saves})")
    return (
        f"While other work runs on this machine: {'; '.join(named)}. What that saves on a quiet "
        "machine is not known: stop the other work, and measure again."
    )


def render_remedies(shown: RemedyTable, axis: Axis, everything: bool = False) -> RenderableType:
    """What saves, as a table, then how each is done, then what was tried beside it."""
    blocks: list[RenderableType] = []
    if shown.rows:
        heads, cells = remedy_cells(shown, axis)
        rows = table(*heads[:-1], words=("do", "costs"))
        for row in cells:
            rows.add_row(*row[:-1])
        blocks += [Text(TITLE, "bold"), rows]
        blocks += [
            Indented(Text(row.how), label=f"How {index}: ")
            for index, row in enumerate(shown.rows, 1)
            if row.how
        ]
    if shown.sentence is not None:
        blocks.append(Text(shown.sentence, "" if shown.rows else "bold"))
    if everything:
        blocks += [Text(_other_line(row, axis), "dim") for row in shown.others]
    return Group(*blocks)


def render_row(row: RemedyRow, axis: Axis) -> list[RenderableType]:
    """One change in full: what it saves at every batch size, what it costs, and how it is done."""
    saves = [f"{at.text} at {axis.name} {at.batch}" for at in row.saves]
    lines: list[RenderableType] = [Text(f"Saves: {', '.join(saves)}.")] if saves else []
    lines += [Text(f"Costs: {row.costs}.")] if row.costs else []
    lines += [Text(f"Not tried: {row.reason}.")] if row.reason else []
    return [*lines, *([Indented(Text(row.how), label="How: ")] if row.how else [])]


def remedy_cells(shown: RemedyTable, axis: Axis) -> tuple[list[str], list[list[str]]]:
    """The heads of a table of what saves, and its rows: do, what it saves at up to three batch
    sizes, costs, how.
    """
    batches = sorted({at.batch for row in shown.rows for at in row.saves})
    batches = sorted({batches[0], batches[len(batches) // 2], batches[-1]}) if batches else []
    rows = []
    for index, row in enumerate(shown.rows, 1):
        saves = {at.batch: at.text for at in row.saves}
        do = row.do if len(row.factors) > 1 else f"{index}. {row.do}"
        rows.append([do, *(saves.get(batch, "") for batch in batches), row.costs, row.how or ""])
    return ["do", *(f"saves at {axis.name} {batch}" for batch in batches), "costs", "how"], rows


def saving_sentence(remedies: Remedies, axis: Axis) -> str | None:
    """What saves most and how much, as a sentence that begins in lower case; None if nothing is
    proven to save.

    It says what is saved at the largest batch size first, where one trains, then where most is
    saved.
    """
    best = remedies.best
    if best is None or best.largest is None:
        return None
    most_at, most = best.largest
    batch, _ = best.leading
    gain = dict(best.gains)[batch]
    what = " and ".join(
        instruction(saving) for saving in remedies.savings if saving.factor in best.members
    )
    together = "together " if len(best.members) > 1 else ""
    interval = f"{100 * gain.low:.0f} to {100 * gain.high:.0f}"
    more = (
        f", -{100 * most.value:.0f} % at {most_at}" if most.value >= gain.value + MATERIAL else ""
    )
    slower = [(at, gain) for at, gain in best.gains if gain.high < 0]
    but = f"; but it {_cost(slower[-1][1])} at {slower[-1][0]}" if slower else ""
    saved = f"{together}-{100 * gain.value:.0f} % of the step ({interval}) at {axis.name} {batch}"
    return f"{what}: {saved}{more}{but}."


def size_advice(diagnosis: Diagnosis) -> str | None:
    """The batch size as advice, and sizes of any axis that a larger one overtakes; None without
    either.
    """
    curve, axis = diagnosis.curve, diagnosis.axis
    meta = {} if diagnosis.recording is None else diagnosis.recording.meta
    sentences = [
        batch_sentence(curve, axis, meta),
        padding_sentence(curve, axis, diagnosis.probe_times),
    ]
    return " ".join(filter(None, sentences)) or None


def padding_sentence(curve: Curve, axis: Axis, probes: Mapping[int, Sequence[float]]) -> str | None:
    """The size that takes longest beside a larger one that takes less time; None without one.

    `probes` has the times of steps of further sizes, ms.
    """
    if not (found := find_overtaken(curve, probes)):
        return None
    most = max(found, key=lambda one: one.small.time_ms.value / one.time_ms)
    others = f", and {counted(len(found) - 1, 'other size')} likewise" if len(found) > 1 else ""
    return (
        f"{axis.name.capitalize()} {most.small.condition} takes longer than {most.size} "
        f"({number(most.small.time_ms.value)} ms and {number(most.time_ms)}){others}: where you "
        f"can, run {most.size} instead, or pad to it."
    )


def batch_sentence(curve: Curve, axis: Axis, meta: Mapping[str, Any]) -> str | None:
    """The batch size as advice; None for other axes, for curves of one batch size, and for steps
    that the batch size does not reach.
    """
    has_samples = axis.name == BATCH and not meta.get("same_shapes")
    throughput = throughput_of(curve) if has_samples else None
    if throughput is None:
        return None
    full = [
        cell["batch"] for cell in meta.get("unmeasured", ()) if "memory" in str(cell.get("why"))
    ]
    fits = (
        f" {max(point.condition for point in curve.points)} is the largest that fits the memory."
        if full
        else ""
    )
    if throughput.grows:
        largest = f"{throughput.batch}, the largest ({number(throughput.per_s, 3)})"
        return f"Batch size: samples per second still grow at {largest}.{fits}"
    if throughput.batch == throughput.best:
        return (
            f"Batch size: {throughput.best} has the most samples per second "
            f"({number(throughput.best_per_s, 3)}).{fits}"
        )
    return (
        f"Batch size: beyond {throughput.batch} samples per second hardly grow: "
        f"{number(throughput.per_s, 3)} there, {number(throughput.best_per_s, 3)} at "
        f"{throughput.best}.{fits}"
    )


def remedy_row(saving: Saving, do: str | None = None) -> RemedyRow:
    """The line of a change; `do` in place of its instruction."""
    return RemedyRow(
        do=do or instruction(saving),
        factors=saving.members,
        cause=cause_of(saving),
        saves=tuple(SavedAt(batch, gain, batch in saving.proven) for batch, gain in saving.gains),
        verdict=saving.verdict,
        costs=_costs(saving),
        how=saving.facts.how if saving.facts else None,
        reason=saving.reason,
    )


def instruction(saving: Saving) -> str:
    """What to do, as an instruction."""
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
    """That none of the changes without a proven saving saves 2 %, or what of them is still
    possible.
    """
    said = (*remedies.helping, *remedies.beside_work)
    rest = [remedy for remedy in remedies.tried if remedy not in said]
    if not rest:
        return None
    batches = sorted({batch for remedy in rest for batch, _ in remedy.gains})
    where = f"at {axis.name} {', '.join(map(str, batches))}"
    other, single = "other " if remedies.helping else "", len(rest) == 1
    lead = (
        f"The one {other}change"
        if single
        else f"None of {'the ' if other else ''}{len(rest)} {other}changes"
    )
    open_ = sorted(
        (remedy for remedy in rest if _at_most(remedy) >= MATERIAL), key=promise, reverse=True
    )
    if not open_:
        most = 100 * max(map(_at_most, rest))
        least = f"{100 * MATERIAL:.0f} %"
        saves = f"saves less than {least}" if single else f"saves {least}"
        ends = f"at most {most:.1f} %" if most >= 0 else f"{'it' if single else 'each'} costs time"
        return f"{lead} tried {saves} {where}: {ends}, by the intervals."
    most = max(map(_at_most, open_))
    if most < _SMALL:
        none = "it saves" if single else "none saves"
        return (
            f"{lead} tried is {'not ' if single else ''}shown to save anything {where}; by the "
            f"intervals {none} {'at most' if single else 'more than'} {100 * most:.1f} %."
        )
    named = "; ".join(
        f"{instruction(remedy)} ({_possible(remedy, axis)})" for remedy in open_[:_MOST_NAMED]
    )
    more = f"; and {len(open_) - _MOST_NAMED} more" if len(open_) > _MOST_NAMED else ""
    return (
        f"{lead} tried is {'not ' if single else ''}shown to save anything {where}; not ruled out: "
        f"{named}{more}."
    )


def _possible(saving: Saving, axis: Axis) -> str:
    """What a change may save, that is not shown to save anything."""
    at_most = _at_most(saving)
    if at_most < 1:
        return f"up to {100 * at_most:.0f} %"
    batch, gain = _largest(saving)
    saved = f"{'costs ' if gain.value < 0 else ''}{abs(100 * gain.value):.0f} %"
    return f"{saved} at {axis.name} {batch} in too few starts for an interval"


def _largest(saving: Saving) -> tuple[int, Estimate]:
    """The batch size at which a change saves most, and how much."""
    return max(saving.gains, key=lambda item: item[1].value)


def promise(saving: Saving) -> float:
    """What a change may save; what it saved so far where it ran in too few starts for
    an interval.
    """
    at_most = _at_most(saving)
    return at_most if at_most < 1 else _largest(saving)[1].value


def _at_most(saving: Saving) -> float:
    return 1.0 if saving.at_most is None else saving.at_most


def _other_line(row: RemedyRow, axis: Axis) -> str:
    if row.verdict == Verdict.UNTESTED:
        return f"Not tried: {row.do}: {row.reason}."
    saves = ", ".join(f"{at.text} at {axis.name} {at.batch}" for at in row.saves)
    return f"Tried: {row.do}: {'' if saves.startswith('costs') else 'saves '}{saves}."
