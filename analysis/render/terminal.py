"""Consoles for all commands: names are never markup; progress goes to standard error; tables fit
the terminal.

Green is good (faster, confirmed), red is bad (slower, an anomaly, a failed check), yellow asks for
care (undecided, unstable, lost, modelled), dim is an aside or not significant, bold leads. A word
or a mark says the same everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.text import Text

from ...base.escaping import escape_controls
from .tables import UNLIMITED

PROSE_WIDTH = 100


class _TextConsole(Console):
    """Reads no markup in text, and escapes control characters except in rich's styles."""

    def on_broken_pipe(self) -> None:
        """Let the command line end as after any output whose reader has exited: rich itself ends
        with exit code 1.
        """
        raise BrokenPipeError

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        options = options or self.options
        if isinstance(renderable, Text) and not (renderable.no_wrap or options.no_wrap):
            options = options.update(width=min(options.max_width, PROSE_WIDTH))
        for segment in super().render(renderable, options):
            yield (
                segment
                if segment.control
                else Segment(escape_controls(segment.text), segment.style)
            )


def console(**options: Any) -> Console:
    """A console, with options of rich's, that prints names of any origin safely."""
    made = _TextConsole(markup=False, emoji=False, highlight=False, **options)
    if not (made.is_terminal or made.is_jupyter or "width" in options or os.environ.get("COLUMNS")):
        made.width = UNLIMITED
    return made


def print_below(shown: Console, *blocks: RenderableType) -> None:
    """Print blocks after an empty line."""
    for block in (Text(), *blocks):
        shown.print(block)


def print_commands(shown: Console, *commands: str) -> None:
    """Print commands to copy, each as one line: a terminal that is too narrow wraps it, and still
    copies it whole.
    """
    for command in commands:
        shown.print(Text(f"  {command}"), soft_wrap=True)


def print_prose(text: str, *, stderr: bool = False) -> None:
    """Print a sentence: on a terminal it wraps between words, elsewhere it is one line."""
    made = console(stderr=stderr)
    made.print(Text(text), no_wrap=made.width == UNLIMITED)


def progress_bars(width: int) -> Progress:
    """Progress bars on standard error, removed at their end; none without a terminal. `width` holds
    a description.
    """
    columns = [TextColumn(f"{{task.description:<{width}}}"), BarColumn(), TimeElapsedColumn()]
    shown = console(stderr=True)
    return Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal)
