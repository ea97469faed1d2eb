"""A comparison as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, quantity
from ...profiling.recording.store import STEP
from ..change import Change
from ..compare import ComparedLine, Comparison, GrownLayer
from ..decompose.curve import UNKNOWN
from ..decompose.statistics import MATERIAL
from ..decompose.terms import RECORD_DEVICE
from .tables import table
from .words import UNITS, dim, note_hidden, number_cell, shorten, show_ms

_LAST_LOSSES = 10
_WORSE = 3.0  # spreads of the base's last losses, from which a loss is higher
_OTHER_PACE = math.log(1.03)
_ALIKE = 0.02  # of a time without an interval: what differs less is no difference
_BEYOND = "beyond the model's error"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MARKS = (
    "B/A above 1: B takes longer than A. * {star} (95 %, Holm correction over all step times; of "
    "rows inside a layer or family that changed). Rows that changed most come first."
)
_MACHINE_MAY_CHANGE = (
    "A change of the machine's speed between the recordings also appears as a change. To see its "
    "size, record A again and compare the two."
)


def render_comparison(comparison: Comparison, limit: int | None = 25) -> RenderableType:
    """The recordings, step times by batch size, then rows at one of them."""
    letters = _LETTERS[: len(comparison.sides)]
    blocks: list[RenderableType] = []
    for verdict in verdicts(comparison):
        blocks.append(Text(verdict, "bold"))
    blocks += map(Text, say_losses(comparison))
    blocks += [Text(), _sides(comparison, letters), Text()]
    blocks += [_lines("batch", comparison.steps, letters), Text()]
    rows = comparison.rows
    if rows:
        head = "batch unknown" if comparison.batch is None else f"batch {comparison.batch}"
        steps = "modelled and profiled steps" if comparison.names_modelled else "profiled steps"
        blocks.append(Text(f"By {comparison.by} at {head}, {steps}", "bold"))
        shown = rows[:limit]
        blocks.append(_lines(comparison.by, shown, letters))
        blocks += note_hidden(len(rows) - len(shown), "smaller row")
    elif not comparison.unseen:
        nothing = "No batch size was profiled in all recordings: there are no rows to compare."
        blocks.append(Text(nothing))
    return Group(*blocks, *dim(notes(comparison)))


def _sides(comparison: Comparison, letters: str) -> RenderableType:
    """The recordings and the roofs of their devices."""
    peaks = ("compute peak", "DRAM peak")
    rows = table(
        "", "recording", "device", *peaks, left=("recording",), words=("device",), optional=peaks
    )
    for letter, side in zip(letters, comparison.sides, strict=True):
        shown = []
        for level, unit in (("compute", "FLOP/s"), ("DRAM", "B/s")):
            roof = side.hardware.roof(level)
            shown.append("unknown" if roof is None else quantity(roof.per_s, unit))
        rows.add_row(letter, side.name, side.hardware.name or "unknown", *shown)
    return rows


def render_check(comparison: Comparison, over: float) -> list[Text]:
    """The answer of `--fail-over`: each growth that fails, or that there is none; and where more
    may have grown.
    """
    lines = []
    for name, batch, change in comparison.regressions(over):
        said = f"Failed: {name} at batch {batch} takes {show_growth(change)}, over {over:.1%}."
        lines.append(Text(said, "bold red"))
    for layer in comparison.grown_layers(over):
        growth = show_layer_growth(layer)
        where = f"{layer.label} of {layer.name} at batch {layer.batch}"
        lines.append(Text(f"Failed: {where} grew by {growth}, over {over:.1%}.", "bold red"))
    if not lines:
        lines.append(Text(f"No step time grew significantly and by more than {over:.1%}."))
    for name, batch, change in comparison.find_undecided(over):
        _, most = change.bounds_of_growth
        bound = f"it may be up to {most:.1%}" if math.isfinite(most) else "no interval is known"
        growth = f"a growth of {name} at batch {batch}"
        lines.append(Text(f"Could not tell: {growth} is not ruled out: {bound}.", "yellow"))
    return lines


def show_growth(change: Change) -> str:
    """The growth of a step time, and how much it is at least."""
    least, _ = change.bounds_of_growth
    return f"{change.growth:+.1%} (at least {least:+.1%})"


def show_layer_growth(layer: GrownLayer) -> str:
    """The growth of a layer as a share of the step, and how much it is at least."""
    return f"{layer.growth:.1%} of the step (at least {layer.at_least:.1%})"


def verdicts(comparison: Comparison, names: Sequence[str] = _LETTERS) -> list[str]:
    """For each recording after the first: whether it is faster, by how much, where most of that is,
    and how sure.
    """
    return [_verdict(comparison, names, index) for index in range(1, len(comparison.sides))]


def _verdict(comparison: Comparison, names: Sequence[str], index: int) -> str:
    base, letter, unit = names[0], names[index], comparison.unit
    common, real = [], []
    for line in comparison.steps:
        change = line.changes[index - 1]
        if change is not None:
            common.append((line, change))
            if change.real:
                real.append((line, change))
    if not common:
        return f"{letter} has no batch size in common with {base}."
    line, change = _choose_telling(real or common)
    is_bounded = math.isfinite(change.high) and change.low > 0
    within = ""
    if is_bounded:
        within = f" ({_show_ratios(change)})"
    size = "" if line.label == UNKNOWN else f" of batch {line.label}"
    times = f"{UNITS[unit]}{size} takes {show_ratio(change)} times as long{within}"
    if is_bounded and not real:
        what = "No step time of" if unit == STEP else "The time of"
        differs = "differs" if unit == STEP else "does not differ"
        lead = f"{what} {letter} {differs} significantly from {base}'s (Holm correction)"
        if comparison.is_modelled:
            lead = f"{what} {letter} {differs} from {base}'s {_BEYOND}"
        changed = _list_changes(comparison, index)
        return f"{lead}: {times}.{changed}"
    if not is_bounded and abs(math.log(change.speedup)) < _ALIKE:
        return f"{letter} and {base} take the same time within {_ALIKE:.0%}: {times}."
    faster = change.speedup > 1
    way, other_way = "slower", "faster"
    if faster:
        way, other_way = other_way, way
    sure = "no interval is known"
    if real:
        differ = "differs" if len(real) == 1 else "differ"
        both = counted(len(common), f"{unit} time")
        sure = f"{len(real)} of {both} {differ} {_say_sure(comparison)}"
    others = [other.label for other, apart in real if (apart.speedup > 1) != faster]
    if others:
        sure += f"; {other_way} at batch {', '.join(others)}"
    sentence = f"{letter} is {way} than {base}: {times}; {sure}."
    sentence += _pace_sentence(line, index)
    if line.label == str(comparison.batch):
        sentence += _where(comparison, index, change)
    return sentence


def say_losses(comparison: Comparison, names: Sequence[str] = _LETTERS) -> list[str]:
    """The losses of the first steps, where every recording has them, and which trains worse."""
    sides = comparison.sides
    count = min(len(side.losses) for side in sides)
    if not count:
        return []
    said = []
    finite: list[tuple[str, list[float]]] = []
    for name, side in zip(names, sides, strict=False):
        compared = side.losses[:count]
        last = [loss for loss in compared[-_LAST_LOSSES:] if loss is not None]
        if None in side.losses:
            said.append(f"{name} trains worse: its loss is not finite at step {len(side.losses)}.")
        elif last:
            finite.append((name, last))
    if len(finite) > 1:
        means = ", ".join(f"{name} {number(fmean(last))}" for name, last in finite)
        _, base = finite[0]
        steps = f"the last {len(base)} of {counted(count, 'step')} from one seed"
        said.insert(0, f"Loss, mean of {steps}, one run each: {means}.")
        most = fmean(base) + _WORSE * pstdev(base)
        for name, last in finite[1:]:
            if fmean(last) > most:
                said.append(f"{name} trains worse: its loss is higher than the base's varies.")
    return said


def _say_sure(comparison: Comparison) -> str:
    """How sure a change is, in words."""
    return _BEYOND if comparison.is_modelled else "significantly"


def _pace_sentence(line: ComparedLine, index: int) -> str:
    """What the pace does, where slow steps make the time of all steps do something else."""
    time = line.changes[index - 1]
    paces = line.pace_changes or line.changes
    pace = paces[index - 1]
    if time is None or pace is None:
        return ""
    apart = math.log(pace.speedup / time.speedup)
    if abs(apart) < _OTHER_PACE:
        return ""
    takes = f"takes {show_ratio(pace)} times as long"
    return f" Its pace, the faster half of the steps, {takes}: the rest is slow steps."


def _list_changes(comparison: Comparison, index: int) -> str:
    """The row with the largest significant change, where the steps show none."""
    least_ms = MATERIAL * _step_ms(comparison)
    for row in (*comparison.layers, *comparison.rows):
        change = row.changes[index - 1]
        if change is not None and change.real and row.largest_change_ms >= least_ms:
            before = number(row.times_ms[0] or 0.0)
            after = show_ms(row.times_ms[index] or 0.0)
            lead = f" Changed most, {_say_sure(comparison)}"
            return f"{lead}: {shorten(row.label)}, {before} → {after}."
    return ""


def _step_ms(comparison: Comparison) -> float:
    """The base's time of a step at the batch size of the rows; 0 if it is unknown."""
    for line in comparison.steps:
        if line.label == str(comparison.batch):
            return line.times_ms[0] or 0.0
    return 0.0


def _choose_telling(steps: Sequence[tuple[ComparedLine, Change]]) -> tuple[ComparedLine, Change]:
    """The largest batch size whose change is at least half of the largest change."""
    sizes = [abs(math.log(change.speedup)) for _, change in steps]
    least = max(sizes) / 2
    large = [place for place, size in enumerate(sizes) if size >= least]
    return steps[large[-1]]


def _where(comparison: Comparison, index: int, change: Change) -> str:
    """The row that changed most in the direction of the step."""
    sign = 1 if change.speedup < 1 else -1

    def growth_ms(row: ComparedLine) -> float:
        before = row.times_ms[0] or 0.0
        after = row.times_ms[index] or 0.0
        return sign * (after - before)

    row = max(comparison.rows, key=growth_ms, default=None)
    if row is None or growth_ms(row) <= 0:
        return ""
    both = (row.times_ms[0], row.times_ms[index])
    before, after = ("none" if time is None else show_ms(time) for time in both)
    return f" Most of it is in {row.label}: {before} → {after}."


def _lines(first: str, lines: Sequence[ComparedLine], letters: str) -> RenderableType:
    times = [f"{letter} ms" for letter in letters]
    heads = [first, *times]
    heads += [f"{letter}/A" for letter in letters[1:]]
    heads += ["95 % interval", "remark"]
    rows = table(*heads, words=("remark", "family"))
    changes = [change for line in lines for change in line.changes if change is not None]
    is_pair = len(letters) == 2
    wide = is_pair and any(math.isfinite(change.high) for change in changes)
    for line in lines:
        times = [number_cell(time) for time in line.times_ms]
        remarks = []
        for letter, remark in zip(letters[1:], line.remarks, strict=True):
            if remark:
                remarks.append(remark if is_pair else f"{letter}: {remark}")
        within = show_interval(line.changes[0]) if wide else ""
        ratios = map(_speedup, line.changes)
        rows.add_row(line.label, *times, *ratios, within, "; ".join(remarks))
    return rows


def _speedup(change: Change | None) -> Text:
    if change is None:
        return Text("")
    ratio = f"{show_ratio(change)}x"
    if not change.real:
        return Text(ratio)
    style = "green" if change.speedup > 1 else "red"
    return Text(f"{ratio}*", style)


def show_ratio(change: Change) -> str:
    """The time of the other recording over the base's."""
    return number(1 / change.speedup, 3)


def _show_ratios(change: Change) -> str:
    """Both ends of the ratio."""
    least, most = 1 / change.high, 1 / change.low
    return f"{number(least, 3)} … {number(most, 3)}"


def show_interval(change: Change | None) -> str:
    """The 95 % interval of B/A; empty without a change."""
    if change is None:
        return ""
    if not math.isfinite(change.high):
        return "unknown"
    if change.low > 0:
        return _show_ratios(change)
    return f"{number(1 / change.high, 3)} … unknown"


def _not_recorded(comparison: Comparison) -> str:
    """The missing data where steps were profiled, and no work of them was recorded."""
    unseen = comparison.unseen
    names = ", ".join(unseen)
    if not any(side.hardware.kind != "cpu" for side in comparison.sides if side.name in unseen):
        return f"{names}: what runs in a step was not recorded, so there are no rows."
    return (
        f"{names}: no kernel, memcpy or memset was recorded, so there are no rows, and profiled "
        f"steps have only the duration of their host range. {RECORD_DEVICE}"
    )


def notes(comparison: Comparison) -> list[str]:
    """Notes that explain the numbers."""
    star = _BEYOND if comparison.is_modelled else "significant"
    notes = [_MARKS.format(star=star)]
    if comparison.differences:
        differing = []
        for name, texts in comparison.differences.items():
            differing.append(f"{name}: {', '.join(texts)}")
        settings = "; ".join(differing)
        notes.append(f"Recorded with different settings: {settings}.")
    if comparison.names_modelled:
        names = ", ".join(comparison.names_modelled)
        notes.append(f"Modelled, not measured: {names}.")
    if comparison.unseen:
        notes.append(_not_recorded(comparison))
    if comparison.names_profiled:
        names = ", ".join(comparison.names_profiled)
        notes.append(f"Every step was profiled in {names}: times include the profiling overhead.")
    devices = {side.hardware.name for side in comparison.sides}
    alone = len(devices) == 1 and not comparison.names_modelled and not comparison.together
    changes = [change for line in comparison.steps for change in line.changes]
    if alone and any(change and change.real for change in changes):
        notes.append(_MACHINE_MAY_CHANGE)
    for letter, ratios in zip(_LETTERS[1:], comparison.roof_ratios, strict=False):
        if ratios:
            parts = []
            for level, (ratio, kind) in ratios.items():
                parts.append(f"{level} {ratio:.3g}x ({kind}s)")
            shares = ", ".join(parts)
            notes.append(
                f"Roofs of {letter} over A: {shares}; a row whose speed grows by a factor between "
                "these (± 10 %) follows the hardware."
            )
    return notes


@dataclass(frozen=True)
class ComparedRecording:
    """One recording of a comparison."""

    name: str  # folder or URL
    device: str | None  # name of its device; null if unknown
    # whether all its steps were profiled, so that times include the profiler's cost
    profiled_steps_only: bool
    # losses of the first steps from one seed, null for one that is not finite; empty if unknown
    losses: Sequence[float | None]


@dataclass(frozen=True)
class RoofRatio:
    """A roof over the roof of the first recording."""

    ratio: float  # the ratio
    kind: str  # ceiling if both were measured, else peak


@dataclass(frozen=True, kw_only=True)
class CompareDocument:
    """Recordings compared with the first: `compare`."""

    recordings: Sequence[ComparedRecording]  # the recordings
    # names of recordings with profiled steps, but without device work
    without_device_work: Sequence[str]
    differences: Mapping[str, Sequence[str]]  # settings that differ, one value per recording
    steps: Sequence[ComparedLine]  # one line per common batch size
    batch: int | None  # batch size of the rows; null if the profiles name none
    by: str  # layer, op, family or kernel
    rows: Sequence[ComparedLine]  # largest time first; idle last
    # one per recording after the first, by memory level or precision
    roof_ratios: Sequence[Mapping[str, RoofRatio]]
    fail_over: float | None  # growth that fails the check; null if none was asked for
    # layers that grew certainly by more than this share of the step
    grown_layers: Sequence[GrownLayer]
    failed: bool  # whether a step time, or a layer, grew by more and significantly
    undecided: bool  # whether the measurement does not rule it out at another batch size, or at all

    @classmethod
    def of(cls, comparison: Comparison, fail_over: float | None = None) -> CompareDocument:
        """The document of a comparison, see the attributes."""
        recordings = []
        for side in comparison.sides:
            profiled = side.name in comparison.names_profiled
            device = side.hardware.name
            recordings.append(ComparedRecording(side.name, device, profiled, side.losses))
        roof_ratios = []
        for ratios in comparison.roof_ratios:
            roof_ratios.append({level: RoofRatio(*ratio) for level, ratio in ratios.items()})
        grown, failed, undecided = [], False, False
        if fail_over is not None:
            grown = comparison.grown_layers(fail_over)
            failed = comparison.fails(fail_over)
            undecided = bool(comparison.find_undecided(fail_over))
        return cls(
            recordings=recordings,
            without_device_work=comparison.unseen,
            differences=comparison.differences,
            steps=comparison.steps,
            batch=comparison.batch,
            by=comparison.by,
            rows=comparison.rows,
            roof_ratios=roof_ratios,
            fail_over=fail_over,
            grown_layers=grown,
            failed=failed,
            undecided=undecided,
        )
