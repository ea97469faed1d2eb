"""CSV that no spreadsheet takes for formulas: names come from recordings of anybody.

A text that begins like a formula, and is no number, has an apostrophe before it, as spreadsheets
mark texts.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FORMULA = r"^[=+\-@\t\r]"
NUMBER = r"^[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$"
_FORMULA, _NUMBER = re.compile(FORMULA), re.compile(NUMBER)


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV with a header; None is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: harmless(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def harmless(value: Any) -> Any:
    """A cell that is no formula."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.match(value):
        return value
    return f"'{value}"
