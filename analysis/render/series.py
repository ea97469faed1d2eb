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
from .words import dim, join_texts, list_values, note_hidden

_SHOWN = 25
_DOUBTS = 3  # of several curves, the largest
_LARGE = 0.1  # share of the time, from which on what may be noise is worth another measurement
_NO_PAIR = "No curve has two sizes to compare: measure more of them."
_NO_EDGE = "No edge and no slow size."
_SURE = {Certainty.IS: ("takes", "take"), Certainty.MAY_BE: ("may take", "may take")}
_SOURCES = {
    NoiseOrigin.STATED: "as stated (--noise)",
    NoiseOrigin.ESTIMATED: "estimated beside the edges of this curve; --noise states another",
    NoiseOrigin.ASSUMED: "assumed, for the curve is too short to show its own; --noise states "
    "another",
    NoiseOrigin.REPEATS: "from its repeats",
    NoiseOrigin.PUBLISHED: "from its published spread",
}


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
    series = []
    for curve in listed:
        timed = TimedSeries(
            curve.problem,
            curve.device_name,
            curve.curve.points,
            curve.noise,
            curve.noise_origin,
            curve.shapes,
            curve.events,
            sentences(curve, axis),
        )
        series.append(timed)
    return TimesDocument(str(path), axis.name, series)


def noise_sentence(series: TimedCurve) -> str:
    """The error of a single time, and where it is from."""
    source = _SOURCES[NoiseOrigin(series.noise_origin)]
    return f"A single time has a standard error of {100 * series.noise:.2g} %, {source}."


def sentences(series: TimedCurve, axis: Axis) -> list[str]:
    """A curve in sentences: its slow sizes and edges, the largest first, then its rise."""
    said = sorted(claimed(series.events), key=lambda event: -event.share)
    return [*map(_event_sentence, said), *_shape_sentences(series, axis)]


def _event_sentence(event: Event) -> str:
    extra = event.extra_ms
    takes, take = _SURE[Certainty(event.certainty)]
    half = (extra.high - extra.low) / 2
    size = f"{number(extra.value, 3)} ± {number(half, 2)} ms"
    more = f"{size} ({event.share:+.0%})"
    if event.kind == "slow":
        slow = in_words(event.sizes)
        verb = take if len(event.sizes) > 1 else takes
        return f"{slow} {verb} longer than {event.at}, {event.sizes[-1]} by {more}."
    edge = f"the sizes on both sides of the edge from {event.before} explain"
    return f"{event.at} {takes} {more} more than {edge}."


def _shape_sentences(series: TimedCurve, axis: Axis) -> list[str]:
    said = [_say_shape(named, axis) for named in series.shapes]
    return list(filter(None, said))


def _say_shape(named: Named, axis: Axis) -> str:
    if named.shape == Shape.STAIRS:
        others = ""
        if named.steps:
            others = f" ({in_words(named.steps)} would fit, too)"
        return f"The edges are stairs of {named.step}{others}: pad to its multiples."
    near = f"from {named.at} on the rate is within 10 % of its largest"
    if named.shape == Shape.KNEE:
        same = f"about the same time for small {axis.values}"
        return f"A knee: {same}, then in proportion; {near}."
    if named.shape == Shape.PLATEAU:
        return f"A plateau: {near}, so more {axis.unit} together gain little."
    if named.shape == Shape.SUPER:
        return f"Super-linear: the time grows faster than the {axis.unit}, so the rate falls."
    if named.shape == Shape.SAW:
        share = f"{named.share:+.0%} ({named.low:+.0%} to {named.high:+.0%})"
        apart = f"sizes that are no multiple of {named.step}"
        return f"A saw tooth: {apart} take {share} against the next multiple."
    return _NO_EDGE if named.shape == Shape.NONE else ""


def in_words(sizes: Sequence[int]) -> str:
    """Some sizes, or the first and last of many."""
    if len(sizes) > 3:
        return f"{sizes[0]} to {sizes[-1]}"
    *most, last = sizes
    return f"{list_values(most)} and {last}" if most else str(last)


def render_series(
    listed: Sequence[TimedCurve], axis: Axis, everything: bool = False
) -> RenderableType:
    """Every curve with a shape, those with edges and slow sizes first; one alone in full."""
    if len(listed) == 1:
        return _curve_in_full(listed[0], axis)
    limit = None if everything else _SHOWN
    events, shapes = [], []
    for series in listed:
        for event in claimed(series.events):
            events.append((series, event))
        name = name_of(series)
        for line in _shape_sentences(series, axis):
            if line != _NO_EDGE:
                shapes.append(f"{name}: {line}")
    events.sort(key=lambda pair: -pair[1].share)
    if events:
        head: RenderableType = _events(events[:limit])
    else:
        has_pairs = any(len(series.fit.sizes) > 1 for series in listed)
        head = Text(_NO_EDGE if has_pairs else _NO_PAIR, "bold")
    hidden: list[Text] = []
    notes = [_count_curves(listed)]
    if not everything:
        hidden = note_hidden(len(shapes) - _SHOWN, "shape", "shapes")
        smaller = note_hidden(len(events) - _SHOWN, "smaller", "smaller ones")
        notes += [note.plain for note in smaller]
    noises = [series.noise for series in listed]
    extremes = [f"{100 * noise:.2g}" for noise in (min(noises), max(noises))]
    error = " to ".join(dict.fromkeys(extremes))
    notes.append(f"A single time has a standard error of {error} %, see each curve.")
    shown = map(Text, shapes[:limit])
    return Group(head, *shown, *hidden, *dim([*_doubts_of_several(listed), *notes]))


def _doubts_of_several(listed: Sequence[TimedCurve]) -> list[str]:
    """The largest edges that noise may be, each with its curve."""
    doubts = [(event, series) for series in listed for event in _list_doubts(series)]
    doubts.sort(key=lambda pair: -pair[0].share)
    return [f"{name_of(series)}: {_doubt_sentence(event)}" for event, series in doubts[:_DOUBTS]]


def _count_curves(listed: Sequence[TimedCurve]) -> str:
    quiet = sum(not claimed(series.events) for series in listed)
    curves = counted(len(listed), "curve")
    without = f"{quiet} without an edge or a slow size"
    return f"{curves}, {without}; the tests of all are one family."


def _curve_in_full(series: TimedCurve, axis: Axis) -> RenderableType:
    """One curve: its shape, its picture and its table."""
    blocks: list[RenderableType] = []
    title = join_texts((series.problem, series.device_name))
    if title:
        blocks.append(Text(title, "bold"))
    first, *others = sentences(series, axis)
    blocks.append(Text(first, "bold"))
    blocks += map(Text, others)
    rivals = [named.rival for named in series.shapes if named.rival]
    blocks += dim(f"Rival: {rival}." for rival in rivals)
    blocks += dim(map(_doubt_sentence, _list_doubts(series)))
    picture, curve = draw_curve(series), render_curve(series.curve, axis)
    noise = Text(noise_sentence(series), "dim")
    return Group(*blocks, Text(), picture, Text(), curve, noise)


def _list_doubts(series: TimedCurve) -> list[Event]:
    """The largest edge that noise may be, if it is large."""
    unsure = [event for event in series.events if event.certainty == Certainty.NOISE]
    large = [event for event in unsure if event.share >= _LARGE]
    return sorted(large, key=lambda event: -event.share)[:1]


def _doubt_sentence(event: Event) -> str:
    edge = f"{event.at} takes {event.share:.0%} more than its neighbours explain"
    return f"{edge}, which may be noise: measure {event.before} and {event.at} several times."


def _events(events: Sequence[tuple[TimedCurve, Event]]) -> RenderableType:
    """The edges and slow sizes of several curves."""
    rows = table("problem", "device", "shape", "at", "ms", "share", "p", words=("device", "shape"))
    for series, event in events:
        kind = "slow" if event.kind == "slow" else "edge"
        if event.certainty == Certainty.MAY_BE:
            kind = f"may be {kind}"
        sizes = in_words(event.sizes) if event.sizes else str(event.at)
        rows.add_row(
            Text(series.problem or ""),
            Text(series.device_name or ""),
            kind,
            sizes,
            number(event.extra_ms.value, 3),
            f"{event.share:+.0%}",
            f"{event.p_adjusted:.1g}",
        )
    return rows


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
    return join_texts((series.problem, series.device_name)) or "the curve"
