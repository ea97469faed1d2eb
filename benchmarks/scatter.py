"""A scatter plot on logarithmic axes as a small SVG, with the diagonal and the lines 30 % off it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path

_SIZE, _LEFT, _TOP, _RIGHT, _BOTTOM = 460, 62, 34, 26, 48
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")  # Okabe and Ito's, told apart by all
_MOST_POINTS = 800


@dataclass(frozen=True)
class Series:
    """Points of one colour."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def write_scatter(path: Path, title: str, x_label: str, y_label: str, series: Sequence[Series]) -> None:
    """Write the plot; a series of many points is thinned evenly."""
    values = [v for s in series for v in (*s.x, *s.y)]
    low, high = floor(log10(min(values)) * 2) / 2, ceil(log10(max(values)) * 2) / 2
    span = _SIZE - _LEFT - _RIGHT

    def across(value: float) -> float:
        return _LEFT + (log10(value) - low) / (high - low) * span

    def down(value: float) -> float:
        return _TOP + span - (log10(value) - low) / (high - low) * span

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {span + _TOP + _BOTTOM}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{_SIZE}" height="{span + _TOP + _BOTTOM}" fill="white"/>',
        f'<text x="{_LEFT}" y="14" font-size="12">{escape(title)}</text>',
    ]
    for exponent in range(ceil(low), floor(high) + 1):
        tick = 10.0**exponent
        parts.append(
            f'<path d="M{across(tick):.1f} {_TOP}V{_TOP + span}M{_LEFT} {down(tick):.1f}H{_LEFT + span}" '
            'stroke="#ddd"/>'
            f'<text x="{across(tick):.1f}" y="{_TOP + span + 15}" text-anchor="middle">{tick:g}</text>'
            f'<text x="{_LEFT - 6}" y="{down(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for factor, style in ((1.0, "#000"), (1.3, "#999"), (1 / 1.3, "#999")):
        begin, end = 10 ** max(low, low - log10(factor)), 10 ** min(high, high - log10(factor))
        parts.append(
            f'<path d="M{across(begin):.1f} {down(begin * factor):.1f}L{across(end):.1f} {down(end * factor):.1f}" '
            f'stroke="{style}" {"" if factor == 1 else "stroke-dasharray=" + chr(34) + "4 3" + chr(34)}/>'
        )
    for place, one in enumerate(series):
        color, stride = _COLORS[place % len(_COLORS)], max(1, ceil(len(one.x) / _MOST_POINTS))
        dots = "".join(f"M{across(x):.1f} {down(y):.1f}h0" for x, y in list(zip(one.x, one.y, strict=True))[::stride])
        parts.append(
            f'<path d="{dots}" stroke="{color}" stroke-width="3.4" stroke-linecap="round" stroke-opacity="0.55"/>'
        )
        parts.append(
            f'<circle cx="{_LEFT + 10}" cy="{_TOP + 12 + 15 * place}" r="3.5" fill="{color}"/>'
            f'<text x="{_LEFT + 18}" y="{_TOP + 16 + 15 * place}">{escape(one.name)}</text>'
        )
    parts.append(
        f'<rect x="{_LEFT}" y="{_TOP}" width="{span}" height="{span}" fill="none" stroke="#444"/>'
        f'<text x="{_LEFT + span / 2}" y="{_TOP + span + 34}" text-anchor="middle">{escape(x_label)}</text>'
        f'<text transform="translate(16 {_TOP + span / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text></svg>"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts) + "\n")


def write_curves(path: Path, title: str, y_label: str, series: Sequence[Series]) -> None:
    """Write curves over the batch size, the batch on a logarithmic axis, time on a linear one from 0."""
    xs, ys = [x for s in series for x in s.x], [y for s in series for y in s.y]
    left, right, top = log10(min(xs)), log10(max(xs)), 1.05 * max(ys)
    span = _SIZE - _LEFT - _RIGHT
    height = span * 0.62

    def across(value: float) -> float:
        return _LEFT + (log10(value) - left) / (right - left) * span

    def down(value: float) -> float:
        return _TOP + height * (1 - value / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_TOP + height + _BOTTOM:.0f}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{_SIZE}" height="{_TOP + height + _BOTTOM:.0f}" fill="white"/>',
        f'<text x="{_LEFT}" y="14" font-size="12">{escape(title)}</text>',
    ]
    ticks = [2**k for k in range(20) if min(xs) <= 2**k <= max(xs)]
    parts += [
        f'<path d="M{across(t):.1f} {_TOP}V{_TOP + height:.1f}" stroke="#ddd"/>'
        f'<text x="{across(t):.1f}" y="{_TOP + height + 15:.1f}" text-anchor="middle">{t}</text>'
        for t in ticks
    ]
    step = 10 ** floor(log10(top / 2)) * (5 if top / 10 ** floor(log10(top / 2)) > 12 else 2)
    for tick in (i * step for i in range(1, ceil(top / step))):
        parts.append(
            f'<path d="M{_LEFT} {down(tick):.1f}H{_LEFT + span}" stroke="#eee"/>'
            f'<text x="{_LEFT - 6}" y="{down(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for place, one in enumerate(series):
        color = _COLORS[place % len(_COLORS)]
        line = "L".join(f"{across(x):.1f} {down(y):.1f}" for x, y in zip(one.x, one.y, strict=True))
        key_y = _TOP + height - 12 - 15 * (len(series) - 1 - place)  # below the curves, which start from 0
        dashed = ' stroke-dasharray="5 3"' if "published" in one.name else ""
        parts.append(f'<path d="M{line}" fill="none" stroke="{color}" stroke-width="1.8"{dashed}/>')
        parts += [
            f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="2.6" fill="{color}"/>'
            for x, y in zip(one.x, one.y, strict=True)
        ]
        parts.append(
            f'<path d="M{_LEFT + 10} {key_y:.1f}h16" stroke="{color}" stroke-width="2"{dashed}/>'
            f'<text x="{_LEFT + 32}" y="{key_y + 4:.1f}">{escape(one.name)}</text>'
        )
    parts.append(
        f'<rect x="{_LEFT}" y="{_TOP}" width="{span}" height="{height:.1f}" fill="none" stroke="#444"/>'
        f'<text x="{_LEFT + span / 2}" y="{_TOP + height + 34:.1f}" text-anchor="middle">batch size</text>'
        f'<text transform="translate(16 {_TOP + height / 2:.1f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text></svg>"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts) + "\n")
