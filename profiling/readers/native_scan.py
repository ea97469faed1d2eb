"""Whole-number and text columns of a SQLite table through native code: ten times as fast as a row at a time.

`sqlite_tables` reads the same through Python's sqlite3 where this cannot: one test holds the two together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..errors import CurvescopeError
from ..native import load_reader
from ..prefetch import read_ahead

_DAMAGED, _OTHER_TYPE = -1, -2


class OtherTypeError(Exception):
    """A value is neither null nor of the column's kind: only SQLite itself says what it is then."""


def scan(path: Path, root_page: int, fields: Mapping[str, int], text: set[str], rows: int) -> Iterator[pa.Table] | None:
    """Tables of up to `rows` rows, the next one being read while the last one is used; null where this cannot read it.

    Args:
        path: the database.
        root_page: of the table's b-tree.
        fields: place of each column in the stored records; -1 for the row id.
        text: the columns that hold text.
        rows: per table.
    """
    library = load_reader()
    if library is None:
        return None
    places = np.array(list(fields.values()), np.int32)
    is_text = np.array([name in text for name in fields], np.uint8)
    handle = library.curvescope_table_scan_open(
        bytes(path), root_page, len(places), places.ctypes.data, is_text.ctypes.data
    )
    return _tables(library, handle, list(fields), is_text, rows) if handle else None


def _tables(
    library: ctypes.CDLL, handle: int, names: list[str], is_text: np.typing.NDArray[np.uint8], rows: int
) -> Iterator[pa.Table]:
    try:
        # No thread for a table that a piece holds, as most of a profile's are: starting one takes longer than reading.
        table = _next(library, handle, names, is_text, rows)
        if table is not None and table.num_rows == rows:
            yield from read_ahead(table, lambda: _next(library, handle, names, is_text, rows))
        elif table is not None:
            yield table
    finally:
        library.curvescope_table_scan_close(handle)


def _next(
    library: ctypes.CDLL, handle: int, names: list[str], is_text: np.typing.NDArray[np.uint8], rows: int
) -> pa.Table | None:
    values = [np.empty(rows + int(text), np.int64) for text in is_text]
    valid = [np.empty(rows, np.uint8) for _ in is_text]
    pointers = ctypes.c_void_p * len(names)
    found = library.curvescope_table_scan_next(
        handle, rows, pointers(*(v.ctypes.data for v in values)), pointers(*(v.ctypes.data for v in valid))
    )
    if found == _OTHER_TYPE:
        raise OtherTypeError
    if found < 0:
        why = "a page of it is damaged" if found == _DAMAGED else "a page of it cannot be read"
        raise CurvescopeError(f"it is no whole SQLite database ({why}); copy or export it again.")
    if not found:
        return None
    arrays = {}
    for column, name in enumerate(names):
        mask = None if valid[column][:found].all() else valid[column][:found] == 0
        if is_text[column]:
            address = library.curvescope_table_scan_text(handle, column)
            arrays[name] = _texts(
                values[column][: found + 1], ctypes.string_at(address, int(values[column][found])), mask
            )
        else:
            arrays[name] = pa.array(values[column][:found], mask=mask)
    return pa.table(arrays)


def _texts(offsets: np.typing.NDArray[np.int64], data: bytes, mask: np.typing.NDArray[np.bool_] | None) -> pa.Array:
    count = len(offsets) - 1
    absent = None if mask is None else pa.array(~mask).buffers()[1]
    binary = pa.Array.from_buffers(pa.large_binary(), count, [absent, pa.py_buffer(offsets.copy()), pa.py_buffer(data)])
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8, as SQLite does not check
        decoded = [None if text is None else text.decode("utf-8", errors="replace") for text in binary.to_pylist()]
        return pa.array(decoded, pa.string())
