"""Reads the collector's chunk files, one per process; native/src/chunk_format.h describes the
format.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...base.limits import CHUNK_FREE_ROWS, CHUNK_ROWS_PER_BYTE, check_limit, check_regular
from .chunk_tables import Integers, Piece, check_table

MAGIC = 0x4B435643
VERSION = 4
STRINGS = 1
EVENTS = 2
LOST = 3
TABLE = 4
RAW = 5
NUMBERS = 6
PUSH = 1
POP = 2
MARK = 3
POP_UNMATCHED = 4
START = 5
END = 6


def fields(text: str) -> list[tuple[str, str]]:
    """The fields of a structure of little-endian numbers, each a name and NumPy's type."""
    return [(name, f"<{kind}") for name, kind in map(str.split, text.split(", "))]


HEADER = np.dtype(
    fields(
        "magic u4, version u2, kind u2, payload_bytes u8, process i8, first u8, payload_crc u4, "
        "header_crc u4"
    )
)
EVENT = np.dtype(
    fields("time_ns i8, payload u8, range u8, kind u2, payload_type u1, has_color u1")
    + fields("name u4, domain u4, category u4, color_argb u4, reserved u4")
)
EVENTS_HEADER = np.dtype(fields("ring u8, thread i8"))
NUMBER = np.dtype(fields("what u8, domain u8, number u8, name u8"))
_TABLE_HEADER = np.dtype(fields("name u4, rows u4, columns u4, reserved u4"))
_COLUMN_HEADER = np.dtype(fields("name u4, is_text u2, width u2, base u8"))
_RAW_HEADER = np.dtype(fields("cupti_version u4, records u4, bytes u8"))
_LOST_COUNTS = 3
FIRST_NAMES = ["", "(name not recorded)"]  # of every process
UNNAMED = 1
_MOST_IDS = 1 << 31  # a process and a thread make one number of 64 bits
ProcessId = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_IDS)]
ThreadId = Annotated[int, msgspec.Meta(ge=-_MOST_IDS, lt=2 * _MOST_IDS)]
_Array = npt.NDArray[np.void]


class RawBuffer(NamedTuple):
    """One unparsed CUPTI buffer: the CUPTI version that wrote it, the offsets of its records, its
    bytes.
    """

    cupti_version: int
    offsets: npt.NDArray[np.uint32]
    data: bytes


@dataclass(frozen=True)
class TablePart:
    """Some chunks of one table, by column; columns are widened on access."""

    chunks: Sequence[dict[str, Piece]]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(next(iter(chunk.values())).rows for chunk in self.chunks)

    def __getitem__(self, column: str) -> Integers:
        """The values of a column; for a text column, ids of texts."""
        values = np.empty(self.rows, np.int64)
        at = 0
        for chunk in self.chunks:
            piece = chunk[column]
            piece.widen(values[at : at + piece.rows])
            at += piece.rows
        return values


@dataclass
class ProcessChunks:
    """Recorded data of one process."""

    process: int = 0
    # time at which the recording of the process began, from the name of the file
    started_ns: int = 0
    names: list[str] = field(default_factory=list)  # texts by id
    # NVTX events of each thread, in order; dtype `EVENT`
    threads: dict[int, _Array] = field(default_factory=dict)
    # events up to the end of the last chunk, by ring
    positions: dict[int, int] = field(default_factory=dict)
    # what, domain, number, name
    numbers: list[tuple[int, int, int, int]] = field(default_factory=list)
    # chunks of each table, by name
    tables: dict[str, list[dict[str, Piece]]] = field(default_factory=dict)
    # their texts: tables `raw_names` and `raw_calls`
    raw: list[RawBuffer] = field(default_factory=list)
    # dropped ranges and marks, unnamed ones, and unwritten ones
    lost: tuple[int, int, int] = (
        0,
        0,
        0,
    )
    table_rows: int = 0  # of all tables
    table_bytes: int = 0  # of their chunks
    whole_bytes: int = 0  # size of the file up to the end of the last complete chunk
    # bytes after the last complete chunk, left by a kill during a write, and of unreadable chunks
    torn_bytes: int = 0

    @property
    def begun(self) -> int:
        """Number of ranges and marks with a recorded begin."""
        begins = (PUSH, MARK, START)
        return sum(int(np.isin(events["kind"], begins).sum()) for events in self.threads.values())

    def table(self, name: str) -> TablePart:
        """A whole table; empty if nothing was recorded."""
        return TablePart(self.tables.get(name, []))

    def parts(self, name: str, most_rows: int) -> Iterator[TablePart]:
        """A table in parts of at most `most_rows` rows, or of one chunk."""
        part: list[dict[str, Piece]] = []
        rows = 0
        for chunk in self.tables.get(name, []):
            more = next(iter(chunk.values())).rows
            if part and rows + more > most_rows:
                yield TablePart(part)
                part = []
                rows = 0
            part.append(chunk)
            rows += more
        if part:
            yield TablePart(part)

    @cached_property
    def texts(self) -> pa.Array:
        """All texts as Arrow, indexed by id."""
        return pa.array(self.names, pa.string())

    def text(self, ids: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        """The texts of ids; null where `missing`."""
        return self.texts.take(pa.array(ids.astype(np.int64), mask=missing))

    def thread_key(self, threads: Integers) -> Integers:
        """Thread numbers that are unique across processes."""
        return (self.process << 32) + threads

    def rows(self, name: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a small table; columns in the order of writing."""
        table = self.table(name)
        if table.rows:
            return zip(*(table[c].tolist() for c in table.chunks[0]), strict=True)
        return iter(())


def read_chunks(path: Path) -> ProcessChunks:
    """Read every complete chunk of one file, up to the first incomplete one; a complete one that
    holds what no collector writes is passed over, and its bytes count as torn.

    CurvescopeError: the file is no regular one.
    """
    check_regular(path)
    # the name is the process id, a hyphen and the time
    started = path.name.split(".")[0].rpartition("-")[2]
    chunks = ProcessChunks(started_ns=int(started) if started.isdecimal() else 0)
    size = path.stat().st_size
    if not size:
        return chunks
    events: dict[int, list[_Array]] = {}
    with path.open("rb") as file:
        # Columns are views of the memory-mapped file, which stays mapped as long as they exist.
        data = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    at = passed_over = 0
    while at + HEADER.itemsize <= size:
        header = np.frombuffer(data, HEADER, 1, at)[0]
        if (
            header["magic"] != MAGIC
            or header["version"] != VERSION
            or zlib.crc32(header.tobytes()[:-4]) != header["header_crc"]
        ):
            break
        begin = at + HEADER.itemsize
        payload = data[begin : begin + int(header["payload_bytes"])]
        if len(payload) != header["payload_bytes"] or zlib.crc32(payload) != header["payload_crc"]:
            break
        try:
            _read_chunk(header, payload, chunks, events)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            passed_over += HEADER.itemsize + len(payload)
        at = begin + len(payload)
    chunks.whole_bytes = at
    chunks.torn_bytes = size - at + passed_over
    chunks.threads = {thread: np.concatenate(pieces) for thread, pieces in events.items()}
    _name_all(chunks)
    return chunks


def _read_chunk(
    header: np.void,
    payload: memoryview,
    chunks: ProcessChunks,
    events: dict[int, list[_Array]],
) -> None:
    process = int(header["process"])
    first = int(header["first"])
    if not 0 <= process < _MOST_IDS:
        raise ValueError(f"{process} is no id of a process")
    chunks.process = process
    if header["kind"] == STRINGS:
        texts = texts_of(payload)
        chunks.names[first : first + len(texts)] = texts
    elif header["kind"] == NUMBERS:
        numbers = np.frombuffer(payload, NUMBER).tolist()
        chunks.numbers[first : first + len(numbers)] = numbers
    elif header["kind"] == EVENTS:
        about = np.frombuffer(payload, EVENTS_HEADER, 1)[0]
        ring = int(about["ring"])
        thread = int(about["thread"])
        if not -_MOST_IDS <= thread < _MOST_IDS:
            raise ValueError(f"{thread} is no id of a thread")
        piece = np.frombuffer(payload, EVENT, offset=EVENTS_HEADER.itemsize)
        duplicated = min(max(chunks.positions.get(ring, first) - first, 0), len(piece))
        events.setdefault(thread, []).append(piece[duplicated:])
        chunks.positions[ring] = max(chunks.positions.get(ring, 0), first + len(piece))
    elif header["kind"] == LOST:
        without_room, without_name, unwritten = np.frombuffer(payload, "<u8", _LOST_COUNTS).tolist()
        chunks.lost = (without_room, without_name, unwritten)
    elif header["kind"] == TABLE:
        _read_table(payload, chunks)
    elif header["kind"] == RAW:
        chunks.raw.append(_raw_buffer(payload))


def _name_all(chunks: ProcessChunks) -> None:
    """Let every event and number have a text: some is missing if there was no memory for it."""
    if chunks.threads and len(chunks.names) <= UNNAMED:
        chunks.names[:] = FIRST_NAMES
    for events in chunks.threads.values():
        for field_name in ("name", "domain"):
            events[field_name][events[field_name] >= len(chunks.names)] = UNNAMED
    numbers = range(len(chunks.names))
    chunks.numbers = [row for row in chunks.numbers if row[0] in numbers and row[3] in numbers]


def check_rows(processes: Sequence[ProcessChunks]) -> None:
    """Refuse tables out of proportion to their files: a column of equal values takes no room there,
    and 8 bytes a row in memory. CurvescopeError says so.
    """
    rows = sum(process.table_rows for process in processes)
    size = sum(process.table_bytes for process in processes)
    most = max(CHUNK_FREE_ROWS, CHUNK_ROWS_PER_BYTE * size)
    check_limit(rows, most, f"rows in {size:,} bytes")


def _raw_buffer(payload: memoryview) -> RawBuffer:
    header = np.frombuffer(payload, _RAW_HEADER, 1)[0]
    offsets = np.frombuffer(payload, "<u4", int(header["records"]), _RAW_HEADER.itemsize)
    return RawBuffer(
        int(header["cupti_version"]), offsets, bytes(payload[len(payload) - int(header["bytes"]) :])
    )


def _read_table(payload: memoryview, chunks: ProcessChunks) -> None:
    """Add a chunk of a table; the names of the table and its columns precede it in the file."""
    header = np.frombuffer(payload, _TABLE_HEADER, 1)[0]
    rows = int(header["rows"])
    count = int(header["columns"])
    chunk: dict[str, Piece] = {}
    at = _TABLE_HEADER.itemsize + count * _COLUMN_HEADER.itemsize
    for column in np.frombuffer(payload, _COLUMN_HEADER, count, _TABLE_HEADER.itemsize):
        width = int(column["width"])
        stored = np.frombuffer(payload, f"<u{width}", rows, at) if width else None
        chunk[chunks.names[column["name"]]] = Piece(rows, column["base"].astype(np.int64), stored)
        at += (rows * width + 7) // 8 * 8
    name = chunks.names[header["name"]]
    check_table(name, chunk, len(chunks.names))
    chunks.tables.setdefault(name, []).append(chunk)
    chunks.table_rows += rows
    chunks.table_bytes += len(payload)


def texts_of(payload: memoryview) -> list[str]:
    """The texts of a chunk of strings, or of a log of names."""
    texts = []
    at = 0
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "little")
        texts.append(str(payload[at + 4 : end], "utf-8", "replace"))
        at = end
    return texts
