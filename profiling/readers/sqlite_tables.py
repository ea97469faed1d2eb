"""Reads tables of a SQLite profile as Arrow tables, a bounded number of rows at a time.

ADBC's driver reads columns of whole numbers and texts. It derives a column's type from the first
values, so every query begins with a row of values of the wanted types. If a later value or a column
has another type, Python's sqlite3 reads the rest, row by row, with a message about wrong values. A
number in a column of texts is given as its digits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...base.budget import Budget
from ...base.errors import CurvescopeError
from ...base.prefetch import map_ahead, read_ahead

BATCH_ROWS = 1 << 17
PRAGMAS = ("PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON")
_LONGEST_DEFAULT = 1000  # characters
_LEAST_ROW_BYTES = 2  # of a row in the file: a cell has a pointer
_READERS = 2  # threads that read a large table
_TICK = 1 << 18  # instructions of SQLite's machine between two looks at the clock
# Bytes of a value. Before SQLite 3.43 a text must be loaded for them; later its head tells them.
_SIZE = "octet_length({})" if sqlite3.sqlite_version_info >= (3, 43) else "length(CAST({} AS BLOB))"
_TYPED_ROW = {pa.int64(): "0", pa.string(): "''"}


class _UnreadError(Exception):
    """ADBC cannot read the next row."""


class SqliteTables:
    """The real tables of a database.

    Views and virtual tables are no tables here: they can run any code.

    Every method raises `CurvescopeError` if the database is damaged, or where a view or a computed
    column stands in place of data. ADBC's driver needs the path of the file. Values are charged to
    the budget before any is loaded, since rows may share the pages of one long text.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None = None, budget: Budget | None = None
    ) -> None:
        self._connection = connection
        self._path = path
        self._budget = budget or Budget()
        self._most_rows = -1 if path is None else path.stat().st_size // _LEAST_ROW_BYTES
        connection.set_progress_handler(self._is_late, _TICK)
        rows = self._query("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view')")
        real = [(name, sql) for name, sql in rows if _creates_table(sql)]
        self._names = {name for name, _ in real}
        self._others = {name for name, _ in rows} - self._names
        self._info = cache(self._columns)
        self._with_row_ids = {name for name, sql in real if "WITHOUT" not in sql.upper()}
        self.count = cache(self._count)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def columns(self, name: str) -> frozenset[str]:
        """Names of a table's columns; none for an absent table."""
        # cached: a profile has a hundred tables
        return frozenset(row[1] for row in self._info(name))

    def first_number(self, name: str, column: str) -> int | None:
        """The number in the first row of a table; None without one."""
        batch = next(self.scan(name, {column: pa.int64()}), None)
        return None if batch is None else batch[column][0].as_py()

    def _columns(self, name: str) -> list[tuple[Any, ...]]:
        """Rows of `PRAGMA table_xinfo`; none for an absent table."""
        if name in self._others:
            raise CurvescopeError(
                f"{name} is a view or a virtual table, which no profiler writes; export it again."
            )
        if name not in self:
            return []
        columns = self._query(f'PRAGMA table_xinfo("{name}")')
        for _, column, _, _, default, _, hidden in columns:
            # Either makes any amount of text out of a small file.
            if hidden or len(str(default or "")) > _LONGEST_DEFAULT:
                raise CurvescopeError(
                    f"column {column} of table {name} is computed, or has a default of any length, "
                    "which no profiler writes; export it again."
                )
        return columns

    def scan(self, name: str, wanted: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """The wanted columns of a table, in the order of its rows; a column it lacks is null, an
        absent table empty.

        A value of another type than the column's is refused.
        """
        present = [column for column in wanted if column in self.columns(name)]
        if not present:
            return
        listed = ", ".join(f'"{column}"' for column in present)
        # NOT INDEXED: rows in the order of the table for both libraries.
        sql = f'SELECT {listed} FROM "{name}" NOT INDEXED'  # noqa: S608 - names from our own lists
        done = 0
        self._budget.check_time()
        self._charge(name, [column for column in present if wanted[column] != pa.int64()])
        try:
            for batch in self._in_ranges(name, sql, {column: wanted[column] for column in present}):
                done += batch.num_rows
                self._check_count(name, done)
                if batch.num_rows:
                    yield _complete(batch, wanted)
        except _UnreadError:
            pass  # Python's sqlite3 reads the rest
        else:
            return
        self._charge(name, present)  # a text in a column of numbers ends ADBC's reading
        with self._readable():
            cursor = self._connection.execute(f"{sql} LIMIT -1 OFFSET {done}")
        while True:
            with self._readable():
                rows = cursor.fetchmany(BATCH_ROWS)
            if not rows:
                return
            done += len(rows)
            self._check_count(name, done)
            columns = zip(present, zip(*rows, strict=True), strict=True)
            try:
                yield _complete(
                    pa.table({name: pa.array(values, wanted[name]) for name, values in columns}),
                    wanted,
                )
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise CurvescopeError(
                    f"table {name} holds a value of the wrong type ({str(error)[:100]}); export it "
                    "again."
                ) from error

    def _in_ranges(
        self, name: str, sql: str, types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.Table]:
        """Tables of the rows, as from `_at_once`; two threads read a large table, a range of row
        ids at a time.
        """
        step = max(BATCH_ROWS - 2, 1)  # rows of a range: with the typed row less than a batch
        row_ids = self._row_ids(name)
        if row_ids is None:  # nvprof writes a hundred tables, most of them empty
            return
        low, high = row_ids
        # A row takes more than four bytes: a table with more row ids than that has gaps, and would
        # have empty ranges.
        if self._path is None or not BATCH_ROWS < high - low < self._path.stat().st_size // 4:
            yield from self._at_once(sql, types)
            return
        queries = (
            f"{sql} WHERE rowid BETWEEN {first} AND {first + step - 1}"
            for first in range(low, high + 1, step)
        )
        done = 0
        rows = 0
        with ThreadPoolExecutor(_READERS) as readers:
            ranges = ((query, types) for query in queries)
            try:
                for tables in map_ahead(
                    readers, lambda *range_: list(self._at_once(*range_)), ranges, _READERS + 1
                ):
                    yield from tables
                    done = done + 1
                    rows = rows + sum(table.num_rows for table in tables)
            except _UnreadError:
                self._check_rows(name, rows, f"WHERE rowid < {low + done * step}")
                raise
        self._check_rows(name, rows)

    def _check_rows(self, name: str, rows: int, where: str = "") -> None:
        """Refuse a table of which other rows were read than it has."""
        if self._count_to(rows + 1, name, where) != rows:
            raise CurvescopeError(
                f"it is a damaged SQLite database (row ids of table {name} are out of order); copy "
                "or export it again."
            )

    def _row_ids(self, name: str) -> tuple[int, int] | None:
        """The least and the greatest row id of a table; zeros where it has none, None for a table
        without rows.
        """
        if name not in self._with_row_ids or "rowid" in map(str.lower, self.columns(name)):
            return 0, 0
        least, greatest = (f'(SELECT {which}(rowid) FROM "{name}")' for which in ("min", "max"))  # noqa: S608 - likewise
        ((low, high),) = self._query(f"SELECT {least}, {greatest}")
        if low is None or high is None:
            return None
        return (low, high)

    def _at_once(self, sql: str, types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """Tables of the rows, by ADBC's driver; raises `_UnreadError` where it cannot read the next
        one as wanted.
        """
        if self._path is None or not set(types.values()) <= _TYPED_ROW.keys():
            raise _UnreadError
        from adbc_driver_sqlite import dbapi  # late: importing it takes a while

        uri = f"{self._path.resolve().as_uri()}?mode=ro&immutable=1"
        typed = ", ".join(_TYPED_ROW[dtype] for dtype in types.values())
        try:
            with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
                for pragma in PRAGMAS:
                    cursor.execute(pragma)
                cursor.adbc_statement.set_options(
                    **{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)}
                )
                cursor.execute(f"SELECT {typed} UNION ALL {sql}")
                with cursor.fetch_record_batch() as reader:
                    if reader.schema.types != list(types.values()):
                        raise _UnreadError
                    table = _next(reader, list(types))
                    assert table is not None
                    # No thread for a table of one batch, the usual case: starting one takes longer.
                    more = table.num_rows == BATCH_ROWS
                    rows = table.slice(1)
                    yield from (
                        read_ahead(rows, lambda: _next(reader, list(types)))
                        if more
                        else iter([rows])
                    )
        except (OSError, dbapi.Error, pa.ArrowException) as error:
            raise _UnreadError from error

    def read_filled(self, name: str, columns: Sequence[str], needed: str) -> list[tuple[Any, ...]]:
        """The columns, and then `needed`, of the rows in which that one is not null; none if the
        table lacks one.
        """
        wanted = (*columns, needed)
        if not self.columns(name).issuperset(wanted):
            return []
        self._charge(name, wanted)
        listed = ", ".join(f'"{column}"' for column in wanted)
        return self._query(f'SELECT {listed} FROM "{name}" WHERE "{needed}" IS NOT NULL')  # noqa: S608 - likewise

    def read(self, name: str, wanted: Mapping[str, pa.DataType]) -> pa.Table:
        """All rows of `scan`, as one table."""
        empty = pa.schema(list(wanted.items())).empty_table()
        return pa.concat_tables([empty, *self.scan(name, wanted)]).combine_chunks()

    def about(self, name: str) -> int:
        """Number of rows, exact if none was deleted; fast, since unlike `count` it does not read
        the table.
        """
        self.columns(name)  # refuses a view
        if name not in self._with_row_ids:
            return self.count(name)
        return int(self._query(f'SELECT max(rowid) FROM "{name}"')[0][0] or 0)  # noqa: S608 - the same

    def _count(self, name: str) -> int:
        if name not in self:
            return 0
        rows = self._count_to(self._most_rows + 1 or -1, name)
        self._check_count(name, rows)
        return rows

    def _count_to(self, most: int, name: str, where: str = "") -> int:
        """The rows of a table, but no more than so many; -1 for no limit. A plain count would walk
        pages that name the same page again and again, and nothing could end it.
        """
        rows = f'SELECT 1 FROM "{name}" NOT INDEXED {where} LIMIT {most}'  # noqa: S608 - the same
        return int(self._query(f"SELECT count(*) FROM ({rows})")[0][0])  # noqa: S608 - the same

    def _charge(self, name: str, columns: Sequence[str]) -> None:
        """Charge the bytes of all values of some columns to the budget."""
        if not columns:
            return
        sizes = " + ".join(f"ifnull({_SIZE.format(column)}, 0)" for column in map(_quote, columns))
        limit = self._most_rows + 1 or -1
        rows = f'SELECT {sizes} AS size FROM "{name}" NOT INDEXED LIMIT {limit}'  # noqa: S608 - the same
        ((size_bytes,),) = self._query(f"SELECT total(size) FROM ({rows})")  # noqa: S608 - the same
        self._budget.take_bytes(int(size_bytes))

    def _check_count(self, name: str, rows: int) -> None:
        """Refuse more rows than the file has room for: its pages refer to each other in circles."""
        if 0 <= self._most_rows < rows:
            raise CurvescopeError(
                f"it is a damaged SQLite database (table {name} has more rows than the file has "
                "room for); copy or export it again."
            )

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        with self._readable():
            return self._connection.execute(sql).fetchall()

    def _is_late(self) -> bool:
        """Whether a query must end, because the budget is spent."""
        try:
            self._budget.check_time()
        except CurvescopeError:
            return True
        return False

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            self._budget.check_time()  # says why, where the time ended the query
            raise CurvescopeError(
                f"it is a damaged SQLite database ({str(error)[:100]}); copy or export it again."
            ) from error


def _quote(column: str) -> str:
    return f'"{column}"'


def _next(reader: pa.RecordBatchReader, names: list[str]) -> pa.Table | None:
    try:
        batch = reader.read_next_batch()
    except StopIteration:
        return None
    return pa.table([_repair_text(column) for column in batch.columns], names)


def _repair_text(column: pa.Array) -> pa.Array:
    """The column with repaired UTF-8, which SQLite does not check."""
    if column.type != pa.string():
        return column
    binary = column.cast(pa.binary())
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = []
        for text in binary.to_pylist():
            decoded.append(None if text is None else text.decode("utf-8", errors="replace"))
        return pa.array(decoded, pa.string())


def _complete(batch: pa.Table, wanted: Mapping[str, pa.DataType]) -> pa.Table:
    """The wanted columns in order; null for those that the table lacks."""
    columns = {}
    for name, dtype in wanted.items():
        if name in batch.column_names:
            columns[name] = batch[name]
        else:
            columns[name] = pa.nulls(batch.num_rows, dtype)
    return pa.table(columns)


def translate(numbers: pa.ChunkedArray, words: Mapping[int, str]) -> pa.ChunkedArray:
    """The word of each number; null without one."""
    places = pc.index_in(numbers, pa.array(list(words), pa.int64()))
    return pa.array(list(words.values()), pa.string()).take(places)


def _creates_table(sql: object) -> bool:
    return isinstance(sql, str) and sql.lstrip()[:12].upper() == "CREATE TABLE"
