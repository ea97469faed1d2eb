"""Fields of the events of a JSON trace as columns: by native code where it can, else of what Python decoded.

Both give the same: one test holds the two together. Text is kept once and goes by its place among the texts, so that a
column is whole numbers whatever it holds.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..native import load_reader

TEXT, JSON, NUMBER, TIME = range(4)  # as native/include/curvescope/event_scan.h numbers them
_LATEST_NS = 1 << 62


class Field(NamedTuple):
    """A field of an event: its key, what is taken of it, and whether it stands in `args`."""

    name: str
    kind: int
    in_args: bool = False


@dataclass(frozen=True)
class Columns:
    """Some events, one row each; by the names of the fields.

    Attributes:
        values: whole numbers, nanoseconds, or places among the texts; shape (rows,).
        valid: whether the event has the field.
    """

    values: dict[str, npt.NDArray[np.int64]]
    valid: dict[str, npt.NDArray[np.bool_]]


class Found(NamedTuple):
    """What native code took off the front of a piece.

    Attributes:
        size: bytes that were read, up to the end of an event.
        closed: whether the list ends there.
        columns: of the events whose values are of the kinds asked for.
        odd: where the others lie, as (start, end).
    """

    size: int
    closed: bool
    columns: Columns
    odd: list[tuple[int, int]]


class EventScan:
    """The events of one trace, piece by piece; a context manager.

    Attributes:
        fields: what is taken of each event.
        texts: each once; grows with what is read.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields, self.texts = tuple(fields), list[str]()
        self._place: dict[str, int] = {}
        self._of_native = np.zeros(0, np.int64)  # our place of each of its texts
        self._library = load_reader()
        self._handle: int | None = None
        if self._library is not None:
            names = (ctypes.c_char_p * len(fields))(*(field.name.encode() for field in fields))
            in_args, kinds = bytes(field.in_args for field in fields), bytes(field.kind for field in fields)
            self._handle = self._library.curvescope_event_scan_open(len(fields), names, in_args, kinds)

    def __enter__(self) -> EventScan:
        return self

    def __exit__(self, *_: object) -> None:
        if self._library is not None and self._handle is not None:
            self._library.curvescope_event_scan_close(self._handle)
            self._handle = None

    def next(self, data: bytes, first: bool) -> Found | None:
        """Read whole events off the front of a piece of the list of events; null where native code can read none.

        Args:
            data: begins before the list's first event, or where one of them ended.
            first: which of the two.
        """
        if self._library is None or self._handle is None:
            return None
        rows, odd, closed = ctypes.c_int64(), ctypes.c_int64(), ctypes.c_uint8()
        size = self._library.curvescope_event_scan_next(
            self._handle, data, len(data), first, ctypes.byref(rows), ctypes.byref(odd), ctypes.byref(closed)
        )
        if size < 0:
            raise MemoryError
        if not size:
            return None
        self._take_texts()
        values, valid = {}, {}
        for place, field in enumerate(self.fields):
            column = _copied(self._library.curvescope_event_scan_values(self._handle, place), rows.value, np.int64)
            there = _copied(self._library.curvescope_event_scan_valid(self._handle, place), rows.value, np.bool_)
            if field.kind in (TEXT, JSON) and len(self._of_native):
                column = self._of_native[column]
            values[field.name], valid[field.name] = column, there
        edges = _copied(self._library.curvescope_event_scan_odd(self._handle), 2 * odd.value, np.int64).tolist()
        spans = list(zip(edges[::2], edges[1::2], strict=True))
        return Found(size, bool(closed.value), Columns(values, valid), spans)

    def columns(self, events: Iterable[Any], unreadable: Callable[[Any], None]) -> Columns:
        """The same of decoded events; a number may stand in a string, and be cut to a whole one.

        Args:
            events: with the fields as attributes, or in their attribute `args`.
            unreadable: told of each event that is left out, as a value of it is not of its field's kind.
        """
        rows = []
        for event in events:
            if event.ph == "X":
                try:
                    rows.append([self._value(event, field) for field in self.fields])
                except (AttributeError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
                    unreadable(event)
        values, valid = {}, {}
        for field, column in zip(
            self.fields, zip(*rows, strict=True) if rows else [()] * len(self.fields), strict=True
        ):
            values[field.name] = np.array([0 if value is None else value for value in column], np.int64)
            valid[field.name] = np.array([value is not None for value in column], np.bool_)
        return Columns(values, valid)

    def _value(self, event: Any, field: Field) -> int | None:
        value = (event.args or {}).get(field.name) if field.in_args else getattr(event, field.name)
        if value is None:
            return None
        if field.kind == TIME:
            return nanoseconds(value)
        if field.kind == NUMBER:
            return signed(int(value))
        if field.kind == JSON:
            return self._place_of(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
        if not isinstance(value, str):
            raise TypeError(value)
        return self._place_of(value)

    def _place_of(self, text: str) -> int:
        place = self._place.setdefault(text, len(self.texts))
        if place == len(self.texts):
            self.texts.append(text)
        return place

    def _take_texts(self) -> None:
        assert self._library is not None
        size, found = ctypes.c_int64(), []
        for place in range(len(self._of_native), self._library.curvescope_event_scan_texts(self._handle)):
            address = self._library.curvescope_event_scan_text(self._handle, place, ctypes.byref(size))
            found.append(self._place_of(ctypes.string_at(address, size.value).decode()))
        if found:
            self._of_native = np.append(self._of_native, found)


def signed(number: int) -> int:
    """A number of 64 bits as the one with the same bits and a sign: ids stay apart, and all bits set are −1, none.

    Raises:
        OverflowError: it takes more than 64 bits.
    """
    if not -(1 << 63) <= number < 1 << 64:
        raise OverflowError(number)
    return number - (1 << 64) if number >= 1 << 63 else number


def nanoseconds(microseconds: Any) -> int:
    """A time of an event, exact to the last digit where it is given as text.

    Raises:
        ValueError, TypeError, ArithmeticError: it is none.
    """
    if isinstance(microseconds, bool):
        raise TypeError(microseconds)
    if isinstance(microseconds, str):
        try:
            number = Decimal(microseconds)
        except InvalidOperation as error:
            raise ValueError(microseconds) from error
        if not number.is_finite() or abs(number) > _LATEST_NS:  # before its digits are written out
            raise OverflowError(microseconds)
        time = round(number * 1000)
    else:
        whole = int(microseconds)  # apart from the fraction: the product of a float this large would be rounded
        time = whole * 1000 + round((microseconds - whole) * 1000)
    if not -_LATEST_NS < time < _LATEST_NS:
        raise OverflowError(microseconds)
    return time


def _copied(address: int | None, count: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """An array of what lies at an address, which is used again."""
    if not count or address is None:
        return np.zeros(0, dtype)
    return np.frombuffer(ctypes.string_at(address, count * np.dtype(dtype).itemsize), dtype)
