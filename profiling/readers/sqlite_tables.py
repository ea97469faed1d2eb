"""Tables of a SQLite profile as Arrow, a bounded number of rows at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..errors import CurvescopeError
from .native_scan import OtherTypeError, scan

BATCH_ROWS = 1 << 17


class SqliteTables:
    """The real tables of a database. Views and virtual tables are not looked at: they can run anything.

    Every method raises `CurvescopeError` where the database is damaged.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path | None = None) -> None:
        """Read the schema.

        Args:
            connection: to the database.
            path: its file, to be read by native code where that can; null to read through the connection alone.
        """
        self._connection, self._path = connection, path
        rows = self._query("SELECT name, sql, rootpage FROM sqlite_master WHERE type = 'table'")
        real = [row for row in rows if isinstance(row[1], str) and row[1].lstrip()[:12].upper() == "CREATE TABLE"]
        self._names = {name for name, *_ in real}
        self._info = cache(lambda name: self._query(f'PRAGMA table_xinfo("{name}")'))  # a profile has a hundred tables
        self._columns = cache(
            lambda name: frozenset(row[1] for row in self._info(name)) if name in self else frozenset()
        )
        self._root = {name: root for name, sql, root in real if "WITHOUT" not in sql.upper()}
        self.count = cache(self._count)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def columns(self, name: str) -> frozenset[str]:
        """Names of a table's columns; none where it is absent."""
        return self._columns(name)

    def scan(self, name: str, wanted: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """The wanted columns of a table, in the order of its rows; a column it lacks is null, an absent table empty.

        Raises:
            CurvescopeError: a value is of another type than the column's.
        """
        there = [column for column in wanted if column in self.columns(name)]
        if not there:
            return
        done = 0
        try:
            for batch in self._native(name, there, wanted) or ():
                done += batch.num_rows
                yield _complete(batch, wanted)
        except OtherTypeError:
            pass
        else:
            if done:
                return
        listed = ", ".join(f'"{column}"' for column in there)
        with _whole():
            # In the order of the row ids, as native code reads them: it may have read the first ones.
            sql = f'SELECT {listed} FROM "{name}" LIMIT -1 OFFSET {done}'  # noqa: S608 - names from our own lists
            cursor = self._connection.execute(sql)
        while True:
            with _whole():
                rows = cursor.fetchmany(BATCH_ROWS)
            if not rows:
                return
            found = dict(zip(there, zip(*rows, strict=True), strict=True))
            try:
                yield _complete(pa.table({column: pa.array(found[column], wanted[column]) for column in there}), wanted)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise CurvescopeError(
                    f"table {name} holds a value of the wrong type ({str(error)[:100]}); export it again."
                ) from error

    def _native(self, name: str, there: list[str], wanted: Mapping[str, pa.DataType]) -> Iterator[pa.Table] | None:
        """The columns through native code; null where something about the table or the columns is beyond it."""
        if self._path is None or name not in self._root or not {wanted[c] for c in there} <= {pa.int64(), pa.string()}:
            return None
        info = self._info(name)
        keys = [row for row in info if row[5]]
        plain = all(row[4] is None and not row[6] for row in info)  # no defaults, no generated columns
        if not plain or any(not isinstance(row[2], str) for row in info):
            return None
        # An INTEGER PRIMARY KEY is the row id, and null in the record.
        row_id = keys[0][1] if len(keys) == 1 and keys[0][2].upper() == "INTEGER" else None
        place = {row[1]: -1 if row[1] == row_id else row[0] for row in info}
        text = {column for column in there if wanted[column] == pa.string()}
        return scan(self._path, self._root[name], {column: place[column] for column in there}, text, BATCH_ROWS)

    def read(self, name: str, wanted: Mapping[str, pa.DataType]) -> pa.Table:
        """All rows of `scan` at once."""
        empty = pa.schema(list(wanted.items())).empty_table()
        return pa.concat_tables([empty, *self.scan(name, wanted)]).combine_chunks()

    def about(self, name: str) -> int:
        """How many rows a table has, if none was taken out of it: unlike `count` it does not read the table."""
        if name not in self._root:
            return self.count(name)
        return int(self._query(f'SELECT max(rowid) FROM "{name}"')[0][0] or 0)  # noqa: S608 - likewise

    def _count(self, name: str) -> int:
        if name not in self:
            return 0
        return int(self._query(f'SELECT count(*) FROM "{name}"')[0][0])  # noqa: S608 - likewise

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        with _whole():
            return self._connection.execute(sql).fetchall()


def _complete(batch: pa.Table, wanted: Mapping[str, pa.DataType]) -> pa.Table:
    """The wanted columns in order; those the table lacks are null."""
    absent = {name: pa.nulls(batch.num_rows, dtype) for name, dtype in wanted.items() if name not in batch.column_names}
    return pa.table({name: absent[name] if name in absent else batch[name] for name in wanted})


@contextmanager
def _whole() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise CurvescopeError(
            f"it is no whole SQLite database ({str(error)[:100]}); copy or export it again."
        ) from error
