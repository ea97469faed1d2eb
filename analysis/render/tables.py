"""Tables that fit the width of their console: names are shortened, words wrapped, and numbers kept
whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import rich.table
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from ...base.escaping import escape_controls
from .names import CHANGE, fit_all, readable

# width of a console without a terminal: text is not wrapped, no column is left out
UNLIMITED = 100_000
# width of tables on such a console, beyond which their columns continue below
_WIDEST_UNLIMITED = 200
# how the cells of a column fit: not at all, shortened, wrapped
WHOLE, NAMES, WORDS = (
    "whole",
    "names",
    "words",
)
# width to which a column of that kind narrows before an optional one is left out
_LEAST = {
    NAMES: 32,
    WORDS: 16,
}
_WORDS_BESIDE = 32  # width of a column of words below which no optional column stands beside it
_LEAST_OF_ALL = 5  # width below which no column is narrowed
_MOST_OF_NAMES = 80  # width of a column of names beyond which rows are hard to follow
_LONGEST_WORD = 24  # width that a column of words keeps for its longest word
_GAPS = (3, 2)  # spaces between columns: first choice, and where room is scarce


@dataclass(frozen=True)
class TextColumn:
    """A column of a table."""

    heading: str  # it wraps between words
    right: bool
    kind: str  # `WHOLE`, `NAMES` or `WORDS`
    optional: bool  # whether it is left out where there is no room


class Indented:
    """Blocks that stand at the right of a label, or of two spaces."""

    def __init__(self, *blocks: RenderableType, label: str | Text = "  ") -> None:
        """Indent blocks by the width of a label, which stands before the first line."""
        self._blocks, self._label = Group(*blocks), Text(label) if isinstance(label, str) else label

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, each after the label or as many spaces."""
        width, label = cell_len(self._label.plain), list(self._label.render(console))
        for line in console.render_lines(
            self._blocks, options.update(width=options.max_width - width), pad=False
        ):
            yield from [*label, *line] if any(segment.text for segment in line) else []
            yield Segment.line()
            label = [Segment(" " * width)]


class TextTable:
    """Rows of cells, laid out when they are printed."""

    def __init__(self, columns: Sequence[TextColumn]) -> None:
        """Define the columns; there is at least one."""
        self.columns = columns
        self._rows: list[tuple[Text, ...] | None] = []  # None for an empty line

    def add_row(self, *cells: str | Text, style: str = "") -> None:
        """Add a row with one cell for each column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self._rows.append(tuple(_cell(cell, style) for cell in cells))

    def add_section(self) -> None:
        """Leave a line before the next row."""
        self._rows.append(None)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, no wider than the console if its numbers fit; tables with many columns
        continue below.
        """
        widths, gap, rest, shortened = _layout(self, options.max_width)
        drawn = self._draw_table(widths, gap, shortened=shortened)
        for line in console.render_lines(
            drawn, options.update(width=sum(widths.values()) + gap * len(widths))
        ):
            text = Text.assemble(
                *((piece.text, piece.style or "") for piece in line),
                no_wrap=True,
                overflow="ignore",
            )
            text.rstrip()
            yield text
        if rest:
            yield Text()
            yield self._part([next(iter(widths)), *rest])

    def _part(self, chosen: Sequence[int]) -> TextTable:
        part = TextTable([self.columns[index] for index in chosen])
        part._rows = [
            row if row is None else tuple(row[index] for index in chosen) for row in self._rows
        ]
        return part

    def cells(self, index: int) -> list[Text]:
        """The cells of one column."""
        return [row[index] for row in self._rows if row is not None]

    def _draw_table(
        self, widths: Mapping[int, int], gap: int, *, shortened: bool
    ) -> rich.table.Table:
        """The columns that have a width; between them stand a padding and a border of one space."""
        padding = (0, 1, 0, gap - 2)
        drawn = rich.table.Table(
            box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=padding, header_style=""
        )
        columns = []
        for index, width in widths.items():
            column, cells = self.columns[index], self.cells(index)
            drawn.add_column(
                Text(column.heading), justify="right" if column.right else "left", width=width
            )
            names = column.kind == NAMES and shortened
            fitting = _names(cells, width) if names else cells
            for cell in fitting:
                cell.no_wrap = column.kind != WORDS or cell_len(cell.plain) <= width
            columns.append(iter(fitting))
        for row in self._rows:
            if row is None:
                drawn.add_section()
            else:
                drawn.add_row(*map(next, columns))
        return drawn


def table(
    *headings: str,
    first: str = "left",
    left: Collection[str] = (),
    words: Collection[str] = (),
    whole: Collection[str] = (),
    optional: Collection[str] = (),
) -> TextTable:
    """A table of numbers at the right, after a column of names at the left; columns without any
    value are left out.

    Args:
        headings: headings.
        first: alignment of the first column; a right one holds numbers.
        left: headings of other columns that hold names at the left.
        words: headings of columns of words at the left, which wrap.
        whole: headings of columns at the left whose cells are never shortened, e.g. commands.
        optional: headings of columns that are left out where there is no room, the last of the
            table first.
    """
    made = []
    for index, heading in enumerate(headings):
        at_left = heading in (*left, *words, *whole) or (not index and first == "left")
        kind = WORDS if heading in words else NAMES if at_left and heading not in whole else WHOLE
        made.append(TextColumn(heading, not at_left, kind, heading in optional))
    return TextTable(made)


def _layout(made: TextTable, width: int) -> tuple[dict[int, int], int, list[int], bool]:
    """Widths by index of the columns shown, their gap, those that follow below, and whether names
    are shortened.
    """
    shown = [index for index in range(len(made.columns)) if not index or _has_values(made, index)]
    unlimited = width > UNLIMITED // 2
    widest = _WIDEST_UNLIMITED - (UNLIMITED - width)  # less the indentation
    whole = {index: _natural(made, index, width < UNLIMITED) for index in shown}
    if unlimited and sum(whole.values()) + _GAPS[0] * (len(shown) - 1) <= widest:
        return whole, _GAPS[0], [], width < UNLIMITED
    width = widest if unlimited else width
    most = {index: _natural(made, index, True) for index in shown}
    headed = {index: _least(made, index, most[index]) for index in shown}
    while True:
        droppable = [index for index in shown if made.columns[index].optional and not unlimited]
        wordy = [index for index in shown if droppable and made.columns[index].kind == WORDS]
        wanted = headed | {
            index: max(headed[index], min(most[index], _WORDS_BESIDE)) for index in wordy
        }
        for gap in _GAPS:
            room = width - gap * (len(shown) - 1)
            if sum(wanted[index] for index in shown) <= room:
                return _share_out(made, shown, most, headed, room), gap, [], True
        if not droppable:
            break
        shown.remove(droppable[-1])
    # No column can be left out: names and words give what they have, and the last columns continue
    # below.
    least = (
        headed if unlimited else {index: min(headed[index], _floor(made, index)) for index in shown}
    )
    gap = _GAPS[-1]
    rest: list[int] = []
    while len(shown) > 2 and sum(least[index] + gap for index in shown) - gap > width:
        rest.insert(0, shown.pop())
    return _share_out(made, shown, most, least, width - gap * (len(shown) - 1)), gap, rest, True


def _has_values(made: TextTable, index: int) -> bool:
    """Whether any row has a value in a column; one without is not shown, except in a table without
    rows.
    """
    cells = made.cells(index)
    return not cells or any(cell.plain for cell in cells)


def _natural(made: TextTable, index: int, shortened: bool) -> int:
    names = shortened and made.columns[index].kind == NAMES
    cells = (readable(cell.plain) if names else cell.plain for cell in made.cells(index))
    widest = max(map(cell_len, (made.columns[index].heading, *cells)), default=0)
    return min(widest, _MOST_OF_NAMES) if names else widest


def _least(made: TextTable, index: int, natural: int) -> int:
    """Width to which a column narrows before an optional one is left out: a heading wraps first."""
    kind = made.columns[index].kind
    return min(
        natural, _floor(made, index) if kind == WHOLE else max(_LEAST[kind], _floor(made, index))
    )


def _floor(made: TextTable, index: int) -> int:
    column = made.columns[index]
    heading = max(map(cell_len, column.heading.split()), default=1)
    cells = [cell.plain for cell in made.cells(index)]
    if column.kind == WHOLE:
        return max([heading, *map(cell_len, cells)])
    if column.kind == WORDS:
        longest = max((cell_len(word) for cell in cells for word in cell.split()), default=1)
        return max(heading, min(longest, _LONGEST_WORD))
    return max(heading, min(_LEAST_OF_ALL, max(map(cell_len, cells), default=1)))


def _share_out(
    made: TextTable,
    shown: Sequence[int],
    most: Mapping[int, int],
    least: Mapping[int, int],
    room: int,
) -> dict[int, int]:
    """Widths that fill the room: long words give first, as they lose nothing, then the widest
    column.
    """
    widths = {index: most[index] for index in shown}
    while sum(widths.values()) > room and (
        slack := [index for index in shown if widths[index] > least[index]]
    ):
        wordy = [
            index
            for index in slack
            if made.columns[index].kind == WORDS and widths[index] > _LONGEST_WORD
        ]
        widths[max(wordy or slack, key=lambda index: widths[index])] -= 1
    return widths


def _cell(cell: str | Text, style: str) -> Text:
    made = cell.copy() if isinstance(cell, Text) else Text(cell)
    made.plain = escape_controls(made.plain.replace("\n", " ").replace("\t", " "))
    if style:
        made.stylize(style)
    return made


def _names(cells: Sequence[Text], width: int) -> list[Text]:
    """Cells with names: one line, or two for a change that is too long for one."""
    befores, afters, changed = [], [], []
    for cell in cells:
        before, arrow, after = cell.plain, "", ""
        if cell_len(cell.plain) > width:
            before, arrow, after = cell.plain.partition(CHANGE)
        befores.append(_like(cell, before))
        afters.append(_like(cell, after))
        changed.append(bool(arrow))
    befores, afters = _fitting(befores, width - 2), _fitting(afters, width)
    shown = _fitting(cells, width)
    for place, has_changed in enumerate(changed):
        if has_changed:
            shown[place] = Text.assemble(befores[place], f"{CHANGE.rstrip()}\n", afters[place])
    return shown


def _like(cell: Text, text: str) -> Text:
    return Text(text, cell.style or (cell.spans[0].style if cell.spans else ""))


def _fitting(cells: Sequence[Text], width: int) -> list[Text]:
    texts = fit_all([readable(cell.plain) for cell in cells], width)
    return [
        cell if cell.plain == text else _like(cell, text)
        for cell, text in zip(cells, texts, strict=True)
    ]
