"""Tables of a SQLite profile as Arrow, a bounded number of rows at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import pyarrow as pa

from ..errors import CurvescopeError

BATCH_ROWS = 1 << 18


class SqliteTables:
    """The real tables of a database. Views and virtual tables are not looked at: they can run anything.

    Every method raises `CurvescopeError` where the database is damaged.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        rows = self._query("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        self._names = {
            name for name, sql in rows if isinstance(sql, str) and sql.lstrip()[:12].upper() == "CREATE TABLE"
        }
        self._columns = {name: frozenset(r[1] for r in self._query(f'PRAGMA table_info("{name}")')) for name in self}
        self.count = cache(self._count)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def columns(self, name: str) -> frozenset[str]:
        """Names of a table's columns; none where it is absent."""
        return self._columns.get(name, frozenset())

    def scan(self, name: str, wanted: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """The wanted columns of a table, in the order of its rows; a column it lacks is null, an absent table empty.

        Raises:
            CurvescopeError: a value is of another type than the column's.
        """
        there = [column for column in wanted if column in self.columns(name)]
        if not there:
            return
        listed = ", ".join(f'"{column}"' for column in there)
        with _whole():
            cursor = self._connection.execute(f'SELECT {listed} FROM "{name}"')  # noqa: S608 - names from our own lists
        while True:
            with _whole():
                rows = cursor.fetchmany(BATCH_ROWS)
            if not rows:
                return
            found = dict(zip(there, zip(*rows, strict=True), strict=True))
            try:
                arrays = {
                    column: pa.array(found[column], dtype) if column in found else pa.nulls(len(rows), dtype)
                    for column, dtype in wanted.items()
                }
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise CurvescopeError(
                    f"table {name} holds a value of the wrong type ({str(error)[:100]}); export it again."
                ) from error
            yield pa.table(arrays)

    def read(self, name: str, wanted: Mapping[str, pa.DataType]) -> pa.Table:
        """All rows of `scan` at once."""
        empty = pa.schema(list(wanted.items())).empty_table()
        return pa.concat_tables([empty, *self.scan(name, wanted)]).combine_chunks()

    def _count(self, name: str) -> int:
        if name not in self:
            return 0
        return int(self._query(f'SELECT count(*) FROM "{name}"')[0][0])  # noqa: S608 - likewise

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        with _whole():
            return self._connection.execute(sql).fetchall()


@contextmanager
def _whole() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise CurvescopeError(
            f"it is no whole SQLite database ({str(error)[:100]}); copy or export it again."
        ) from error
