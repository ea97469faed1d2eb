"""Views of a terminal as lists of blocks: each is a function that gives its block, or None where it
has nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.text import Text

from . import terminal

What = TypeVar("What")


@dataclass(frozen=True)
class Block:
    """Lines that are printed together: drawings, then commands to copy."""

    parts: tuple[RenderableType, ...]
    commands: tuple[str, ...] = ()
    below: bool = False  # whether an empty line comes before it

    @classmethod
    def lines(cls, lines: Iterable[str], style: str = "", *, below: bool = False) -> Block | None:
        """Lines of text in one style; None without a line."""
        parts = tuple(Text(line, style) for line in lines)
        return cls(parts, below=below) if parts else None


EMPTY = Block((), below=True)


def print_view(
    console: Console, view: Sequence[Callable[[What], Block | None]], shown: What
) -> None:
    """Print the blocks of a view that have something to say."""
    for make in view:
        block = make(shown)
        if block is not None:
            print_block(console, block)


def print_block(console: Console, block: Block) -> None:
    """Print one block."""
    if block.below:
        console.print()
    for part in block.parts:
        console.print(part)
    terminal.print_commands(console, *block.commands)
