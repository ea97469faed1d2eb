"""Events of a Chrome trace (JSON), some megabytes of the file at a time, whatever its size.

The file is cut where an event ends at the top of the list `traceEvents`, found by counting brackets outside of
strings over arrays of bytes; msgspec decodes the pieces. Readers that ask for columns get what native code can read of
a piece (`event_scan`) without either. What Python's json takes and JSON does not allow, NaN and infinite numbers, is
decoded by that, and a comma before the closing bracket is passed over; both are counted. A file that ends before its
brackets close is refused: its sums would be wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec
import numpy as np

from ..errors import CurvescopeError
from .event_scan import Columns, EventScan
from .source import Source

_CHUNK_BYTES = 4 << 20
_MOST_EVENT_BYTES = 64 << 20
_MOST_REST_BYTES = 64 << 20
_KEY = b'"traceEvents"'
_OPENS = np.zeros(256, np.int8)
_OPENS[[ord("{"), ord("[")]] = 1
_OPENS[[ord("}"), ord("]")]] = -1
_SPACE = b" \t\r\n"


class Event(msgspec.Struct):
    """One event as it stands in the file; any field may be of any type."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    id: Any = None
    args: Any = None


class TraceEvents:
    """The events of a trace, read once, in order.

    Attributes:
        document: the other values of the document; complete when all events are read.
        lost: named counts of what was repaired.
    """

    def __init__(self, source: Source, report: Callable[[str, int, int], None] = lambda *_: None) -> None:
        self.document: dict[str, Any] = {}
        self.lost: Counter[str] = Counter()
        self._source, self._report = source, report
        self._decoder = msgspec.json.Decoder(list[Event])
        self._done = 0
        self._bare = False

    def __iter__(self) -> Iterator[list[Event]]:
        """Lists of events, some megabytes each.

        Raises:
            CurvescopeError: broken JSON, or no list of events.
        """
        for piece in self._pieces(None):
            assert isinstance(piece, list)
            yield piece

    def columns(self, scan: EventScan, unreadable: Callable[[Event], None]) -> Iterator[Columns]:
        """The complete spans among the events as columns, some megabytes each.

        Args:
            scan: says which fields, and keeps the texts.
            unreadable: told of each that is left out.

        Raises:
            CurvescopeError: broken JSON, or no list of events.
        """
        for piece in self._pieces(scan):
            yield scan.columns(piece, unreadable) if isinstance(piece, list) else piece

    def _pieces(self, scan: EventScan | None) -> Iterator[list[Event] | Columns]:
        """Columns of what native code can read, if it is to read; lists of the other events."""
        with self._source.open() as stream:
            buffer = self._read(stream, _CHUNK_BYTES).removeprefix(b"\xef\xbb\xbf")
            buffer = buffer[self._before_events(buffer) :]
            first = True
            while True:
                if scan is not None and (found := scan.next(buffer, first)) is not None:
                    yield found.columns
                    if found.odd:
                        yield [event for low, high in found.odd for event in self._decode(buffer[low:high], True)]
                    buffer, first = buffer[found.size :], False
                    if not found.closed and (more := self._read(stream, _CHUNK_BYTES)):
                        buffer += more
                        continue
                end, closing = _last_end(buffer)
                if end:
                    yield self._decode(buffer[:end], first)
                    first = False
                if closing is not None:
                    if buffer[closing : closing + 1] != b"]":
                        raise _broken("its list of events does not end")
                    rest = buffer[end:closing].strip(_SPACE)
                    if rest == b"," and not first:
                        self.lost["stray_commas"] += 1
                    elif rest:
                        yield self._decode(rest, first)
                    self._after_events(buffer[closing + 1 :], stream)
                    return
                buffer = buffer[end:]
                if len(buffer) > _MOST_EVENT_BYTES:
                    raise CurvescopeError("one event of more than 64 MiB in it: no profiler wrote that.")
                more = self._read(stream, max(_CHUNK_BYTES, len(buffer)))
                if not more:
                    raise _broken("its list of events does not end")
                buffer += more

    def _read(self, stream: BinaryIO, size: int) -> bytes:
        data = stream.read(size)
        self._done += len(data)
        self._report("reading events", self._done, 0)
        return data

    def _before_events(self, buffer: bytes) -> int:
        """Where the list of events begins, past its bracket; the values before it are kept."""
        start = buffer.lstrip(_SPACE)[:1]
        self._bare = start == b"["
        if self._bare:
            return buffer.index(b"[") + 1
        if start != b"{":
            raise _broken("it does not start with { or [")
        positions, steps = _brackets(buffer)
        depth = np.cumsum(steps)
        at = buffer.find(_KEY)
        while at >= 0:
            before = int(np.searchsorted(positions, at))
            if before and depth[before - 1] == 1 and (colon := _past_colon(buffer, at + len(_KEY))) is not None:
                break
            at = buffer.find(_KEY, at + 1)
        else:
            if buffer.rstrip(_SPACE).endswith(b"}") and len(buffer) < _CHUNK_BYTES:
                self._decode_document(buffer)  # broken JSON is called that
            raise CurvescopeError("no list `traceEvents` in it; export it with `export_chrome_trace`.")
        self.document = self._decode_document(buffer[:at] + _KEY + b":0}")
        del self.document["traceEvents"]
        assert colon is not None
        if buffer[colon : colon + 1] != b"[":
            raise CurvescopeError("no list `traceEvents` in it; export it with `export_chrome_trace`.")
        return colon + 1

    def _after_events(self, rest: bytes, stream: BinaryIO) -> None:
        rest = (rest + stream.read(_MOST_REST_BYTES)).strip(_SPACE)
        if self._bare:
            if rest:
                raise _broken("something follows its events")
        elif rest.startswith(b","):
            others = rest[1:].strip(_SPACE)
            if others == b"}":
                self.lost["stray_commas"] += 1
            self.document |= self._decode_document(b"{" + others)
        elif rest != b"}":
            raise _broken("it does not end with }")

    def _decode_document(self, data: bytes) -> dict[str, Any]:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _broken(str(error)) from error
        if not isinstance(document, dict):
            raise _broken("it is no object")
        return document

    def _decode(self, data: bytes, first: bool) -> list[Event]:
        data = data.lstrip(_SPACE)
        if not first:
            if not data.startswith(b","):
                raise _broken("no comma between events")
            data = data[1:]
        try:
            return self._decoder.decode(b"[" + data + b"]")
        except (msgspec.MsgspecError, RecursionError):
            pass
        try:
            values = json.loads(b"[" + data + b"]", parse_constant=self._count_number)
        except (ValueError, RecursionError) as error:
            raise _broken(str(error)) from error
        events = []
        for value in values:
            if isinstance(value, dict):
                events.append(Event(**{field: value.get(field) for field in Event.__struct_fields__}))
            else:
                self.lost["events_unreadable"] += 1
        return events

    def _count_number(self, text: str) -> float:
        self.lost["invalid_numbers"] += 1
        return float(text.replace("Infinity", "inf"))


def _last_end(buffer: bytes) -> tuple[int, int | None]:
    """Past the last whole object at the top of the list, and where the list closes, if it does."""
    positions, steps = _brackets(buffer)
    depth = np.cumsum(steps)
    closing = None
    below = np.flatnonzero(depth < 0)
    if len(below):
        closing = int(positions[below[0]])
        positions, steps, depth = positions[: below[0]], steps[: below[0]], depth[: below[0]]
    whole = np.flatnonzero((depth == 0) & (steps < 0))
    return (int(positions[whole[-1]]) + 1 if len(whole) else 0), closing


def _brackets(buffer: bytes) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
    """Positions of brackets outside of strings, and +1 for those that open, −1 for those that close."""
    data = np.frombuffer(buffer, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    if b"\\" in buffer:
        plain = np.maximum.accumulate(np.where(data != ord("\\"), np.arange(len(data)), -1))
        slashes = quotes - 1 - plain[np.maximum(quotes - 1, 0)]
        quotes = quotes[(quotes == 0) | (slashes % 2 == 0)]
    steps = _OPENS[data]
    positions = np.flatnonzero(steps)
    positions = positions[np.searchsorted(quotes, positions) % 2 == 0]
    return positions, steps[positions].astype(np.int64)


def _past_colon(buffer: bytes, at: int) -> int | None:
    """Where the value of a key begins, given the end of the key; null if no colon follows."""
    while at < len(buffer) and buffer[at] in _SPACE:
        at += 1
    if buffer[at : at + 1] != b":":
        return None
    at += 1
    while at < len(buffer) and buffer[at] in _SPACE:
        at += 1
    return at


def _broken(why: str) -> CurvescopeError:
    return CurvescopeError(f"broken JSON ({why}); the file was cut off or edited, record it again.")
