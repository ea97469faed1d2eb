"""Tables that profilers print among the output of the program they profile."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from typing import BinaryIO

from ..errors import CurvescopeError

_LONGEST_LINE = 1 << 22  # characters; a kernel's name may be long, a line of 4 MiB is no row


def lines_of(stream: BinaryIO) -> Iterator[str]:
    """The lines without their ends; those longer than 4 MiB are refused."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="\n")
    while line := text.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise CurvescopeError("a line of more than 4 MiB in it: no profiler wrote that.")
        yield line.replace("\x00", "").rstrip("\r\n")


def rows_of(stream: BinaryIO, header: re.Pattern[str]) -> Iterator[list[str]]:
    """Rows of the CSV table whose header matches, header first; other lines around it are passed over.

    A line of the profiler (`==1234==`, `==PROF==`) is no row, wherever it stands.
    """
    lines = (line for line in lines_of(stream) if line and not line.startswith("=="))
    for line in lines:
        if header.match(line):
            break
    else:
        return
    yield from parse_rows([line])
    for line in lines:
        yield from parse_rows([line])


def parse_rows(lines: list[str]) -> Iterator[list[str]]:
    """Cells of CSV lines; a line with unbalanced quotes gives what it has, one that is no CSV a single cell."""
    csv.field_size_limit(_LONGEST_LINE)
    for line in lines:
        try:
            yield next(csv.reader([line]), [])
        except csv.Error:
            yield [line]


def parse_number(text: str) -> float | None:
    """A finite, non-negative number, thousands separated by commas or not; null for anything else."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number < 2**62 else None
