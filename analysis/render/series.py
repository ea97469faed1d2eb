"""The curves of a table as sentences and as text for a terminal: the shape of each, its edges and
slow sizes with their errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.numbers import number
from ...profiling.recording.axis import Axis
from ..curve_shapes import Certainty, Event, Named, Shape, claimed
from ..decompose.curve import Point
from ..time_tables import NoiseOrigin, TimedCurve
from .curve_picture import draw_curve
from .tables import table
from .text import render_curve
from .words import note_hidden

_SHOWN = 25
_NO_PAIR = "No curve has two sizes to compare: measure more of them."
_SURE = {Certainty.IS: ("takes", "take"), Certainty.MAY_BE: ("may take", "may take")}


@dataclass(frozen=True)
class TimedSeries:
    """One curve of a table of times."""

    problem: str | None  # name of the problem
    device_name: str | None  # name of the device; empty if the table names none
    curve: Sequence[Point]  # its points
    noise: float  # relative standard error of a time, the median over the sizes
    noise_origin: str  # repeats, published, stated, estimated or assumed
    shapes: Sequence[Named]  # the words for its shape
    events: Sequence[Event]  # edges and slow sizes, of any certainty
    sentences: Sequence[str]  # what they are


@dataclass(frozen=True)
class TimesDocument:
    """The curves of a table of times: `explain` of one."""

    recording: str  # folder or URL of the recording, or the table
    axis: str  # what a size counts, e.g. batch or tokens
    series: Sequence[TimedSeries]  # the curves


def document_of(path: object, listed: Sequence[TimedCurve], axis: Axis) -> TimesDocument:
    """The document of the curves of a table."""
    series = [
        TimedSeries(
            curve.problem,
            curve.device_name,
            curve.curve.points,
            curve.noise,
            curve.noise_origin,
            curve.shapes,
            curve.events,
            sentences(curve, axis),
        )
        for curve in listed
    ]
    return TimesDocument(str(path), axis.name, series)


def noise_sentence(series: TimedCurve) -> str:
    """The error of a single time, and where it is from."""
    source = {
        NoiseOrigin.STATED: "as stated (--noise)",
        NoiseOrigin.ESTIMATED: "estimated beside the edges of this curve; --noise states another",
        NoiseOrigin.ASSUMED: "assumed, for the curve is too short to show its own; --noise states "
        "another",
        NoiseOrigin.REPEATS: "from its repeats",
        NoiseOrigin.PUBLISHED: "from its published spread",
    }[NoiseOrigin(series.noise_origin)]
    return f"A single time has a standard error of {100 * series.noise:.2g} %, {source}."


def sentences(series: TimedCurve, axis: Axis) -> list[str]:
    """A curve in sentences: its slow sizes and edges, the largest first, then its rise."""
    said = sorted(claimed(series.events), key=lambda event: -event.share)
    lines = [_event_sentence(event) for event in said]
    for named in series.shapes:
        lines += _shape_sentences(named, axis)
    return lines


def _event_sentence(event: Event) -> str:
    extra = event.extra_ms
    half = (extra.high - extra.low) / 2
    size = f"{number(extra.value, 3)} ± {number(half, 2)} ms"
    if event.kind == "slow":
        verb = _SURE[Certainty(event.certainty)][len(event.sizes) > 1]
        return (
            f"{in_words(event.sizes)} {verb} longer than {event.at}, {event.sizes[-1]} by {size} "
            f"({event.share:+.0%})."
        )
    verb = _SURE[Certainty(event.certainty)][0]
    return (
        f"{event.at} {verb} {size} ({event.share:+.0%}) more than the sizes on both sides of the "
        f"edge from {event.before} explain."
    )


def _shape_sentences(named: Named, axis: Axis) -> list[str]:
    if named.shape == Shape.STAIRS:
        others = f" ({in_words(named.steps)} would fit, too)" if named.steps else ""
        return [f"The edges are stairs of {named.step}{others}: pad to its multiples."]
    if named.shape == Shape.KNEE:
        return [
            f"A knee: about the same time for small {axis.values}, then in proportion; from "
            f"{named.at} on the rate is within 10 % of its largest."
        ]
    if named.shape == Shape.PLATEAU:
        return [
            f"A plateau: from {named.at} on the rate is within 10 % of its largest, so more "
            f"{axis.unit} together gain little."
        ]
    if named.shape == Shape.SUPER:
        return [f"Super-linear: the time grows faster than the {axis.unit}, so the rate falls."]
    if named.shape == Shape.SAW:
        interval = f"{named.low:+.0%} to {named.high:+.0%}"
        return [
            f"A saw tooth: sizes that are no multiple of {named.step} take {named.share:+.0%} "
            f"({interval}) against the next multiple."
        ]
    if named.shape == Shape.NONE:
        return ["No edge and no slow size."]
    return []


def in_words(sizes: Sequence[int]) -> str:
    """Some sizes, or the first and last of many."""
    if len(sizes) > 3:
        return f"{sizes[0]} to {sizes[-1]}"
    *most, last = map(str, sizes)
    return f"{', '.join(most)} and {last}" if most else last


def render_series(
    listed: Sequence[TimedCurve], axis: Axis, everything: bool = False
) -> RenderableType:
    """Every curve with a shape, those with edges and slow sizes first; one alone in full."""
    if len(listed) == 1:
        (only,) = listed
        title = Text(", ".join(filter(None, (only.problem, only.device_name))), "bold")
        lines = sentences(only, axis)
        rivals = [f"Rival: {named.rival}." for named in only.shapes if named.rival]
        return Group(
            *([title] if title.plain else []),
            Text(lines[0], "bold"),
            *map(Text, lines[1:]),
            *(Text(line, "dim") for line in rivals),
            Text(),
            draw_curve(only),
            Text(),
            render_curve(only.curve, axis),
            Text(noise_sentence(only), "dim"),
        )
    rows = table("problem", "device", "shape", "at", "ms", "share", "p", words=("device", "shape"))
    found = [(series, event) for series in listed for event in claimed(series.events)]
    found.sort(key=lambda pair: -pair[1].share)
    for series, event in found[: None if everything else _SHOWN]:
        may_be = "may be " if event.certainty == Certainty.MAY_BE else ""
        rows.add_row(
            Text(series.problem or ""),
            Text(series.device_name or ""),
            f"{may_be}{'slow' if event.kind == 'slow' else 'edge'}",
            in_words(event.sizes) if event.sizes else str(event.at),
            number(event.extra_ms.value, 3),
            f"{event.share:+.0%}",
            f"{event.p_adjusted:.1g}",
        )
    quiet = [series for series in listed if not claimed(series.events)]
    notes = [
        f"{counted(len(listed), 'curve')}, {len(quiet)} without an edge or a slow size; the tests "
        "of all are one family."
    ]
    if not everything:
        notes += [
            note.plain for note in note_hidden(len(found) - _SHOWN, "smaller", "smaller ones")
        ]
    noises = sorted(series.noise for series in listed)
    notes.append(
        f"A single time has a standard error of {100 * noises[0]:.2g} to {100 * noises[-1]:.2g} %, "
        "see each curve."
    )
    has_pairs = any(len(series.fit.sizes) > 1 for series in listed)
    nothing = "No edge and no slow size." if has_pairs else _NO_PAIR
    head: RenderableType = rows if found else Text(nothing, "bold")
    others = [
        f"{name_of(series)}: {line}"
        for series in listed
        for named in series.shapes
        for line in _shape_sentences(named, axis)
        if named.shape != Shape.NONE
    ]
    hidden = [] if everything else note_hidden(len(others) - _SHOWN, "shape", "shapes")
    return Group(
        head,
        *map(Text, others[: None if everything else _SHOWN]),
        *hidden,
        *(Text(note, "dim") for note in notes),
    )


def choose_curves(
    listed: Sequence[TimedCurve], problem: str | None, path: object
) -> tuple[TimedCurve, ...]:
    """The curves whose problem or device has all words of `--problem`; CurvescopeError for none."""
    words = (problem or "").casefold().split()

    def has_all(curve: TimedCurve) -> bool:
        name = f"{curve.problem} {curve.device_name}".casefold()
        return all(word in name for word in words)

    chosen = tuple(filter(has_all, listed))
    if not chosen:
        raise CurvescopeError(
            f"--problem {problem}: no problem or device of {path} matches these words."
        )
    return chosen


def name_of(series: TimedCurve) -> str:
    """The problem and device of a curve."""
    return ", ".join(filter(None, (series.problem, series.device_name))) or "the curve"
