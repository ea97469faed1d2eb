"""What scripts of the campaign share: a table is a file of JSON rows, which several processes may
extend.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from curvescope.base.errors import CurvescopeError

TABLES = "*.jsonl"


def run(main: Callable[[], int]) -> None:
    """Run a script; its exit code is 2 where a package or device is missing, as the command line
    has it.
    """
    try:
        sys.exit(main())
    except CurvescopeError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def add_row(path: str | Path, row: Mapping[str, Any]) -> None:
    """Add a row to a table; what is there stays there if the process ends in the next moment."""
    with Path(path).open("a") as file:
        file.write(json.dumps(row) + "\n")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table; none where nothing began it."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of rows; a missing value is a dash."""
    heads = list(dict.fromkeys(head for row in rows for head in row))
    lines = [f"| {' | '.join(heads)} |", "| " + "--- | " * len(heads)]
    return lines + [f"| {' | '.join(_cell(row.get(head)) for head in heads)} |" for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", " ").split())


def on_virtual_card() -> bool:
    """Whether the device is the virtual card of tests/virtual_card, whose kernels have no results
    to check.
    """
    return "VIRTUAL_CARD" in os.environ
