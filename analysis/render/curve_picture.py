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
    sizes, times = fit.sizes.tolist(), fit.times.tolist()
    across, up = _scale(sizes, _COLUMNS), _scale(times, _LINES)
    cells = [[" "] * _COLUMNS for _ in range(_LINES)]
    for column in range(_COLUMNS):
        size = _size_at(sizes, across, column)
        if size is None:
            continue
        for piece in fit.pieces:
            if piece.count > 1 and sizes[piece.first] <= size <= sizes[piece.last]:
                line = up(max(piece.at(size), times[0] * 1e-3))
                cells[min(max(line, 0), _LINES - 1)][column] = _SHAPE
    marked = set()
    for event in claimed(series.events):
        marked |= {event.at, *event.sizes}
    for size, time in zip(sizes, times, strict=True):
        cells[up(time)][across(size)] = _MARKED if int(size) in marked else _POINT
    heights = number(max(times), 3), number(min(times), 3), "ms"
    return _frame(cells, heights, (str(int(sizes[0])), str(int(sizes[-1]))))


def draw_roof(points: Sequence[tuple[float, float]], slope: float, top: float) -> Text:
    """Measured rates over FLOPs per byte, under the roof that rises with a slope to its top."""
    intensities, rates = zip(*sorted(points), strict=True)
    low, high = intensities[0], intensities[-1]
    across, up = _scale(intensities, _COLUMNS), _scale([*rates, top], _LINES)
    cells = [[" "] * _COLUMNS for _ in range(_LINES)]
    for column in range(_COLUMNS):
        intensity = low * (high / low) ** (column / (_COLUMNS - 1))
        cells[up(min(top, slope * intensity))][column] = _SHAPE
    for intensity, rate in zip(intensities, rates, strict=True):
        cells[up(rate)][across(intensity)] = _POINT
    heights = number(top, 3), number(min(rates), 3), "GFLOP/s"
    return _frame(cells, heights, (number(low, 3), f"{number(high, 3)} FLOP/B"))


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
    lines.append(f"{unit:>{width}} └{'─' * _COLUMNS}")
    lines.append(f"{'':>{width}}  {first}{last:>{_COLUMNS - len(first)}}")
    return Text("\n".join(line.rstrip() for line in lines), no_wrap=True)


def _scale(values: Sequence[float], room: int) -> Callable[[float], int]:
    """The place of a value in a room, on a logarithmic axis."""
    low, high = math.log(min(values)), math.log(max(values))
    span = high - low or 1.0

    def place(value: float) -> int:
        share = (math.log(value) - low) / span
        return min(room - 1, max(0, round((room - 1) * share)))

    return place


def _size_at(sizes: Sequence[float], across: Callable[[float], int], column: int) -> float | None:
    """A size whose place is a column; None beyond the curve."""
    low, high = math.log(sizes[0]), math.log(sizes[-1])
    size = math.exp(low + (high - low) * column / (_COLUMNS - 1))
    return min(max(size, sizes[0]), sizes[-1]) if across(size) == column else None
