"""Cutting a trace into pieces against Python's own JSON, whatever the text, and wherever the pieces
end.
"""

import gzip
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers import trace_events
from curvescope.profiling.readers.source import Source
from curvescope.profiling.readers.trace_events import Event, TraceEvents

text = st.text(st.sampled_from('ab"\\{}[],: \n/é😀'), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
events = st.lists(
    st.fixed_dictionaries(
        {"ph": text, "name": text, "args": st.dictionaries(text, values, max_size=3)}
    )
)


class Named(msgspec.Struct, forbid_unknown_fields=True):
    name: str


def read(path, usual=None):
    trace = TraceEvents(Source(path), Event, usual_type=usual)
    found = [event for piece in trace for event in piece]
    return found, trace


@pytest.mark.slow
@settings(max_examples=100)
@given(
    events,
    st.dictionaries(text, values, max_size=3),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_pieces_of_any_size_give_what_json_gives(
    tmp_path_factory, listed, others, chunk, after, indent
):
    others.pop("traceEvents", None)
    document = {"traceEvents": listed, **others} if after else {**others, "traceEvents": listed}
    path = tmp_path_factory.mktemp("trace") / "p"
    path.write_text(json.dumps(document, indent=indent, ensure_ascii=bool(indent)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_events, "_CHUNK_BYTES", path.read_bytes().index(b'"traceEvents"') + 20)
        patch.setattr(trace_events, "_PIECE_BYTES", chunk)
        found, trace = read(path)
    assert [(e.ph, e.name, e.args) for e in found] == [
        (e["ph"], e["name"], e["args"]) for e in listed
    ]
    assert trace.document == others
    assert not trace.lost


def test_a_bare_list_is_a_trace(tmp_path):
    (tmp_path / "p").write_text('\ufeff [{"ph": "X", "name": "a"}, {"ph": "M"}] ')
    assert [event.name for event in read(tmp_path / "p")[0]] == ["a", None]


REPAIRED = {
    '{"traceEvents": [{"name": "a", "ts": NaN}, {"name": "b", "ts": -Infinity}]}': (
        2,
        {"invalid_numbers": 2},
    ),
    '{"traceEvents": [{"name": "a"},]}': (1, {"stray_commas": 1}),
    '{"traceEvents": [{"name": "a"}, 7, null, {}]}': (2, {"events_unreadable": 2}),
    '{"traceEvents": [{"name": "a"}, 7]}': (1, {"events_unreadable": 1}),
    '{"traceEvents": [{"ts": 123456789012345678901234567890}]}': (1, {}),
}


@pytest.mark.parametrize("usual", [None, Named])
@pytest.mark.parametrize("content", REPAIRED)
def test_repairs_are_counted(content, usual, tmp_path):
    (tmp_path / "p").write_text(content)
    found, trace = read(tmp_path / "p", usual)
    assert (len(found), {name: count for name, count in trace.lost.items() if count}) == REPAIRED[
        content
    ]


BROKEN = [
    '{"traceEvents": [{"name": "a"}',
    '{"traceEvents": [{"name": "a"}]',
    '{"traceEvents": [{"name": "a"}] "b": 1}',
    '{"traceEvents": [{"name": "a"} {"name": "b"}]}',
    '{"traceEvents": [{"name": }]}',
    '{"traceEvents": [{"name": "a]}',
    '{"traceEvents": [{"name": "a"}}}',
    '{"a": 1 "traceEvents": []}',
    "{" * 100_000,
    '{"traceEvents": [' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "]}",
]


@pytest.mark.parametrize("usual", [None, Named])
@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_broken_json_is_refused(content, usual, tmp_path):
    (tmp_path / "p").write_text(content)
    with pytest.raises(CurvescopeError, match=r"broken JSON|no list"):
        read(tmp_path / "p", usual)


def test_the_key_inside_a_string_or_deeper_is_not_the_list(tmp_path):
    content = (
        '{"x": {"traceEvents": [1]}, "y": "\\"traceEvents\\": [", "traceEvents" : [{"name": "a"}]}'
    )
    (tmp_path / "p").write_text(content)
    found, trace = read(tmp_path / "p")
    assert [event.name for event in found] == ["a"]
    assert trace.document["x"] == {"traceEvents": [1]}


def test_an_endless_event_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_events, "_MOST_EVENT_BYTES", 1 << 20)
    (tmp_path / "p").write_bytes(
        gzip.compress(b'{"traceEvents": [{"name": "' + b"x" * (9 << 20) + b'"}]}')
    )
    with pytest.raises(CurvescopeError, match="an event of more than"):
        read(tmp_path / "p")
