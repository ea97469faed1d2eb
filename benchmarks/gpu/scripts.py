"""What scripts of the campaign share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from curvescope.base.errors import CurvescopeError


def run(main: Callable[[], int]) -> None:
    """Run a script; its exit code is 2 where a package or device is missing, as the command line has it."""
    try:
        sys.exit(main())
    except CurvescopeError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def add_row(path: str | Path, head: tuple[str, str], row: str) -> None:
    """Add a row to a table of Markdown, which several processes write; `head` begins a new one."""
    lines = (row,) if Path(path).exists() else (*head, row)
    with Path(path).open("a") as file:
        print(*lines, sep="\n", file=file)
