"""The curve of a page: a bar for each size, how far it is off its neighbours, and the cost line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from rich.cells import cell_len
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, percent
from ...profiling.recording.store import STEP
from ..decompose.curve import Point
from ..decompose.functionals import Condition
from ..decompose.statistics import Estimate
from .cells import Column, at_left, at_right, bar, cut
from .deviations import cost_line, is_known, off_by
from .found import say_share
from .summary import Summary
from .words import UNITS

_MOST_BAR = 40
_OFF_HEAD = "off neighbours, ms"
_OFF = 14  # cells of a deviation with its error
_MISSED = 0.2  # share of a time, from which a line that misses it says nothing of the curve


@dataclass(frozen=True)
class CurveBars:
    """The curve of a diagnosis as lines of a terminal."""

    summary: Summary

    def lines(self, width: int, most: int, listed: int) -> list[Text]:
        """The sizes as bars, with the numbers of the first `listed` findings at each size."""
        curve, axis = self.summary.diagnosis.curve, self.summary.diagnosis.axis
        marks = self._marks(listed)
        points = self._choose_points(most, listed)
        unit = f"ms {UNITS[STEP]}" if curve.unit == STEP else "ms"
        sizes = Column(axis.name, [str(point.condition) for point in points])
        times = Column(f"{unit} ± 95 %", [_time(point) for point in points])
        values = [point.time_ms.value for point in points]
        rates = Column("", [""] * len(points))
        if self.summary.has_rates:
            values = [_rate(point) for point in points]
            rates = Column(f"{axis.unit}/s", [number(rate, 3) for rate in values])
        left = (sizes, times, rates)
        offs = [self._off(point, marks) for point in points]
        last = Column(_OFF_HEAD, [off.plain for off in offs]).width
        taken = sum(column.width for column in left) + last
        room = min(width - taken - 8, _MOST_BAR)
        shown = {point.condition for point in points}
        hidden = len(set(curve.conditions) - shown)
        note = f"{hidden} more sizes: --all" if hidden else ""
        heads = [at_right(column.heading, column.width) for column in left]
        heads += [at_left(note, room), at_right(_OFF_HEAD, last)]
        head = "  ".join(heads)
        lines = [Text(head.rstrip(), "dim")]
        largest = max(values)
        for index, off in enumerate(offs):
            cells = [at_right(column.cells[index], column.width) for column in left]
            drawn = bar(values[index] / largest, room)
            cells += [at_left(drawn, room), ""]
            line = Text("  ".join(cells)).append(off)
            line.rstrip()
            lines.append(line)
        return lines + self._line(width)

    def list_points(self, listed: int) -> list[Point]:
        """The measured sizes, and probed ones that the first findings name."""
        curve, probes = self.summary.diagnosis.curve, self.summary.diagnosis.probe_times
        named: set[Condition] = set()
        for entry in self.summary.entries[:listed]:
            named.update(entry.beside)
        added = []
        for size in named.intersection(probes).difference(curve.conditions):
            times_ms = probes[size]
            time = Estimate(fmean(times_ms), -math.inf, math.inf, 1.0)
            added.append(Point(size, time, spread=None, n=len(times_ms), rounds=1))
        if not added:
            return list(curve.points)
        return sorted([*curve.points, *added], key=lambda point: point.condition)

    def _choose_points(self, most: int, listed: int) -> list[Point]:
        """The sizes that are shown: both ends, sizes that the answer names, the neighbours of the
        first finding, other sizes with findings, then sizes that stand alone.
        """
        points, marks = self.list_points(listed), self._marks(listed)
        named = self._name_sizes(listed) | {points[0].condition, points[-1].condition}
        for first, second in pairwise(point.condition for point in points):
            if 1 in (*marks.get(first, ()), *marks.get(second, ())):
                named |= {first, second}
        while len(points) > most:
            inner = range(1, len(points) - 1)
            unnamed = [place for place in inner if points[place].condition not in named]
            free = [place for place in unnamed if points[place].condition not in marks]
            gaps = {}
            for place in free or unnamed or inner:
                before, after = points[place - 1], points[place + 1]
                gaps[place] = after.condition / before.condition
            del points[min(gaps, key=gaps.__getitem__)]
        return points

    def _marks(self, listed: int) -> dict[object, list[int]]:
        """The listed findings by size; of a size that none is about, the first of the others."""
        marks: dict[object, list[int]] = {}
        for index, entry in enumerate(self.summary.entries, 1):
            if entry.at is not None and (index <= listed or entry.at not in marks):
                there = marks.setdefault(entry.at, [])
                there.append(index)
        return marks

    def _name_sizes(self, listed: int) -> set[Condition]:
        """The sizes that the answer names: of its first findings, the remedy's, the one to take."""
        named: set[Condition] = set()
        for entry in self.summary.entries[:listed]:
            named |= {entry.at, *entry.beside}
        told = self.summary.find_remedy()
        if told is not None:
            _, change = told
            named.add(change.batch)
            if change.padding is not None:
                named.add(change.padding.to)
        throughput = self.summary.find_throughput()
        if throughput is not None:
            named.add(throughput.batch)
        return named

    def _off(self, point: Point, marks: dict[object, list[int]]) -> Text:
        """How far a size is off its neighbours, with the numbers of the findings there."""
        numbers = ""
        if point.condition in marks:
            listed = ",".join(map(str, marks[point.condition]))
            numbers = f" [{listed}]"
        off = self._off_neighbours(point)
        if off is None:
            said = self._say_probed(point) or self._beyond(point) or " " * _OFF
            return Text(said).append(numbers, "bold")
        half = (off.high - off.low) / 2
        has_interval = math.isfinite(half)
        digits = _decimals(half if has_interval else abs(off.value))
        text = f"{off.value:+.{digits}f}"
        if has_interval:
            shown = _show_half(half, digits, f"{half:.{digits}f}")
            text += f" ± {shown}"
        is_sure = has_interval and not off.low <= 0 <= off.high
        return Text(at_right(text, _OFF), "" if is_sure else "dim").append(numbers, "bold")

    def _off_neighbours(self, point: Point) -> Estimate | None:
        """How far a size is off its neighbours; of the last one, only where it is slow."""
        curve = self.summary.diagnosis.curve
        if point.condition not in curve.conditions:
            return None
        last = curve.conditions[-1]
        is_slow = any(entry.is_slow_size and entry.at == last for entry in self.summary.entries)
        if not is_slow and point.condition == last:
            return None
        return off_by(curve, point.condition, (last,) if is_slow else ())

    def _say_probed(self, point: Point) -> str:
        """How often a size was measured that the sweep only probed; empty of other sizes."""
        if point.condition in self.summary.diagnosis.curve.conditions:
            return ""
        return f"probed, {counted(point.n, 'step')}"

    def _beyond(self, point: Point) -> str:
        """What lies beyond the largest size."""
        throughput = self.summary.find_throughput()
        if throughput is None or point.condition != self.summary.diagnosis.curve.conditions[-1]:
            return ""
        if self.summary.memory_is_full:
            return "the largest that fits"
        if not throughput.grows:
            return ""
        return f"rising: try {2 * point.condition}"

    def _line(self, width: int) -> list[Text]:
        """The straight line that comes nearest to the curve."""
        line, curve = cost_line(self.summary.diagnosis.curve), self.summary.diagnosis.curve
        if line is None:
            return []
        axis = self.summary.diagnosis.axis.name
        if line.off > _MISSED:
            missed = say_share(line.off)
            return [Text(f"No straight line fits these times: the nearest is off by {missed}.")]
        small, large = curve.conditions[0], curve.conditions[-1]
        at_small = percent(line.fixed_share(small))
        at_large = percent(line.fixed_share(large))
        off = f" ± {percent(line.off)}" if line.off > 0.05 else ""
        cost = f"{number(line.fixed_ms, 3)} + {number(line.each_ms, 3)} ms x {axis}{off}"
        said = f"A step costs about {cost}: at {axis} {small} {at_small} is fixed, "
        said += f"at {large} {at_large}."
        if cell_len(said) > width:
            said = f"A step costs {cost}: {at_small} fixed at {small}, {at_large} at {large}."
        if not line.tells_fixed(small):
            said = f"A step costs about {number(line.each_ms, 3)} ms x {axis}{off}."
        return [Text(cut(said, width))]


def _rate(point: Point) -> float:
    return 1e3 * float(point.condition) / point.time_ms.value


def _time(point: Point) -> str:
    time = point.time_ms
    value = number(time.value)
    if not math.isfinite(time.high):
        return value
    if not is_known(time.low, time.high):
        return f"{value} unstable"
    decimals = len(value.partition(".")[2])
    half = (time.high - time.low) / 2
    return f"{value} ± {_show_half(half, decimals, number(half, 2)):<4}"


def _show_half(half: float, decimals: int, shown: str) -> str:
    """Half an interval beside a number of some decimals; none is 0, nor finer than the number."""
    least = 10.0**-decimals
    return shown if half >= least / 2 else f"<{least:.{decimals}f}"


def _decimals(value: float) -> int:
    if value >= 10:
        return 0
    return 1 if value >= 1 else 2
