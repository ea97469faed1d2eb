"""Counts of things in messages."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun, e.g. `1 step` or `3 steps`.

    Args:
        count: number of things.
        one: noun of one thing, with its adjectives.
        many: noun of other numbers of things; default: `one` and an s.
    """
    return f"{count} {one if count == 1 else many or f'{one}s'}"
