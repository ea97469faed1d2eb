"""Columns of events against the same taken one event at a time, whatever the events hold and
wherever pieces end.
"""

import itertools
import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.profiling.readers import trace_events
from curvescope.profiling.readers.event_columns import (
    COMPLETE,
    JSON,
    NUMBER,
    TEXT,
    TIME,
    EventColumns,
    Field,
)
from curvescope.profiling.readers.source import Source
from curvescope.profiling.readers.trace_events import TraceEvents
from curvescope.profiling.readers.values import nanoseconds, signed

FIELDS = (
    Field("name", TEXT),
    Field("ts", TIME),
    Field("tid", JSON),
    Field("count", NUMBER, True),
    Field("Input Dims", JSON, True),
)
counter = itertools.count()


def read(path, piece_bytes=1 << 18):
    """Rows of the spans as the texts and numbers they stand for, unreadable ones marked; and the
    trace.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_events, "_PIECE_BYTES", piece_bytes)
        columns, rows = EventColumns({COMPLETE: FIELDS}), []
        trace = TraceEvents(Source(path), columns.event_type, usual_type=columns.usual_type)
        for piece in trace:
            found = columns.columns(columns.having(COMPLETE, piece), FIELDS)
            listed = []
            for field, column in zip(FIELDS, found.values(), strict=True):
                value = columns.texts.__getitem__ if field.kind in (TEXT, JSON) else int
                taken = zip(column.values.tolist(), column.valid.tolist(), strict=True)
                listed.append([value(v) if valid else None for v, valid in taken])
            rows += zip(*listed, strict=True)
    return rows, trace


def one_by_one(listed):
    """The same rows by the plainest rules."""
    return [
        tuple(taken(event, field) for field in FIELDS) for event in listed if event["ph"] == "X"
    ]


def taken(event, field):
    value = (event.get("args") or {}).get(field.name) if field.in_args else event.get(field.name)
    if value is None:
        return None
    try:
        if field.kind == TIME:
            return nanoseconds(repr(value) if type(value) in (int, float) else value)
        if field.kind == NUMBER:
            return signed(int(value))
    except (ArithmeticError, TypeError, ValueError):
        return None
    if field.kind == JSON:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return value if isinstance(value, str) else None


names = st.text(st.sampled_from('ab"\\{}[],: \n/é😀'), max_size=12)
numbers = st.integers(-(2**70), 2**70) | st.sampled_from([2**63, -(2**63), 2**64 - 1])
junk = st.none() | st.booleans() | numbers | names | st.just([]) | st.just({"a": [1]})
shapes = st.lists(st.lists(st.integers(0, 999), max_size=4) | names, max_size=3)
times = (
    st.integers(0, 2**40)
    | st.integers(-(2**51), 2**51).map(lambda n: n / 1000)
    | st.floats(0, 1e6)
    | st.sampled_from(["7", "1.25", -3, 1e300])
)
events = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "X", "X", "M", "i", "of a kind of its own"])},
        optional={
            "name": names | junk,
            "ts": times | junk,
            "tid": junk,
            "args": st.fixed_dictionaries(
                {},
                optional={
                    "count": st.integers() | junk,
                    "Input Dims": shapes | junk,
                    "other": junk,
                },
            )
            | st.none(),
        },
    )
)


@pytest.mark.slow
@settings(max_examples=300)
@given(events, st.integers(1, 200), st.sampled_from([None, 1]))
def test_columns_hold_what_each_event_holds(tmp_path_factory, listed, piece_bytes, indent):
    path = tmp_path_factory.getbasetemp() / f"{next(counter)}.json"
    path.write_text(
        json.dumps({"traceEvents": listed, "after": [1]}, indent=indent, ensure_ascii=bool(indent))
    )
    try:
        found, trace = read(path, piece_bytes)
    finally:
        path.unlink()
    assert found == one_by_one(listed)
    assert trace.document == {"after": [1]}
    assert not any(trace.lost.values())


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ('{"ph": "X", "name": "a", "ts": NaN}', ("a", None, None, None, None)),
        ('{"ph": "X", "name": "\\ud800"}', ("?", None, None, None, None)),
        ('{"ph": "X", "args": ' + '{"a":' * 300 + "1" + "}" * 300 + "}", (None,) * 5),
        ('{"ph": "X", "args": [1], "tid": 7}', (None, None, "7", None, None)),
        ('{"ph": "X", "ts": 1e999}', (None,) * 5),
        ('{"ph": "X", "args": {"count": 1e999}}', (None,) * 5),
    ],
)
def test_an_event_that_is_no_strict_json_leaves_its_neighbours_exact(event, expected, tmp_path):
    whole = '{"ph": "X", "name": "b", "ts": 1623142623460111.123}'
    (tmp_path / "p").write_text(f'{{"traceEvents": [{whole}, {event}, {whole}]}}')
    rows, _ = read(tmp_path / "p")
    neighbour = ("b", 1623142623460111_123, None, None, None)
    assert rows == [neighbour, expected, neighbour]


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        (
            "1623142623460111.1235",
            1623142623460111_124,
        ),  # a float ends at a quarter of a microsecond there
        ("1623142623460111.1225", 1623142623460111_122),  # half to even
        ("1623142623460111.12250001", 1623142623460111_123),
        ("0.0005", 0),
        ("0.0015", 2),
        ("-0.0015", -2),
        ("-2.5", -2500),
        ("1.5e3", 1_500_000),
    ],
)
def test_times_are_exact_to_the_last_digit(text, expected_ns, tmp_path):
    (tmp_path / "p").write_text(
        f'{{"traceEvents": [{{"ph": "X", "ts": {text}}}, {{"ph": "X", "ts": 7}}]}}'
    )
    ((_, found, *_), (_, second, *_)), _ = read(tmp_path / "p")
    assert found == expected_ns == nanoseconds(text) == round(Decimal(text) * 1000)
    assert second == 7000


@pytest.mark.slow
def test_the_values_of_a_usual_trace_are_converted_at_once(tmp_path, monkeypatch):
    listed = [
        {"ph": "X", "name": f"name {i % 7}", "ts": i, "tid": "x", "args": {"count": -i}}
        for i in range(50_000)
    ]
    (tmp_path / "p").write_text(json.dumps({"traceEvents": listed}))
    monkeypatch.setattr(EventColumns, "_one", None)  # one value at a time would fail
    whole, pieces = TraceEvents._decode_whole, []
    monkeypatch.setattr(
        TraceEvents, "_decode_whole", lambda self, *args: pieces.append(1) or whole(self, *args)
    )
    found, _ = read(tmp_path / "p", 1 << 16)
    assert found == one_by_one(listed)
    assert len(pieces) == 1  # the end of the list
