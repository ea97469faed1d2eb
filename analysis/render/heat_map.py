"""A family of cost curves as a heat map: for a terminal, and as data for the page."""

from __future__ import annotations

from typing import TypedDict

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.numbers import number
from ..step_family import Family
from .tables import table

# red, green, blue of the shortest and the longest time
_COLD, _HOT = (
    (245, 245, 245),
    (214, 69, 61),
)


class FamilyRow(TypedDict):
    """Times of one value of the other axis."""

    value: int
    ms: list[float | None]
    per_unit: list[float | None]


class FamilyMap(TypedDict):
    """Step times over two axes."""

    title: str
    curve: str
    other: str
    unit: str
    columns: list[int]
    rows: list[FamilyRow]


def render_family(family: Family) -> RenderableType:
    """Step times, and below them the heat map of time per unit; the numbers tell it without colours
    too.
    """
    values = [value for row in family.per_unit_us for value in row if value is not None]
    heat = table(family.other.name, *map(str, family.columns), first="right")
    times = table(family.other.name, *map(str, family.columns), first="right")
    for (value, row_ms), row_us in zip(family.rows, family.per_unit_us, strict=True):
        times.add_row(str(value), *("" if ms is None else number(ms) for ms in row_ms))
        heat.add_row(str(value), *(_cell(us, min(values), max(values)) for us in row_us))
    return Group(
        Text(
            f"Step ms, {family.title}: columns are {family.curve.name}, rows {family.other.name}",
            "bold",
        ),
        times,
        Text(),
        Text(f"The same in {family.unit}", "bold"),
        heat,
        Text(
            "Equal numbers: the cost is proportional to both. The longest time is the darkest.",
            "dim",
        ),
    )


def family_document(family: Family) -> FamilyMap:
    """The heat map for the page."""
    return {
        "title": family.title,
        "curve": family.curve.name,
        "other": family.other.name,
        "unit": family.unit,
        "columns": list(family.columns),
        "rows": [
            {"value": value, "ms": list(row_ms), "per_unit": list(row_us)}
            for (value, row_ms), row_us in zip(family.rows, family.per_unit_us, strict=True)
        ],
    }


def _cell(value: float | None, least: float, most: float) -> Text:
    if value is None:
        return Text("")
    heat = 0.0 if most == least else (value - least) / (most - least)
    red, green, blue = (
        round(cold + (hot - cold) * heat) for cold, hot in zip(_COLD, _HOT, strict=True)
    )
    return Text(f" {number(value, 3)}", f"black on rgb({red},{green},{blue})")
