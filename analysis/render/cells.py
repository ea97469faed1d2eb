"""Lines of a terminal, in cells: cut, filled and set side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from .names import fit

_NUMBERED = re.compile(r"^(idle in )?(\*|\d[\d,-]*)(?=[ ,:])(?! \()")
_BLOCKS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Column:
    """A heading and the cells below it."""

    heading: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        """Cells of a terminal that the widest text takes."""
        return max(map(cell_len, [self.heading, *self.cells]))


def columns(cells: Iterable[str], widths: Iterable[int]) -> Text:
    """Cells side by side, each after two spaces."""
    line = ""
    for cell, width in zip(cells, widths, strict=True):
        line += f"  {at_left(cell, width)}"
    return Text(line)


def set_title(title: str, text: str) -> Text:
    """A line after its title."""
    return Text.assemble((title, "bold"), text)


def list_after(title: str, texts: Iterable[str], width: int) -> Text:
    """As many texts after a title as a line has room for; the first is cut at most."""
    listed = list(texts)
    while len(listed) > 1 and cell_len(title + ", ".join(listed)) > width:
        listed.pop()
    return set_title(title, cut(", ".join(listed), width - len(title)))


def warn(said: Sequence[str], width: int) -> list[Text]:
    """The first warning in a line, with the number of the others; no line without any."""
    if not said:
        return []
    more = ""
    if len(said) > 1:
        more = f" (and {len(said) - 1} more: --all)"
    first = said[0].rstrip(".")
    shown = cut(f"! {first}", width - len(more))
    return [Text(shown + more, "yellow")]


def at_left(text: str, width: int) -> str:
    """A text, filled or cut to a width."""
    return set_cell_size(text, width) if width > 0 else ""


def at_right(text: str, width: int) -> str:
    """A text at the right of a width."""
    return " " * (width - cell_len(text)) + text


def cut(text: str, width: int) -> str:
    """A text in at most a width, with `…` for its end."""
    if cell_len(text) <= width:
        return text
    begin = set_cell_size(text, width - 1)
    return begin.rstrip() + "…"


def fit_finding(text: str, width: int) -> str:
    """A finding in at most a width: its place in full before its cause."""
    if cell_len(text) <= width:
        return text
    where, colon, cause = text.partition(": ")
    if len(cause) > width // 2:
        cause = cause.partition(", ")[0]
    room = width - cell_len(cause) - 2
    place = fit(where, max(room, width // 2))
    short = f"{place}{colon}{cause}"
    # A path of numbers, e.g. `0-3`, says nothing without the class that was left out.
    named = _NUMBERED.sub(_add_layer, short)
    if cell_len(named) > width:
        named = short
    return cut(named, width)


def _add_layer(path: re.Match[str]) -> str:
    before = path[1] or ""
    numbers = path[2]
    if numbers == "*":
        return f"{before}all layers"
    if numbers.isdigit():
        return f"{before}layer {numbers}"
    return f"{before}layers {numbers}"


def wrap_words(text: str, width: int) -> list[str]:
    """The lines of a sentence."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".strip()
        if cell_len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines


def both_sides(left: Text, right: Text, width: int) -> Text:
    """A text at each side of a line; the left one gives way."""
    if not right.plain:
        return Text(cut(left.plain, width), left.style)
    room = width - cell_len(right.plain)
    shown = Text(cut(left.plain, room - 1), left.style)
    gap = " " * (room - cell_len(shown.plain))
    return Text.assemble(shown, gap, right)


def bar(share: float, width: int) -> str:
    """A bar that fills a share of a width."""
    eighths = round(8 * share * width)
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
