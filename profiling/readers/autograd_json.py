"""Reads the list of events that PyTorch's autograd profiler exports, the one before Kineto
(`torch.autograd.profiler`).

A list of `X` events of a host thread ("CPU functions") or of a device ("CUDA functions"); arrows
join an operator to its work on a device by an id. With `use_cuda` the work of an operator contains
that of the operators that it calls: own time counts, as on a host without a device. There are no
shapes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from ...base.errors import CurvescopeError
from ..attribution.assemble import assemble
from ..attribution.library_calls import own_time
from ..attribution.nesting import nest
from ..attribution.profile import profile_of_tables, table_of_rows
from ..attribution.range_names import ANNOTATION, NODE_PREFIX, OPERATOR, RangeNames, scrub
from ..recording.store import RecordingWriter
from . import Options
from .source import Source
from .trace_events import Event, TraceEvents
from .values import nanoseconds, signed

NAME = "PyTorch autograd profiler JSON"

_HOST, _DEVICE = "cpu functions", ("cuda functions", "xpu functions")
_MARKS = ('"CPU functions"', '"CUDA functions"')
_UNREADABLE = (ArithmeticError, TypeError, ValueError)


def recognises(source: Source) -> bool:
    return source.text.startswith("[") and any(mark in source.text for mark in _MARKS)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the list; steps are marks of the program, or found by repetition."""
    lanes = _Lanes()
    events = TraceEvents(source, Event, options.report)
    for batch in events:
        for event in batch:
            lanes.take(event)
    if not lanes.host:
        raise CurvescopeError(
            "it has no operator of PyTorch's autograd profiler; other Chrome traces are not read."
        )
    for name, count in (events.lost + lanes.lost).items():
        writer.count_lost(name, count)
    writer.update(profiler={"name": "torch.autograd.profiler"})
    assemble(profile_of_tables("torch", *lanes.tables(options.names)), writer, options)


class _Lanes:
    """Operators of the host and their work on devices: name, start and end in ns, and thread or
    device.
    """

    def __init__(self) -> None:
        self.host: list[tuple[str, int, int, int]] = []
        self.device: list[tuple[str, int, int, int]] = []
        self.lost: Counter[str] = Counter()
        self._calls: dict[int, tuple[int, int]] = {}  # start and thread, by id
        self._work: dict[tuple[int, int], int] = {}  # id, by start and device

    def take(self, event: Event) -> None:
        """Add an event, or count it as unreadable."""
        if event.ph not in ("X", "s", "f"):
            return
        lane = str(event.pid).lower()
        try:
            start, number = nanoseconds(event.ts), _lane_number(event.tid)
            if event.ph == "X":
                length = nanoseconds(event.dur)
                if start < 0 or length < 0 or not isinstance(event.name, str):
                    raise ValueError(event.name)
                row = event.name, start, start + length, number
                if lane == _HOST:
                    self.host.append(row)
                elif lane in _DEVICE:
                    self.device.append(row)
                else:
                    self.lost["events_of_unknown_category"] += 1
            elif event.ph == "s":
                self._calls[_lane_number(event.id)] = start, number
            else:
                self._work[start, number] = _lane_number(event.id)
        except _UNREADABLE:
            self.lost["events_unreadable"] += 1

    def tables(self, names: RangeNames) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
        """Operators, their launches, and the work: own time of the device's events, or of operators
        without them.
        """
        ranges = [
            {
                "name": scrub(name) or "?",
                "start_ns": start,
                "end_ns": end,
                **_on(thread),
                "kind": "push_pop",
            }
            for name, start, end, thread in self.host
        ]
        operators = table_of_rows(ranges)
        # Ranges of the program are listed as operators, too.
        marks = {
            name
            for name in {row[0] for row in self.host}
            if (read := names.read(name)).step or read.phase
        }
        marked = [row[0] in marks and not row[0].startswith(NODE_PREFIX) for row in self.host]
        role = pa.DictionaryArray.from_arrays(
            pa.array(marked, pa.bool_()).cast(pa.int32()), [OPERATOR, ANNOTATION]
        )
        operators = operators.append_column("role", role).append_column(
            "shown", pa.array(marked, pa.bool_())
        )
        launches = [
            {
                "name": "launch",
                "start_ns": start,
                "end_ns": start,
                **_on(thread),
                "correlation_id": id_,
            }
            for id_, (start, thread) in self._calls.items()
        ]
        work = self.device or self.host
        name, start, end, lane = zip(*work, strict=True)
        nested = nest(*(np.array(column, np.int64) for column in (lane, start, end)))
        works = np.ones(len(work), np.bool_) if self.device else ~np.array(marked, np.bool_)
        texts = [scrub(text.removeprefix(NODE_PREFIX)) or "?" for text in name]
        kernels = []
        for begin, finish, number in zip(
            *(column.tolist() for column in own_time(nested, works)), strict=True
        ):
            place = {"thread_key": lane[number]}
            if self.device:
                place = {
                    "device": lane[number],
                    "correlation_id": self._work.get((start[number], lane[number])),
                }
            row = {
                "name": texts[number],
                "start_ns": begin,
                "end_ns": finish,
                "stream": lane[number],
            }
            kernels.append(row | place)
        return (
            operators,
            table_of_rows(launches if self.device else ()),
            table_of_rows(kernels),
            table_of_rows(()),
        )


def _on(thread: int) -> dict[str, int]:
    return {"thread": thread, "thread_key": thread}


def _lane_number(value: Any) -> int:
    """A thread, device or id; raises if it is no whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return signed(value)
