"""A cost curve while it is measured: a view on a terminal, which a visit never shares its time with; else lines."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import TracebackType

import pandas as pd
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ...profiling.errors import CurvescopeError
from ...profiling.measure.experiment import Progress
from ...profiling.recording.axis import Axis
from ..decompose.curve import Curve, Point, cost_curve
from . import terminal
from .numbers import number
from .tables import Table, table
from .text import interval

_BETWEEN_CURVES_S = 2.0  # a curve takes 15 ms of the time between two visits
_BETWEEN_LINES_S = 10.0
_SCALE = 32  # characters of the plot of intervals


class LiveCurve:
    """Shows the curve so far, what is being decided and the time left, on standard error.

    Everything is drawn between visits: no thread runs while a step is timed.
    """

    def __init__(
        self,
        statistic: str,
        axis: Axis,
        deciding: Callable[[], str | None] = lambda: None,
        then: str = "",
        shown: Console | None = None,
    ) -> None:
        """Define the view.

        Args:
            statistic: statistic for T(b), see `cost_curve`.
            axis: axis of the curve.
            deciding: function that returns the anomaly that rounds are chosen for, or None.
            then: what follows the measurement, in words.
            shown: console; None for standard error.
        """
        self.console = shown or terminal.console(stderr=True)
        self._statistic, self._axis, self._deciding, self._then = statistic, axis, deciding, then
        self._curve: Curve | None = None
        self._curve_s = self._line_s = 0.0  # times of the last curve and the last line
        # Without a thread that redraws. What a step prints goes above the view, but never from a file to the terminal.
        self._live = Live(
            Text("the first step"),
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=self.console.is_terminal,
            vertical_overflow="crop",
        )

    def __enter__(self) -> LiveCurve:
        """Begin to draw, on a terminal."""
        if self.console.is_terminal:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Remove the view."""
        if self.console.is_terminal:
            self._live.stop()

    def report(self, progress: Progress) -> None:
        """Show a state of the measurement; the function that `run_sweep` reports to."""
        if self._curve is None or progress.elapsed_s >= self._curve_s + _BETWEEN_CURVES_S:
            self._renew(progress)
        if self.console.is_terminal:
            self._live.update(self._view(progress), refresh=True)
        elif progress.elapsed_s >= self._line_s + _BETWEEN_LINES_S:
            self._line_s = progress.elapsed_s
            line = "; ".join([*self._standing(progress), *self._shortly()])
            self.console.print(Text(f"{line}.", no_wrap=True, overflow="ignore"))

    def _renew(self, progress: Progress) -> None:
        if any(not row["profiled"] for row in progress.steps):
            try:
                self._curve = cost_curve(pd.DataFrame(progress.steps), self._statistic)
            except CurvescopeError:  # e.g. the rounds so far have no batch size in common
                return
            self._curve_s = progress.elapsed_s

    def _standing(self, progress: Progress) -> list[str]:
        """What runs, what is decided, and the time left."""
        left_s = max(progress.expected_s - progress.elapsed_s, 0.0)
        then = f", then {self._then}" if self._then else ""
        lines = [f"{progress.doing}: {progress.elapsed_s:.0f} s so far, about {left_s:.0f} s left{then}"]
        if what := self._deciding():
            return [*lines, f"deciding what makes the {what}: rounds visit only its batch sizes"]
        return [*lines, "deciding where the curve bends: rounds visit every batch size"]

    def _shortly(self) -> list[str]:
        """The curve in a line."""
        if self._curve is None:
            return []
        points = self._curve.points
        times = ", ".join(f"{point.condition}: {number(point.time_ms.value)}" for point in points)
        return [f"step ms by {self._axis.name} so far: {times}"]

    def _view(self, progress: Progress) -> RenderableType:
        blocks: list[RenderableType] = [Text(line[0].upper() + line[1:]) for line in self._standing(progress)]
        done = min(progress.elapsed_s / progress.expected_s, 1.0) if progress.expected_s else 0.0
        blocks.append(Text(f"{'━' * round(_SCALE * done):╌<{_SCALE}} {done:.0%}"))
        if self._curve is not None:
            blocks.append(_rows(self._curve, self._axis))
        return Group(*blocks)


def _rows(curve: Curve, axis: Axis) -> Table:
    rows = table(
        *(axis.name, "step ms", "95 % interval", f"ms/{axis.one}", "n", f"0 … most ms/{axis.one}"),
        first="right",
        whole=(f"0 … most ms/{axis.one}",),
        optional=(f"0 … most ms/{axis.one}",),
    )
    most = max(_per_one(point)[2] for point in curve.points)
    for point in curve.points:
        time = point.time_ms.value
        cells = (
            str(point.condition),
            number(time),
            interval(point.time_ms),
            number(time / point.condition),
            str(point.n),
        )
        rows.add_row(*cells, _plot(point, most))
    return rows


def _per_one(point: Point) -> tuple[float, float, float]:
    """Low end, value and high end of the time per sample, ms; the value for both ends while they are unknown."""
    time = point.time_ms
    ends = (time.low, time.high) if math.isfinite(time.low) and math.isfinite(time.high) else (time.value, time.value)
    return ends[0] / point.condition, time.value / point.condition, ends[1] / point.condition


def _plot(point: Point, most: float) -> str:
    """The time per sample as a point between the ends of its interval, on a scale from 0."""
    low, at, high = (min(max(round(value / most * (_SCALE - 1)), 0), _SCALE - 1) for value in _per_one(point))
    marks = [" "] * low + ["─"] * (high - low + 1)
    marks[low], marks[high], marks[at] = "├", "┤", "●"
    return "".join(marks)
