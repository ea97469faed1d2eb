"""The beginning of a page of evidence: its title and its three figures, which docs/evidence.md repeats."""

from __future__ import annotations

import re
from pathlib import Path


def beginning(title: str, *figures: str) -> str:
    """First lines of a page, with an empty line at their end.

    Args:
        title: of the page.
        figures: three lines of Markdown, each with a figure in bold letters.
    """
    assert len(figures) == 3, figures
    assert all("**" in figure for figure in figures), figures
    return "\n".join([f"# {title}", "", *(f"- {figure}" for figure in figures), "", ""])


def figures_of(page: Path) -> tuple[str, list[str]]:
    """Title of a page and its three figures.

    Args:
        page: a file that `beginning` begins.
    """
    found = re.match(r"# (.+)\n\n((?:- .+\n){3})\n", page.read_text())
    assert found, f"{page.name} does not begin with a title and three figures"
    return found[1], [line.removeprefix("- ") for line in found[2].splitlines()]
