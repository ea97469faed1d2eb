"""Turns the events of this process's profiler into columns for attribution, and into the kernel
rows of a step.

This module does not import torch: tests build the events by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..recording.schema import TABLES
from .collectives import communicates
from .columns import factorize, flags_of
from .cupti_names import GPU_COPIES, kind_of_copy
from .fused_kernels import (
    CompiledGraphs,
    FusedCall,
    FusedKernel,
    encode_shares,
    find_kernels,
    layer_range,
    plain_name,
    shares_of,
)
from .library_calls import LibraryCalls, MklCall, Operators, VerboseLog, own_time
from .memory_peak import Allocations, peak_rows
from .nesting import NONE, Bools, Ints
from .operation import Operation
from .operator_calls import CountWork, LaunchedWork, attach_work
from .outermost_operators import OperatorCalls, OperatorKernels, operator_calls, outermost_operators
from .placement import HostSpans, Placement, place
from .range_names import (
    ANNOTATION,
    COLLECTIVES,
    DISTRIBUTED,
    INPUT_PHASE,
    NODE_PREFIX,
    OPERATOR,
    PHASE_RANGE,
    STEP_RANGE,
    RangeNames,
)
from .source_lines import Watched

_MEMORY_COLUMNS = {column.name for column in TABLES["memory"].columns}


class HostEvent(NamedTuple):
    """One operator, autograd node or range on a host thread."""

    name: str
    start_ns: int
    duration_ns: int
    thread: int
    is_range: bool = False  # a user annotation: it places the work inside it, and is no work itself
    sequence: int = NONE
    forward_thread: int = 0
    correlation_id: int = 0
    shapes: Sequence[Any] = ()
    concrete: Sequence[Any] = ()
    dtypes: Sequence[str] = ()
    strides: Sequence[Any] = ()


class DeviceEvent(NamedTuple):
    """One kernel, memcpy or memset on a device; `host_correlation_id` names the operator that
    launched it.
    """

    name: str
    start_ns: int
    duration_ns: int
    device: int
    stream: int
    correlation_id: int
    host_correlation_id: int
    columns: Mapping[str, Any] = MappingProxyType({})  # further columns of its row


@dataclass
class StepRows:
    """Kernel rows of profiled steps, as dicts of schema columns."""

    kernels: list[dict[str, Any]]  # rows for the `kernels` table, without `step`
    windows: list[tuple[int, int]]  # (start_ns, duration_ns) of each step, in order
    lost: dict[str, int]  # named counts of events without a place
    # as windows, where the steps fetched batches
    inputs: list[tuple[int, int]] = field(default_factory=list)
    # the outermost operator calls of the first step; None without a step
    operator_calls: OperatorCalls | None = None
    # rows for the `api_calls` table, without `step`
    api_calls: list[dict[str, Any]] = field(default_factory=list)
    # MKL calls of the operators, in order, without durations
    mkl_calls: list[MklCall] = field(default_factory=list)
    # for `peaks`, of the first step, without `batch`
    peak: list[dict[str, Any]] = field(default_factory=list)

    @property
    def operators(self) -> list[dict[str, Any]]:
        """Rows for the `operators` table of the first step, without `batch`."""
        return self.operator_calls.rows if self.operator_calls else []


def _is_of_collective(name: str, op: str | None) -> bool:
    return communicates(name, op) or (op or "").startswith(DISTRIBUTED)


def split_copies(
    rows: Iterable[dict[str, Any]], apart: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows for the table `kernels`, and for `memory` if `apart`: memcpys and memsets, but not those
    of collectives.
    """
    kernels: list[dict[str, Any]] = []
    memory: list[dict[str, Any]] = []
    for row in rows:
        name = row["name"]
        if apart and name.startswith(GPU_COPIES) and not _is_of_collective(name, row.get("op")):
            kind = name[: len("memcpy")].lower()
            copied = kind_of_copy(name)
            counted = {column: value for column, value in row.items() if column in _MEMORY_COLUMNS}
            memory.append(
                {**counted, "kind": kind, "memcpy_kind": copied if kind == "memcpy" else None}
            )
        else:
            kernels.append({column: value for column, value in row.items() if column != "bytes"})
    return kernels, memory


def spans_of(events: Sequence[HostEvent]) -> HostSpans:
    """Events as columns, in their order."""
    read = RangeNames().read
    names: dict[tuple[str, bool], int] = {}
    name = [names.setdefault((event.name, event.is_range), len(names)) for event in events]
    call, operations = _operations(events)
    start = _ints(event.start_ns for event in events)
    return HostSpans(
        start,
        start + _ints(event.duration_ns for event in events),
        _ints(event.thread for event in events),
        np.zeros(len(events), np.int64),
        _ints(name),
        [read(text, role=ANNOTATION if is_range else OPERATOR) for text, is_range in names],
        np.maximum(_ints(event.sequence for event in events), NONE),
        _ints(event.forward_thread for event in events),
        call,
        operations,
    )


def _operations(events: Sequence[HostEvent]) -> tuple[Ints, list[Operation]]:
    """The distinct calls with shapes, and the index of each event into them."""
    encode = msgspec.json.Encoder(enc_hook=str).encode
    calls: dict[tuple[str, bytes], int] = {}
    operations: list[Operation] = []
    call = np.full(len(events), NONE, np.int64)
    for index, event in enumerate(events):
        if event.shapes and not event.is_range:
            arguments = event.shapes, event.dtypes, event.concrete, event.strides
            key = event.name, encode(arguments)
            if key not in calls:
                calls[key] = len(operations)
                operations.append(Operation(event.name, *arguments))
            call[index] = calls[key]
    return call, operations


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), np.int64)


def kernel_rows(
    host: Iterable[HostEvent],
    device: Iterable[DeviceEvent] = (),
    verbose: VerboseLog | None = None,
    count_work: CountWork | None = None,
    host_rows: bool = True,
    compiled: CompiledGraphs = MappingProxyType({}),
    watched: Watched | None = None,
    allocations: Allocations | None = None,
) -> StepRows:
    """Turn the events of some steps, in any order, into kernel rows; all times are on one clock, in
    nanoseconds.

    Without `count_work` rows have no FLOPs and bytes. `host_rows` says whether host operators are
    the work itself (CPU), or only launch it (device); `compiled` are kernels of compiled graphs, by
    the graph's name.
    """
    events, fused = _with_compiled(list(host), compiled)
    spans = spans_of(events)
    placement = place(spans)
    lost: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    mkl_calls: list[MklCall] = []
    if host_rows:
        rows, mkl_calls = _host_rows(events, spans, placement, verbose or VerboseLog(), lost)
    rows += _device_rows(device, events, spans, lost)
    windows = _windows(events, STEP_RANGE)
    inputs = _windows(events, PHASE_RANGE + INPUT_PHASE)
    span = _ints(row.pop("span") for row in rows)
    outer = outermost_operators(spans, placement)
    operators = _operator_calls(spans, placement, outer, rows, span, host_rows, windows, watched)
    peak: list[dict[str, Any]] = []
    if allocations is not None and windows:
        start_ns, duration_ns = windows[0]
        window = start_ns, start_ns + duration_ns
        peak = peak_rows(spans, placement, outer, allocations, window, watched)
    for name, column in placement.take(span).items():
        values = column.dictionary_decode().to_pylist()  # thirty times as fast as from the codes
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    if count_work is not None:
        on_host = flags_of(rows, lambda row: host_rows and row["source"] == "torch")
        _add_work(rows, spans, placement, span, on_host, count_work)
    _describe_fused(rows, span, fused)
    rows.sort(key=lambda row: row["start_ns"])
    lost_now = {name: count for name, count in lost.items() if count}
    return StepRows(rows, windows, lost_now, inputs, operators, mkl_calls=mkl_calls, peak=peak)


def _add_work(
    rows: Sequence[dict[str, Any]],
    spans: HostSpans,
    placement: Placement,
    span: Ints,
    on_host: Bools,
    count_work: CountWork,
) -> None:
    """Add FLOPs and bytes to the rows that have any."""
    duration = _ints(row["duration_ns"] for row in rows)
    code, names = factorize(np.array([row["name"] for row in rows], object))
    work = LaunchedWork(span, duration, code, names.tolist(), on_host)
    counts = attach_work(spans, placement.nest, work, count_work)
    for name, values in zip(("flops", "bytes_compulsory"), counts, strict=True):
        for at in np.flatnonzero(values != NONE).tolist():
            rows[at][name] = int(values[at])


def _with_compiled(
    events: list[HostEvent], graphs: CompiledGraphs
) -> tuple[list[HostEvent], dict[int, FusedKernel]]:
    """The events with a range of its layer around each kernel of a compiled graph, and these
    kernels by event.
    """
    if graphs:
        calls = [
            FusedCall(e.name, e.start_ns, e.start_ns + e.duration_ns, e.thread) for e in events
        ]
    else:
        calls = []
    kernels_of_calls = find_kernels(calls, graphs)
    placed: list[HostEvent] = []
    kernels: dict[int, FusedKernel] = {}
    for index, event in enumerate(events):
        if (kernel := kernels_of_calls.get(index)) is not None:
            if (
                name := layer_range(kernel)
            ) is not None:  # of two equal spans the first one is outside
                placed.append(
                    HostEvent(name, event.start_ns, event.duration_ns, event.thread, is_range=True)
                )
            kernels[len(placed)] = kernel
            event = event._replace(name=plain_name(event.name))
        placed.append(event)
    return placed, kernels


def _describe_fused(
    rows: Sequence[dict[str, Any]], span: Ints, kernels: Mapping[int, FusedKernel]
) -> None:
    """Give the rows of generated kernels their operators, and the longest row of each its work."""
    longest: dict[int, dict[str, Any]] = {}
    for row, of_row in zip(rows, span.tolist(), strict=True):
        kernel = kernels.get(of_row)
        if kernel is None or not kernel.generated:
            continue
        row["fused"] = encode_shares(shares_of(kernel.operators))
        if of_row not in longest or longest[of_row]["duration_ns"] < row["duration_ns"]:
            longest[of_row] = row
    for of_row, row in longest.items():
        for name in ("flops", "bytes_compulsory"):
            if (amount := getattr(kernels[of_row], name)) is not None:
                row[name] = amount


def _operator_calls(
    spans: HostSpans,
    placement: Placement,
    outer: Ints,
    rows: Sequence[Mapping[str, Any]],
    span: Ints,
    on_host: bool,
    windows: Sequence[tuple[int, int]],
    watched: Watched | None,
) -> OperatorCalls | None:
    if not windows:
        return None
    start_ns, duration_ns = windows[0]
    inside = (spans.start_ns >= start_ns) & (spans.end_ns <= start_ns + duration_ns)
    durations = _ints(row["duration_ns"] for row in rows)
    names = [row["name"] for row in rows]
    kernels = OperatorKernels(span, durations, names, np.full(len(rows), on_host))
    of_step = spans.thread[spans.start_ns == start_ns]
    thread = int(of_step[0]) if len(of_step) else NONE
    own_calls = operator_calls(spans, placement, outer, kernels, inside, watched, thread)
    for row in own_calls.rows:
        row["source"] = "torch"
    return own_calls


def _windows(events: Sequence[HostEvent], name: str) -> list[tuple[int, int]]:
    return sorted((event.start_ns, event.duration_ns) for event in events if event.name == name)


def _host_rows(
    events: Sequence[HostEvent],
    spans: HostSpans,
    placement: Placement,
    verbose: VerboseLog,
    lost: Counter[str],
) -> tuple[list[dict[str, Any]], list[MklCall]]:
    is_operator = spans.is_operator
    nested = placement.nest
    operators = _operators(events, is_operator, nested.parent, nested.end_ns)
    calls = LibraryCalls(operators, own_time(nested, is_operator))
    calls.place(verbose)
    lost.update(calls.lost)
    rows = []
    for row in calls.rows():
        event = events[row.span]
        own_name = event.name.removeprefix(NODE_PREFIX)
        rows.append(
            {
                "name": own_name if row.name is None else row.name,
                "start_ns": row.start_ns,
                "duration_ns": row.end_ns - row.start_ns,
                "stream": event.thread,
                "correlation_id": event.correlation_id,
                "source": row.source,
                "span": row.span,
            }
        )
    return rows, calls.named


def _operators(
    events: Sequence[HostEvent], is_operator: Bools, parent: Ints, end_ns: Ints
) -> Operators:
    names: list[str | None] = []
    for event, works in zip(events, is_operator.tolist(), strict=True):
        computes = works and not event.name.startswith(COLLECTIVES)
        names.append(event.name if computes else None)
    extents = {}
    for span, event in enumerate(events):
        if event.name.endswith(("mm", "linear", "mv", "dot")):
            shapes = [shape for shape in event.shapes if isinstance(shape, (list, tuple))]
            extents[span] = set(chain.from_iterable(shapes))
    return Operators(
        [event.start_ns for event in events],
        end_ns.tolist(),
        [event.duration_ns for event in events],
        parent.tolist(),
        names,
        extents,
    )


def _device_rows(
    device: Iterable[DeviceEvent], events: Sequence[HostEvent], spans: HostSpans, lost: Counter[str]
) -> list[dict[str, Any]]:
    operators = np.flatnonzero(spans.is_operator).tolist()
    launcher = {
        events[span].correlation_id: span for span in operators if events[span].correlation_id
    }
    rows = []
    for event in device:
        span = launcher.get(event.host_correlation_id, NONE)
        lost["kernels_without_operator"] += span == NONE
        rows.append(
            {
                "name": event.name,
                "start_ns": event.start_ns,
                "duration_ns": event.duration_ns,
                "device": event.device,
                "stream": event.stream,
                "correlation_id": event.correlation_id,
                "source": "torch",
                **event.columns,
                "span": span,
            }
        )
    return rows
