"""Pages of evidence: how they begin, with three figures, and how a section of a page is replaced."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path


def beginning(title: str, *figures: str) -> str:
    """First lines of a page, with an empty line at their end."""
    assert len(figures) == 3, figures
    assert all("**" in figure for figure in figures), figures
    return "\n".join([f"# {title}", "", *(f"- {figure}" for figure in figures), "", ""])


def figures_of(page: Path) -> tuple[str, list[str]]:
    found = re.match(r"# (.+)\n\n((?:- .+\n){3})\n", page.read_text())
    assert found, f"{page.name} does not begin with a title and three figures"
    return found[1], [line.removeprefix("- ") for line in found[2].splitlines()]


def write_section(page: Path, heading: str, text: str) -> None:
    """Replace a section of a page, or add it at the end."""
    before, _, after = page.read_text().partition(f"\n{heading}\n")
    following = after.partition("\n## ")[2]
    parts = [before.strip("\n"), text.strip("\n"), *([f"## {following}".strip("\n")] if following else [])]
    page.write_text("\n\n".join(parts) + "\n")


def simulate_section(says: str | None, page: Path, heading: str, section: Callable[[], str]) -> None:
    """A script that simulates for a section of a page, and writes it where `--write` asks for it."""
    parser = argparse.ArgumentParser(description=says)
    parser.add_argument("--write", action="store_true", help=f"write the section of docs/{page.name}")
    args = parser.parse_args()
    text = section()
    if args.write:
        write_section(page, heading, text)
