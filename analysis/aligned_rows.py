"""Aligns the device work of recordings: gives every group of kernels a row, the same row in each
recording if possible.

A group gets the first of these rows that all recordings have: its layer (only if rows are layers);
its operator with the shapes that this takes, or its kernel, if no operator is known; its operator
with other shapes, or another number at the end of its name, or the family of its kernel; an
operator further inside, as one version calls `aten::addmm` where the other calls it through
`aten::linear`; its kernel; its position, for two recordings: operators of both between the same two
rows in common are one row. Rows but layers hold one phase, if all recordings tell phases.
A group of one recording only has a row of its own, and one row for all such rows that are below a
hundredth of the time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import pandas as pd

from ..profiling.attribution.kernel_names import family
from ..profiling.attribution.placement import OPERATOR_SEPARATOR
from .decompose.terms import KERNELS

# columns of kernel times by which rows of two recordings are one
ALIGNMENT_COLUMNS = (
    "layer",
    "phase",
    "op",
    "op_path",
    "op_shapes",
    "name",
)
OTHERS = "others, each in one recording"
_NUMBER = re.compile(r"[_.#]\d+$")
_SMALL = 0.01  # share of a recording's device time
_MOST_NAMES = 3  # of operators in the label of a row
_MOST_SHAPES = 80  # characters of shapes in it; shapes that begin alike are one row


class _Work(NamedTuple):
    """One group of kernels; None for an unknown field."""

    layer: str | None
    phase: str | None
    op: str | None
    path: str | None
    shapes: str | None
    name: str

    @property
    def operators(self) -> list[str]:
        """The operator, and those around the launch, outermost first."""
        inside = self.path.split(OPERATOR_SEPARATOR) if self.path else []
        if self.op in (None, *inside[:1]):
            return inside
        return [str(self.op), *inside]

    @property
    def label(self) -> str:
        """The operator with its shapes; a part of a fused kernel has the shapes of the kernel."""
        outermost, *_ = (self.path or str(self.op)).split(OPERATOR_SEPARATOR)
        if not self.shapes or self.operators[:1] != [outermost]:
            return str(self.op)
        if len(self.shapes) > _MOST_SHAPES:
            return f"{self.op} {self.shapes[:_MOST_SHAPES]}…"
        return f"{self.op} {self.shapes}"


_Row = tuple[str | None, str | None]  # label and phase
_Level = Callable[[_Work], str | None]  # label of a group; None if it has none


def align(tables: Sequence[pd.DataFrame], by_layer: bool) -> list[pd.DataFrame]:
    """Put the labels of rows into the column `layer` of each recording's kernel times, and their
    phase into `phase`.

    The tables are of one batch size, with as many of `ALIGNMENT_COLUMNS` as are known. With
    `by_layer` a row is a layer, where all recordings have it.
    """
    works = [_works(table) for table in tables]
    sides = [_groups(of_side) for of_side in works]
    phased = all(any(work.phase for work in side) for side in sides)
    aligned: list[dict[_Work, _Row]] = [{} for _ in sides]
    for level in _levels(sides, by_layer):
        possible = []
        for of_side, rows in zip(sides, aligned, strict=True):
            possible.append(_possible_rows(_rest(of_side, rows), level, phased))
        common = set.intersection(*(set(rows.values()) for rows in possible))
        for rows, possible_rows in zip(aligned, possible, strict=True):
            for work, row in possible_rows.items():
                if row in common:
                    rows[work] = row
    if len(sides) == 2:
        _align_by_position(sides, aligned, phased)
    for rows, groups, table in zip(aligned, works, tables, strict=True):
        _add_own_rows(rows, groups, table, by_layer)
    return [_label_rows(*columns) for columns in zip(tables, works, aligned, strict=True)]


def _groups(works: Sequence[_Work | None]) -> dict[_Work, None]:
    """The groups of kernels of a recording, in order."""
    return dict.fromkeys(work for work in works if work is not None)


def _possible_rows(works: Sequence[_Work], level: _Level, phased: bool) -> dict[_Work, _Row]:
    """The row of each group at a level; without the groups that have none there."""
    rows: dict[_Work, _Row] = {}
    for work in works:
        label = level(work)
        if label is not None:
            rows[work] = label, work.phase if phased else None
    return rows


def _add_own_rows(
    rows: dict[_Work, _Row], works: Sequence[_Work | None], table: pd.DataFrame, by_layer: bool
) -> None:
    """Give each group without a row one of its own, and small ones one together."""
    side, label_of = _groups(works), _own_label(by_layer)
    times: Counter[_Work | None] = Counter()
    for work, time_ms in zip(works, table["exclusive_ms"].tolist(), strict=True):
        times[work] += time_ms
    small = _SMALL * sum(times[work] for work in side)
    for work in _rest(side, rows):
        label = label_of(work)
        is_small = label is not None and times[work] < small
        rows[work] = (OTHERS if is_small else label, work.phase)


def _levels(sides: Sequence[dict[_Work, None]], by_layer: bool) -> Iterator[_Level]:
    """What makes groups of several recordings one row, the most telling first."""
    operators_of = [{name for work in side for name in work.operators} for side in sides]
    everywhere = set.intersection(*operators_of)

    def same(work: _Work) -> str | None:
        if work.op:
            return work.label
        if by_layer:
            return None
        return work.name

    def alike(work: _Work) -> str | None:
        if work.op:
            return _NUMBER.sub("", work.op)
        return None if by_layer else family(work.name)

    def inside(work: _Work) -> str | None:
        shared = [operator for operator in work.operators if operator in everywhere]
        return next(iter(shared), None)

    def kernel(work: _Work) -> str | None:
        return work.name if work.op else None

    if by_layer:
        yield lambda work: work.layer
    yield from (same, alike, inside, kernel)


def _own_label(by_layer: bool) -> _Level:

    def label(work: _Work) -> str | None:
        if by_layer and (work.layer is not None or work.op is None):
            return work.layer
        return work.label if work.op else work.name

    return label


def _works(table: pd.DataFrame) -> list[_Work | None]:
    """The group of each row; None for idle time and communication."""
    columns = []
    for key in ALIGNMENT_COLUMNS:
        columns.append(table[key].tolist() if key in table else [None] * len(table))
    texts = ([value if isinstance(value, str) else None for value in column] for column in columns)
    is_work = (table["kind"] == KERNELS).tolist()
    works: list[_Work | None] = []
    for row, has_work in zip(zip(*texts, strict=True), is_work, strict=True):
        works.append(_Work(*row) if has_work else None)
    return works


def _rest(side: dict[_Work, None], rows: dict[_Work, _Row]) -> list[_Work]:
    return [work for work in side if work not in rows]


def _align_by_position(
    sides: Sequence[dict[_Work, None]], aligned: list[dict[_Work, _Row]], phased: bool
) -> None:
    """Give groups without a row that lie between the same two rows in common one row."""
    orders = []
    for side, rows in zip(sides, aligned, strict=True):
        # A row is where its first group is. Rows of operators without a counterpart are equal to
        # none.
        order: dict[Any, list[_Work]] = {}
        for work in side:
            if work in rows or work.op:
                order.setdefault(rows.get(work, work), []).append(work)
        orders.append(order)
    for phase in (
        dict.fromkeys(work.phase for side in sides for work in side) if phased else (None,)
    ):
        listed = [
            [row for row, works in order.items() if not phased or works[0].phase == phase]
            for order in orders
        ]
        for between in _find_differences(*listed):
            alone = [[work for work in rows if isinstance(work, _Work)] for rows in between]
            if all(alone):
                row = " → ".join(map(_names, alone)), phase
                for rows, works in zip(aligned, alone, strict=True):
                    rows.update(dict.fromkeys(works, row))


def _find_differences(left: list[Any], right: list[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """The parts of two sequences that differ, in order, the same whichever is first."""
    swapped = repr(right) < repr(left)
    first, second = (right, left) if swapped else (left, right)
    for kind, begin, end, begin_second, end_second in SequenceMatcher(
        None, first, second, False
    ).get_opcodes():
        if kind != "equal":
            parts = first[begin:end], second[begin_second:end_second]
            yield (parts[1], parts[0]) if swapped else parts


def _names(works: Sequence[_Work]) -> str:
    """The names of the operators, the first ones of many."""
    names = list(dict.fromkeys(str(work.op) for work in works))
    more = len(names) - _MOST_NAMES
    text = ", ".join(names[:_MOST_NAMES])
    if more > 0:
        return f"{text} and {more} more"
    return text


def _label_rows(
    table: pd.DataFrame, works: Sequence[_Work | None], rows: dict[_Work, _Row]
) -> pd.DataFrame:
    """The table with the rows in its columns `layer` and `phase`; idle time and communication have
    none.
    """
    labels = [(None, None) if work is None else rows[work] for work in works]
    layer = pd.Series([layer for layer, _ in labels], table.index, object)
    phase = pd.Series([phase for _, phase in labels], table.index, object)
    return table.assign(layer=layer, phase=phase)
