"""Consoles for all commands: names are never markup; progress goes to standard error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from ...profiling.escaping import escape_controls


class _TextConsole(Console):
    """Reads no markup in text, and escapes control characters other than those of rich's styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)


def console(**options: Any) -> Console:
    """A console that prints names of any origin safely.

    Args:
        options: options of rich's `Console`.
    """
    return _TextConsole(markup=False, emoji=False, highlight=False, **options)


def progress_bars(width: int, counted: bool = False) -> Progress:
    """Progress bars on standard error, removed at their end; disabled if standard error is no terminal.

    Args:
        width: width of the descriptions, in characters.
        counted: whether to show the numbers of done and of all items.
    """
    count = [MofNCompleteColumn()] if counted else []
    columns = [TextColumn(f"{{task.description:<{width}}}"), BarColumn(), *count, TimeElapsedColumn()]
    shown = console(stderr=True)
    return Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal)
