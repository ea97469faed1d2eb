"""Reads flame graphs of speedscope, as py-spy and Austin write them.

A profile of the file is a thread, with samples and the time that each stands for. Samplers leave
out what waits, so the samples have an order and no moments: own times of functions add up to the
time that was sampled. Format: speedscope's file-format-spec.ts.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ...base.errors import CurvescopeError
from ..attribution.assemble import assemble
from ..attribution.profile import Options, profile_of_tables, table_of_rows
from ..attribution.sampled_stacks import (
    Changes,
    Stack,
    find_busiest,
    function_rows,
    list_calls,
    name_function,
    own_times,
    tabulate,
)
from ..recording.schema import SAMPLED
from ..recording.store import RecordingWriter
from .source import Source

NAME = "speedscope JSON"

_SCHEMA = "speedscope.app/file-format-schema.json"
_MOST_BYTES = 1 << 28
_MOST_NS = 1 << 50
_NS = {"nanoseconds": 1, "microseconds": 1e3, "milliseconds": 1e6, "seconds": 1e9}
_MISSING = {
    "device": "no work of a device: times are of sampled functions",
    "timeline": "samplers leave out what waits: the samples have no moments",
    "steps": "no moments, so no steps",
}


class _Frame(msgspec.Struct):
    name: str
    file: str | None = None
    line: int | None = None


class _Shared(msgspec.Struct):
    frames: list[_Frame]


class _Thread(msgspec.Struct):
    type: Literal["sampled", "evented"]
    unit: str
    samples: list[list[int]] = []
    weights: list[float] = []


class _Document(msgspec.Struct):
    shared: _Shared
    profiles: list[_Thread]


def recognises(source: Source) -> bool:
    return source.text.startswith("{") and _SCHEMA in source.text


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    try:
        document = msgspec.json.decode(source.read_all(_MOST_BYTES), type=_Document)
        threads = [_list_changes(thread, document.shared.frames) for thread in document.profiles]
    except (msgspec.MsgspecError, IndexError, OverflowError) as error:
        raise CurvescopeError(f"it is no flame graph of speedscope ({error}).") from error
    table = tabulate(list_calls(find_busiest(threads)), process=0)
    if not table.num_rows:
        raise CurvescopeError(
            "it has no sample with a time: `py-spy record --format speedscope` writes some."
        )
    writer.write("functions", function_rows(table))
    none = table_of_rows([])
    assemble(profile_of_tables(SAMPLED, none, none, own_times(table), none), writer, options)
    writer.update(missing=_MISSING, profiler={"name": "a sampler"})


def _list_changes(thread: _Thread, frames: list[_Frame]) -> Changes:
    """The stacks of a thread from one sample to the next."""
    names = [name_function(frame.file or "", frame.line, frame.name) for frame in frames]
    per_unit = _NS.get(thread.unit)
    changes: Changes = []
    if per_unit is None:
        return changes
    end_ns = 0
    stacks: dict[tuple[int, ...], Stack] = {}  # each once: samples are many
    for frames_of, weight in zip(thread.samples, thread.weights, strict=False):
        key = tuple(frames_of)
        if key not in stacks:
            stacks[key] = tuple(names[frame] for frame in key)
        changes.append((end_ns, stacks[key]))
        end_ns += round(per_unit * weight)
    if not 0 < end_ns < _MOST_NS:
        return []
    return [*changes, (end_ns, ())]
