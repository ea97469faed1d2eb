"""Finds tables in text: CSV and its like, Markdown, JSON, and columns pasted with spaces between.

A table begins at a heading that names a size and a time, wherever the text has it, and ends with
the last line of as many cells. Of a table in prose nothing else is read.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

import msgspec

from ...base.errors import CurvescopeError
from .time_columns import UNIT, clean, describe_column, describe_columns, size_axis, unit_ns

DELIMITED = (",", "\t", ";")
_SPACES = re.compile(r"\s{2,}|\t")
_RULE = re.compile(r"[\s|:+\-=─━═┼╪┿╋├┤┠┨╞╡└┴┘┌┬┐┏┳┓┗┻┛┡╇┩╔╦╗╚╩╝╠╬╣]+")
_BOX = str.maketrans("│┃║", "|||")
_BARE = re.compile(r"[\d.,]+")
_SIZE_CELL = re.compile(r"(?P<word>[a-z][a-z _-]*?)?\s*[=: ]?\s*(?P<size>\d{1,9})", re.IGNORECASE)
_LEAST_WIDE = 3  # sizes in a heading, to be a table with a column for each
# a number with its unit, as in `12.3 ms`, `5.1 ± 0.2` or `3 ms ± 20 µs`; of `8K` nobody knows it
_CELL = re.compile(
    r"[~≈<>]?\s*(?P<value>[+-]?(?:\d[\d,  ']*)?\.?\d+(?:e[+-]?\d+)?)\s*"
    r"(?:(?P<of_value>[a-zµμ]*)\s*(?:±|\+/?-)\s*(?P<spread>[\d.,]+(?:e[+-]?\d+)?)\s*)?"
    r"(?P<unit>(?![km]\.?$)[a-zµμ/%×]*)\.?",
    re.IGNORECASE,
)
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(?:0,\d+|\d[\d.]*,(?:\d\d?|\d{4,}))(?![\d.,])")
_GROUP_POINT = re.compile(r"(?<=\d)\.(?=\d{3}(?!\d))")
_LAST_COMMA = re.compile(r"(?<=\d),(?=\d+(?![\d.,]))")
# between a number and its unit, or before a bracket, no cell ends
_INSIDE_CELL = re.compile(
    rf"(?<=\d)\s+(?=(?:{UNIT}|[a-z]+/s(?:ec)?)(?:\s|$))|\s+(?=[(\[])", re.IGNORECASE
)
# one part of `Batch size: 8, config: {"BLOCK_M": 16}, kernel time: 12.3 us`
_LABELLED = re.compile(
    r"\s*(?P<name>[a-z][\w ./()-]{0,40}?)\s*[:=]\s*(?P<value>\{[^{}]*\}|[^,;{}]*?)\s*(?:[,;]|$)",
    re.IGNORECASE,
)
# a line like `bs=1: 3.2 ms` or `batch 8 -> 12.5 ms`
_PAIR = re.compile(
    r"[\s>*-]*(?P<word>[a-z][a-z _-]{0,40}?)[\s=:]*(?P<size>\d{1,9})\s*(?:[-=]+>|→|[=:,|])\s*"
    r"(?P<value>[^:;,]{1,60})",
    re.IGNORECASE,
)
_MOST_KEYS = 200


@dataclass(frozen=True)
class TextTable:
    """One table of text."""

    names: tuple[str, ...]  # headings
    rows: list[list[str]]  # cells
    line: int  # line before its first row, from 1
    delimiter: str = ","  # what parts its cells


def find_tables(text: str) -> Iterator[TextTable]:
    """The tables with a size and a time; CurvescopeError for a line of CSV that does not fit."""
    lines = text.splitlines()
    place = 0
    has_table = False
    while place < len(lines):
        table = _table_at(lines, place)
        if table is None:
            place += 1
            continue
        has_table = True
        place = table.line + len(table.rows)
        yield widen(table)
    if not has_table:
        yield from _find_labelled(lines)


def headings_of(text: str) -> tuple[str, ...]:
    """The headings of the first table of any kind, to say why it is none of times."""
    lines = text.splitlines()
    for line, after in pairwise(lines):
        for delimiter in ("|", *DELIMITED):
            cells = _split(line, delimiter)
            if len(cells) > 1 and (
                _RULE.fullmatch(after) or len(_split(after, delimiter)) == len(cells)
            ):
                return tuple(map(clean, cells))
        cells, values = _split(line, "  "), _split(after, "  ")
        if len(cells) == len(values) > 1 and all(map(parse_cell, values)):
            return tuple(map(clean, cells))
    return ()


def tables_of_json(data: bytes) -> Iterator[TextTable]:
    """A list of rows, or a dictionary of columns, also inside a dictionary."""
    try:
        read = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise CurvescopeError(f"it is broken JSON ({error}).") from error
    inner = read.values() if isinstance(read, dict) else ()
    for value in (read, *inner):
        rows = _rows_of(value)
        if not rows:
            continue
        names = tuple(dict.fromkeys(name for row in rows for name in row))[:_MOST_KEYS]
        cells = [
            ["" if row.get(name) is None else str(row[name]) for name in names] for row in rows
        ]
        table = widen(TextTable(names, cells, 1))
        if _is_of_times(table.names, table.rows[0] if table.rows else []):
            yield table


def json_keys(text: str) -> tuple[str, ...]:
    """The names of the first row, or of the columns, of JSON whose beginning this is."""
    if match := re.match(r"\s*(?:\{[^\[{]{0,500}:\s*)?\[\s*(\{[^{}\[\]]{1,5000}\})", text):
        return tuple(re.findall(r'"([^"\\]{1,100})"\s*:', match[1]))
    return tuple(re.findall(r'"([^"\\]{1,100})"\s*:\s*\[', text[:100_000]))[:_MOST_KEYS]


def parse_cell(text: str) -> tuple[float, float | None, str] | None:
    """A number, its spread and its unit; None for other text."""
    match = _CELL.fullmatch(clean(text))
    if match is None:
        return None
    value = float(re.sub(r"[,  ']", "", match["value"]))
    unit = match["of_value"] or match["unit"]
    if match["spread"] is None:
        return value, None, unit
    spread = float(match["spread"].replace(",", ""))
    ns, of_spread = unit_ns(unit), unit_ns(match["unit"])
    return value, spread * of_spread / ns if ns and of_spread else spread, unit


def has_decimal_commas(cells: Sequence[str]) -> bool:
    """Whether the commas of a column part whole numbers from decimals: `3,2`, unlike `1,210`."""
    return any(map(_DECIMAL_COMMA.search, cells))


def point_decimals(cell: str) -> str:
    """A cell with points for decimal commas: `1.210,5` is `1210.5`."""
    ungrouped = _GROUP_POINT.sub("", cell)
    return _LAST_COMMA.sub(".", ungrouped)


def widen(table: TextTable) -> TextTable:
    """The table with a row for each size; one that has a column for each size is turned."""
    first, *rest = table.names
    sizes = [_SIZE_CELL.fullmatch(clean(name)) for name in rest]
    fits = [match is not None and _is_size_word(match["word"]) for match in sizes]
    if sum(fits) < _LEAST_WIDE:
        return table
    word = next((match["word"] for match in sizes if match and match["word"]), None)
    head = describe_column(first)
    axis = first if head.kind == "size" else word or "batch"
    labels = [row[0] for row in table.rows]
    if all(fits) and {column.kind for column in describe_columns(labels)} & {"time", "rate"}:
        rows = [list(row) for row in zip(*table.rows, strict=True)]
        measured = [
            [match["size"], *row] for match, row in zip(sizes, rows[1:], strict=True) if match
        ]
        return TextTable((axis, *labels), measured, table.line, table.delimiter)
    others = [name for name, fit in zip(rest, fits, strict=True) if not fit]
    rows = []
    for row in table.rows:
        label, *cells = row
        kept = [cell for cell, fit in zip(cells, fits, strict=False) if not fit]
        for match, fit, cell in zip(sizes, fits, cells, strict=False):
            if match and fit:
                rows.append([label, *kept, match["size"], cell])
    timed = first if head.kind in ("time", "rate", "flops") else "time"
    return TextTable(("series", *others, axis, timed), rows, table.line, table.delimiter)


def _table_at(lines: Sequence[str], place: int) -> TextTable | None:
    """The table whose heading is a line; None if it is none."""
    if _read_labels(lines[place]):
        return None
    for delimiter in ("|", *DELIMITED, "  ", " "):
        names = _split(lines[place], delimiter)
        if len(names) < 2 or all(_BARE.fullmatch(name) for name in names):
            continue
        following = _rows_below(lines, place + 1, delimiter, len(names))
        begins = ((between, row) for between, row in enumerate(following) if row)
        between, first = next(begins, (0, None))
        if first is None:
            continue
        wide = widen(TextTable(tuple(names), [first], place + 1, delimiter))
        if not _is_of_times(wide.names, wide.rows[0]):
            continue
        rows = [first, *filter(None, following)]
        return TextTable(tuple(map(clean, names)), rows, place + 1 + between, delimiter)
    return None


def _find_labelled(lines: Sequence[str]) -> Iterator[TextTable]:
    """Lines that name a size and, behind it or in the next line, a time: a table for each stretch
    of them.
    """
    rows: list[list[str]] = []
    names: tuple[str, str] | None = None
    size: tuple[str, str] | None = None
    begin = 0
    for number, line in enumerate([*lines, "end"]):
        labels = _read_labels(line)
        if line.strip() and not labels:
            if names and len(rows) >= _LEAST_WIDE:
                yield TextTable(names, rows, begin)
            rows, names, size = [], None, None
        for name, value in labels.items():
            kind = describe_column(name).kind
            if kind == "size":
                size = name, value
            elif size and (kind in ("time", "rate") or has_time_unit(value)):
                begin = begin if rows else number + 1
                names = names or (size[0], name)
                if names == (size[0], name):
                    rows.append([size[1], value])
                    size = None


def _read_labels(line: str) -> dict[str, str]:
    """The values of a line of nothing but names with values, by name; or of a size and a time."""
    pair = _PAIR.fullmatch(line)
    if pair and size_axis(pair["word"]) and has_time_unit(pair["value"]):
        return {clean(pair["word"]): pair["size"], "time": pair["value"]}
    labels: dict[str, str] = {}
    place = 0
    while place < len(line):
        match = _LABELLED.match(line, place)
        if match is None:
            return {}
        labels[clean(match["name"])] = match["value"]
        place = match.end()
    return labels


def _rows_below(
    lines: Sequence[str], place: int, delimiter: str, count: int
) -> Iterator[list[str]]:
    """The rows below a heading; an empty list for a line between that is no row."""
    began = False
    for number in range(place, len(lines)):
        line = lines[number]
        if not line.strip(" >") or _RULE.fullmatch(line.strip(" >")):
            if began and not line.strip(" >"):
                return
            yield []
            continue
        cells = _split(line, delimiter)
        if delimiter == "  " and len(cells) != count:
            words = _split(line, " ")
            cells = words if any(map(parse_cell, words)) else cells
        if len(cells) != count:
            if delimiter in DELIMITED and len(cells) > 1:
                raise CurvescopeError(
                    f"line {number + 1}: the number of values differs from the number of columns "
                    "in the first line."
                )
            return
        began = True
        yield cells


def _split(line: str, delimiter: str) -> list[str]:
    """The cells of a line."""
    line = line.removeprefix("\ufeff").translate(_BOX).strip().lstrip("> ")
    if delimiter == "|":
        if "|" not in line:
            return [line]
        inner = line.removeprefix("|").removesuffix("|")
        return [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]
    if delimiter in DELIMITED:
        try:
            return [
                cell.strip()
                for cell in next(csv.reader([line], delimiter=delimiter, strict=True), [])
            ]
        except csv.Error as error:
            if '"' in line and delimiter == ",":
                raise CurvescopeError(f"it is not CSV ({error}); export it again.") from error
            return [line]
    if delimiter == "  ":
        return _SPACES.split(line)
    return _INSIDE_CELL.sub("", line).split()


def _is_of_times(names: Sequence[str], first: Sequence[str]) -> bool:
    """Whether a heading, with its first row, has a size and a time."""
    columns = describe_columns(names)
    kinds = {column.kind for column in columns}
    if "size" not in kinds:
        return False
    if kinds & {"time", "rate"}:
        return True
    if "flops" in kinds:
        return {"m", "n", "k"} <= {clean(name).lower() for name in names}
    return any(
        column.kind == "other" and has_time_unit(cell)
        for column, cell in zip_longest(columns, first)
        if column is not None and cell is not None
    )


def has_time_unit(cell: str) -> bool:
    """Whether a cell is a number with a unit of time."""
    parsed = parse_cell(cell)
    return parsed is not None and unit_ns(parsed[2]) is not None


def _is_size_word(word: str | None) -> bool:
    return word is None or size_axis(word) is not None


def _rows_of(read: Any) -> list[dict[str, Any]]:
    """Rows of a list of dictionaries, or of a dictionary of lists."""
    if isinstance(read, list):
        return [row for row in read if isinstance(row, dict)]
    if not isinstance(read, dict):
        return []
    columns = {name: values for name, values in read.items() if isinstance(values, list)}
    counts = {len(values) for values in columns.values()}
    if len(columns) < 2 or len(counts) != 1:
        return []
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
