"""Reads pickles of plain values: dictionaries, lists, tuples, texts, numbers.

Nothing in them can run.

Python's own unpickler makes objects by calling any function that a pickle names, lets 20 bytes ask
for gigabytes, and puts up with keys that were chosen to collide. This one knows no opcode that
names or calls anything, and takes memory in proportion to the pickle. It takes about 0.2 µs for
each opcode, five times as long as Python's.

A value may stand in many places, so a pickle of 400 bytes is a tree of 2^45 values to whoever walks
all of it, as hashing, comparing and `str()` do. Keys are texts and numbers alone here; readers take
their values by `number_of` and `text_of`, and walk lists of which every pickle names each part.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from ...base.errors import CurvescopeError
from ...base.limits import (
    PICKLE_BYTES_PER_CONTAINER,
    PICKLE_FREE_CONTAINERS,
    PICKLE_OTHER_KEYS,
    check_limit,
)

_FLOAT = struct.Struct(">d").unpack_from
_CONTAINERS = "lists and dictionaries, more than one for each 8 bytes"
# How long the length is that precedes a text, or bytes.
_TEXTS = {0x8C: 1, 0x58: 4, 0x8D: 8}  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
_BYTES = {0x43: 1, 0x42: 4, 0x8E: 8}  # SHORT_BINBYTES, BINBYTES, BINBYTES8
_LONGS = {0x8A: 1, 0x8B: 4}  # LONG1, LONG4
# BININT1, BININT2, BININT: bytes, and whether signed
_INTS = {
    0x4B: (1, False),
    0x4D: (2, False),
    0x4A: (4, True),
}
_CONSTANTS = {0x4E: None, 0x88: True, 0x89: False}  # NONE, NEWTRUE, NEWFALSE
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_LONGEST_NUMBER = 16  # bytes
_KEYS = (str, int)


def load(data: bytes) -> Any:
    """The value of a pickle of protocol 2 and later.

    CurvescopeError: it is damaged, holds an object of Python, or is out of proportion; a sentence
    that begins with "it".
    """
    try:
        return _load(data)
    except (IndexError, KeyError, struct.error, TypeError, UnicodeDecodeError, ValueError) as error:
        raise CurvescopeError(
            f"it is a damaged pickle ({type(error).__name__}: {str(error)[:100]})."
        ) from error


def _load(data: bytes) -> Any:
    most = max(PICKLE_FREE_CONTAINERS, len(data) // PICKLE_BYTES_PER_CONTAINER)
    at = 0
    containers = 0
    other_keys = 0
    stack: list[Any] = []
    marks: list[int] = []
    memo: list[Any] = []
    get = memo.__getitem__
    remember = memo.append
    while True:
        code = data[at]
        at += 1
        # The commonest opcodes first: a stack is a list of references to frames, which are known
        # already.
        if code == 0x6A:  # LONG_BINGET
            stack.append(get(int.from_bytes(data[at : at + 4], "little")))
            at += 4
        elif code == 0x68:  # BINGET
            stack.append(get(data[at]))
            at += 1
        elif code == 0x94:  # MEMOIZE
            remember(stack[-1])
        elif code in _INTS:
            size, signed = _INTS[code]
            stack.append(int.from_bytes(data[at : at + size], "little", signed=signed))
            at += size
        elif code in _TEXTS or code in _BYTES or code in _LONGS:
            width = _TEXTS.get(code) or _BYTES.get(code) or _LONGS[code]
            begin = at + width
            at = begin + int.from_bytes(data[at:begin], "little")
            if at > len(data):
                raise ValueError("it is cut off")
            value = data[begin:at]
            stack.append(
                str(value, "utf-8", "surrogatepass")
                if code in _TEXTS
                else value
                if code in _BYTES
                else _long(value)
            )
        elif code == 0x28:  # MARK
            marks.append(len(stack))
        elif code in (0x75, 0x73):  # SETITEMS, SETITEM
            begin = marks.pop() if code == 0x75 else len(stack) - 2
            keys = stack[begin::2]
            others = [key for key in keys if type(key) is not str]
            for key in others:
                _expect(key, *_KEYS)
            other_keys += len(others)
            if other_keys > PICKLE_OTHER_KEYS:  # texts cannot be made to collide, numbers can
                check_limit(other_keys, PICKLE_OTHER_KEYS, "keys that are no texts")
            _expect(stack[begin - 1], dict).update(zip(keys, stack[begin + 1 :: 2], strict=True))
            del stack[begin:]
        elif code in (0x65, 0x61):  # APPENDS, APPEND
            begin = marks.pop() if code == 0x65 else len(stack) - 1
            _expect(stack[begin - 1], list).extend(stack[begin:])
            del stack[begin:]
        elif code in (0x7D, 0x5D):  # EMPTY_DICT, EMPTY_LIST
            containers += 1
            if containers > most:
                check_limit(containers, most, _CONTAINERS)
            stack.append({} if code == 0x7D else [])
        elif code in (0x71, 0x72):  # BINPUT, LONG_BINPUT
            size = 1 if code == 0x71 else 4
            index = int.from_bytes(data[at : at + size], "little")
            at += size
            if index > len(memo):
                raise ValueError(f"value {index} follows value {len(memo)}")
            memo[index : index + 1] = stack[-1:]
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code == 0x47:  # BINFLOAT
            stack.append(_FLOAT(data, at)[0])
            at += 8
        elif code in _TUPLES or code == 0x74:  # TUPLE1 to TUPLE3, TUPLE
            begin = len(stack) - _TUPLES[code] if code in _TUPLES else marks.pop()
            containers += 1
            if containers > most:
                check_limit(containers, most, _CONTAINERS)
            stack[begin:] = [tuple(stack[begin:])]
        elif code == 0x29:  # EMPTY_TUPLE
            stack.append(())
        elif code == 0x95:  # FRAME
            at += 8
        elif code == 0x80:  # PROTO
            at += 1
        elif code == 0x2E:  # STOP
            return stack.pop()
        else:
            raise CurvescopeError(
                f"it is a pickle with an object of Python{_name_object(code, data, at, stack)}."
            )


def number_of(values: Mapping[str, Any], name: str) -> int:
    """A whole number by its name; TypeError for any other value, KeyError without one."""
    return int(_expect(values[name], int))


def text_of(values: Mapping[str, Any], name: str) -> str:
    """A text by its name; TypeError for any other value, KeyError without one."""
    return str(_expect(values[name], str))


def _expect(value: Any, *kinds: type) -> Any:
    """The value, if it is of one of these types and of no subtype, as `bool` is one."""
    if type(value) not in kinds:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{type(value).__name__} in place of {wanted}")
    return value


def _long(data: bytes) -> int:
    if len(data) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(data)} bytes")
    return int.from_bytes(data, "little", signed=True)


def _name_object(code: int, data: bytes, at: int, stack: list[Any]) -> str:
    """The object that a pickle names, in brackets."""
    if code == 0x63:  # GLOBAL
        names = data[at : at + 200].split(b"\n")[:2]
        return f" ({'.'.join(name.decode(errors='replace') for name in names)})"
    if code == 0x93 and [type(name) for name in stack[-2:]] == [str, str]:  # STACK_GLOBAL
        return f" ({stack[-2][:100]}.{stack[-1][:100]})"
    return ""
