"""Part files: Parquet files that hold some of a table's rows each."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FSSpecHandler, PyFileSystem

from ...base.errors import CurvescopeError
from .atomic_files import atomic_file, storage_error
from .remote_store import AnyPath, RemotePath
from .schema import Table, conform, former_names, modernise


def write_part(part: AnyPath, schema: Table, rows: pa.Table) -> None:
    """Write rows that conform to the schema; on return the part is complete."""
    if isinstance(part, Path):
        try:
            part.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise storage_error(part.parent, error) from error
    with atomic_file(part) as file:
        # Omit Arrow's own types, so that dictionary-encoded text is plain text for every reader.
        pq.write_table(rows, file, compression="zstd", store_schema=False, **_encodings(schema.arrow))


def read_part(part: AnyPath, schema: Table, columns: Collection[str] | None = None, encoded: bool = False) -> pa.Table:
    """Read the rows of a part in the form of the schema; columns that the part lacks are null.

    `encoded` keeps text dictionary-encoded: a name of a million rows once. CurvescopeError: damaged, or of no such
    form.
    """
    wanted = schema.only(columns)
    with _report_damage(part), _opened(part) as source:
        file = pq.ParquetFile(source, pre_buffer=True)
        there = file.metadata.schema.names
        former = former_names(schema, there)
        text = [column.name for column in wanted.columns if column.dtype == pa.string() and column.name in there]
        if encoded and text:
            file = pq.ParquetFile(source, metadata=file.metadata, read_dictionary=text, pre_buffer=True)
        stored = None if columns is None else [old for name in columns if (old := former.get(name, name)) in there]
        return conform(wanted, modernise(wanted, file.read(stored), former))


def count_rows(part: AnyPath) -> int:
    """Number of rows of a part; reads only the footer of the file. CurvescopeError: the file is damaged."""
    with _report_damage(part), _opened(part) as source:
        return int(pq.read_metadata(source).num_rows)


def _opened(part: AnyPath) -> pa.NativeFile:
    if isinstance(part, RemotePath):
        return PyFileSystem(FSSpecHandler(part.filesystem)).open_input_file(part.key)
    return pa.OSFile(str(part))


_LONGEST_ERROR = 300  # characters: an error may hold a value of the file
_NO_THREAD = "Failed to launch worker thread"  # Arrow's message if there is no memory for another stack


@contextmanager
def _report_damage(part: AnyPath) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, ValueError, OSError) as error:
        # Do not report a file as damaged if the system had no memory to read it.
        if isinstance(error, MemoryError) or getattr(error, "errno", None) in (errno.ENOMEM, errno.EAGAIN):
            raise
        if _NO_THREAD in str(error):
            raise MemoryError(str(error)) from error
        why = " ".join(str(error)[:_LONGEST_ERROR].split())
        raise CurvescopeError(
            f"{part} is damaged or not from Curvescope ({why}). Move it away to read the rest of the recording."
        ) from error


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Dictionary for text, delta for integers, because times and ids increase: a quarter of the default's writing time.

    Statistics are kept only for columns that queries filter by: for all forty columns they take a third of the time.
    """
    whole = [field.name for field in schema if pa.types.is_integer(field.type)]
    return {
        "use_dictionary": [field.name for field in schema if field.type == pa.string()],
        "column_encoding": dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in ("start_ns", "step") if name in whole],
    }
