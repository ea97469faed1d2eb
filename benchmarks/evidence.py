"""Pages of evidence: how they begin, with three figures, and how scripts replace their results in a
page.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
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


def with_results(text: str, above: str, found: Sequence[str]) -> str:
    """A page with new results at one place, found by the text `above`; all other text stays.

    Rows of a table take the place of those of the first table that ends behind `above`. One line
    takes the place of the first line that begins so.
    """
    place = text.index(f"\n{above}") + 1
    if found[0].startswith("|"):
        old = re.compile(r"(?m)(?<=[-:]\|\n)(\|.*\n)+").search(text, place)
    else:
        old = re.compile(r"(?m).*\n").match(text, place)
    assert old, above
    return text[: old.start()] + "\n".join(found) + "\n" + text[old.end() :]


def simulate(
    says: str | None,
    page: Path,
    sweeps: int,
    results: Callable[[int], Iterator[tuple[str, list[str]]]],
) -> None:
    """A script whose simulations give results for places of a page, which are written where
    `--write` asks for it.

    Arguments: `results` takes the number of simulations of each kind, and gives each place as
    `with_results` finds it.
    """
    parser = argparse.ArgumentParser(description=says)
    parser.add_argument(
        "--write", action="store_true", help=f"write the results into docs/{page.name}"
    )
    parser.add_argument(
        "--sweeps", type=int, default=sweeps, help="of each kind (default %(default)s)"
    )
    args = parser.parse_args()
    text = page.read_text()
    for above, found in results(args.sweeps):
        print(above, *found, "", sep="\n", flush=True)
        text = with_results(text, above, found)
    if args.write:
        page.write_text(text)
