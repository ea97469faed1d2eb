"""Pickles of plain values are read as Python reads them; whatever could run, collide or take memory
is refused.
"""

import pickle
import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.base import limits
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers import plain_pickle
from curvescope.profiling.readers.plain_pickle import load

from ...tables import ask_each

TEXT = st.text(st.characters(codec="utf-16", categories=None, exclude_categories=()), max_size=300)
LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | TEXT
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner) | st.lists(inner).map(tuple),
    max_leaves=30,
)


@pytest.mark.slow
@settings(max_examples=50)
@given(VALUES, st.integers(2, 5))
def test_plain_values_are_read_as_python_reads_them(value, protocol):
    value = [value, b"bytes"] if protocol > 2 else value  # protocol 2 has bytes as a call
    assert load(pickle.dumps([value, value], protocol)) == [value, value]


@ask_each("protocol", range(2, 6))
def test_what_was_pickled_once_is_one_object(protocol):
    frame = {"line": 1}
    first, second, texts = load(pickle.dumps([frame, frame, ["x" * 70_000] * 300], protocol))
    assert first is second
    assert len({id(text) for text in texts}) == 1


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    for head in (b"\x80\x04", b"\x80\x02}"):
        with suppress(CurvescopeError):
            load(head + data)


class Harmful:
    def __reduce__(self):
        return print, ("ran",)


HOSTILE = {
    "object": (pickle.dumps([Harmful()]), "object of Python"),
    "old object": (pickle.dumps([Harmful()], 2), r"object of Python \(__builtin__\.print\)"),
    "memo": (
        b"\x80\x04}X\x08\0\0\0segments]r\xff\xff\xff\x3fs.",
        "value 1073741823 follows value 0",
    ),
    "long text": (b"\x80\x04}\x8d" + struct.pack("<Q", 1 << 33) + b"x", "it is cut off"),
    "frame": (b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"}", "damaged pickle"),
    "number": (pickle.dumps(1 << 1000), "a number of 126 bytes"),
    "collisions": (
        pickle.dumps({k * (2**61 - 1): 0 for k in range(1, 2001)}, 4),
        "keys that are no texts; at most",
    ),
}


@pytest.mark.parametrize(("data", "said"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused_in_little_memory(data, said, capsys):
    tracemalloc.start()
    try:
        with pytest.raises(CurvescopeError, match=said):
            load(data)
        assert tracemalloc.get_traced_memory()[1] < 300e6
    finally:
        tracemalloc.stop()
    assert capsys.readouterr().out == ""


def nested_lists(count):
    return b"\x80\x04" + b"]" * count + b"."


@pytest.mark.slow
def test_lists_are_refused_in_memory_in_proportion_to_how_many_are_allowed(monkeypatch):
    """An eighth of them: to trace all of a million takes seconds."""
    assert limits.PICKLE_FREE_CONTAINERS == 1 << 20
    monkeypatch.setattr(plain_pickle, "PICKLE_FREE_CONTAINERS", 1 << 17)
    tracemalloc.start()
    try:
        with pytest.raises(CurvescopeError, match=r"lists and dictionaries, .* at most 131,072"):
            load(nested_lists(250_000))
        assert tracemalloc.get_traced_memory()[1] < 300e6 / 8
    finally:
        tracemalloc.stop()


def test_a_limit_is_raised_by_the_environment(monkeypatch):
    monkeypatch.setattr(plain_pickle, "PICKLE_FREE_CONTAINERS", 1 << 17)
    data = nested_lists(140_000)
    with pytest.raises(CurvescopeError, match="CURVESCOPE_LIMITS=10"):
        load(data)
    monkeypatch.setenv("CURVESCOPE_LIMITS", "2")
    assert load(data) == []
