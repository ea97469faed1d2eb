"""Reads a table of measured times, of any kind that people keep or paste, as a recording without
kernels: CSV, Markdown, JSON, or columns with spaces between.

The headings say the kind of a column, see `time_columns`: sizes and times or rates, in a unit.
Other columns tell curves apart. Several rows of one curve and size are repeats, if they differ by
less than a third; else they are curves of their own, numbered. Many repeats become the medians of
blocks while they are read, so that a table of millions of rows needs little memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ...base.errors import CurvescopeError
from ..attribution.profile import Options
from ..recording.axis import BATCH, Axis
from ..recording.schema import TABLES
from ..recording.store import RecordingWriter
from .source import Source
from .text_tables import (
    DELIMITED,
    TextTable,
    find_tables,
    has_decimal_commas,
    headings_of,
    json_keys,
    parse_cell,
    point_decimals,
    tables_of_json,
)
from .time_columns import (
    SIZE_WORDS,
    Column,
    clean,
    describe_columns,
    is_measure,
    name_counted,
    unit_ns,
)
from .values import LATEST_NS, MOST_I32, REPEATS_ALIKE

NAME = "table of times"
_MOST_TEXT = 1 << 26  # bytes of a table in prose or JSON
_MOST_ROWS = 1 << 26
_MOST_CURVES = 1_000_000
_SEARCHED = 1 << 17  # characters in which a heading is looked for
BLOCKS = 32  # of repeats of one size, whose medians are kept
_RUN = 1 << 20  # rows that are kept before the rows of one size become medians
_STEP = 64  # rows of such a median
_LEAST_STEPS = 2 * BLOCKS  # of one size in a run
_FEW = 16  # repeats that may be curves of their own
_LONGEST_NAME = 200
_LONGEST_SHOWN, _MOST_SHOWN = 60, 20  # characters of a cell, and columns, in a message
# what is written where a size was not measured, e.g. for want of memory
_NOTHING = re.compile(
    r"(?i)|-+|–|—|n/?a|nan|none|null|oom|fail(?:ed)?|x|err(?:or)?|timeout|skip(?:ped)?"
)
_NUMBER = re.compile(r"[\d.,]+")
_NAMES = ("problem", "series")  # columns that hold nothing but names of curves
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass
class _Rows:
    """The rows of one table, a column each, and the names of their curves."""

    sizes: list[Ints] = field(default_factory=list)
    ns: list[Floats] = field(default_factory=list)
    averaged: list[Floats] = field(default_factory=list)  # nan where unknown
    spreads: list[Floats] = field(default_factory=list)  # nan where unknown
    curves: list[Ints] = field(default_factory=list)  # places in `names`
    names: dict[tuple[str, str], int] = field(default_factory=dict)  # problem and device
    left_out: int = 0  # rows without a size or time
    count: int = 0  # rows that were read
    pending: int = 0  # of them, those since many became medians

    def add(self, *columns: npt.NDArray[Any]) -> None:
        """Add rows: sizes, nanoseconds, how many times each averages, spreads, curves."""
        for kept, column in zip(self._columns(), columns, strict=True):
            kept.append(column)
        self.count += len(columns[0])
        self.pending += len(columns[0])
        if self.count > _MOST_ROWS:
            raise CurvescopeError(f"it has more than {_MOST_ROWS:,} rows.")
        if self.pending > _RUN:
            self._shorten()

    def _columns(self) -> tuple[list[Any], ...]:
        return self.sizes, self.ns, self.averaged, self.spreads, self.curves

    def _shorten(self) -> None:
        """Keep a median of each `_STEP` rows of a size that has many."""
        last = [np.concatenate(_pop_after(kept, self.pending)) for kept in self._columns()]
        ns = last[1]
        order, begins, counts = _group(last[4], last[0])
        places = [np.arange(0)]
        for begin, count in zip(begins.tolist(), counts.tolist(), strict=True):
            group = order[begin : begin + count]
            if count >= _STEP * _LEAST_STEPS:
                steps = group[: count - count % _STEP].reshape(-1, _STEP)
                ns[steps[:, 0]] = np.median(ns[steps], axis=1)
                group = np.concatenate([steps[:, 0], group[steps.size :]])
            places.append(group)
        remaining = np.sort(np.concatenate(places))
        for kept, column in zip(self._columns(), last, strict=True):
            kept.append(column[remaining])
        self.pending = 0


def _pop_after(parts: list[npt.NDArray[Any]], count: int) -> list[npt.NDArray[Any]]:
    """The last parts that hold so many rows, taken off the list."""
    first = len(parts)
    while count > 0:
        first -= 1
        count -= len(parts[first])
    last = parts[first:]
    del parts[first:]
    return last


def _group(curves: Ints, sizes: Ints) -> tuple[Ints, Ints, Ints]:
    """The places of rows by curve and size, as read inside each; where each begins, and how many
    rows it has.
    """
    codes, distinct = pd.factorize(curves << 31 | sizes, sort=True)
    small = codes.astype(np.uint16) if len(distinct) <= 1 << 16 else codes
    order = np.argsort(small, kind="stable")
    counts = np.bincount(codes, minlength=len(distinct))
    return order, np.cumsum(counts) - counts, counts


def recognises(source: Source) -> bool:
    """Whether the beginning of the file has a heading of a size and a time."""
    text = source.text
    if not text:
        return False
    if text.startswith(("{", "[")):
        kinds = {column.kind for column in describe_columns(json_keys(text))}
        return "size" in kinds and bool(kinds & {"time", "rate"})
    try:
        return next(find_tables(text[:_SEARCHED]), None) is not None
    except CurvescopeError:
        return True  # a table with a line that does not fit, which the reader names


def refusal(source: Source) -> str | None:
    """Why a table is none of times, with its columns; None if the file is no table."""
    text = source.text
    names = json_keys(text) if text.startswith(("{", "[")) else headings_of(text[:_SEARCHED])
    if not names:
        return None
    kinds = {column.kind for column in describe_columns(names)}
    missing = []
    if "size" not in kinds:
        sizes = ", ".join(words.split(", ")[0] for words in SIZE_WORDS.values())
        missing.append(f"a size ({sizes} …)")
    if kinds.isdisjoint(("time", "rate")):
        missing.append("a time or rate with its unit (time_ms, latency (us), samples/s, TPOT …)")
    if not missing:
        return None
    shown = ", ".join(name[:_LONGEST_SHOWN] for name in names[:_MOST_SHOWN])
    return (
        f"a table with the columns {shown}. It lacks {' and '.join(missing)}: name "
        "them so in its first line."
    )


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Write each row as a published time; CurvescopeError without one."""
    del options  # no option of a profile has a meaning for a table
    rows = _Rows()
    axes: set[Axis] = set()
    for table in _tables(source):
        axes.add(_take(table, rows))
    if not rows.count:
        raise CurvescopeError("has no rows; it needs one line per measured time.")
    columns, names = _fold_repeats(rows)
    batch = columns["batch"]
    writer.write("steps", columns)
    writer.count_lost("rows_unreadable", rows.left_out)
    devices = sorted({device for _, device in names if device})
    axis = axes.pop() if len(axes) == 1 else Axis()
    writer.update(
        recording_type="table",
        noise=None,
        device={"name": devices[0]} if len(devices) == 1 else None,
        batches=sorted(set(batch.tolist())),
        **({} if axis.unit == "samples" else {"axis": axis.entry}),
    )


def _tables(source: Source) -> Iterator[_Cells]:
    """The tables of a file, of large ones in pieces."""
    if source.text.startswith(("{", "[")):
        for table in tables_of_json(source.read_all(_MOST_TEXT)):
            yield _cells_of(table)
        return
    head = next(find_tables(source.text[: 1 << 16].rpartition("\n")[0] or source.text), None)
    if head is not None and head.delimiter in DELIMITED and source.size_bytes > 1 << 16:
        yield from _stream_cells(source, head)
        return
    text = source.read_all(_MOST_TEXT).decode("utf-8-sig", errors="replace")
    yield from _number([_cells_of(table) for table in find_tables(text)])


@dataclass(frozen=True)
class _Cells:
    """Some rows of a table: texts by column."""

    columns: tuple[Column, ...]
    texts: tuple[pa.Array, ...]  # one for each column
    line: int  # line of the heading
    filled: bool = False  # whether an empty cell of a name repeats the one above it
    name: str = ""  # of the table, where a text has several of the same sizes


def _cells_of(table: TextTable) -> _Cells:
    texts = zip(*table.rows, strict=True) if table.rows else [() for _ in table.names]
    columns = tuple(describe_columns(table.names))
    cells = tuple(pa.array(list(column), pa.string()) for column in texts)
    return _Cells(columns, cells, table.line, table.delimiter == "|")


def _number(tables: list[_Cells]) -> list[_Cells]:
    """The tables of a text, named where one has sizes of another: those are no repeats."""
    every: list[str] = []
    for table in tables:
        place = _place_of(table.columns, "size")
        if place is not None:
            every += set(table.texts[place].to_pylist())
    if len(set(every)) == len(every):
        return tables
    return [replace(table, name=f"table {1 + place}") for place, table in enumerate(tables)]


def _stream_cells(source: Source, head: TextTable) -> Iterator[_Cells]:
    """The rows of a large CSV, two megabytes at a time."""
    names = [str(place) for place in range(len(head.names))]
    columns = tuple(describe_columns(head.names))
    with source.open() as stream:
        try:
            with pyarrow.csv.open_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(
                    column_names=names, skip_rows=head.line, block_size=1 << 21
                ),
                parse_options=pyarrow.csv.ParseOptions(delimiter=head.delimiter),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
                ),
            ) as batches:
                for batch in batches:
                    yield _Cells(columns, tuple(batch.columns), head.line)
        except pa.ArrowInvalid as error:
            raise CurvescopeError(f"it is not CSV ({error}); export it again.") from error


def _place_of(columns: Sequence[Column], *kinds: str) -> int | None:
    """The place of the first column of one of these kinds; None without one."""
    return next((place for place, column in enumerate(columns) if column.kind in kinds), None)


def _take(cells: _Cells, rows: _Rows) -> Axis:
    """Add the rows of a table, a curve for each of its columns of times; the axis of its sizes."""
    columns = cells.columns
    numbers = [_Numbers.of(text) for text in cells.texts]
    size = _choose_size(columns, numbers)
    timed = _choose_times(columns, numbers)
    told_apart = []
    for place, column in enumerate(columns):
        is_number = place in (size, *timed)
        if not is_number and _tells_apart(column, _labels(cells, place), numbers[place]):
            told_apart.append(place)
    sizes = numbers[size].values
    averaged = _place_of(columns, "averaged")
    spread = _place_of(columns, "spread", "deviation")
    for place in timed:
        ns = _nanoseconds(columns, numbers, place, size)
        missing = numbers[place].missing | numbers[size].missing
        _refuse_wrong(cells, {size: sizes, place: ns}, missing, size)
        timed_by = columns[place].name if len(timed) > 1 else None
        curves = _curves(rows, cells, told_apart, timed_by)
        kept = ~missing
        rows.left_out += int(missing.sum())
        counted = np.full(len(ns), np.nan) if averaged is None else numbers[averaged].values
        spreads = _relative_spread(columns, numbers, place, spread, ns)
        rows.add(sizes[kept].astype(np.int64), ns[kept], counted[kept], spreads[kept], curves[kept])
    axis = columns[size].axis or BATCH
    return Axis(axis, name_counted(columns[timed[0]], axis))


@dataclass(frozen=True)
class _Numbers:
    """The numbers of a column of text."""

    values: Floats  # nan where the text is no number
    spreads: Floats | None  # what is behind ±
    unit_ns: Floats | None  # nanoseconds of the units behind the numbers; None without units
    missing: npt.NDArray[np.bool_]  # where nothing was measured
    text: pa.Array

    @classmethod
    def of(cls, text: pa.Array) -> _Numbers:
        """The numbers of texts: plain ones at once, others by their distinct texts."""
        try:
            values = pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False)
            return cls(values, None, None, np.zeros(len(values), bool), text)
        except pa.ArrowInvalid:
            pass
        coded = text.dictionary_encode()
        distinct = coded.dictionary.to_pylist()
        if has_decimal_commas(distinct):
            distinct = list(map(point_decimals, distinct))
        values, spreads, units = np.full((3, len(distinct)), np.nan)
        nothing = np.zeros(len(distinct), bool)
        for index, cell in enumerate(distinct):
            nothing[index] = _NOTHING.fullmatch(clean(cell)) is not None
            parsed = parse_cell(cell)
            if parsed is not None:
                value, spread, unit = parsed
                values[index] = value
                spreads[index] = np.nan if spread is None else spread
                units[index] = unit_ns(unit) or np.nan
        places = coded.indices.to_numpy(zero_copy_only=False)
        return cls(
            values[places],
            spreads[places] if np.isfinite(spreads).any() else None,
            units[places] if np.isfinite(units).any() else None,
            nothing[places],
            text,
        )

    @property
    def distinct(self) -> int:
        """How many different numbers there are."""
        return len(np.unique(self.values[np.isfinite(self.values)]))


def _choose_size(columns: Sequence[Column], numbers: Sequence[_Numbers]) -> int:
    """The column of sizes: of the one kind that comes first and varies, that which varies most."""
    order = list(SIZE_WORDS)
    places = [place for place, column in enumerate(columns) if column.kind == "size"]
    shapes = {"m", "n", "k"}

    def rank(place: int) -> tuple[bool, int, int]:
        axis = columns[place].axis or BATCH
        kind = order.index("m") if axis in shapes else order.index(axis)
        return numbers[place].distinct < 2, kind, -numbers[place].distinct

    if len(places) > 1:
        return min(places, key=rank)
    return places[0]


def _choose_times(columns: Sequence[Column], numbers: Sequence[_Numbers]) -> list[int]:
    """The columns of times: those nearest to the time of a step, by their words."""
    ranks = {}
    for place, (column, number) in enumerate(zip(columns, numbers, strict=True)):
        has_unit = column.kind == "other" and number.unit_ns is not None
        if has_unit or column.kind in ("time", "rate", "flops"):
            ranks[place] = column.rank
    least = min(ranks.values())
    return [place for place, rank in ranks.items() if rank == least]


def _tells_apart(column: Column, text: pa.Array, number: _Numbers) -> bool:
    """Whether a column names curves: a device, a setting, or words or whole numbers that recur."""
    if column.kind in ("device", "setting") or column.name.lower() in _NAMES:
        return True
    if column.kind not in ("other", "size") or is_measure(column.name):
        return False
    values = number.values[np.isfinite(number.values)]
    few = pc.count_distinct(text).as_py() <= max(1, len(text) // 2)
    return few and (not len(values) or bool((values == np.round(values)).all()))


def _nanoseconds(
    columns: Sequence[Column], numbers: Sequence[_Numbers], place: int, size: int
) -> Floats:
    """The times of steps, of a column of times or of rates."""
    column = columns[place]
    values = numbers[place].values
    sizes = numbers[size].values
    units = numbers[place].unit_ns
    with np.errstate(divide="ignore", invalid="ignore"):
        if column.kind == "rate":
            return 1e9 * (sizes if column.of_samples else 1.0) / values
        if column.kind == "flops":
            shape = {c.name.lower(): n.values for c, n in zip(columns, numbers, strict=True)}
            return 2e9 * shape["m"] * shape["n"] * shape["k"] / (values * column.flops)
        ns = column.ns if units is None else np.where(np.isfinite(units), units, column.ns)
        return values * ns * (sizes if column.of_samples else 1.0)


def _relative_spread(
    columns: Sequence[Column],
    numbers: Sequence[_Numbers],
    place: int,
    spread: int | None,
    ns: Floats,
) -> Floats:
    """Standard deviations over times: what stands behind ±, or in a column of its own."""
    behind = numbers[place].spreads
    if behind is not None:
        return behind / numbers[place].values
    if spread is None:
        return np.full(len(ns), np.nan)
    values = numbers[spread].values
    if columns[spread].kind == "spread":
        return values
    return values * columns[spread].ns / ns


def _refuse_wrong(
    cells: _Cells, values: dict[int, Floats], missing: npt.NDArray[np.bool_], size: int
) -> None:
    """CurvescopeError for the first row whose size or time is no number above 0, nor left out."""
    for place, numbers in values.items():
        is_size = place == size
        right = (numbers > 0) & (numbers <= (MOST_I32 if is_size else LATEST_NS))
        if is_size:
            right &= numbers == np.round(numbers)
        wrong = np.flatnonzero(~missing & ~right)
        if len(wrong):
            row = int(wrong[0])
            whole = "whole " if is_size else ""
            name = cells.columns[place].name[:_LONGEST_SHOWN]
            cell = cells.texts[place][row].as_py()[:_LONGEST_SHOWN]
            raise CurvescopeError(
                f"line {cells.line + 1 + row}: {name} is {cell!r}; it must be a {whole}number "
                f"above 0, and at most {MOST_I32:.3g}."
            )


def _curves(rows: _Rows, cells: _Cells, told_apart: Sequence[int], timed_by: str | None) -> Ints:
    """The curve of every row, a place in the names."""
    count = len(cells.texts[0])
    beside = [name for name in (cells.name, timed_by) if name]
    if not told_apart:
        place = rows.names.setdefault((", ".join(beside), ""), len(rows.names))
        return np.full(count, place, np.int64)
    codes = np.zeros(count, np.int64)
    parts: list[tuple[Column, list[str]]] = []
    for place in told_apart:
        coded = _labels(cells, place).dictionary_encode()
        distinct = [clean(text)[:_LONGEST_NAME] for text in coded.dictionary.to_pylist()]
        parts.append((cells.columns[place], distinct))
        codes = codes * len(distinct) + coded.indices.to_numpy(zero_copy_only=False)
    curves, inverse = np.unique(codes, return_inverse=True)
    if len(curves) > _MOST_CURVES:
        raise CurvescopeError(f"its rows are of more than {_MOST_CURVES:,} curves.")
    places = np.empty(len(curves), np.int64)
    for number, code in enumerate(curves.tolist()):
        problem = []
        device = []
        for column, distinct in reversed(parts):
            code, which = divmod(code, len(distinct))
            value = distinct[which]
            if column.kind == "device":
                device.append(value)
            elif value:
                named = column.name.lower() in _NAMES or not _NUMBER.fullmatch(value)
                problem.append(value if named else f"{column.name} {value}")
        problem.reverse()
        problem += beside
        key = ", ".join(problem), ", ".join(reversed(device))
        places[number] = rows.names.setdefault(key, len(rows.names))
    return places[inverse]


def _labels(cells: _Cells, place: int) -> pa.Array:
    """The texts of a column; of Markdown an empty one is the one above it."""
    text = cells.texts[place]
    if not cells.filled:
        return text
    nulls = pc.if_else(pc.equal(pc.utf8_trim_whitespace(text), ""), None, text)
    return pc.fill_null(pc.fill_null_forward(nulls), "")


def _fold_repeats(rows: _Rows) -> tuple[dict[str, pa.Array], list[tuple[str, str]]]:
    """The rows as columns of `steps`, repeats numbered and folded, and the names of the curves."""
    sizes = np.concatenate(rows.sizes)
    ns = np.concatenate(rows.ns)
    curves = np.concatenate(rows.curves)
    averaged = np.concatenate(rows.averaged)
    spreads = np.concatenate(rows.spreads)
    order, new, counts = _group(curves, sizes)
    sorted_curves = curves[order]
    names = list(rows.names)
    apart = _unlike_curves(ns[order], sorted_curves[new], new, counts)
    kept = []
    medians = []
    rounds = []
    problem = []
    for begin, count in zip(new.tolist(), counts.tolist(), strict=True):
        of_size = order[begin : begin + count]
        curve = int(sorted_curves[begin])
        name, _ = names[curve]
        if curve in apart:
            kept += of_size.tolist()
            medians += ns[of_size].tolist()
            rounds += [0] * count
            problem += [f"{name} #{1 + number}".strip() for number in range(count)]
            continue
        for number, block in enumerate(np.array_split(of_size, min(count, BLOCKS))):
            kept.append(int(block[0]))
            medians.append(float(ns[block[0]] if len(block) == 1 else np.median(ns[block])))
            rounds.append(number)
            problem.append(name)
    at = np.array(kept)
    as_read = np.argsort(at, kind="stable")
    at = at[as_read]
    texts: list[str | None] = [problem[place] for place in as_read]
    if not any(texts):
        texts = [None] * len(at)
    devices = [names[curve][1] or None for curve in curves[at]]
    whole_ns = np.round(np.array(medians)[as_read])
    averaged_steps = pa.array(averaged[at], pa.float64(), from_pandas=True)
    columns = {
        "step": np.arange(len(at)),
        "batch": sizes[at],
        "round": np.array(rounds, np.int32)[as_read],
        "index": np.zeros(len(at), np.int32),
        "mode": pa.array(["published"] * len(at)),
        "duration_ns": np.maximum(whole_ns, 1).astype(np.int64),
        "profiled": np.zeros(len(at), bool),
        "problem": pa.array(texts, pa.string()),
        "device_name": pa.array(devices, pa.string()),
        "averaged_steps": averaged_steps.cast(pa.int64()),
        "relative_spread": pa.array(spreads[at], pa.float64(), from_pandas=True),
    }
    every = [column.name for column in TABLES["steps"].columns]
    empty = [None] * len(at)
    return {name: columns.get(name, empty) for name in every}, names


def _unlike_curves(ns: Floats, curves: Ints, begins: Ints, counts: Ints) -> set[int]:
    """The curves of which few rows of one size differ by a third or more, so are no repeats."""
    several = counts > 1
    most = np.maximum.reduceat(ns, begins)
    least = np.minimum.reduceat(ns, begins)
    unlike = several & (counts <= _FEW) & (most > REPEATS_ALIKE * least)
    return set(curves[unlike].tolist())
