"""Converts columns of Arrow tables to NumPy arrays and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .nesting import NONE, Bools, Codes, Ints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_MOST_ROOM = 1 << 26  # rows; a damaged file may announce any number
_LATEST_NS = 1 << 62  # differences of later times do not fit 64 bits; no clock shows them

_DTYPES: dict[str, npt.DTypeLike] = {"Ints": np.int64, "Codes": np.int32, "Bools": np.bool_}

_Rows = TypeVar("_Rows", bound="DataclassInstance")
_Item = TypeVar("_Item")


def factorize(values: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[Any]]:
    """Numbers of equal values in the order of their first appearance, `NONE` for None, and the
    distinct values.
    """
    encoded = pa.array(values, from_pandas=True).dictionary_encode()
    codes = encoded.indices.fill_null(NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_numpy(zero_copy_only=False)


class Timed:
    """Starts and ends of a table; 0 for missing and impossible times; arrays of shape (rows,)."""

    def __init__(self, table: pa.Table, replayed: bool = False) -> None:
        start = int_column(table, "start_ns")
        end = int_column(table, "end_ns")
        self.start_ns = start
        self.end_ns = end
        nulls = table["start_ns"].null_count + table["end_ns"].null_count
        if not nulls and _are_plain(start, end):
            self.started = self.complete = np.ones(len(start), np.bool_)
            self.backwards = ~self.complete  # whether a row ends before it starts
        else:
            has_start = _is_valid(table["start_ns"])
            has_end = _is_valid(table["end_ns"])
            # Not by absolute value: the least int64 has none.
            too_late = np.maximum(start, end) >= _LATEST_NS
            too_early = np.minimum(start, end) <= -_LATEST_NS
            possible = has_start & ~too_late & ~too_early
            is_set = (start != 0) | (has_end & (end != 0))
            self.started = possible & is_set
            self.backwards = self.started & has_end & (end < start)
            self.complete = self.started & has_end & ~self.backwards
            self.start_ns = np.where(self.started, start, 0)
            self.end_ns = np.where(self.complete, end, 0)
        self._replayed = replayed
        # Whether the times are those of normal execution: kernels were not replayed.
        self.timed = np.zeros_like(self.complete) if replayed else self.complete

    def columns(self) -> dict[str, pa.Array]:
        """Columns start_ns and duration_ns; without starts where kernels were replayed."""
        duration = self.end_ns - self.start_ns
        if self._replayed:
            start = pa.nulls(len(duration), pa.int64())
        else:
            start = _mask_absent(self.start_ns, ~self.started)
        return {"start_ns": start, "duration_ns": _mask_absent(duration, ~self.complete)}


def _are_plain(start: Ints, end: Ints) -> bool:
    """Whether every time is possible and every row ends after its start."""
    if not len(start) or start.min() <= 0 or end.max() >= _LATEST_NS:
        return False
    return bool((end >= start).all())


def _is_valid(column: pa.ChunkedArray) -> Bools:
    return np.asarray(column.is_valid().to_numpy(), np.bool_)


def _mask_absent(values: Ints | Codes, absent: Bools) -> pa.Array:
    return pa.array(values, mask=absent if absent.any() else None)


class Growing(Generic[_Rows]):
    """Columns that grow batch by batch, one per field (`Ints`, `Codes` or `Bools`) of a
    dataclass.
    """

    def __init__(self, kind: type[_Rows], expected: int = 0) -> None:
        self.count = 0
        self._kind = kind
        self._room = min(expected, _MOST_ROOM)  # the system provides memory only when it is written
        self._columns = [np.empty(self._room, _DTYPES[str(column.type)]) for column in fields(kind)]

    def append(self, batch: _Rows) -> None:
        """Add rows."""
        values = [getattr(batch, column.name) for column in fields(batch)]
        first = self.count
        self.count += len(values[0])
        if self.count > self._room:
            self._room = max(2 * self._room, self.count)
            self._columns = [self._grow(column[:first]) for column in self._columns]
        for column, value in zip(self._columns, values, strict=True):
            column[first : self.count] = value

    def _grow(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        free = self._room - len(rows)
        return np.append(rows, np.empty(free, rows.dtype))

    def rows(self) -> _Rows:
        """All rows so far; views of the buffers, not copies."""
        return self._kind(*(column[: self.count] for column in self._columns))


def int_column(table: pa.Table, column: str) -> Ints:
    """A column as int64, `NONE` for null; all `NONE` if it is absent."""
    if column not in table.column_names:
        return np.full(table.num_rows, NONE, np.int64)
    values = table[column].cast(pa.int64())
    if values.null_count:
        values = pc.fill_null(values, NONE)
    return np.asarray(values.to_numpy(), dtype=np.int64)


def dictionary(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    """A text column with one dictionary."""
    if isinstance(column, pa.ChunkedArray):
        if pa.types.is_dictionary(column.type):
            column = column.unify_dictionaries()
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # it had no chunk, or several
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        return column
    return column.dictionary_encode()


def code_column(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Codes of a dictionary column, `NONE` for null."""
    indices = pc.fill_null(dictionary(column).indices, NONE)
    return np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def code_array(code: Ints | Codes) -> pa.Array:
    """Numbers with null for `NONE`."""
    return _mask_absent(code, code == NONE)


def pick(values: Ints, at: Ints | Codes) -> Ints:
    """The value at each index, `NONE` for the index `NONE`."""
    return np.where(at == NONE, NONE, values[at])


def flags_of(items: Iterable[_Item], test: Callable[[_Item], bool]) -> Bools:
    """Whether each item passes a test."""
    return np.array([test(item) for item in items], np.bool_)


def count_true(flags: Bools) -> int:
    """How many are true."""
    return int(np.count_nonzero(flags))


def constant(text: str, count: int) -> pa.DictionaryArray:
    """One text for every row."""
    indices = pa.array(np.zeros(count, np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array([text]))
