"""Reads the tables that profilers print between the output of the profiled program."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from itertools import dropwhile
from typing import BinaryIO

from ...base.errors import CurvescopeError

_LONGEST_LINE = 1 << 22  # characters; kernel names may be long, but no row has 4 MiB


def lines_of(stream: BinaryIO) -> Iterator[str]:
    """The lines without line ends; raises `CurvescopeError` for a line longer than 4 MiB."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="\n")
    while line := text.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise CurvescopeError("a line has more than 4 MiB, so it is not a profiler's table.")
        yield line.replace("\x00", "").rstrip("\r\n")


def has_line(text: str, beginning: re.Pattern[str], word: str) -> bool:
    """Whether a line begins so; `word` is in every match: a megabyte without it takes a tenth of
    the time.
    """
    return word in text and beginning.search(text) is not None


def rows_of(stream: BinaryIO, header: re.Pattern[str]) -> Iterator[list[str]]:
    """Rows of the CSV table with a matching header, header first; lines of the profiler
    (`==PROF==`) are skipped.
    """
    lines = (line for line in lines_of(stream) if line and not line.startswith("=="))
    return map(parse_row, dropwhile(lambda line: header.match(line) is None, lines))


def parse_row(line: str) -> list[str]:
    """Cells of a CSV line; unbalanced quotes are tolerated, and a line that is not CSV becomes a
    single cell.
    """
    csv.field_size_limit(_LONGEST_LINE)
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return [line]


def parse_number(text: str) -> float | None:
    """A finite, non-negative number, with or without thousands separators; None for other text."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    if math.isfinite(number) and 0 <= number < 2**62:
        return number
    return None
