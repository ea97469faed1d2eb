"""Columns of events by native code against the same by Python, whatever the events hold and wherever pieces end."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.profiling.errors import CurvescopeError
from curvescope.profiling.readers import event_scan, trace_events
from curvescope.profiling.readers.event_scan import JSON, NUMBER, TEXT, TIME, EventScan, Field, nanoseconds
from curvescope.profiling.readers.source import Source
from curvescope.profiling.readers.trace_events import TraceEvents

from .test_trace_events import BROKEN, REPAIRED

FIELDS = (
    Field("name", TEXT),
    Field("ts", TIME),
    Field("tid", JSON),
    Field("count", NUMBER, True),
    Field("Input Dims", JSON, True),
)
counter = itertools.count()


def read(path, *, native, monkeypatch=None, chunk_bytes=1 << 22):
    """Rows as the texts and numbers they stand for, in any order; the trace; and how many events were left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_events, "_CHUNK_BYTES", chunk_bytes)
        if not native:
            patch.setattr(event_scan, "load_reader", lambda: None)
        rows, missed, trace = [], [], TraceEvents(Source(path))
        with EventScan(FIELDS) as scan:
            for piece in trace.columns(scan, missed.append):
                columns = []
                for field in FIELDS:
                    text = scan.texts.__getitem__ if field.kind in (TEXT, JSON) else int
                    pairs = zip(piece.values[field.name].tolist(), piece.valid[field.name].tolist(), strict=True)
                    columns.append([text(value) if there else None for value, there in pairs])
                rows += zip(*columns, strict=True)
    return sorted(rows, key=repr), trace, len(missed)


names = st.text(st.sampled_from('ab"\\{}[],: \n/é😀'), max_size=12)
junk = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | names | st.just([]) | st.just({"a": [1]})
shapes = st.lists(st.lists(st.integers(0, 999), max_size=4) | names, max_size=3)
# Times that a float of Python's holds to the nanosecond.
times = (
    st.integers(0, 2**40) | st.integers(0, 2**48).map(lambda n: n / 1000) | st.sampled_from(["7", "1.25", -3, 1e300])
)
events = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "X", "X", "M", "i"])},
        optional={
            "name": names | junk,
            "ts": times | junk,
            "tid": junk,
            "args": st.fixed_dictionaries(
                {}, optional={"count": st.integers() | junk, "Input Dims": shapes | junk, "other": junk}
            )
            | st.none(),
        },
    )
)


@settings(max_examples=300, deadline=None)
@given(events, st.integers(1, 200), st.sampled_from([None, 1]))
def test_native_code_and_python_give_the_same(tmp_path_factory, listed, chunk, indent):
    path = tmp_path_factory.getbasetemp() / f"{next(counter)}.json"
    path.write_text(json.dumps({"traceEvents": listed, "after": [1]}, indent=indent, ensure_ascii=bool(indent)))
    try:
        found, trace, missed = read(path, native=True, chunk_bytes=len('{\n "traceEvents": [') + 20 + chunk)
        assert (found, missed) == read(path, native=False)[::2]
    finally:
        path.unlink()
    assert trace.document == {"after": [1]}
    assert not trace.lost
    assert len(found) + missed == sum(event["ph"] == "X" for event in listed)


def spans(content):
    """The same with events of complete spans."""
    return content.replace('{"name"', '{"ph": "X", "name"').replace('{"ts"', '{"ph": "X", "ts"')


@pytest.mark.parametrize("content", REPAIRED)
def test_repairs_are_counted_alike(content, tmp_path):
    (tmp_path / "p").write_text(spans(content))
    found, trace, missed = read(tmp_path / "p", native=True)
    assert {name: count for name, count in trace.lost.items() if count} == REPAIRED[content][1]
    assert (found, missed) == read(tmp_path / "p", native=False)[::2]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_broken_json_is_refused(content, tmp_path):
    (tmp_path / "p").write_text(spans(content))
    with pytest.raises(CurvescopeError, match=r"broken JSON|no list `traceEvents`"):
        read(tmp_path / "p", native=True)


@pytest.mark.parametrize(
    "event", ['{"name": "a", "ts": nan}', '{"name": "\\ud800"}', '{"args": ' + "[" * 300 + "]" * 300 + "}"]
)
def test_what_strict_json_is_not_goes_to_python(event, tmp_path):
    whole = '{"ph": "X", "name": "b"}'
    (tmp_path / "p").write_text(f'{{"traceEvents": [{whole}, {event}, {whole}]}}'.replace('{"na', '{"ph": "X", "na'))
    outcomes = []
    for native in (True, False):
        try:
            outcomes.append(read(tmp_path / "p", native=native)[::2])
        except CurvescopeError as error:
            outcomes.append(str(error)[:40])
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("1623142623460111.1235", 1623142623460111_124),  # a float ends at a quarter of a microsecond there
        ("1623142623460111.1225", 1623142623460111_122),  # half to even
        ("1623142623460111.12250001", 1623142623460111_123),
        ("0.0005", 0),
        ("0.0015", 2),
        ("-2.5", -2500),
    ],
)
def test_times_are_exact_to_the_last_digit(text, expected_ns, tmp_path):
    (tmp_path / "p").write_text(f'{{"traceEvents": [{{"ph": "X", "ts": {text}}}]}}')
    ((_, found, *_),), *_ = read(tmp_path / "p", native=True)
    assert found == expected_ns == nanoseconds(text) == round(Decimal(text) * 1000)


def test_a_large_trace_is_read_by_native_code(tmp_path, monkeypatch):
    listed = [{"ph": "X", "name": f"name {i % 7}", "ts": i, "tid": "x", "args": {"count": -i}} for i in range(50_000)]
    (tmp_path / "p").write_text(json.dumps({"traceEvents": listed}))
    monkeypatch.setattr(TraceEvents, "_decode", None)  # Python's way would fail
    found, _, missed = read(tmp_path / "p", native=True, chunk_bytes=1 << 16)
    assert sorted(count for *_, count, _ in found) == list(range(-49_999, 1))
    assert not missed
