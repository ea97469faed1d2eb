"""Reads the events of a Chrome trace (JSON) of any size, some hundred kilobytes of the file at a
time.

Each block ends before a comma between two objects; one that msgspec can decode was cut between two
events, as any other cut leaves a bracket or a string open. For others, brackets outside of strings
are counted. Python's json reads the events that msgspec rejects: NaN and infinite numbers become
null, and are counted, as are commas before a closing bracket.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec
import numpy as np

from ...base.errors import CurvescopeError
from .source import Source

_CHUNK_BYTES = 4 << 20  # size of one read
# size of one block: the events of a larger one do not fit the processor's cache
_PIECE_BYTES = 512 << 10
_MOST_EVENT_BYTES = 64 << 20
_MOST_REST_BYTES = 64 << 20
_MOST_TRIES = 3  # the last comma between objects may be within an event
_MOST_BRACKETS = 100  # brackets are in names of kernels, too
_KEY = b'"traceEvents"'
_OPENS = np.zeros(256, np.int8)
_OPENS[[ord("{"), ord("[")]] = 1
_OPENS[[ord("}"), ord("]")]] = -1
_SPACE = b" \t\r\n"
_NO_LIST = "it has no list `traceEvents`; export it with `export_chrome_trace`."
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")


class Event(msgspec.Struct):
    """One event of the file; any field may be of any type."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    id: Any = None
    args: Any = None


E = TypeVar("E")
Report = Callable[[str, int, int], None]


class TraceEvents(Generic[E]):
    """Lists of the events of a trace, read once, in order; repairs are counted in `lost`."""

    def __init__(
        self,
        source: Source,
        event_type: type[E],
        report: Report = lambda *_: None,
        usual_type: Any = None,
    ) -> None:
        """Prepare to read events as a msgspec structure, which may restrict `args` to objects, and
        no other field.

        The usual type decodes faster and fits most events; blocks with others are decoded as
        `event_type`.
        """
        self.document: dict[str, Any] = {}  # its other values; complete after the last event
        self.lost: Counter[str] = Counter()
        self._source = source
        self._report = report
        types = (event_type,) if usual_type is None else (usual_type, event_type)
        self._decoders = [msgspec.json.Decoder(list[each]) for each in types]  # type: ignore[valid-type]
        self._done = 0
        self._bare = False

    def __iter__(self) -> Iterator[list[E]]:
        with self._source.open() as stream:
            buffer = self._read(stream, _CHUNK_BYTES)
            if buffer.startswith(codecs.BOM_UTF8):
                del buffer[: len(codecs.BOM_UTF8)]
            # at: position of the list's bracket, or of the comma before the next event, or of space
            # before this comma.
            at = self._before_events(buffer) - 1
            before = b"["
            size = _PIECE_BYTES
            ended = False
            while True:
                if len(buffer) - at < size and not ended:
                    held = len(buffer) - at
                    buffer = self._read(stream, max(_CHUNK_BYTES, size), buffer[at:])
                    at = 0
                    ended = len(buffer) == held
                events, end = self._decode_front(buffer, at, at + size, before)
                if events is None:
                    piece = buffer[at : at + size]
                    skip = len(before) if before == b"[" else 0
                    last, closing = _last_end(piece[skip:])
                    end = at + skip + last
                    events = self._decode_whole(buffer[at:end], before) if last else None
                    if closing is not None:
                        closing += at + skip
                        if events is not None:
                            yield events
                        before = b"," if last else before
                        yield from self._close(buffer[end if last else at : closing + 1], before)
                        self._after_events(buffer[closing + 1 :], stream)
                        return
                if events is not None:
                    yield events
                    at = end
                    before = b","
                    size = _PIECE_BYTES
                elif len(buffer) - at < size:
                    raise _broken("its list of events does not end")
                elif size > _MOST_EVENT_BYTES:
                    raise CurvescopeError(
                        "it has an event of more than 64 MiB, which no profiler writes."
                    )
                else:
                    size *= 2

    def _read(self, stream: BinaryIO, size: int, rest: bytes | bytearray = b"") -> bytearray:
        """The rest of a buffer and what follows, in a new buffer: events refer to the old one."""
        buffer = bytearray(len(rest) + size)
        buffer[: len(rest)] = rest
        with memoryview(buffer)[len(rest) :] as room:
            count = stream.readinto(room)  # type: ignore[attr-defined]
        del buffer[len(rest) + count :]
        self._done += count
        self._report("reading events", self._done, 0)
        return buffer

    def _before_events(self, buffer: bytearray) -> int:
        """The position after the opening bracket of the list of events; stores the values before it
        in `document`.
        """
        start = buffer.lstrip(_SPACE)[:1]
        self._bare = start == b"["
        if self._bare:
            return buffer.index(b"[") + 1
        if start != b"{":
            raise _broken("it does not start with { or [")
        positions, steps = _brackets(buffer[: max(buffer.rfind(_KEY), 0)])
        depth = np.cumsum(steps)
        at = buffer.find(_KEY)
        while at >= 0:
            before = int(np.searchsorted(positions, at))
            if (
                before
                and depth[before - 1] == 1
                and (colon := _COLON.match(buffer, at + len(_KEY))) is not None
            ):
                break
            at = buffer.find(_KEY, at + 1)
        else:
            if buffer.rstrip(_SPACE).endswith(b"}") and len(buffer) < _CHUNK_BYTES:
                self._decode_document(buffer)  # raises for broken JSON
            raise CurvescopeError(_NO_LIST)
        self.document = self._decode_document(buffer[:at] + _KEY + b":0}")
        del self.document["traceEvents"]
        assert colon is not None
        if buffer[colon.end() : colon.end() + 1] != b"[":
            raise CurvescopeError(_NO_LIST)
        return colon.end() + 1

    def _after_events(self, rest: bytes | bytearray, stream: BinaryIO) -> None:
        rest = (rest + stream.read(_MOST_REST_BYTES)).strip(_SPACE)
        if self._bare:
            if rest:
                raise _broken("something follows its events")
        elif rest.startswith(b","):
            others = rest[1:].strip(_SPACE)
            if others == b"}":
                self.lost["stray_commas"] += 1
            after = self._decode_document(b"{" + others)
            if "traceEvents" in after:
                raise CurvescopeError(
                    "it has two lists `traceEvents`, of which one would be left out; export it "
                    "again."
                )
            self.document |= after
        elif rest != b"}":
            raise _broken("it does not end with }")

    def _decode_document(self, data: bytes | bytearray) -> dict[str, Any]:
        try:
            document = json.loads(data)
            if b"\\ud" in data.lower():  # half a character is no text that can be written
                text = json.dumps(document, ensure_ascii=False)
                document = json.loads(text.encode(errors="replace"))
        except (ValueError, RecursionError) as error:
            raise _broken(str(error)) from error
        if not isinstance(document, dict):
            raise _broken("it is no object")
        return document

    def _decode_front(
        self, buffer: bytearray, at: int, end: int, before: bytes
    ) -> tuple[list[E] | None, int]:
        """The events up to one of the last commas between objects, and its position; None if none
        can be decoded.
        """
        tries = 0
        for _ in range(_MOST_BRACKETS if buffer.startswith(before, at) else 0):
            end = max(at, buffer.rfind(b"{", at + 1, end))
            low = max(at + 1, end - 64)
            between = buffer[low:end].rstrip(_SPACE)
            comma = low + len(between) - 1
            if comma <= at or tries == _MOST_TRIES:
                break
            if between.endswith(b",") and between[:-1].rstrip(_SPACE).endswith(b"}"):
                tries += 1
                if (events := self._decode_between(buffer, at, comma)) is not None:
                    return events, comma
        return None, 0

    def _decode_between(self, buffer: bytearray, at: int, comma: int) -> list[E] | None:
        """The events after one comma and before another; both are brackets meanwhile, which saves a
        copy.
        """
        first = buffer[at]
        buffer[at], buffer[comma] = b"[]"
        try:
            return self._decode(memoryview(buffer)[at : comma + 1])
        except (msgspec.MsgspecError, RecursionError):
            return None
        finally:
            buffer[at], buffer[comma] = first, ord(",")

    def _decode(self, listed: bytes | memoryview) -> list[E]:
        *usual, last = self._decoders
        for decoder in usual:
            with suppress(msgspec.MsgspecError, RecursionError):
                return decoder.decode(listed)
        return last.decode(listed)

    def _decode_whole(self, data: bytes | bytearray, before: bytes) -> list[E]:
        """Decode complete events after a bracket or a comma; some of them may not be
        strict JSON.
        """
        data = data.lstrip(_SPACE)
        if not data.startswith(before):
            raise _broken("no comma between events")
        data = data[1:]
        listed = b"[" + data + b"]"
        try:
            return self._decode(listed)
        except (msgspec.MsgspecError, RecursionError):
            pass
        positions, steps = _brackets(data)
        ends = (positions[(np.cumsum(steps) == 0) & (steps < 0)] + 1).tolist()
        if len(ends) > 1:
            pieces = [b"," + data[: ends[0]], *(data[low:high] for low, high in pairwise(ends))]
            return [event for piece in pieces for event in self._decode_whole(piece, b",")]
        try:
            values = json.loads(listed, parse_constant=self._count_number, parse_float=_finite)
            events = [value for value in values if isinstance(value, dict)]
            for event in events:
                if not isinstance(event.get("args"), dict):
                    event.pop("args", None)
            self.lost["events_unreadable"] += len(values) - len(events)
            return self._decode(json.dumps(events, ensure_ascii=False).encode(errors="replace"))
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise _broken(str(error)) from error

    def _close(self, rest: bytes | bytearray, before: bytes) -> Iterator[list[E]]:
        """Decode the text between the last object and the end of the list."""
        if not rest.endswith(b"]"):
            raise _broken("its list of events does not end")
        rest = rest[:-1].strip(_SPACE)
        if rest == b",":
            self.lost["stray_commas"] += 1
        elif rest.removeprefix(b"["):
            yield self._decode_whole(rest, before)

    def _count_number(self, _: str) -> None:
        self.lost["invalid_numbers"] += 1


def _finite(text: str) -> float | None:
    if math.isfinite(number := float(text)):
        return number
    return None


def _last_end(buffer: bytes | bytearray) -> tuple[int, int | None]:
    """The position after the last complete object of the list, and that of the closing bracket, if
    it is here.
    """
    positions, steps = _brackets(buffer)
    depth = np.cumsum(steps)
    closing = None
    below = np.flatnonzero(depth < 0)
    if len(below):
        closing = int(positions[below[0]])
        positions = positions[: below[0]]
        steps = steps[: below[0]]
        depth = depth[: below[0]]
    ends = np.flatnonzero((depth == 0) & (steps < 0))
    return (int(positions[ends[-1]]) + 1 if len(ends) else 0), closing


def _brackets(
    buffer: bytes | bytearray,
) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
    """Positions of brackets outside of strings, and +1 for opening, −1 for closing ones."""
    data = np.frombuffer(buffer, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    if b"\\" in buffer:
        no_slash = np.where(data != ord("\\"), np.arange(len(data)), -1)
        plain = np.maximum.accumulate(no_slash)
        before = quotes - 1
        slashes = before - plain[np.maximum(before, 0)]
        quotes = quotes[(quotes == 0) | (slashes % 2 == 0)]
    steps = _OPENS[data]
    positions = np.flatnonzero(steps)
    is_outside = np.searchsorted(quotes, positions) % 2 == 0
    positions = positions[is_outside]
    return positions, steps[positions].astype(np.int64)


def _broken(why: str) -> CurvescopeError:
    return CurvescopeError(
        f"it is broken JSON ({why}); the file was cut off or edited, record it again."
    )
