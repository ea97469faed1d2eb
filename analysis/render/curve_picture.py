"""A curve as a picture of text: its points, the fitted pieces, and the sizes to look at."""

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
    marked = {event.at for event in claimed(series.events)}
    marked |= {size for event in claimed(series.events) for size in event.sizes}
    cells = [[" "] * _COLUMNS for _ in range(_LINES)]
    for column in range(_COLUMNS):
        for piece in fit.pieces:
            inside = [
                size
                for size in _sizes_at(sizes, across, column)
                if sizes[piece.first] <= size <= sizes[piece.last]
            ]
            if inside and piece.count > 1:
                line = up(max(piece.at(inside[0]), times[0] * 1e-3))
                cells[_LINES - 1 - min(max(line, 0), _LINES - 1)][column] = _SHAPE
    for size, time in zip(sizes, times, strict=True):
        mark = _MARKED if int(size) in marked else _POINT
        cells[_LINES - 1 - up(time)][across(size)] = mark
    labels = {0: number(max(times), 3), _LINES - 1: number(min(times), 3)}
    width = max(len(label) for label in labels.values())
    lines = [f"{labels.get(place, ''):>{width}} │{''.join(row)}" for place, row in enumerate(cells)]
    ends = f"{int(sizes[0])}{int(sizes[-1]):>{_COLUMNS - len(str(int(sizes[0])))}}"
    lines += [f"{'ms':>{width}} └{'─' * _COLUMNS}", f"{'':>{width}}  {ends}"]
    return Text("\n".join(line.rstrip() for line in lines), no_wrap=True)


def _scale(values: Sequence[float], room: int) -> Callable[[float], int]:
    """The place of a value in a room, on a logarithmic axis."""
    low, high = math.log(min(values)), math.log(max(values))
    span = high - low or 1.0

    def place(value: float) -> int:
        return min(room - 1, max(0, round((room - 1) * (math.log(value) - low) / span)))

    return place


def _sizes_at(sizes: Sequence[float], across: Callable[[float], int], column: int) -> list[float]:
    """A size whose place is a column; none beyond the curve."""
    low, high = math.log(sizes[0]), math.log(sizes[-1])
    size = math.exp(low + (high - low) * column / (_COLUMNS - 1))
    return [min(max(size, sizes[0]), sizes[-1])] if across(size) == column else []
