"""The sizes of the pages of a Parquet file, as the pages themselves say them.

A reader unpacks one page at a time into as many bytes as the head of the page says. The footer of a
file has sums of these sizes, but nothing holds them to the truth. Heads are structures of Thrift's
compact protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md,
with the fields of https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_LONGEST_HEAD = 1 << 16  # bytes: a head may have the least and the greatest value of its page
_UNPACKED, _PACKED = 2, 3  # fields of a head
# Types of Thrift's compact protocol.
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(
    13
)
_DEEPEST = 8  # structures in each other; a head has three
_CUT_OFF = "the head of a page is cut off"


class _Head(NamedTuple):
    length: int  # bytes of the head itself
    unpacked: int  # bytes of the page
    packed: int  # bytes of the page in the file


def count_unpacked_bytes(
    source: pa.NativeFile, metadata: pq.FileMetaData, columns: Collection[str] | None = None
) -> int:
    """What the pages of some columns, or of all, unfold to, in bytes; ValueError: a head of one
    cannot be read.
    """
    total = 0
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            name, _, _ = column.path_in_schema.partition(".")
            if columns is None or name in columns:
                total += sum(head.unpacked for head in _heads(source, column))
    return total


def _heads(source: pa.NativeFile, column: pq.ColumnChunkMetaData) -> Iterator[_Head]:
    begins = (column.dictionary_page_offset, column.data_page_offset)
    at = min(begin for begin in begins if begin)
    end = at + column.total_compressed_size
    while at < end:
        source.seek(at)
        head = _read_head(source.read(min(_LONGEST_HEAD, end - at)))
        yield head
        at += head.length + head.packed


def _read_head(data: bytes) -> _Head:
    reader = _Reader(data)
    sizes = dict.fromkeys((_UNPACKED, _PACKED), -1)
    for field, kind in reader.fields():
        if field in sizes and kind == _I32:
            sizes[field] = reader.number()
        else:
            reader.skip(kind, 0)
    if min(sizes.values()) < 0:
        raise ValueError("the head of a page has no size")
    return _Head(reader.at, sizes[_UNPACKED], sizes[_PACKED])


class _Reader:
    """Reads a structure of Thrift's compact protocol; ValueError where it is none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and the type of each field; the caller reads or skips its value."""
        field = 0
        while (head := self._byte()) != _STOP:
            kind = head & 15
            step = head >> 4
            field = field + step if step else self.number()
            yield field, kind

    def number(self) -> int:
        """A whole number: its sign is its last bit."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def skip(self, kind: int, depth: int) -> None:
        """Pass over a value."""
        if depth > _DEEPEST:
            raise ValueError("the head of a page is nested too deep")
        if kind in (_TRUE, _FALSE):
            return
        if kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _BYTE:
            self._pass(1)
        elif kind == _DOUBLE:
            self._pass(8)
        elif kind == _BINARY:
            self._pass(self._varint())
        elif kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            for _ in range(min(count, len(self._data))):
                self.skip(head & 15, depth + 1)
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        else:
            raise ValueError(f"the head of a page has a value of type {kind}")

    def _pass(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise ValueError(_CUT_OFF)

    def _byte(self) -> int:
        at = self.at
        if at >= len(self._data):
            raise ValueError(_CUT_OFF)
        self.at = at + 1
        return self._data[at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("the head of a page has a number of more than 64 bits")
