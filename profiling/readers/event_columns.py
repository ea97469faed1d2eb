"""Converts the events of a JSON trace to columns: msgspec decodes events, NumPy converts a column at once.

Each distinct text is stored once. A column of texts contains indices into the list of texts, so every column is an
array of whole numbers. A column with an unusual value is converted value by value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import repeat
from operator import attrgetter, is_, is_not
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..attribution.nesting import NONE

TEXT, JSON, NUMBER, TIME = range(4)
ABSENT = -(1 << 63)
_LATEST_NS = 1 << 62
_NOTHING = msgspec.Raw(b"")
_TYPES: dict[int, tuple[Any, Any]] = {  # and the value of an event that lacks the field
    TEXT: (Any, None),
    JSON: (msgspec.Raw, _NOTHING),
    NUMBER: (Any, ABSENT),
    TIME: (msgspec.Raw, _NOTHING),
}
_UNREADABLE = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)


class Field(NamedTuple):
    """A field of an event.

    Attributes:
        name: its key in the JSON.
        kind: TEXT, a string; JSON, any value, stored as text; NUMBER, a whole number; TIME, microseconds.
        in_args: whether it is a field of the event's `args`.
    """

    name: str
    kind: int
    in_args: bool = False


class Column(NamedTuple):
    """One field of some events; arrays of shape (events,).

    Attributes:
        values: numbers, nanoseconds, or indices of texts; `NONE` for events without the field.
        valid: whether the event has the field with a readable value.
    """

    values: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]


class EventColumns:
    """Converts events to columns.

    Attributes:
        event_type: msgspec structure of an event; callers may read its attributes `ph`, `cat` and `args`.
        texts: distinct texts, in order of appearance.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        """Define the type of an event.

        Args:
            fields: fields to decode, besides `ph` and `cat`.
        """
        self.texts: list[str] = []
        self._positions = Memo(self._position, {None: ABSENT})
        self._json_positions = Memo(self._json_position, {b"": ABSENT, b"null": ABSENT})
        in_args = _struct("Args", [field for field in fields if field.in_args], [])
        self._no_args = in_args()
        known = [("ph", Any, None), ("cat", Any, None), ("args", in_args | None, None)]
        self.event_type = _struct("Event", [field for field in fields if not field.in_args], known)

    def columns(self, events: Sequence[Any], fields: Sequence[Field]) -> dict[str, Column]:
        """The fields of some events, by name."""
        args: list[Any] = []
        if any(field.in_args for field in fields):
            args = [event.args or self._no_args for event in events]
        return {field.name: self._column(args if field.in_args else events, field) for field in fields}

    def _column(self, holders: Sequence[Any], field: Field) -> Column:
        found = list(map(attrgetter(_attribute(field)), holders))
        if all(map(is_, found, repeat(_TYPES[field.kind][1]))):
            return Column(np.full(len(found), NONE, np.int64), np.zeros(len(found), np.bool_))
        readable = None
        try:
            values = self._all_at_once(found, field.kind)
        except _UNREADABLE:
            values, readable = np.full(len(found), ABSENT, np.int64), np.ones(len(found), np.bool_)
            for index, value in enumerate(found):
                try:
                    values[index] = self._one(value, field.kind)
                except _UNREADABLE:
                    readable[index] = False
        valid = values != ABSENT
        if field.kind == NUMBER and not valid.all():  # the file may contain the number ABSENT
            valid = np.fromiter(map(is_not, found, repeat(ABSENT)), np.bool_, len(found))
            if readable is not None:
                valid &= readable & np.fromiter(map(is_not, found, repeat(None)), np.bool_, len(found))
        values[~valid] = NONE
        return Column(values, valid)

    def _all_at_once(self, found: list[Any], kind: int) -> npt.NDArray[np.int64]:
        if kind == TIME:
            return _times(found)
        numbers: Iterable[Any] = found
        if kind == TEXT:
            numbers = map(self._positions.__getitem__, found)
        elif kind == JSON:  # no text of JSON holds a zero byte
            joined = b"\0".join(found)
            first = bytes(found[0])
            if joined == (first + b"\0") * (len(found) - 1) + first:  # all alike, e.g. the process
                return np.full(len(found), self._json_positions[first], np.int64)
            numbers = map(self._json_positions.__getitem__, joined.split(b"\0"))
        return np.fromiter(numbers, np.int64, len(found))

    def _one(self, value: Any, kind: int) -> int:
        if kind == TEXT:
            return self._positions[value]
        if kind == JSON:
            return self._json_positions[bytes(value)]
        if kind == NUMBER:
            if isinstance(value, str):  # ROCm writes streams as "0x0"
                return signed(int(value, 16 if value.startswith("0x") else 10))
            return ABSENT if value is None else signed(int(value))
        text = bytes(value).decode()
        if text in ("", "null"):
            return ABSENT
        return nanoseconds(text if text[0] in "-0123456789" else json.loads(text))

    def _position(self, text: Any) -> int:
        if not isinstance(text, str):
            raise TypeError(text)
        self.texts.append(text)
        return len(self.texts) - 1

    def _json_position(self, value: bytes) -> int:
        text = json.dumps(json.loads(value), separators=(",", ":"), ensure_ascii=False)
        return self._positions[text.encode(errors="replace").decode()]


class Memo(dict[Any, int]):
    """Numbers of keys; `number` computes each once."""

    def __init__(self, number: Callable[[Any], int], known: Mapping[Any, int] | None = None) -> None:
        super().__init__(known or {})
        self._number = number

    def __missing__(self, key: Any) -> int:
        self[key] = number = self._number(key)
        return number


def _struct(name: str, fields: Sequence[Field], known: list[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    """A structure with the known attributes, (name, type, default), and one attribute for each field."""
    attributes = [*known, *((_attribute(field), *_TYPES[field.kind]) for field in fields)]
    return msgspec.defstruct(name, attributes, rename={_attribute(f): f.name for f in fields}, gc=False)


def _attribute(field: Field) -> str:
    return "of_" + field.name.replace(" ", "_")


def _times(found: list[msgspec.Raw]) -> npt.NDArray[np.int64]:
    """Nanoseconds from microseconds in digits, with or without a decimal point; exact to the last digit.

    Raises:
        ValueError: one of them has another format, or too many digits.
    """
    text = b",".join(found)
    if text.translate(None, b"0123456789.,-"):
        raise ValueError
    digits = np.fromstring(text.replace(b".", b""), np.int64, sep=",")
    if b"." not in text:
        if len(digits) != len(found) or not -_LATEST_NS // 1000 < digits.min() <= digits.max() < _LATEST_NS // 1000:
            raise ValueError
        return digits * 1000
    letters = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(letters == ord(",")), len(text))
    points = np.flatnonzero(letters == ord("."))
    decimals = np.zeros(len(found), np.int64)
    number = np.searchsorted(ends, points)
    decimals[number] = ends[number] - points - 1
    larger, smaller = 10 ** np.clip(3 - decimals, 0, 3), 10 ** np.clip(decimals - 3, 0, 18)
    most = _LATEST_NS // larger
    if len(digits) != len(found) or not ((-most < digits) & (digits < most) & (decimals < 18)).all():
        raise ValueError
    whole, rest = np.divmod(digits * larger, smaller)
    rounded: npt.NDArray[np.int64] = whole + ((2 * rest > smaller) | ((2 * rest == smaller) & (whole % 2 == 1)))
    return rounded


def signed(number: int) -> int:
    """The signed number with the same 64 bits: ids stay distinct, and all bits set are −1, no id.

    Raises:
        OverflowError: the number has more than 64 bits.
    """
    if not -(1 << 63) <= number < 1 << 64:
        raise OverflowError(number)
    return number - (1 << 64) if number >= 1 << 63 else number


def nanoseconds(microseconds: Any) -> int:
    """Time of an event in nanoseconds; exact to the last digit if given as text.

    Raises:
        ValueError, TypeError, ArithmeticError: the value is no time.
    """
    if isinstance(microseconds, bool):
        raise TypeError(microseconds)
    if isinstance(microseconds, str):
        try:
            number = Decimal(microseconds)
        except InvalidOperation as error:
            raise ValueError(microseconds) from error
        if not number.is_finite() or abs(number) > _LATEST_NS:  # before Decimal expands its digits
            raise OverflowError(microseconds)
        time = round(number * 1000)
    else:
        whole = int(microseconds)  # separate from the fraction: the product of a large float would be rounded
        time = whole * 1000 + round((microseconds - whole) * 1000)
    if not -_LATEST_NS < time < _LATEST_NS:
        raise OverflowError(microseconds)
    return time
