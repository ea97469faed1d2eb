"""A comparison as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from .words import UNITS, note_hidden, shorten

_OTHER_PACE = math.log(1.03)
_ALIKE = 0.02  # of a time without an interval: what differs less is no difference
_BEYOND = "beyond the model's error"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def render_comparison(comparison: Comparison, limit: int | None = 25) -> RenderableType:
    """The recordings, step times by batch size, then rows at one of them."""
    letters = _LETTERS[: len(comparison.sides)]
    peaks = ("compute peak", "DRAM peak")
    sides = table(
        "", "recording", "device", *peaks, left=("recording",), words=("device",), optional=peaks
    )
    for letter, side in zip(letters, comparison.sides, strict=True):
        roofs = (
            (side.hardware.roof(level), unit)
            for level, unit in (("compute", "FLOP/s"), ("DRAM", "B/s"))
        )
        shown = ("unknown" if roof is None else quantity(roof.per_s, unit) for roof, unit in roofs)
        sides.add_row(letter, side.name, side.hardware.name or "unknown", *shown)
    blocks: list[RenderableType] = [
        *(Text(verdict, "bold") for verdict in verdicts(comparison)),
        Text(),
        sides,
        Text(),
    ]
    blocks += [_lines("batch", comparison.steps, letters), Text()]
    if comparison.rows:
        head = "batch unknown" if comparison.batch is None else f"batch {comparison.batch}"
        steps = "modelled and profiled steps" if comparison.modelled else "profiled steps"
        blocks.append(Text(f"By {comparison.by} at {head}, {steps}", "bold"))
        blocks.append(_lines(comparison.by, comparison.rows[:limit], letters))
        blocks += note_hidden(len(comparison.rows) - len(comparison.rows[:limit]), "smaller row")
    elif not comparison.unseen:
        blocks.append(
            Text("No batch size was profiled in all recordings: there are no rows to compare.")
        )
    return Group(*blocks, *(Text(note, "dim") for note in notes(comparison)))


def render_check(comparison: Comparison, over: float) -> list[Text]:
    """What `--fail-over` found: each growth that fails, or that there is none; and where more may
    have grown.
    """
    lines = []
    for name, batch, change in comparison.regressions(over):
        growth = f"+{change.growth:.1%} (at least {change.bounds_of_growth[0]:+.1%})"
        lines.append(
            Text(f"Failed: {name} at batch {batch} takes {growth}, over {over:.1%}.", "bold red")
        )
    for layer in comparison.grown_layers(over):
        lines.append(
            Text(
                f"Failed: {layer.label} of {layer.name} at batch {layer.batch} grew by "
                f"{layer.growth:.1%} of the step (at least {layer.at_least:.1%}), over {over:.1%}.",
                "bold red",
            )
        )
    if not lines:
        lines.append(Text(f"No step time grew significantly and by more than {over:.1%}."))
    for name, batch, change in comparison.undecided(over):
        most = change.bounds_of_growth[1]
        bound = f"it may be up to {most:.1%}" if math.isfinite(most) else "no interval is known"
        lines.append(
            Text(
                f"Could not tell: a growth of {name} at batch {batch} is not ruled out: {bound}.",
                "yellow",
            )
        )
    return lines


def verdicts(comparison: Comparison, names: Sequence[str] = _LETTERS) -> list[str]:
    """For each recording after the first: whether it is faster, by how much, where most of that is,
    and how sure.
    """
    return [_verdict(comparison, names, index) for index in range(1, len(comparison.sides))]


def _verdict(comparison: Comparison, names: Sequence[str], index: int) -> str:
    base, letter = names[0], names[index]
    common = [
        (line, change)
        for line in comparison.steps
        if (change := line.changes[index - 1]) is not None
    ]
    if not common:
        return f"{letter} has no batch size in common with {base}."
    real = [(line, change) for line, change in common if change.real]
    line, change = _telling(real or common)
    is_bounded = math.isfinite(change.high) and change.low > 0
    within = f" ({number(1 / change.high, 3)} … {number(1 / change.low, 3)})" if is_bounded else ""
    size = "" if line.label == UNKNOWN else f" of batch {line.label}"
    ratio = number(1 / change.speedup, 3)
    times = f"{UNITS[comparison.unit]}{size} takes {ratio} times as long{within}"
    if is_bounded and not real:
        what = "No step time" if comparison.unit == STEP else "The time"
        differs = "differs" if comparison.unit == STEP else "does not differ"
        rest = _list_changes(comparison, index)
        if comparison.is_modelled:
            return f"{what} of {letter} {differs} from {base}'s {_BEYOND}: {times}.{rest}"
        return (
            f"{what} of {letter} {differs} significantly from {base}'s (Holm correction): "
            f"{times}.{rest}"
        )
    if not is_bounded and abs(math.log(change.speedup)) < _ALIKE:
        return f"{letter} and {base} take the same time within {_ALIKE:.0%}: {times}."
    faster = change.speedup > 1
    lead = f"{letter} is {'faster' if faster else 'slower'} than {base}"
    sure = "no interval is known"
    if real:
        times_of_both = counted(len(common), f"{comparison.unit} time")
        how = _BEYOND if comparison.is_modelled else "significantly"
        sure = f"{len(real)} of {times_of_both} differ{'s' * (len(real) == 1)} {how}"
    if other := [at.label for at, other_change in real if (other_change.speedup > 1) != faster]:
        sure += f"; {'slower' if faster else 'faster'} at batch {', '.join(other)}"
    rows_are_of_it = line.label == str(comparison.batch)
    where = _where(comparison, index, change) if rows_are_of_it else ""
    return f"{lead}: {times}; {sure}.{_pace_sentence(line, index)}{where}"


def _pace_sentence(line: ComparedLine, index: int) -> str:
    """What the pace does, where slow steps make the time of all steps do something else."""
    time, pace = line.changes[index - 1], (line.pace_changes or line.changes)[index - 1]
    if time is None or pace is None or abs(math.log(pace.speedup / time.speedup)) < _OTHER_PACE:
        return ""
    return (
        f" Its pace, the faster half of the steps, takes {number(1 / pace.speedup, 3)} times as "
        "long: the rest is slow steps."
    )


def _list_changes(comparison: Comparison, index: int) -> str:
    """The row with the largest significant change, where the steps show none."""
    for row in (*comparison.layers, *comparison.rows):
        change = row.changes[index - 1]
        is_worth_a_word = row.largest_change_ms >= MATERIAL * _step_ms(comparison)
        if change is not None and change.real and is_worth_a_word:
            before, after = (
                number(time) for time in (row.times_ms[0] or 0.0, row.times_ms[index] or 0.0)
            )
            how = _BEYOND if comparison.is_modelled else "significantly"
            return f" Changed most, {how}: {shorten(row.label)}, {before} → {after} ms."
    return ""


def _step_ms(comparison: Comparison) -> float:
    """The base's time of a step at the batch size of the rows; 0 if it is unknown."""
    steps = (line for line in comparison.steps if line.label == str(comparison.batch))
    return next((line.times_ms[0] or 0.0 for line in steps), 0.0)


def _telling(steps: Sequence[tuple[ComparedLine, Change]]) -> tuple[ComparedLine, Change]:
    """The largest batch size whose change is at least half of the largest change."""
    sizes = [abs(math.log(change.speedup)) for _, change in steps]
    return [step for step, size in zip(steps, sizes, strict=True) if size >= max(sizes) / 2][-1]


def _where(comparison: Comparison, index: int, change: Change) -> str:
    """The row that changed most in the direction of the step."""
    grew = change.speedup < 1

    def growth_ms(row: ComparedLine) -> float:
        return ((row.times_ms[index] or 0.0) - (row.times_ms[0] or 0.0)) * (1 if grew else -1)

    row = max(comparison.rows, key=growth_ms, default=None)
    if row is None or growth_ms(row) <= 0:
        return ""
    before, after = (
        "none" if time is None else f"{number(time)} ms"
        for time in (row.times_ms[0], row.times_ms[index])
    )
    return f" Most of it is in {row.label}: {before} → {after}."


def _lines(first: str, lines: Sequence[ComparedLine], letters: str) -> RenderableType:
    columns = [
        first,
        *(f"{letter} ms" for letter in letters),
        *(f"{letter}/A" for letter in letters[1:]),
    ]
    rows = table(*columns, "95 % interval", "remark", words=("remark", "family"))
    wide = len(letters) == 2 and any(
        change and math.isfinite(change.high) for line in lines for change in line.changes
    )
    for line in lines:
        times = ("" if time is None else number(time) for time in line.times_ms)
        remarks = [
            f"{letter}: {remark}" if len(letters) > 2 else remark
            for letter, remark in zip(letters[1:], line.remarks, strict=True)
            if remark
        ]
        within = _interval(line.changes[0]) if wide else ""
        rows.add_row(line.label, *times, *map(_speedup, line.changes), within, "; ".join(remarks))
    return rows


def _speedup(change: Change | None) -> Text:
    if change is None:
        return Text("")
    style = "" if not change.real else ("green" if change.speedup > 1 else "red")
    return Text(f"{number(1 / change.speedup, 3)}x" + ("*" if change.real else ""), style)


def _interval(change: Change | None) -> str:
    if change is None or not math.isfinite(change.high):
        return "" if change is None else "unknown"
    most = f"{number(1 / change.low, 3)}" if change.low > 0 else "unknown"
    return f"{number(1 / change.high, 3)} … {most}"


def _not_recorded(comparison: Comparison) -> str:
    """What is missing where steps were profiled, and no work of them was recorded."""
    unseen = comparison.unseen
    on_gpu = any(s.hardware.kind != "cpu" for s in comparison.sides if s.name in unseen)
    if not on_gpu:
        return f"{', '.join(unseen)}: what runs in a step was not recorded, so there are no rows."
    return (
        f"{', '.join(unseen)}: no kernel, memcpy or memset was recorded, so there are no rows, and "
        f"profiled steps have only the duration of their host range. {RECORD_DEVICE}"
    )


def notes(comparison: Comparison) -> list[str]:
    """Notes that explain the numbers."""
    star = _BEYOND if comparison.is_modelled else "significant"
    notes = [
        f"B/A above 1: B takes longer than A. * {star} (95 %, Holm correction over all step "
        "times; of rows inside a layer or family that changed). Rows that changed most come first."
    ]
    if comparison.differences:
        differing = "; ".join(
            f"{name}: {', '.join(values)}" for name, values in comparison.differences.items()
        )
        notes.append(f"Recorded with different settings: {differing}.")
    if comparison.modelled:
        notes.append(f"Modelled, not measured: {', '.join(comparison.modelled)}.")
    if comparison.unseen:
        notes.append(_not_recorded(comparison))
    if comparison.profiled:
        notes.append(
            f"Every step was profiled in {', '.join(comparison.profiled)}: times include the "
            "profiling overhead."
        )
    one_device = len({side.hardware.name for side in comparison.sides}) == 1
    alone = one_device and not comparison.modelled and not comparison.together
    if alone and any(c and c.real for line in comparison.steps for c in line.changes):
        notes.append(
            "A change of the machine's speed between the recordings also appears as a change. To "
            "see its size, record A again and compare the two."
        )
    for letter, ratios in zip(_LETTERS[1:], comparison.roof_ratios, strict=False):
        if ratios:
            shares = ", ".join(
                f"{level} {value:.3g}x ({kind}s)" for level, (value, kind) in ratios.items()
            )
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


@dataclass(frozen=True)
class RoofRatio:
    """A roof over that of the first recording."""

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
        return cls(
            recordings=[
                ComparedRecording(side.name, side.hardware.name, side.name in comparison.profiled)
                for side in comparison.sides
            ],
            without_device_work=comparison.unseen,
            **{
                name: getattr(comparison, name)
                for name in ("differences", "steps", "batch", "by", "rows")
            },
            roof_ratios=[
                {level: RoofRatio(*ratio) for level, ratio in ratios.items()}
                for ratios in comparison.roof_ratios
            ],
            fail_over=fail_over,
            grown_layers=[] if fail_over is None else comparison.grown_layers(fail_over),
            failed=fail_over is not None and comparison.fails(fail_over),
            undecided=fail_over is not None and bool(comparison.undecided(fail_over)),
        )
