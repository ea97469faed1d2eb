"""Part files: Parquet files that hold some of a table's rows each."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FSSpecHandler, PyFileSystem

from ...base.errors import CurvescopeError
from ...base.limits import (
    PART_FREE_ROWS,
    PART_FREE_TEXT_BYTES,
    PART_ROWS_PER_BYTE,
    PART_TEXT_PER_BYTE,
    check_limit,
    check_regular,
)
from .atomic_files import atomic_file, storage_error
from .inside import open_folder
from .parquet_pages import count_unpacked_bytes
from .remote_store import AnyPath, RemotePath
from .schema import Table, conform

_ENDING = ".parquet"
_PIECE_ROWS = 1 << 17  # of pieces of small parts
_SMALL_BYTES = 1 << 20


def write_part(part: AnyPath, schema: Table, rows: pa.Table) -> None:
    """Write rows that conform to the schema; on return the part is complete."""
    with atomic_file(part, part.parent.parent) as file:
        # Omit Arrow's own types, so that dictionary-encoded text is plain text for every reader.
        pq.write_table(
            rows, file, compression="zstd", store_schema=False, **_encodings(schema.arrow)
        )


def remove_parts(recording: AnyPath, table: str, keep: Collection[str] = ()) -> None:
    """Delete the parts of a table but for those named; CurvescopeError if one cannot be deleted."""
    if isinstance(recording, RemotePath):
        for part in (recording / table).glob(f"*{_ENDING}"):
            if part.stem not in keep:
                part.unlink()
        return
    try:
        with open_folder(recording, table) as folder:
            for name in folder.names():
                stem, ending = os.path.splitext(name)
                if ending == _ENDING and stem not in keep:
                    folder.remove(name)
    except FileNotFoundError:  # the table has no part
        return
    except OSError as error:
        raise storage_error(recording / table, error) from error


def read_part(
    part: AnyPath, schema: Table, columns: Collection[str] | None = None, encoded: bool = False
) -> pa.Table:
    """Read the rows of a part in the form of the schema; columns that the part lacks are null.

    `encoded` keeps text dictionary-encoded: a name of a million rows once. CurvescopeError:
    damaged, or of no such form.
    """
    wanted = schema.only(columns)
    with _report_damage(part):
        return conform(wanted, _read_stored(part, wanted, columns, encoded))


def _read_stored(
    part: AnyPath, wanted: Table, columns: Collection[str] | None, encoded: bool = False
) -> pa.Table:
    """The rows of a part as they are stored, which may lack columns."""
    with _open_part(part) as source:
        file = _open_checked(source, wanted, columns)
        there = file.metadata.schema.names
        stored = None if columns is None else [name for name in columns if name in there]
        rows = file.read(stored, use_threads=not _is_small(source))
        return rows if encoded else _decode_texts(rows, source.size())


def read_batches(part: AnyPath, schema: Table, most_rows: int) -> Iterator[pa.Table]:
    """The rows of a part in the form of the schema, at most so many at a time.

    CurvescopeError: damaged, or of no such form.
    """
    with _report_damage(part), _open_part(part) as source:
        for batch in _open_checked(source, schema).iter_batches(most_rows):
            rows = _decode_texts(pa.Table.from_batches([batch]), source.size())
            yield conform(schema, rows)


def read_parts(
    parts: Sequence[AnyPath], schema: Table, columns: Collection[str] | None = None
) -> pa.Table:
    """The rows of all these parts, as `read_part` gives them; CurvescopeError also if they are too
    many together.
    """
    wanted = schema.only(columns)
    stored = {}
    rows = size = 0
    for part in parts:
        with _report_damage(part):
            stored[part] = _read_stored(part, wanted, columns)
        rows += stored[part].num_rows
        size += part.stat().st_size if isinstance(part, Path) else stored[part].nbytes
        with _report_damage(part.parent):
            check_limit(
                rows, max(4 * PART_FREE_ROWS, PART_ROWS_PER_BYTE * size), f"rows in {size:,} bytes"
            )
    return _join(stored, wanted) if stored else wanted.arrow.empty_table()


def read_pieces(
    parts: Sequence[AnyPath], schema: Table, columns: Collection[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of some parts, with text dictionary-encoded: a large part, or several small ones
    together, as each piece takes milliseconds to use.
    """
    wanted = schema.only(columns)
    stored: dict[AnyPath, pa.Table] = {}
    rows = 0
    for part in parts:
        with _report_damage(part):
            stored[part] = _read_stored(part, wanted, columns, encoded=True)
        rows += stored[part].num_rows
        if rows >= _PIECE_ROWS:
            yield _join(stored, wanted).combine_chunks()
            stored, rows = {}, 0
    if stored:
        yield _join(stored, wanted).combine_chunks()


def _join(stored: Mapping[AnyPath, pa.Table], wanted: Table) -> pa.Table:
    """The rows of some parts in the form of the schema, checked together: that takes as long as to
    check one part.
    """
    try:
        rows = pa.concat_tables(stored.values(), promote_options="default")
        return conform(wanted, rows.unify_dictionaries())
    except (pa.ArrowException, ValueError):  # one by one, they say which is damaged, or they fit
        return pa.concat_tables(_conform_each(stored, wanted)).unify_dictionaries()


def _conform_each(stored: Mapping[AnyPath, pa.Table], wanted: Table) -> Iterator[pa.Table]:
    for part, rows in stored.items():
        with _report_damage(part):
            yield conform(wanted, rows)


def _is_small(source: pa.NativeFile) -> bool:
    """Whether threads take longer to start than to read a part."""
    return isinstance(source, pa.OSFile) and source.size() < _SMALL_BYTES


def _open_checked(
    source: pa.NativeFile, wanted: Table, columns: Collection[str] | None = None
) -> pq.ParquetFile:
    """Open a part whose size is in proportion, to read some columns, with dictionary-encoded
    text.
    """
    buffer = not _is_small(source)
    file = pq.ParquetFile(source, pre_buffer=buffer)
    _check_unpacked(source, file.metadata, columns)
    there = file.metadata.schema.names
    text = [
        column.name
        for column in wanted.columns
        if column.dtype == pa.string() and column.name in there
    ]
    if not text:
        return file
    return pq.ParquetFile(source, metadata=file.metadata, read_dictionary=text, pre_buffer=buffer)


def _check_unpacked(
    source: pa.NativeFile, metadata: pq.FileMetaData, columns: Collection[str] | None
) -> None:
    """Refuse a part out of proportion to its file: by what its footer says, then, as that may lie,
    by what each page of the columns says. A remote store is asked for no page: each would be a
    request.
    """
    size = source.size()
    check_limit(
        metadata.num_rows, max(PART_FREE_ROWS, PART_ROWS_PER_BYTE * size), f"rows in {size:,} bytes"
    )
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    most = max(PART_FREE_TEXT_BYTES, PART_TEXT_PER_BYTE * size)
    unpacked = sum(group.total_byte_size for group in groups)
    if isinstance(source, pa.OSFile):
        unpacked = max(unpacked, count_unpacked_bytes(source, metadata, columns))
    check_limit(unpacked, most, f"unpacked bytes in {size:,}")


def _decode_texts(rows: pa.Table, size: int) -> pa.Table:
    """The rows with plain text; a text of a million rows is as many copies of it."""
    total = 0
    for place, name in enumerate(rows.column_names):
        column = rows[name]
        if pa.types.is_dictionary(column.type):
            total += text_bytes(column)
            check_limit(
                total,
                max(PART_FREE_TEXT_BYTES, PART_TEXT_PER_BYTE * size),
                f"bytes of text in {size:,}",
            )
            rows = rows.set_column(place, name, column.cast(column.type.value_type))
    return rows


def text_bytes(column: pa.ChunkedArray) -> int:
    """Bytes of the texts of a column of encoded text, as often as rows name them."""
    total = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
        total += pc.sum(lengths.cast(pa.int64())).as_py() or 0
    return total


def count_rows(part: AnyPath) -> int:
    """Number of rows of a part; reads only the footer of the file.

    CurvescopeError: the file is damaged.
    """
    with _report_damage(part), _open_part(part) as source:
        return int(pq.read_metadata(source).num_rows)


def check_copies(parts: Sequence[AnyPath]) -> None:
    """Refuse a part that is a copy of another, whose rows would count twice; CurvescopeError names
    both.

    Only parts with start times can be told from honest ones, and only those on a disk are compared.
    """
    by_size: dict[int, list[Path]] = {}
    for part in parts:
        if isinstance(part, Path) and part.parent.name in _TIMED:
            with suppress(OSError):  # the error is reported when the part is read
                by_size.setdefault(part.stat().st_size, []).append(part)
    for alike in by_size.values():
        by_digest: dict[bytes, Path] = {}
        for part in alike if len(alike) > 1 else ():
            with _report_damage(part):
                check_regular(part)
                first = by_digest.setdefault(hashlib.sha256(part.read_bytes()).digest(), part)
            if first is not part and count_rows(part):
                raise CurvescopeError(
                    f"{part} is a copy of {first}: its rows would count twice. Remove the copy."
                )


def _open_part(part: AnyPath) -> pa.NativeFile:
    if isinstance(part, RemotePath):
        return PyFileSystem(FSSpecHandler(part.filesystem)).open_input_file(part.key)
    check_regular(part)
    return pa.OSFile(os.fsencode(part))


# Tables whose rows have start times, and which of a copy would count twice.
_TIMED = ("kernels", "ranges", "memory", "api_calls", "launches")
_LONGEST_ERROR = 300  # characters: an error may hold a value of the file
# Arrow's message if there is no memory for another stack
_NO_THREAD = "Failed to launch worker thread"


@contextmanager
def _report_damage(part: AnyPath) -> Iterator[None]:
    try:
        yield
    except CurvescopeError as error:
        raise CurvescopeError(f"{part}: {error}") from error
    except (pa.ArrowException, ValueError, OSError) as error:
        # Do not report a file as damaged if the system had no memory to read it.
        if isinstance(error, MemoryError) or getattr(error, "errno", None) in (
            errno.ENOMEM,
            errno.EAGAIN,
        ):
            raise
        if _NO_THREAD in str(error):
            raise MemoryError(str(error)) from error
        why = " ".join(str(error)[:_LONGEST_ERROR].split())
        raise CurvescopeError(
            f"{part} is damaged or not from Curvescope ({why}). Move it away to read the rest of "
            "the recording."
        ) from error


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Dictionary for text, delta for integers, because times and ids increase: a quarter of the
    default's writing time.

    Statistics are kept only for columns that queries filter by: for all forty columns they take a
    third of the time.
    """
    texts = [field.name for field in schema if field.type == pa.string()]
    whole = [field.name for field in schema if pa.types.is_integer(field.type)]
    return {
        "use_dictionary": texts,
        "column_encoding": dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in ("start_ns", "step") if name in whole],
    }
