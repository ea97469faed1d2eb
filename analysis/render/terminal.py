"""What every command prints by: text is text, whoever wrote it; progress goes to standard error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from ...profiling.escaping import escape_controls


class _TextConsole(Console):
    """Takes no markup from text, and lets nothing through that a terminal obeys but rich's own styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)


def console(**options: Any) -> Console:
    """A console for names from anywhere; options as rich's `Console` takes them."""
    return _TextConsole(markup=False, emoji=False, highlight=False, **options)


def progress_bars(width: int, counted: bool = False) -> Progress:
    """Bars on standard error, gone when they end; nothing where it is no terminal.

    Args:
        width: of their descriptions, in characters.
        counted: show how many are done of how many.
    """
    count = [MofNCompleteColumn()] if counted else []
    columns = [TextColumn(f"{{task.description:<{width}}}"), BarColumn(), *count, TimeElapsedColumn()]
    shown = console(stderr=True)
    return Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal)
