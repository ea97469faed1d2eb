"""Tables that fit the width of their console: names are shortened, words wrapped, and numbers kept
whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import rich.table
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import (
    Console,
    ConsoleOptions,
    Group,
    JustifyMethod,
    RenderableType,
    RenderResult,
)
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
        self._blocks = Group(*blocks)
        self._label = Text(label) if isinstance(label, str) else label

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, each after the label or as many spaces."""
        width = cell_len(self._label.plain)
        label = list(self._label.render(console))
        room = options.update(width=options.max_width - width)
        for line in console.render_lines(self._blocks, room, pad=False):
            if any(segment.text for segment in line):
                yield from label
                yield from line
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
        whole = sum(widths.values()) + gap * len(widths)
        for line in console.render_lines(drawn, options.update(width=whole)):
            text = Text(no_wrap=True, overflow="ignore")
            for piece in line:
                text.append(piece.text, piece.style or "")
            text.rstrip()
            yield text
        if rest:
            yield Text()
            yield self._part([next(iter(widths)), *rest])

    def _part(self, chosen: Sequence[int]) -> TextTable:
        part = TextTable([self.columns[index] for index in chosen])
        for row in self._rows:
            if row is None:
                part.add_section()
            else:
                part.add_row(*(row[index] for index in chosen))
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
            side: JustifyMethod = "right" if column.right else "left"
            drawn.add_column(Text(column.heading), justify=side, width=width)
            if column.kind == NAMES and shortened:
                cells = _names(cells, width)
            for cell in cells:
                cell.no_wrap = column.kind != WORDS or cell_len(cell.plain) <= width
            columns.append(iter(cells))
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
        is_first = not index and first == "left"
        at_left = is_first or heading in (*left, *words, *whole)
        kind = WHOLE
        if heading in words:
            kind = WORDS
        elif at_left and heading not in whole:
            kind = NAMES
        column = TextColumn(heading, not at_left, kind, heading in optional)
        made.append(column)
    return TextTable(made)


def _layout(made: TextTable, width: int) -> tuple[dict[int, int], int, list[int], bool]:
    """Widths by index of the columns shown, their gap, those that follow below, and whether names
    are shortened.
    """
    shown = [index for index in range(len(made.columns)) if not index or _has_values(made, index)]
    unlimited = width > UNLIMITED // 2
    if unlimited:
        is_narrower = width < UNLIMITED
        widest = _WIDEST_UNLIMITED - (UNLIMITED - width)  # less the indentation
        whole = {index: _natural(made, index, is_narrower) for index in shown}
        if sum(whole.values()) <= _room_beside(widest, shown, _GAPS[0]):
            return whole, _GAPS[0], [], is_narrower
        width = widest
    most = {index: _natural(made, index, True) for index in shown}
    least = {index: _least(made, index, most[index]) for index in shown}
    while True:
        droppable = []
        if not unlimited:
            droppable = [index for index in shown if made.columns[index].optional]
        wanted = 0
        for index in shown:
            wide = least[index]
            if droppable and made.columns[index].kind == WORDS:
                wide = max(wide, min(most[index], _WORDS_BESIDE))
            wanted += wide
        for gap in _GAPS:
            room = _room_beside(width, shown, gap)
            if wanted <= room:
                return _share_out(made, shown, most, least, room), gap, [], True
        if not droppable:
            break
        shown.remove(droppable[-1])
    # No column can be left out: names and words give what they have, and the last columns continue
    # below.
    if not unlimited:
        for index in shown:
            least[index] = min(least[index], _floor(made, index))
    gap = _GAPS[-1]
    rest: list[int] = []
    while len(shown) > 2 and sum(least[index] for index in shown) > _room_beside(width, shown, gap):
        rest.insert(0, shown.pop())
    room = _room_beside(width, shown, gap)
    return _share_out(made, shown, most, least, room), gap, rest, True


def _room_beside(width: int, shown: Sequence[int], gap: int) -> int:
    """What the gaps between columns leave of a width."""
    return width - gap * (len(shown) - 1)


def _has_values(made: TextTable, index: int) -> bool:
    """Whether any row has a value in a column; one without is not shown, except in a table without
    rows.
    """
    cells = made.cells(index)
    return not cells or any(cell.plain for cell in cells)


def _natural(made: TextTable, index: int, shortened: bool) -> int:
    column = made.columns[index]
    names = shortened and column.kind == NAMES
    texts = [cell.plain for cell in made.cells(index)]
    if names:
        texts = [readable(text) for text in texts]
    widest = max(map(cell_len, [column.heading, *texts]))
    return min(widest, _MOST_OF_NAMES) if names else widest


def _least(made: TextTable, index: int, natural: int) -> int:
    """Width to which a column narrows before an optional one is left out: a heading wraps first."""
    least = _floor(made, index)
    kind = made.columns[index].kind
    if kind != WHOLE:
        least = max(_LEAST[kind], least)
    return min(natural, least)


def _floor(made: TextTable, index: int) -> int:
    column = made.columns[index]
    heading = max(map(cell_len, column.heading.split()), default=1)
    texts = [cell.plain for cell in made.cells(index)]
    most = None
    if column.kind == WORDS:
        texts = " ".join(texts).split()
        most = _LONGEST_WORD
    elif column.kind == NAMES:
        most = _LEAST_OF_ALL
    longest = max(map(cell_len, texts), default=1)
    if most is not None:
        longest = min(longest, most)
    return max(heading, longest)


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
    while sum(widths.values()) > room:
        slack = [index for index in shown if widths[index] > least[index]]
        if not slack:
            break
        wordy = []
        for index in slack:
            if made.columns[index].kind == WORDS and widths[index] > _LONGEST_WORD:
                wordy.append(index)
        widest = max(wordy or slack, key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _cell(cell: str | Text, style: str) -> Text:
    made = cell.copy() if isinstance(cell, Text) else Text(cell)
    in_line = made.plain.replace("\n", " ").replace("\t", " ")
    made.plain = escape_controls(in_line)
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
    befores = _shorten_all(befores, width - 2)
    afters = _shorten_all(afters, width)
    shown = _shorten_all(cells, width)
    arrow = f"{CHANGE.rstrip()}\n"
    for place, has_changed in enumerate(changed):
        if has_changed:
            shown[place] = Text.assemble(befores[place], arrow, afters[place])
    return shown


def _like(cell: Text, text: str) -> Text:
    style = cell.style
    if not style and cell.spans:
        style = cell.spans[0].style
    return Text(text, style)


def _shorten_all(cells: Sequence[Text], width: int) -> list[Text]:
    """Cells with names that fit a width, in the style of each."""
    names = [readable(cell.plain) for cell in cells]
    shown = []
    for cell, text in zip(cells, fit_all(names, width), strict=True):
        shown.append(cell if cell.plain == text else _like(cell, text))
    return shown
