"""Families of cost curves: one recording per value of a second axis, as a grid of step times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..profiling.recording.axis import Axis
from .step_table import Cell


@dataclass(frozen=True)
class Family:
    """Step times over two axes."""

    title: str  # name of the measurement
    curve: Axis  # axis of the curves, the columns
    other: Axis  # the second axis, the rows
    columns: tuple[int, ...]  # values of `curve`, increasing
    # values of `other`, increasing, each with T in ms by column; None where it is missing
    rows: tuple[tuple[int, tuple[float | None, ...]], ...]

    @property
    def unit(self) -> str:
        """Unit of `per_unit_us`, e.g. µs/(token·sample)."""
        return f"µs/({self.curve.one}·{self.other.one})"

    @property
    def per_unit_us(self) -> tuple[tuple[float | None, ...], ...]:
        """Step time over the product of both values, µs; equal everywhere if cost is proportional
        to both.
        """
        return tuple(
            tuple(
                None if ms is None else ms * 1e3 / (at * value)
                for at, ms in zip(self.columns, times, strict=True)
            )
            for value, times in self.rows
        )


def families(cells: Sequence[Cell]) -> list[Family]:
    """The families among step times: alike but for one fixed value."""
    alike: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        names = tuple(name for name, _ in _list_fixed(cell))
        key = (
            cell.network,
            cell.mode,
            cell.precision,
            cell.compiled,
            cell.framework,
            cell.device_and_origin,
        )
        alike.setdefault((*key, cell.axis, names), []).append(cell)
    candidates = [_family(group) for group in alike.values()]
    return [family for family in candidates if family is not None]


def _family(cells: Sequence[Cell]) -> Family | None:
    fixed = [dict(_list_fixed(cell)) for cell in cells]
    varied = [name for name in fixed[0] if len({values[name] for values in fixed}) > 1]
    if len(varied) != 1:
        return None
    (other,) = varied
    columns = tuple(sorted({cell.batch for cell in cells}))
    rows: dict[int, dict[int, float | None]] = {}
    for cell, values in zip(cells, fixed, strict=True):
        rows.setdefault(values[other], {})[cell.batch] = cell.time_ms
    first = cells[0]
    title = ", ".join(filter(None, (first.network, f"{first.mode} step", first.device_and_origin)))
    times = tuple(
        (value, tuple(row.get(at) for at in columns)) for value, row in sorted(rows.items())
    )
    return Family(title, Axis(first.axis), Axis(other), columns, times)


def _list_fixed(cell: Cell) -> list[tuple[str, int]]:
    pairs = [part.partition("=") for part in (cell.fixed or "").split()]
    return [(name, int(value)) for name, _, value in pairs]
