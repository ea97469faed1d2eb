"""One picture as an SVG file: the curve of a recording, or a roofline, on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...base.numbers import number, quantity
from ...profiling.hardware.limits import Roof
from ..diagnosis.result import Diagnosis
from ..roofline import LevelTraffic, Roofline, RoofPoint
from .deviations import cost_line
from .summary import Summary
from .words import html_text, join_texts, shorten, show_ms

_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 70, 52  # around the axes
_INK, _SOFT, _LINE, DATA_COLOR, SLOW_COLOR = "#1c1b19", "#5d5a54", "#e4e0d8", "#2b6cb0", "#b3261e"
_ROOM = 1.15  # between the outermost values and the frame, as a factor
_APART = 20  # pixels between two labels of an axis
_MOST_NAMES = 6  # points of a roofline that have a number, and their names below
_NAMED_IN_LINE, _NAME = 2, 48  # names in a line, and their characters
_FACTS = 110  # characters of the line under the title
_STEPS = (1, 2, 5)  # of ticks in a decade


@dataclass(frozen=True)
class _Scale:
    """A logarithmic axis: from values to pixels."""

    low: float
    high: float
    start: float  # the pixel of `low`
    end: float

    def at(self, value: float) -> float:
        whole = math.log(self.high / self.low)
        share = math.log(value / self.low) / whole
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values on the axis; decades alone where it has more than three."""
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        steps = _STEPS if self.high / self.low <= 1e3 else _STEPS[:1]
        ticks = []
        for decade in range(first, last + 1):
            for step in steps:
                value = step * 10.0**decade
                if self.low <= value <= self.high:
                    ticks.append(value)
        return ticks


@dataclass
class Chart:
    """A frame with two logarithmic axes, to which marks are added."""

    title: str
    facts: str
    across: _Scale
    up: _Scale
    marks: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, text: str, anchor: str = "start", color: str = _SOFT
    ) -> None:
        """A text at a place in pixels."""
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        shown = html_text(text)
        self.marks.append(f'<text {place} fill="{color}">{shown}</text>')

    def line(
        self,
        ends: Sequence[tuple[float, float]],
        color: str,
        width: float = 1.5,
        dash: str = "none",
    ) -> None:
        """A line through values."""
        places = " ".join(self._place(x, y) for x, y in ends)
        stroke = f'stroke="{color}" stroke-width="{width}" stroke-dasharray="{dash}"'
        self.marks.append(f'<polyline points="{places}" fill="none" {stroke}/>')

    def _place(self, x: float, y: float) -> str:
        """Values as a pair of pixels."""
        left = self.across.at(x)
        top = self.up.at(y)
        return f"{left:.1f},{top:.1f}"

    def upright(self, x: float, low: float, high: float, color: str, width: float) -> None:
        """An upright line between two values."""
        self.line([(x, low), (x, high)], color, width)

    def dot(self, x: float, y: float, color: str, radius: float = 4.0, tip: str = "") -> None:
        """A dot at values; the tip is shown below a pointer."""
        left = self.across.at(x)
        top = self.up.at(y)
        place = f'cx="{left:.1f}" cy="{top:.1f}" r="{radius:.1f}"'
        style = f'fill="{color}" fill-opacity="0.85"'
        title = f"<title>{html_text(tip)}</title>"
        self.marks.append(f"<circle {place} {style}>{title}</circle>")

    def axes(
        self,
        across: Iterable[tuple[float, str]],
        up: Iterable[tuple[float, str]],
        name_across: str,
        name_up: str,
    ) -> None:
        """Grid, ticks with their labels, and the names of the axes."""
        bottom = self.up.start
        right = self.across.end
        last = -math.inf
        for value, label in across:
            x = self.across.at(value)
            self.upright(value, self.up.low, self.up.high, _LINE, 1)
            if x - last >= _APART:
                self.text(x, bottom + 18, label, "middle")
                last = x
        for value, label in up:
            ends = [(self.across.low, value), (self.across.high, value)]
            self.line(ends, _LINE, 1)
            y = self.up.at(value)
            self.text(_LEFT - 8, y + 4, label, "end")
        self.text(right, bottom + 34, name_across, "end")
        self.text(_LEFT, _TOP - 10, name_up)

    def document(self, height: int = _HEIGHT) -> str:
        """The picture as a file; it may be higher than the frame needs."""
        style = f'font-size="17" font-weight="bold" fill="{_INK}"'
        title = f'<text x="16" y="26" {style}>{html_text(self.title)}</text>'
        facts = f'<text x="16" y="44" fill="{_SOFT}">{html_text(self.facts)}</text>'
        marks = "\n".join(self.marks)
        body = f"{title}{facts}\n{marks}"
        size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        font = 'font-size="12" font-family="system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif"'
        ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
        return f"{head}\n{ground}\n{body}\n</svg>\n"


def make_chart(title: str, facts: str, across: Sequence[float], up: Sequence[float]) -> Chart:
    """An empty chart with room for these values."""
    scale_across = _scale_of(across, _LEFT, _WIDTH - _RIGHT)
    scale_up = _scale_of(up, _HEIGHT - _BOTTOM, _TOP)
    shown = shorten(facts, _FACTS)
    return Chart(title, shown, scale_across, scale_up)


def _scale_of(values: Sequence[float], start: float, end: float) -> _Scale:
    """An axis with room around its values."""
    low = min(values) / _ROOM
    high = max(values) * _ROOM
    return _Scale(low, high, start, end)


def curve_svg(summary: Summary) -> str:
    """The time of a step over the batch size with its intervals, the line of fixed and
    proportional cost, and the slow sizes in red.
    """
    diagnosis = summary.diagnosis
    points = diagnosis.curve.points
    sizes = [float(point.condition) for point in points]
    times_ms = [point.time_ms.value for point in points]
    quiet = summary.how_quiet()
    facts = join_texts([summary.facts(_FACTS), quiet.plain])
    chart = make_chart(summary.say_verdict(), facts, sizes, times_ms)
    axis = diagnosis.axis.name
    labels = [(size, f"{size:g}") for size in sizes]
    ticks = [(time, number(time, 3)) for time in chart.up.ticks()]
    chart.axes(labels, ticks, axis, "ms a step, 95 % interval")
    _draw_cost(chart, diagnosis, sizes)
    line = list(zip(sizes, times_ms, strict=True))
    chart.line(line, DATA_COLOR)
    slow = summary.slow_sizes
    for point, size in zip(points, sizes, strict=True):
        time = point.time_ms
        color = DATA_COLOR
        if point.condition in slow:
            color = SLOW_COLOR
        if math.isfinite(time.high) and time.low > 0:
            chart.upright(size, time.low, time.high, color, 2)
        shown = show_ms(time.value)
        tip = f"{axis} {size:g}: {shown}, n = {point.n}"
        chart.dot(size, time.value, color, tip=tip)
    return chart.document()


def _draw_cost(chart: Chart, diagnosis: Diagnosis, sizes: Sequence[float]) -> None:
    """Draw the line of fixed and proportional cost, if there is one."""
    line = cost_line(diagnosis.curve)
    if line is None:
        return
    ends = []
    for size in sizes:
        cost_ms = line.cost_ms(size)
        if cost_ms > chart.up.low:
            ends.append((size, cost_ms))
    chart.line(ends, _SOFT, 1, dash="5 4")
    said = line.as_sum(diagnosis.axis.name)
    chart.text(_WIDTH - _RIGHT, _TOP - 10, f"dashed: {said}", "end")


def roofline_svg(drawn: Roofline, title: str) -> str:
    """Achieved FLOP/s over FLOPs per byte of DRAM. Lines are roofs; the longest six have names."""
    placed = _place_points(drawn)
    compute = [roof for roof in drawn.roofs if roof.level == "compute"]
    memory = [roof for roof in drawn.roofs if roof.level != "compute"]
    chart = _frame(drawn.by, title, placed, compute, memory)
    ticks = []
    for rate in chart.up.ticks():
        shown = quantity(rate, "FLOP/s", 2)
        ticks.append((rate, shown.removesuffix("FLOP/s")))
    intensities = [(value, f"{value:g}") for value in chart.across.ticks()]
    chart.axes(intensities, ticks, "FLOPs per byte", "FLOP/s")
    _draw_roofs(chart, memory, compute)
    longest = max((point.time_s for point, _ in placed), default=1.0)
    for index, (point, level) in enumerate(placed):
        x, y = level.flops_per_byte, point.flops_per_s
        time = show_ms(1e3 * point.time_s, 3)
        radius = 3 + 9 * math.sqrt(point.time_s / longest)
        tip = f"{point.label}: {time}, {level.source} bytes"
        chart.dot(x, y, DATA_COLOR, radius, tip)
        if index < _MOST_NAMES:
            label = str(index + 1)
            left, top = chart.across.at(x), chart.up.at(y)
            chart.text(left, top + 4, label, "middle", "#ffffff")
            _name_point(chart, index, point.label, time)
    named = min(len(placed), _MOST_NAMES)
    lines = math.ceil(named / _NAMED_IN_LINE)
    return chart.document(_HEIGHT + 18 * lines)


def _place_points(drawn: Roofline) -> list[tuple[RoofPoint, LevelTraffic]]:
    """The points that logarithmic axes can show, by their outermost level."""
    placed = []
    for point in drawn.points:
        for level in point.levels[:1]:
            if point.flops_per_s > 0 and level.flops_per_byte > 0:
                placed.append((point, level))
    return placed


def _frame(
    by: str,
    title: str,
    placed: Sequence[tuple[RoofPoint, LevelTraffic]],
    compute: Sequence[Roof],
    memory: Sequence[Roof],
) -> Chart:
    """The empty chart, with room for all points and for the ridges of the roofs."""
    across = [level.flops_per_byte for _, level in placed] or [1.0]
    rates = [point.flops_per_s for point, _ in placed]
    for roof in compute:
        rates.append(roof.per_s)
        across += [roof.per_s / bytes_.per_s for bytes_ in memory]
    facts = f"by {by}; a dot's area is its time"
    return make_chart(title, facts, across, rates or [1.0, 10.0])


def _name_point(chart: Chart, index: int, name: str, time: str) -> None:
    """Write the name and the time of a numbered point below the frame."""
    line, column = divmod(index, _NAMED_IN_LINE)
    wide = (_WIDTH - 16) / _NAMED_IN_LINE
    short = shorten(name, _NAME - len(time))
    top = _HEIGHT + 4 + 18 * line
    chart.text(16 + column * wide, top, f"{index + 1}  {short}, {time}", color=_INK)


def _draw_roofs(chart: Chart, memory: Sequence[Roof], compute: Sequence[Roof]) -> None:
    """Draw the roofs as far as they bound: memory up to the highest compute roof, which begins
    where the widest memory meets it.
    """
    highest = max((roof.per_s for roof in compute), default=chart.up.high)
    for roof in memory:
        slope = roof.per_s
        low = max(chart.across.low, chart.up.low / slope)
        high = min(chart.across.high, highest / slope)
        if low < high:
            ends = [(low, low * slope), (high, high * slope)]
            chart.line(ends, _INK)
            middle = math.sqrt(low * high)
            x = chart.across.at(middle)
            y = chart.up.at(middle * slope)
            rate = quantity(slope, "B/s", 3)
            chart.text(x - 8, y - 4, f"{roof.level} {rate}, {roof.kind}", "end")
    widest = max((roof.per_s for roof in memory), default=math.inf)
    for roof in compute:
        height = roof.per_s
        low = max(chart.across.low, height / widest)
        ends = [(low, height), (chart.across.high, height)]
        chart.line(ends, _INK)
        rate = quantity(height, "FLOP/s", 3)
        x, y = chart.across.at(low), chart.up.at(height)
        chart.text(x + 6, y - 5, f"{roof.precision} {rate}, {roof.kind}")
