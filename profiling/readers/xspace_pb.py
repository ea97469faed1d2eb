"""Reads an XSpace (`.xplane.pb`) of the profiler of TensorFlow and JAX, on CPU, GPU and TPU.

It has planes (devices, and the host) of lines (streams, threads) of events, and is the source of
the `trace.json.gz` beside it, so both are read alike; later versions write only the XSpace. Times
are picoseconds from the start of a line. The fields follow `xplane.proto` (openxla/xla,
tsl/profiler/protobuf); maps are read as their repeated entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from ...base.errors import CurvescopeError
from ...base.limits import (
    XSPACE_BYTES_PER_EVENT,
    XSPACE_BYTES_PER_INNER,
    XSPACE_FREE_EMPTY,
    XSPACE_FREE_EVENTS,
    XSPACE_FREE_INNER,
    XSPACE_LINES,
    check_limit,
)
from ..attribution.kernel_names import UNKNOWN, family
from ..attribution.range_names import LONGEST_READ
from ..recording.store import RecordingWriter
from . import Options, hlo_scopes
from .source import Source
from .tensorflow_json import FACTS, FrameworkTrace, write_trace
from .trace_events import Event

NAME = "TensorFlow or JAX XSpace"

_PLANES = (b"/host:", b"/device:", b"/job:")
_MOST_BYTES = (1 << 31) - 1  # of a protobuf message
_PS_PER_NS = 1000
_PARTS = "Parts"  # ends the name of a message whose inner messages stay bytes
_SHORT_BYTES = 1 << 16  # of a message that may unfold uncounted
_EMPTY = (b"\x0a\x00", b"\x1a\x00", b"\x22\x00")  # planes, lines, events or metadata
# Message, and its fields: number, name and kind (a message's name for messages); `*` if repeated.
_MESSAGES = {
    "XSpace": "1 planes XPlane*",
    "XPlane": "2 name string, 3 lines XLine*, 4 event_metadata EventEntry*, 5 stat_metadata "
    "StatEntry*",
    "XLine": "1 id int64, 2 name string, 3 timestamp_ns int64, 4 events XEvent*, 11 display_name "
    "string",
    "XEvent": "1 metadata_id int64, 2 offset_ps int64, 3 duration_ps int64, 4 stats XStat*",
    "XStat": "1 metadata_id int64, 2 double_value double, 3 uint64_value uint64, 4 int64_value "
    "int64, "
    "5 str_value bytes, 6 bytes_value bytes, 7 ref_value uint64",
    "EventEntry": "1 key int64, 2 value EventMetadata",
    "EventMetadata": "2 name bytes, 4 display_name bytes, 5 stats XStat*",
    "StatEntry": "1 key int64, 2 value StatMetadata",
    "StatMetadata": "2 name bytes",
    **hlo_scopes.MESSAGES,
}
_VALUES = ("double_value", "uint64_value", "int64_value", "str_value", "ref_value")


def recognises(source: Source) -> bool:
    return source.head.startswith(b"\n") and any(plane in source.head[:4096] for plane in _PLANES)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    from google.protobuf.message import DecodeError  # late: importing it takes a while

    data = source.read_all(_MOST_BYTES)
    empty = sum(data.count(message) for message in _EMPTY)
    check_limit(empty, max(XSPACE_FREE_EMPTY, len(data) // 16), "messages without a field")
    try:
        _read(data, source, writer, options)
    except DecodeError as error:
        raise CurvescopeError(
            f"it is a damaged XSpace ({error}); copy it again, or record it again."
        ) from error


def _read(data: bytes, source: Source, writer: RecordingWriter, options: Options) -> None:
    space = _parts_of("XSpace", data)
    check_limit(len(space.planes), XSPACE_LINES, "planes")
    planes = [_parts_of("XPlane", plane) for plane in space.planes]
    check_limit(sum(len(plane.lines) for plane in planes), XSPACE_LINES, "lines")
    trace = FrameworkTrace(source.budget)
    instructions = hlo_scopes.instructions_of(dict(_modules(planes)))
    for number, plane in enumerate(planes):
        _take_plane(trace, number, plane, instructions, len(data))
        options.report("reading planes", number + 1, len(planes))
    write_trace(trace, writer, options)


def _modules(planes: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The modules of XLA that are stored with the profile, each with the name of its entry."""
    from google.protobuf.message import DecodeError

    for plane in planes:
        if plane.name != hlo_scopes.PLANE:
            continue
        entries = (_unfold("StatEntry", data) for data in plane.stat_metadata)
        wanted = {entry.key for entry in entries if _text(entry.value.name) == hlo_scopes.STAT}
        for data in plane.event_metadata:
            entry = _unfold("EventEntry", data)
            for stat in entry.value.stats:
                if stat.metadata_id in wanted and stat.HasField("bytes_value"):
                    # One of another version: the scopes of its instructions stay unknown.
                    with suppress(DecodeError):
                        proto = _unfold("HloProto", stat.bytes_value)
                        yield _text(entry.value.name), proto.hlo_module


@dataclass(frozen=True)
class _Kind:
    """What all events of one metadata share."""

    long_name: str
    name: str
    facts: Mapping[str, Any]


def _kind(metadata: Any, stat_names: Mapping[int, str]) -> _Kind:
    long_name = _text(metadata.name)[:LONGEST_READ]
    name = _text(metadata.display_name)[:LONGEST_READ] or long_name
    facts = dict(_stats(metadata.stats, stat_names))
    if name != long_name:  # as in the trace.json.gz beside it
        facts.setdefault("long_name", long_name)
    return _Kind(long_name, name, facts)


def _take_plane(
    trace: FrameworkTrace,
    number: int,
    plane: Any,
    instructions: hlo_scopes.Instructions,
    content_bytes: int,
) -> None:
    most_events = max(XSPACE_FREE_EVENTS, content_bytes // XSPACE_BYTES_PER_EVENT)
    stats = (_unfold("StatEntry", data) for data in plane.stat_metadata)
    stat_names = {entry.key: _text(entry.value.name) for entry in stats}
    entries = (_unfold("EventEntry", data) for data in plane.event_metadata)
    kinds = {entry.key: _kind(entry.value, stat_names) for entry in entries}
    for data in plane.lines:
        line = _parts_of("XLine", data)
        events = len(trace.events) + len(line.events)
        check_limit(events, most_events, f"events in {content_bytes:,} bytes")
        trace.budget.check_time()
        trace.processes[number] = _text(plane.name)
        trace.threads[number, line.id] = _text(line.display_name or line.name)
        for data_of_event in line.events:
            event = _unfold("XEvent", data_of_event)
            kind = kinds.get(event.metadata_id)
            if kind is None or event.duration_ps < 0:
                trace.lost["events_unreadable"] += 1
                continue
            end_ps = event.offset_ps + event.duration_ps
            start = line.timestamp_ns + round(event.offset_ps / _PS_PER_NS)
            end = line.timestamp_ns + round(end_ps / _PS_PER_NS)
            args = {**kind.facts, **dict(_stats(event.stats, stat_names))}
            name = kind.name
            key = instructions.key(args)
            if key in instructions.paths and "/" not in str(args.get("name", "")):
                args["name"] = instructions.paths[key]
            what = instructions.custom.get(key)
            if what is not None and _says_nothing(name, key[1]):
                name = f"{what} {name}"  # as oneDNN's: what it computes, then by what
            made = Event(ph="X", name=name, pid=number, tid=line.id, args=args)
            trace.events.append((made, start, end))


def _says_nothing(kernel: str, instruction: str) -> bool:
    """Whether a kernel is called like its instruction, without dots on a GPU, and that tells no
    family.
    """
    plain = kernel.removesuffix(".kd").replace(".", "_")
    return plain == instruction.replace(".", "_") and family(kernel) == UNKNOWN


def _stats(stats: Any, names: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    """Name and value of each fact that is read; a reference is the name that it refers to."""
    for stat in stats:
        name = names.get(stat.metadata_id)
        if name not in FACTS:
            continue
        field = next((value for value in _VALUES if stat.HasField(value)), None)
        if field is None:
            continue
        value = getattr(stat, field)
        if field == "ref_value":
            value = (names.get(value) or "")[:LONGEST_READ]
        yield name, _text(value)[:LONGEST_READ] if isinstance(value, bytes) else value


def _text(data: bytes | str) -> str:
    """A text of the file; a field of texts that is no UTF-8 is read as bytes."""
    if isinstance(data, str):
        return data
    return data.decode("utf-8", "replace")


def _unfold(name: str, data: bytes) -> Any:
    """A complete message. Each of its inner messages takes a hundred bytes in memory and may be two
    in the file, so the parts of a long message are counted first.
    """
    if len(data) > _SHORT_BYTES:
        _check_parts(name, data)
    return _message_type(name).FromString(data)


def _check_parts(name: str, data: bytes) -> None:
    """Refuse a message with too many inner ones, at any depth."""
    parts = _parts_of(name, data)
    for field, value in parts.ListFields():
        kind = _kinds_of(name)[field.name]
        if kind in _MESSAGES:
            inner = [value] if isinstance(value, bytes) else value
            most = max(XSPACE_FREE_INNER, len(data) // XSPACE_BYTES_PER_INNER)
            check_limit(len(inner), most, f"messages `{field.name}` in one `{name}`")
            for part in inner:
                if len(part) > _SHORT_BYTES:
                    _check_parts(kind, part)


def _parts_of(name: str, data: bytes) -> Any:
    """A message whose inner messages stay bytes."""
    return _message_type(f"{name}{_PARTS}").FromString(data)


def _kinds_of(message: str) -> dict[str, str]:
    """The kinds of the fields of a message, by name."""
    fields = (field.split() for field in _MESSAGES[message].split(", "))
    return {name: kind.rstrip("*") for _, name, kind in fields}


@cache
def _message_type(name: str) -> Any:
    """The class of a message, from the table of fields; with `_PARTS` at its end, the class in
    which inner messages are bytes.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="curvescope_xspace.proto", package="curvescope", syntax="proto2"
    )
    for (message, fields), end in product(_MESSAGES.items(), ("", _PARTS)):
        described = file.message_type.add(name=f"{message}{end}")
        for number, name_, kind in map(str.split, fields.split(", ")):
            own = described.field.add(name=name_, number=int(number))
            own.label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            if kind not in _MESSAGES:
                own.type = getattr(kinds, f"TYPE_{kind.upper()}")
            elif end:
                own.type = kinds.TYPE_BYTES
            else:
                own.type = kinds.TYPE_MESSAGE
                own.type_name = f".curvescope.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"curvescope.{name}"))
