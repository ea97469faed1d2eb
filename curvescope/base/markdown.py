"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SIGNS = str.maketrans({"|": "\\|", "<": "&lt;", "\n": " "})


def write_markdown(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Write a table whose first columns are words, on the left, and the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join(_write_line(cells) for cells in (head, rule, *rows))


def _write_line(cells: Sequence[str]) -> str:
    escaped = (cell.translate(_SIGNS) for cell in cells)
    return f"| {' | '.join(escaped)} |"
