"""The console that every command prints by: text is text, whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..profiling.visible import visible


class _TextConsole(Console):
    """Takes no markup from text, and lets nothing through that a terminal obeys but rich's own styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def console(**options: Any) -> Console:
    """A console for names from anywhere; options as rich's `Console` takes them."""
    return _TextConsole(markup=False, emoji=False, highlight=False, **options)
