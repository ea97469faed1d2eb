"""A cost curve while it is measured: a view on a terminal, which a visit never shares its time
with; else lines.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING

import pandas as pd
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ...base.errors import CurvescopeError
from ...base.numbers import number
from ...profiling.measure.loop import Progress
from ...profiling.recording.axis import Axis
from ..decompose.curve import Curve, Point, cost_curve
from . import terminal
from .tables import TextTable, table
from .words import begin_sentence, interval

if TYPE_CHECKING:
    from typing_extensions import Self

_BETWEEN_CURVES_S = 2.0  # a curve takes 15 ms of the time between two visits
_BETWEEN_LINES_S = 10.0
_SCALE = 32  # characters of the plot of intervals


class LiveView:
    """Live view on standard error: redrawn in place on a terminal, else printed line by line.

    No thread runs while a step is timed.
    """

    def __init__(self, shown: Console | None = None) -> None:
        self.console = shown or terminal.console(stderr=True)
        self._line_s = 0.0  # time of the last line
        # Without a thread that redraws. What a step prints goes above the view, but never from a
        # file to the terminal.
        self._live = Live(
            Text("the first step"),
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=self.console.is_terminal,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def show(
        self,
        now_s: float,
        done: float,
        standing: Sequence[str],
        shortly: Sequence[str] = (),
        below: RenderableType | None = None,
    ) -> None:
        """Draw a state; without a terminal, print it as a line, which says `shortly` for `below`,
        every ten seconds.
        """
        if self.console.is_terminal:
            blocks: list[RenderableType] = [Text(begin_sentence(line)) for line in standing]
            bar = "━" * round(_SCALE * done)
            blocks.append(Text(f"{bar:╌<{_SCALE}} {done:.0%}"))
            if below is not None:
                blocks.append(below)
            self._live.update(Group(*blocks), refresh=True)
        elif now_s >= self._line_s + _BETWEEN_LINES_S:
            self._line_s = now_s
            line = "; ".join([*standing, *shortly])
            self.console.print(Text(f"{line}.", no_wrap=True, overflow="ignore"))


class _CurveSoFar:
    """A curve of the steps so far, computed anew at most every two seconds."""

    def __init__(self, statistic: str, axis: Axis) -> None:
        self._statistic, self._axis = statistic, axis
        self._curve: Curve | None = None
        self._curve_s = 0.0  # time of the last curve

    def renew(self, progress: Progress) -> None:
        """Compute it, if there are steps and it is time to."""
        if self._curve is not None and progress.elapsed_s < self._curve_s + _BETWEEN_CURVES_S:
            return
        if any(not row["profiled"] for row in progress.steps):
            try:
                self._curve = cost_curve(pd.DataFrame(progress.steps), self._statistic)
            except CurvescopeError:  # e.g. the rounds so far have no batch size in common
                return
            self._curve_s = progress.elapsed_s

    def shortly(self) -> list[str]:
        """The curve in a line."""
        if self._curve is None:
            return []
        points = self._curve.points
        times = ", ".join(f"{point.condition}: {number(point.time_ms.value)}" for point in points)
        return [f"step ms by {self._axis.name} so far: {times}"]

    def rows(self) -> TextTable | None:
        """The curve as a table."""
        return None if self._curve is None else _rows(self._curve, self._axis)


def _time_text(progress: Progress) -> str:
    text = f"{progress.doing}: {progress.elapsed_s:.0f} s so far"
    if progress.expected_s:
        left_s = max(progress.expected_s - progress.elapsed_s, 0.0)
        text += f", about {left_s:.0f} s left"
    return text


def _done(progress: Progress) -> float:
    return min(progress.elapsed_s / progress.expected_s, 1.0) if progress.expected_s else 0.0


class LiveProgress(LiveView):
    """Shows what runs and the time left, e.g. where looking at the data would disturb the
    timing.
    """

    def report(self, progress: Progress) -> None:
        """Show a state of the measurement."""
        self.show(progress.elapsed_s, _done(progress), [_time_text(progress)])


class LiveCurve(LiveView):
    """Shows the curve so far, the open decision and the time left."""

    def __init__(
        self,
        statistic: str,
        axis: Axis,
        deciding: Callable[[], str | None] = lambda: None,
        then: str = "",
        shown: Console | None = None,
    ) -> None:
        """Define the view; `deciding` returns the anomaly that rounds are chosen for, `then` says
        what follows.
        """
        super().__init__(shown)
        self._so_far, self._deciding, self._then = _CurveSoFar(statistic, axis), deciding, then

    def report(self, progress: Progress) -> None:
        """Show a state of the measurement; the function that `run_sweep` reports to."""
        self._so_far.renew(progress)
        standing, shortly = self._say_progress(progress), self._so_far.shortly()
        self.show(progress.elapsed_s, _done(progress), standing, shortly, self._so_far.rows())

    def _say_progress(self, progress: Progress) -> list[str]:
        then = f", then {self._then}" if self._then else ""
        lines = [f"{_time_text(progress)}{then}"]
        if progress.allows is not None:
            lines.append(f"the time allows {progress.allows}")
        what = self._deciding()
        if what:
            lines.append(f"deciding what makes the {what}: rounds visit only its batch sizes")
        else:
            lines.append("deciding where the curve bends: rounds visit every batch size")
        return lines


class LiveCurves(LiveView):
    """Shows the recording of a sweep that reported last, and its curve so far."""

    def __init__(
        self,
        labels: Sequence[str],
        statistic: str,
        axis: Axis,
        shown: Console | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(shown)
        self._labels, self._clock_s, self._began_s = labels, clock_s, clock_s()
        self._so_far = {label: _CurveSoFar(statistic, axis) for label in labels}
        self._lock = Lock()  # several workers report

    def report(self, label: str, progress: Progress) -> None:
        """Show a state of one recording; the function that `run_plan` reports to."""
        with self._lock:
            so_far = self._so_far[label]
            so_far.renew(progress)
            where = f"recording {self._labels.index(label) + 1} of {len(self._labels)}, {label}"
            said = _time_text(progress)
            if progress.expected_s:
                said += " of this recording"
            now_s = self._clock_s() - self._began_s
            self.show(now_s, _done(progress), [where, said], so_far.shortly(), so_far.rows())


def _rows(curve: Curve, axis: Axis) -> TextTable:
    each = f"ms/{axis.one}"
    heads = (axis.name, "step ms", "95 % interval", each, "n", f"0 … most {each}")
    rows = table(*heads, first="right", whole=heads[-1:], optional=heads[-1:])
    most = max(_per_one(point)[2] for point in curve.points)
    for point in curve.points:
        size, time = point.condition, point.time_ms.value
        cells = (str(size), number(time), interval(point.time_ms), number(time / size))
        rows.add_row(*cells, str(point.n), _plot(point, most))
    return rows


def _per_one(point: Point) -> tuple[float, float, float]:
    """Low end, value and high end of the time per sample, ms; the value for both ends while they
    are unknown.
    """
    time, size = point.time_ms, point.condition
    low, high = time.low, time.high
    if not (math.isfinite(low) and math.isfinite(high)):
        low = high = time.value
    return low / size, time.value / size, high / size


def _plot(point: Point, most: float) -> str:
    """The time per sample as a point between the ends of its interval, on a scale from 0."""
    places = []
    for value in _per_one(point):
        place = round(value / most * (_SCALE - 1))
        places.append(min(max(place, 0), _SCALE - 1))
    low, at, high = places
    marks = [" "] * low + ["─"] * (high - low + 1)
    marks[low], marks[high], marks[at] = "├", "┤", "●"
    return "".join(marks)
