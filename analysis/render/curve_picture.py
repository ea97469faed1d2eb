"""A curve or a roof as a picture of text: measured points, and what is drawn through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.text import Text

from ...base.numbers import number
from ..curve_shapes import claimed
from ..time_tables import TimedCurve

_COLUMNS, _LINES = 60, 12
_POINT, _SHAPE, _MARKED = "●", "·", "◆"


def draw_curve(series: TimedCurve) -> Text:
    """Sixty columns by twelve lines; sizes and times on logarithmic axes where they span a lot."""
    fit = series.fit
    sizes = fit.sizes.tolist()
    times = fit.times.tolist()
    across = _scale(sizes, _COLUMNS)
    up = _scale(times, _LINES)
    cells = _empty_cells()
    for column in range(_COLUMNS):
        size = _size_at(sizes, across, column)
        if size is None:
            continue
        for piece in fit.pieces:
            if piece.count > 1 and sizes[piece.first] <= size <= sizes[piece.last]:
                least = times[0] * 1e-3
                line = up(max(piece.at(size), least))
                cells[line][column] = _SHAPE
    marked = set()
    for event in claimed(series.events):
        marked.add(event.at)
        marked.update(event.sizes)
    for size, time in zip(sizes, times, strict=True):
        sign = _POINT
        if int(size) in marked:
            sign = _MARKED
        row = cells[up(time)]
        row[across(size)] = sign
    heights = number(max(times), 3), number(min(times), 3), "ms"
    first, last = int(sizes[0]), int(sizes[-1])
    return _frame(cells, heights, (str(first), str(last)))


def draw_roof(points: Sequence[tuple[float, float]], slope: float, top: float) -> Text:
    """Measured rates over FLOPs per byte, under the roof that rises with a slope to its top."""
    placed = sorted(points)
    intensities = [intensity for intensity, _ in placed]
    rates = [rate for _, rate in placed]
    low, high = intensities[0], intensities[-1]
    across = _scale(intensities, _COLUMNS)
    up = _scale([*rates, top], _LINES)
    cells = _empty_cells()
    for column in range(_COLUMNS):
        share = column / (_COLUMNS - 1)
        intensity = low * (high / low) ** share
        line = up(min(top, slope * intensity))
        cells[line][column] = _SHAPE
    for intensity, rate in placed:
        line = up(rate)
        cells[line][across(intensity)] = _POINT
    heights = number(top, 3), number(min(rates), 3), "GFLOP/s"
    last = f"{number(high, 3)} FLOP/B"
    return _frame(cells, heights, (number(low, 3), last))


def _empty_cells() -> list[list[str]]:
    """Lines of blank cells, the lowest first."""
    return [[" "] * _COLUMNS for _ in range(_LINES)]


def _frame(
    cells: Sequence[Sequence[str]], heights: tuple[str, str, str], ends: tuple[str, str]
) -> Text:
    """Cells behind their highest and lowest value and the unit, over the ends of the other axis."""
    most, least, unit = heights
    first, last = ends
    labels = [most, *[""] * (_LINES - 2), least]
    width = max(map(len, heights))
    lines = []
    for label, row in zip(labels, reversed(cells), strict=True):
        lines.append(f"{label:>{width}} │{''.join(row)}")
    axis = "─" * _COLUMNS
    lines.append(f"{unit:>{width}} └{axis}")
    room = _COLUMNS - len(first)
    lines.append(f"{'':>{width}}  {first}{last:>{room}}")
    trimmed = [line.rstrip() for line in lines]
    return Text("\n".join(trimmed), no_wrap=True)


def _scale(values: Sequence[float], room: int) -> Callable[[float], int]:
    """The place of a value in a room, on a logarithmic axis; what lies outside is at its end."""
    low = math.log(min(values))
    high = math.log(max(values))
    span = high - low or 1.0
    last = room - 1

    def place(value: float) -> int:
        share = (math.log(value) - low) / span
        at = round(last * share)
        return min(last, max(0, at))

    return place


def _size_at(sizes: Sequence[float], across: Callable[[float], int], column: int) -> float | None:
    """A size whose place is a column; None beyond the curve."""
    low = math.log(sizes[0])
    high = math.log(sizes[-1])
    share = column / (_COLUMNS - 1)
    size = math.exp(low + (high - low) * share)
    if across(size) != column:
        return None
    return min(max(size, sizes[0]), sizes[-1])
