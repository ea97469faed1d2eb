"""Converts the events of a JSON trace to columns: msgspec decodes events, NumPy converts a column
at once.

Each distinct text is stored once. A column of texts contains indices into the list of texts, so
every column is an array of whole numbers. A column with an unusual value is converted value by
value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter, is_, is_not
from typing import Any, NamedTuple, TypeVar, Union

import msgspec
import numpy as np
import numpy.typing as npt

from ..attribution.nesting import NONE
from .values import LATEST_NS, nanoseconds, signed

TEXT, JSON, NUMBER, TIME = range(4)
COMPLETE, INSTANT = "X", "i"  # values of `ph`
_KINDS = "XBEiIMCbensftSTpFPNODVvRc()"  # all values of Chrome's trace format
ABSENT = -(1 << 63)
_POWERS = 10 ** np.arange(19)
_NOTHING = msgspec.Raw(b"")
_TYPES: dict[int, tuple[Any, Any]] = {  # and the value of an event that lacks the field
    TEXT: (Any, None),
    JSON: (msgspec.Raw, _NOTHING),
    NUMBER: (Any, ABSENT),
    TIME: (msgspec.Raw, _NOTHING),
}
_UNREADABLE = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
V = TypeVar("V")


class Field(NamedTuple):
    """A field of an event or of its `args`: TEXT, JSON (any value, kept as text), NUMBER (whole),
    or TIME (in µs).
    """

    name: str
    kind: int
    in_args: bool = False


class EventColumn(NamedTuple):
    """One field of some events: numbers, ns or indices of texts; `NONE` where the event has no
    readable value.
    """

    values: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]


class EventColumns:
    """Converts events to columns; `texts` has the distinct texts, in order of appearance."""

    def __init__(self, fields_of: Mapping[str, Sequence[Field]]) -> None:
        """Take the fields to decode, besides `cat`, by the `ph` of the events that are wanted."""
        self.texts: list[str] = []
        self._positions = Memo(self._position, {None: ABSENT})
        self._json_positions = Memo(self._json_position, {b"": ABSENT, b"null": ABSENT})
        self._combined = Memo(
            lambda key: tuple(map(self._json_positions.__getitem__, key.split(b"\0")))
        )
        every = tuple(dict.fromkeys(field for fields in fields_of.values() for field in fields))
        self._values = {field: attrgetter(_attribute(field)) for field in every}
        self._no_args = _args(every)()
        self.event_type = _event(every, [("ph", Any, None)])
        self._types = {ph: _event(fields, [], ph) for ph, fields in fields_of.items()}
        # without contents
        others = [_struct("Other", [], [], ph) for ph in _KINDS if ph not in fields_of]
        self.usual_type = Union[(*self._types.values(), *others)]

    def having(self, ph: str, events: Sequence[Any]) -> list[Any]:
        """The events with this `ph` among some; callers may read the attribute `cat`."""
        usual = self._types[ph]
        any_ = self.event_type
        return [
            event
            for event in events
            if type(event) is usual or (type(event) is any_ and event.ph == ph)
        ]

    def columns(self, events: Sequence[Any], fields: Sequence[Field]) -> dict[str, EventColumn]:
        """The fields of some events of one `ph`, by name."""
        args: list[Any] = []
        if any(field.in_args for field in fields):
            args = [event.args or self._no_args for event in events]
        raw = {}
        for field in fields:
            values = list(map(self._values[field], args if field.in_args else events))
            absent = _TYPES[field.kind][1]
            if not all(map(is_, values, repeat(absent))):
                raw[field] = values
        nothing = EventColumn(np.full(len(events), NONE, np.int64), np.zeros(len(events), np.bool_))
        columns = dict.fromkeys((field.name for field in fields), nothing)
        texts = self._texts({field.name: raw[field] for field in raw if field.kind == JSON})
        columns |= texts
        for field, values in raw.items():
            if field.name not in texts:
                columns[field.name] = self._column(values, field)
        return columns

    def _texts(self, raw_of: dict[str, list[msgspec.Raw]]) -> dict[str, EventColumn]:
        """Columns of JSON, by all texts of an event at once; none if one of them is unreadable."""
        # no text of JSON holds a zero byte
        keys = map(b"\0".join, zip(*raw_of.values(), strict=True))
        try:
            numbers = np.fromiter(
                chain.from_iterable(map(self._combined.__getitem__, keys)), np.int64
            )
        except _UNREADABLE:
            return {}
        columns = {}
        for name, values in zip(raw_of, numbers.reshape(-1, max(len(raw_of), 1)).T, strict=False):
            valid = values != ABSENT
            columns[name] = EventColumn(np.where(valid, values, NONE), valid)
        return columns

    def _column(self, raw: list[Any], field: Field) -> EventColumn:
        readable = np.ones(len(raw), np.bool_)
        try:
            values = self._all_at_once(raw, field.kind)
        except _UNREADABLE:
            values = np.full(len(raw), ABSENT, np.int64)
            for index, value in enumerate(raw):
                try:
                    values[index] = self._one(value, field.kind)
                except _UNREADABLE:
                    readable[index] = False
        valid = values != ABSENT
        if field.kind == NUMBER and not valid.all():  # the file may contain the number ABSENT
            valid = readable & np.fromiter(map(is_not, raw, repeat(ABSENT)), np.bool_, len(raw))
        values[~valid] = NONE
        return EventColumn(values, valid)

    def _all_at_once(self, raw: list[Any], kind: int) -> npt.NDArray[np.int64]:
        if kind == TIME:
            return _times(raw)
        if kind == JSON:  # `_texts` met an unreadable one
            raise ValueError
        return np.fromiter(
            map(self._positions.__getitem__, raw) if kind == TEXT else raw, np.int64, len(raw)
        )

    def _one(self, value: Any, kind: int) -> int:
        if kind == TEXT:
            return self._positions[value]
        if kind == JSON:
            return self._json_positions[bytes(value)]
        if kind == NUMBER:
            if isinstance(value, str):  # ROCm writes streams as "0x0"
                return signed(int(value, 16 if value.startswith("0x") else 10))
            return signed(int(value))
        text = bytes(value).decode()
        return nanoseconds(text if text[0] in "-0123456789" else json.loads(text))

    def _position(self, text: Any) -> int:
        if not isinstance(text, str):
            raise TypeError(text)
        self.texts.append(text)
        return len(self.texts) - 1

    def _json_position(self, value: bytes) -> int:
        text = json.dumps(json.loads(value), separators=(",", ":"), ensure_ascii=False)
        return self._positions[text.encode(errors="replace").decode()]


class Memo(dict[Any, V]):
    """Values of keys; `value` computes each once."""

    def __init__(
        self, value: Callable[[Any], V], translations: Mapping[Any, V] | None = None
    ) -> None:
        super().__init__(translations or {})
        self._value = value

    def __missing__(self, key: Any) -> V:
        self[key] = value = self._value(key)
        return value


def _event(
    fields: Sequence[Field], fixed: list[tuple[str, Any, Any]], ph: str | None = None
) -> type[Any]:
    attributes = [*fixed, ("cat", Any, None), ("args", _args(fields) | None, None)]
    return _struct("Event", [field for field in fields if not field.in_args], attributes, ph)


def _args(fields: Sequence[Field]) -> type[Any]:
    return _struct("Args", [field for field in fields if field.in_args], [])


def _struct(
    name: str, fields: Sequence[Field], fixed: list[tuple[str, Any, Any]], ph: str | None = None
) -> type[Any]:
    """A structure of known attributes (name, type, default) and fields; in a union it is for events
    with this `ph`.
    """
    attributes = list(fixed)
    rename = {}
    for field in fields:
        attribute = _attribute(field)
        attributes.append((attribute, *_TYPES[field.kind]))
        rename[attribute] = field.name
    return msgspec.defstruct(
        name, attributes, rename=rename, gc=False, tag_field=ph and "ph", tag=ph
    )


def _attribute(field: Field) -> str:
    return "of_" + field.name.replace(" ", "_")


def _times(raw: list[msgspec.Raw]) -> npt.NDArray[np.int64]:
    """Nanoseconds from microseconds in digits, exact to the last; raises ValueError for another
    form or too many.
    """
    text = b",".join(raw)
    if text.translate(None, b"0123456789.,-"):
        raise ValueError
    digits = np.fromstring(text.replace(b".", b""), np.int64, sep=",")
    letters = np.frombuffer(text, np.uint8)
    is_point = letters == ord(".")
    marks = np.flatnonzero((letters == ord(",")) | is_point)
    points = np.flatnonzero(is_point[marks])
    marks = np.append(marks, len(text))
    decimals = np.zeros(len(raw), np.int64)
    number = points - np.arange(len(points))  # commas before each point
    decimals[number] = marks[points + 1] - marks[points] - 1
    larger = _POWERS[np.clip(3 - decimals, 0, 3)]
    most = LATEST_NS // larger
    if len(digits) != len(raw):
        raise ValueError
    possible = (-most < digits) & (digits < most) & (decimals < 18)
    if not possible.all():
        raise ValueError
    if decimals.max() <= 3:
        return digits * larger
    smaller = _POWERS[np.clip(decimals - 3, 0, 18)]
    whole, rest = np.divmod(digits * larger, smaller)
    rounds_up = 2 * rest > smaller
    is_half = 2 * rest == smaller
    rounded: npt.NDArray[np.int64] = whole + (rounds_up | (is_half & (whole % 2 == 1)))
    return rounded
