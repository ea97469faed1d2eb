"""Which tensors hold the memory of a device when it is fullest in a step: rows of the table
`peaks`.

A block that no operator frees again inside itself is a tensor; an allocation before the step is
known from the tensors that the program holds, or as a sum from the allocator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import CurvescopeError
from ..recording.schema import BACKWARD, INPUT, OPTIMIZER
from .nesting import NONE, Ints
from .placement import HostSpans, Placement, name_at
from .source_lines import SourceLine, Watched, calls_inside

MEMORY_EVENT = "[memory]"  # its name among the events of torch's profiler
PARAMETERS = "parameters"
GRADIENTS = "gradients"
STATE = "optimizer state"
INPUTS = "input"
ACTIVATIONS = "activations"
ACTIVATION_GRADIENTS = "activation gradients"
WORKSPACE = "workspace"
HELD = "other"
UNUSED = "not used in the step"
CACHED = "cached"
KINDS = (
    PARAMETERS,
    GRADIENTS,
    STATE,
    INPUTS,
    ACTIVATIONS,
    ACTIVATION_GRADIENTS,
    WORKSPACE,
    HELD,
    UNUSED,
    CACHED,
)
# kinds whose layer says all: which phase allocated them is chance
LASTING = (
    PARAMETERS,
    GRADIENTS,
    STATE,
)
_MOST_BYTES = 1 << 60
_BEFORE = -1  # position of what was allocated before the first event


class KnownTensor(NamedTuple):
    """A tensor that the program holds."""

    time_ns: int  # when it was seen
    address: int  # of its storage
    size_bytes: int  # of its storage
    kind: str  # one of `KINDS`
    layer: str | None = None  # path of the module that it belongs to; None if unknown
    # line of the program that allocated it; None if only its operator says it
    line: SourceLine | None = None


@dataclass
class Allocations:
    """What the allocator of one device did, in order of time; arrays of shape (events,)."""

    time_ns: Ints
    thread: Ints  # thread of each event, as of the spans
    size_bytes: Ints  # bytes allocated; below 0 for freed ones
    address: Ints  # addresses
    # allocated after each event; None if counted from the recording's start
    total_bytes: Ints | None = None
    # kept by the allocator after each event, in use or not; None if none are
    reserved_bytes: Ints | None = None
    # tensors that the program held at some time
    tensors: list[KnownTensor] = field(default_factory=list)
    used: set[int] | None = None  # addresses of the storages that operators took; None if unknown
    # memory that the step could have had at most; None if unknown
    available_bytes: int | None = None


@dataclass
class _Block:
    size_bytes: int
    begin: int  # position of the event
    end: int  # position of the event that frees it; the number of events if none does
    address: int = NONE
    kind: str | None = None
    layer: str | None = None
    line: SourceLine | None = None


def peak_rows(
    spans: HostSpans,
    placement: Placement,
    outer: Ints,
    allocations: Allocations,
    window: tuple[int, int],
    watched: Watched | None = None,
) -> list[dict[str, Any]]:
    """Rows of the table `peaks` of the step from start to end of `window`, without `batch`; none
    without allocation.
    """
    blocks = _blocks(allocations)
    check_total(sum(abs(block.size_bytes) for block in blocks))
    peak = _find_peak(blocks, allocations, window)
    live = [block for block in blocks if block.begin <= peak < block.end]
    made = np.array([block.begin for block in live if block.begin > _BEFORE], np.int64)
    spans_of = placement.nest.innermost(allocations.thread[made], allocations.time_ns[made])
    around = dict(zip(made.tolist(), spans_of.tolist(), strict=True))
    inner = sorted(set(around.values()) - {NONE})
    lines = _lines(spans, outer, np.array(inner, np.int64), watched)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for block in live:
        span = around.get(block.begin, NONE)
        operator = NONE if span == NONE else int(outer[span])
        phase = None if span == NONE else name_at(placement.phases, int(placement.phase[span]))
        layer = None if span == NONE else name_at(placement.layers, int(placement.layer[span]))
        stays = block.end == len(allocations.time_ns)
        ends_inside = False
        if operator != NONE and not stays:
            ends_inside = bool(allocations.time_ns[block.end] <= spans.end_ns[operator])
        kind = _kind(block, phase, ends_inside, stays, allocations.used)
        line = block.line or lines.get(operator)
        key = {
            "kind": kind,
            "layer": block.layer or layer,
            "phase": None if kind in LASTING else phase,
            "op": None if operator == NONE else spans.meanings[spans.name[operator]].op,
            "file": line and line.file,
            "line": line and line.number,
        }
        sums = {"bytes": 0, "tensors": 0, "makes_peak": False}
        row = rows.setdefault(tuple(key.values()), key | sums)
        row["bytes"] += block.size_bytes
        row["tensors"] += 1
        row["makes_peak"] |= block.begin == peak > _BEFORE
    reserved_bytes = allocations.reserved_bytes
    total_bytes = allocations.total_bytes
    if peak > _BEFORE and reserved_bytes is not None and total_bytes is not None:
        cached = int(reserved_bytes[peak] - total_bytes[peak])
        rows[(CACHED,)] = {"kind": CACHED, "bytes": cached, "tensors": None, "makes_peak": False}
    largest = sorted(rows.values(), key=lambda row: -row["bytes"])
    return [{**row, "available_bytes": allocations.available_bytes} for row in largest]


def _find_peak(blocks: Sequence[_Block], allocations: Allocations, window: tuple[int, int]) -> int:
    """Index of the change after which most memory was allocated within the window."""
    # the first entry is of what was there before, the last of what stays
    change = np.zeros(len(allocations.time_ns) + 2, np.int64)
    for block in blocks:
        change[block.begin + 1] += block.size_bytes
        change[block.end + 1] -= block.size_bytes
    level = np.cumsum(change)[:-1]
    first, last = np.searchsorted(allocations.time_ns, window).tolist()
    highest = int(np.argmax(level[first : last + 1]))
    return int(first) + highest - 1


def check_total(size_bytes: int) -> None:
    """Refuse allocations whose sum no device ever gave out, and no 64-bit number may hold;
    CurvescopeError.
    """
    if size_bytes > _MOST_BYTES:
        raise CurvescopeError(
            "its allocations add up to more than 2^60 bytes, which no device gives; record it "
            "again."
        )


def _blocks(allocations: Allocations) -> list[_Block]:
    count = len(allocations.time_ns)
    blocks: list[_Block] = []
    live: dict[int, _Block] = {}
    tensors = sorted(allocations.tensors, reverse=True)

    def add(size: int, begin: int, address: int) -> _Block:
        block = _Block(size, begin, count, address)
        blocks.append(block)
        live[address] = block
        return block

    def note(until_ns: float) -> None:
        while tensors and tensors[-1].time_ns <= until_ns:
            tensor = tensors.pop()
            block = live.get(tensor.address) or add(tensor.size_bytes, _BEFORE, tensor.address)
            block.kind = tensor.kind
            block.layer = tensor.layer
            block.line = tensor.line

    columns = (allocations.time_ns, allocations.size_bytes, allocations.address)
    events = zip(*(column.tolist() for column in columns), strict=True)
    for position, (time_ns, size, address) in enumerate(events):
        note(time_ns)
        if size > 0:
            add(size, position, address)
        elif size < 0:
            block = live.get(address) or add(-size, _BEFORE, address)
            # The allocator may have rounded the size up.
            block.size_bytes = -size
            block.end = position
            del live[address]
    note(float("inf"))
    if count and allocations.total_bytes is not None:
        before = int(allocations.total_bytes[0] - allocations.size_bytes[0])
        held_before = sum(block.size_bytes for block in blocks if block.begin == _BEFORE)
        add(max(before - held_before, 0), _BEFORE, NONE).kind = HELD
    return [block for block in blocks if block.size_bytes]


def _kind(
    block: _Block, phase: str | None, ends_inside: bool, stays: bool, used: set[int] | None
) -> str:
    """The kind of a block: what the program says of it, else what its phase and its life say."""
    if block.begin == _BEFORE:
        is_used = used is None or block.address in used or not stays or block.kind == HELD
        return block.kind or HELD if is_used else UNUSED
    if block.kind is not None:
        return block.kind
    if phase == INPUT:
        return INPUTS
    if ends_inside:
        return WORKSPACE
    if phase == OPTIMIZER:
        return STATE if stays else WORKSPACE
    if phase == BACKWARD:
        return GRADIENTS if stays else ACTIVATION_GRADIENTS
    return ACTIVATIONS


def _lines(
    spans: HostSpans, outer: Ints, around: Ints, watched: Watched | None
) -> dict[int, SourceLine]:
    """The lines of the outermost operators of some spans, by operator."""
    operators = np.unique(outer[around])
    operators = operators[operators != NONE]
    operators = operators[np.argsort(spans.start_ns[operators], kind="stable")]
    if watched is None or not len(operators):
        return {}
    inside = calls_inside(spans, operators, watched)
    lines = [next((call.line for call in calls if call.line), None) for calls in inside]
    return {span: line for span, line in zip(operators.tolist(), lines, strict=True) if line}
