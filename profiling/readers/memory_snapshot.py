"""Reads memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`): what held a GPU's memory
at its peak.

A snapshot is a pickle; one with objects is refused, because reading it would run code
(`plain_pickle`). Its events lead back from the blocks at its end to those at the peak. Stacks tell
the line and likely kind of a block: the backward pass has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import CurvescopeError
from ...base.limits import PICKLE_BYTES
from ..attribution.events import spans_of
from ..attribution.memory_peak import (
    ACTIVATION_GRADIENTS,
    ACTIVATIONS,
    GRADIENTS,
    HELD,
    PARAMETERS,
    STATE,
    WORKSPACE,
    Allocations,
    KnownTensor,
    check_total,
    peak_rows,
)
from ..attribution.placement import place
from ..attribution.profile import describe_steps
from ..attribution.source_lines import SourceLine
from ..recording.store import RecordingWriter, columns_of
from . import Options
from .plain_pickle import load, number_of, text_of
from .source import Source

NAME = "PyTorch memory snapshot"
_WHOLE = "the whole snapshot as one step"

_PICKLE = b"\x80"
# of the bytes given out, and of those reserved
_CHANGES = {
    "alloc": (1, 0),
    "free_requested": (-1, 0),
}
_CHANGES |= dict.fromkeys(("segment_alloc", "segment_map"), (0, 1))
_CHANGES |= dict.fromkeys(("segment_free", "segment_unmap"), (0, -1))
_INSTALLED = re.compile(r"(?:site|dist)-packages/|/lib/python3|^<")
Frames = Sequence[Mapping[str, Any]]


def recognises(source: Source) -> bool:
    return source.head.startswith(_PICKLE) and b"segments" in source.head[:100]


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the peak of one device, by default of that with most events."""
    snapshot = load(source.read_all(PICKLE_BYTES))
    try:
        _write(snapshot, writer, options)
    except (IndexError, KeyError) as error:
        raise CurvescopeError(
            f"it is a damaged memory snapshot ({error!r}); record it again."
        ) from error


def _write(snapshot: Mapping[str, Any], writer: RecordingWriter, options: Options) -> None:
    traces = snapshot.get("device_traces") or [[]]
    device = options.device
    if device is None:
        device = max(range(len(traces)), key=lambda index: len(traces[index]))
    trace = traces[device] if device < len(traces) else []
    events = [event for event in trace if text_of(event, "action") in _CHANGES]
    if not events:
        raise CurvescopeError(
            f"it has no events of GPU {device}: call torch.cuda.memory._record_memory_history() "
            "before the step."
        )
    segments = []
    for segment in snapshot["segments"]:
        if segment.get("device", device) == device:
            segments.append(segment)
    spans = spans_of([])
    nothing = np.zeros(0, np.int64)
    allocations = _allocations(segments, events)
    rows = peak_rows(spans, place(spans), nothing, allocations, (0, 2 * len(events)))
    writer.write("peaks", columns_of([{"batch": options.batch, **row} for row in rows]))
    times_us = [number_of(event, "time_us") for event in events if "time_us" in event] or [0]
    step = {
        "step": 0,
        "batch": options.batch,
        "round": 0,
        "index": 0,
        "profiled": True,
        "duration_ns": (times_us[-1] - times_us[0]) * 1000,
    }
    describe_steps(writer, [step], _WHOLE)


def _allocations(
    segments: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> Allocations:
    """The allocations, with numbers of events for times: between two, the tensors are known that
    the first one made.
    """
    sizes = [number_of(event, "size") for event in events]
    totals = [number_of(segment, "total_size") for segment in segments]
    if min(sizes + totals) < 0:
        raise CurvescopeError("it has an event of less than 0 bytes; record it again.")
    check_total(sum(sizes + totals))
    signs = np.array([_CHANGES[event["action"]] for event in events], np.int64)
    changes = signs * np.array(sizes, np.int64)[:, None]
    blocks = list(_blocks(segments))
    at_end = np.array([sum(size for _, size, _ in blocks), sum(totals)])
    at_begin = at_end - changes.sum(axis=0)
    levels = at_begin + np.cumsum(changes, axis=0)
    tensors = _tensors(events, sizes, blocks)
    given_out = changes[:, 0] != 0
    addresses = np.array([event["addr"] for event in events], np.int64)
    time_ns = 2 * np.flatnonzero(given_out)
    allocated, reserved = levels[given_out].T
    return Allocations(
        time_ns,
        np.zeros(len(time_ns), np.int64),
        changes[given_out, 0],
        addresses[given_out],
        allocated,
        reserved,
        tensors,
    )


def _tensors(
    events: Sequence[Mapping[str, Any]],
    sizes: Sequence[int],
    blocks: Sequence[tuple[int, int, Any]],
) -> list[KnownTensor]:
    """The tensors that were allocated, and those that were there before."""
    stacks = _Stacks()
    freed_at: dict[int, int] = {}
    tensors = []
    for index in reversed(range(len(events))):
        event = events[index]
        address = number_of(event, "addr")
        if event["action"] == "alloc":
            kind, line = stacks.about(event.get("frames", ()), stays=address not in freed_at)
            tensors.append(KnownTensor(2 * index + 1, address, sizes[index], kind, line=line))
            freed_at.pop(address, None)
        elif event["action"] == "free_requested":
            freed_at[address] = index
    in_trace = {tensor.address for tensor in tensors}
    for address, size, frames in blocks:
        if address not in in_trace:
            # What was allocated before the recording began has no stack, whatever it is.
            kind, line = stacks.about(frames, stays=True) if frames else (HELD, None)
            tensors.append(KnownTensor(2 * len(events), address, size, kind, line=line))
    return tensors


def _blocks(segments: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int, Frames]]:
    """Address, size and stack of the blocks that are allocated at the end; old versions give no
    address of a block.
    """
    for segment in {
        id(segment["blocks"]): segment for segment in segments
    }.values():  # a snapshot may name one twice
        address = number_of(segment, "address")
        for block in segment["blocks"]:
            size = number_of(block, "size")
            if block["state"] == "active_allocated":
                at = number_of(block, "address") if "address" in block else address
                yield at, size, block.get("frames", ())
            address += size


class _Stacks:
    """What stacks tell of their blocks; each is looked at once, since snapshots share stacks
    between events.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, bool], tuple[str, SourceLine | None]] = {}

    def about(self, frames: Frames, *, stays: bool) -> tuple[str, SourceLine | None]:
        """Likely kind and line of a block, see `_kind` and `_line`; the stack lives as long as the
        snapshot.
        """
        key = id(frames), stays
        if key not in self._known:
            self._known[key] = _kind(frames, stays=stays), _line(frames)
        return self._known[key]


def _kind(frames: Frames, *, stays: bool) -> str:
    """The likely kind of a block, by the stack of its allocation, and by whether it is allocated to
    the end.
    """
    python = [frame for frame in frames if text_of(frame, "filename").endswith(".py")]
    names = {text_of(frame, "name") for frame in python}
    if any("torch/optim/" in frame["filename"] for frame in python):
        return STATE if stays else WORKSPACE
    if not python:
        return GRADIENTS if stays else ACTIVATION_GRADIENTS
    if names & {"_apply", "__init__", "reset_parameters"}:
        return PARAMETERS
    return ACTIVATIONS if "forward" in names else HELD


def _line(frames: Frames) -> SourceLine | None:
    """The innermost line outside installed packages; only the file's name, as the path may name
    people.
    """
    for frame in frames:
        path = frame["filename"]
        if path.endswith(".py") and not _INSTALLED.search(path):
            return SourceLine(re.split(r"[/\\\\]", path)[-1], number_of(frame, "line"))
    return None
