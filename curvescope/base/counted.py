"""Counts of things in messages."""

from __future__ import annotations


def counted(count: int, singular: str, many: str | None = None) -> str:
    """A count with its noun, e.g. `1 step` or `3 steps`; `many` is for an irregular plural."""
    plural = many or f"{singular}s"
    return f"{count} {singular if count == 1 else plural}"
