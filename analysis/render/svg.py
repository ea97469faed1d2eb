"""One picture as an SVG file: the curve of a recording, or a roofline, on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...base.numbers import number, quantity
from ...profiling.hardware.limits import Roof
from ..roofline import Roofline
from .deviations import cost_line
from .page import Page
from .words import html_text, join_texts, shorten, show_ms

_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 70, 52  # around the axes
_INK, _SOFT, _LINE, _DATA, _SLOW = "#1c1b19", "#5d5a54", "#e4e0d8", "#2b6cb0", "#b3261e"
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
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values on the axis; decades alone where it has more than three."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = _STEPS if self.high / self.low <= 1e3 else _STEPS[:1]
        values = [step * 10.0**decade for decade in decades for step in steps]
        return [value for value in values if self.low <= value <= self.high]


@dataclass
class _Chart:
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
        self.marks.append(f'<text {place} fill="{color}">{html_text(text)}</text>')

    def line(
        self,
        ends: Sequence[tuple[float, float]],
        color: str,
        width: float = 1.5,
        dash: str = "none",
    ) -> None:
        """A line through values."""
        places = " ".join(f"{self.across.at(x):.1f},{self.up.at(y):.1f}" for x, y in ends)
        stroke = f'stroke="{color}" stroke-width="{width}" stroke-dasharray="{dash}"'
        self.marks.append(f'<polyline points="{places}" fill="none" {stroke}/>')

    def dot(self, x: float, y: float, color: str, radius: float = 4.0, tip: str = "") -> None:
        """A dot at values; the tip is shown below a pointer."""
        place = f'cx="{self.across.at(x):.1f}" cy="{self.up.at(y):.1f}" r="{radius:.1f}"'
        style = f'fill="{color}" fill-opacity="0.85"'
        self.marks.append(f"<circle {place} {style}><title>{html_text(tip)}</title></circle>")

    def axes(
        self,
        across: Iterable[tuple[float, str]],
        up: Iterable[tuple[float, str]],
        name_across: str,
        name_up: str,
    ) -> None:
        """Grid, ticks with their labels, and the names of the axes."""
        bottom, right, last = self.up.start, self.across.end, -math.inf
        for value, label in across:
            x = self.across.at(value)
            self.line([(value, self.up.low), (value, self.up.high)], _LINE, 1)
            if x - last >= _APART:
                self.text(x, bottom + 18, label, "middle")
                last = x
        for value, label in up:
            self.line([(self.across.low, value), (self.across.high, value)], _LINE, 1)
            self.text(_LEFT - 8, self.up.at(value) + 4, label, "end")
        self.text(right, bottom + 34, name_across, "end")
        self.text(_LEFT, _TOP - 10, name_up)

    def document(self, height: int = _HEIGHT) -> str:
        """The picture as a file; it may be higher than the frame needs."""
        title, facts = html_text(self.title), html_text(self.facts)
        style = f'font-size="17" font-weight="bold" fill="{_INK}"'
        body = "\n".join(
            [
                f'<text x="16" y="26" {style}>{title}</text>'
                f'<text x="16" y="44" fill="{_SOFT}">{facts}</text>',
                *self.marks,
            ]
        )
        size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        font = 'font-size="12" font-family="system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif"'
        ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
        return f"{head}\n{ground}\n{body}\n</svg>\n"


def _chart(title: str, facts: str, across: Sequence[float], up: Sequence[float]) -> _Chart:
    scale_across = _Scale(min(across) / _ROOM, max(across) * _ROOM, _LEFT, _WIDTH - _RIGHT)
    scale_up = _Scale(min(up) / _ROOM, max(up) * _ROOM, _HEIGHT - _BOTTOM, _TOP)
    return _Chart(title, shorten(facts, _FACTS), scale_across, scale_up)


def curve_svg(page: Page) -> str:
    """The time of a step over the batch size with its intervals, the line of fixed and
    proportional cost, and the slow sizes in red.
    """
    diagnosis = page.diagnosis
    points = diagnosis.curve.points
    sizes = [float(point.condition) for point in points]
    times_ms = [point.time_ms.value for point in points]
    facts = join_texts([page.facts(_FACTS), page.how_quiet().plain])
    chart = _chart(page.verdict(), facts, sizes, times_ms)
    ticks = [(time, number(time, 3)) for time in chart.up.ticks()]
    axis = diagnosis.axis.name
    chart.axes([(size, f"{size:g}") for size in sizes], ticks, axis, "ms a step, 95 % interval")
    _draw_cost(chart, page, sizes)
    chart.line(list(zip(sizes, times_ms, strict=True)), _DATA)
    slow = {entry.at for entry in page.entries if entry.is_slow_size}
    for point, size in zip(points, sizes, strict=True):
        time = point.time_ms
        color = _SLOW if point.condition in slow else _DATA
        if math.isfinite(time.high) and time.low > 0:
            chart.line([(size, time.low), (size, time.high)], color, 2)
        tip = f"{axis} {size:g}: {show_ms(time.value)}, n = {point.n}"
        chart.dot(size, time.value, color, tip=tip)
    return chart.document()


def _draw_cost(chart: _Chart, page: Page, sizes: Sequence[float]) -> None:
    """Draw the line of fixed and proportional cost, if there is one."""
    line = cost_line(page.diagnosis.curve)
    if line is None:
        return
    ends = []
    for size in sizes:
        cost_ms = line.fixed_ms + line.each_ms * size
        if cost_ms > chart.up.low:
            ends.append((size, cost_ms))
    chart.line(ends, _SOFT, 1, dash="5 4")
    axis = page.diagnosis.axis.name
    said = f"{show_ms(line.fixed_ms, 3)} + {show_ms(line.each_ms, 3)} × {axis}"
    chart.text(_WIDTH - _RIGHT, _TOP - 10, f"dashed: {said}", "end")


def roofline_svg(drawn: Roofline, title: str) -> str:
    """Achieved FLOP/s over FLOPs per byte of DRAM. Lines are roofs; the longest six have names."""
    placed = []
    for point in drawn.points:
        for level in point.levels[:1]:
            if point.flops_per_s > 0 and level.flops_per_byte > 0:
                placed.append((point, level))
    compute = [roof for roof in drawn.roofs if roof.level == "compute"]
    memory = [roof for roof in drawn.roofs if roof.level != "compute"]
    across = [level.flops_per_byte for _, level in placed] or [1.0]
    across += [peak.per_s / bytes_.per_s for peak in compute for bytes_ in memory]
    rates = [point.flops_per_s for point, _ in placed]
    rates += [roof.per_s for roof in compute]
    chart = _chart(title, f"by {drawn.by}; a dot's area is its time", across, rates or [1.0, 10.0])
    ticks = []
    for rate in chart.up.ticks():
        ticks.append((rate, quantity(rate, "FLOP/s", 2).removesuffix("FLOP/s")))
    intensities = [(value, f"{value:g}") for value in chart.across.ticks()]
    chart.axes(intensities, ticks, "FLOPs per byte", "FLOP/s")
    _draw_roofs(chart, memory, compute)
    longest = max((point.time_s for point, _ in placed), default=1.0)
    for index, (point, level) in enumerate(placed):
        x, y = level.flops_per_byte, point.flops_per_s
        time = show_ms(1e3 * point.time_s, 3)
        radius = 3 + 9 * math.sqrt(point.time_s / longest)
        chart.dot(x, y, _DATA, radius, f"{point.label}: {time}, {level.source} bytes")
        if index < _MOST_NAMES:
            label = str(index + 1)
            chart.text(chart.across.at(x), chart.up.at(y) + 4, label, "middle", "#ffffff")
            name = shorten(point.label, _NAME - len(time))
            line, column = divmod(index, _NAMED_IN_LINE)
            left = 16 + column * (_WIDTH - 16) / _NAMED_IN_LINE
            chart.text(left, _HEIGHT + 4 + 18 * line, f"{label}  {name}, {time}", color=_INK)
    lines = math.ceil(min(len(placed), _MOST_NAMES) / _NAMED_IN_LINE)
    return chart.document(_HEIGHT + 18 * lines)


def _draw_roofs(chart: _Chart, memory: Sequence[Roof], compute: Sequence[Roof]) -> None:
    """Draw the roofs as far as they bound: memory up to the highest compute roof, which begins
    where the widest memory meets it.
    """
    highest = max((roof.per_s for roof in compute), default=chart.up.high)
    for roof in memory:
        low = max(chart.across.low, chart.up.low / roof.per_s)
        high = min(chart.across.high, highest / roof.per_s)
        if low < high:
            chart.line([(low, low * roof.per_s), (high, high * roof.per_s)], _INK)
            middle = math.sqrt(low * high)
            x, y = chart.across.at(middle), chart.up.at(middle * roof.per_s)
            rate = quantity(roof.per_s, "B/s", 3)
            chart.text(x - 8, y - 4, f"{roof.level} {rate}, {roof.kind}", "end")
    widest = max((roof.per_s for roof in memory), default=math.inf)
    for roof in compute:
        low = max(chart.across.low, roof.per_s / widest)
        chart.line([(low, roof.per_s), (chart.across.high, roof.per_s)], _INK)
        rate = quantity(roof.per_s, "FLOP/s", 3)
        x, y = chart.across.at(low), chart.up.at(roof.per_s)
        chart.text(x + 6, y - 5, f"{roof.precision} {rate}, {roof.kind}")
