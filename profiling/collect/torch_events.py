"""What `startup/torch_windows.py` wrote of a command's processes, as the columns that `attribution.assemble` joins.

An operator's own time is a kernel that the host ran itself. Operators place kernels as ranges do: they carry autograd's
numbers, so that a backward node finds the layer of its forward operator, whether a module or an NVTX range named it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..attribution.events import LAYER_RANGE, HostEvent, kernel_rows
from ..attribution.range_names import FORWARD_RANGE, TORCH_DOMAIN, scrub
from ..errors import CurvescopeError
from ..measure.visit import count_work

_VERSION = 1
_BACKWARD_SCOPE, _USER_SCOPE = 1, 7  # c10's RecordScope
_OPTIMIZER_RANGE = "Optimizer."
_NODE = "autograd::engine::evaluate_function: "
_SIZED = ("aten::conv", "aten::linear", "aten::addmm", "aten::mm")  # what range_names reads a batch size from
_RANGES = pa.schema(
    [
        ("name", pa.string()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("process", pa.int64()),
        ("thread", pa.int64()),
        ("thread_key", pa.int64()),
        ("domain", pa.string()),
        ("kind", pa.string()),
        ("shown", pa.bool_()),
        ("source", pa.string()),
    ]
)
_KERNELS = pa.schema(
    [
        ("name", pa.string()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("process", pa.int64()),
        ("stream", pa.int64()),
        ("thread_key", pa.int64()),
        ("flops", pa.int64()),
        ("bytes_compulsory", pa.int64()),
        ("source", pa.string()),
    ]
)


@dataclass
class TorchProcess:
    """What torch ran on the CPU of one process.

    Attributes:
        process: its id.
        cpu_threads: what torch computes with.
        thread: whose marks its steps are: the first that had a step, for they follow each other whoever has them.
        status: why nothing more was recorded; null where all was.
        windows: how many there are.
        ranges: ranges as `attribution.assemble` takes them, the program's own and those that only place work.
        steps: its steps, as marks; not among `ranges`.
        kernels: what ran, window by window.
    """

    process: int
    cpu_threads: int | None = None
    thread: int = 0
    status: str | None = None
    windows: int = 0
    ranges: list[pa.Table] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[pa.Table] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of its kernels, each once."""
        return list({name for table in self.kernels for name in table["name"].unique().to_pylist()})

    def steps_table(self) -> pa.Table:
        """The steps as ranges."""
        return pa.Table.from_pylist(self.steps, _RANGES)

    def facts(self) -> dict[str, Any]:
        """What `recording.json` says of it."""
        return {"torch_status": self.status or "recorded", "torch_windows": self.windows}


def read_processes(folder: Path) -> list[TorchProcess]:
    """Every process that left windows in the folder; the files are read one by one."""
    found: dict[int, TorchProcess] = {}
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_bytes())
        if document.get("version") != _VERSION:
            raise CurvescopeError(f"{path} is of version {document.get('version')}, not {_VERSION}.")
        process = found.setdefault(document["process"], TorchProcess(document["process"]))
        if "status" in document:
            process.status = document["status"]
        else:
            _add_window(document, process)
    return list(found.values())


def _add_window(window: dict[str, Any], process: TorchProcess) -> None:
    offset = window["clock_offset_ns"]
    events = [
        HostEvent(
            name,
            start - offset,
            duration,
            thread,
            scope == _USER_SCOPE or name.startswith(LAYER_RANGE),
            scope == _BACKWARD_SCOPE or forward_thread > 0,
            sequence,
            forward_thread,
            shapes=shapes,
            concrete=concrete,
            dtypes=dtypes,
        )
        for name, start, duration, thread, scope, forward_thread, sequence, shapes, concrete, dtypes in window["events"]
    ]
    process.windows += 1
    process.cpu_threads = window["cpu_threads"]
    process.thread = process.thread or window["thread"]
    rows = kernel_rows(events, count_work=count_work).kernels
    process.kernels.append(_kernels(rows, process.process))
    process.ranges.append(_ranges(events, process.process))
    own = (event.start_ns + event.duration_ns for event in events if event.thread == window["thread"])
    last_ns = max(own, default=window["window_ns"][0])
    for start, end, batch in _steps(window["boundaries"], window["window_ns"][0], last_ns):
        name = f"step {len(process.steps)}" + ("" if batch is None else f", batch_size={batch}")
        mark = {"name": name, "start_ns": start, "end_ns": end, "process": process.process, "domain": TORCH_DOMAIN}
        place = {"thread": process.thread, "thread_key": (process.process << 32) + process.thread}
        process.steps.append({**mark, **place, "kind": "start_end", "shown": True, "source": "torch"})


def _steps(boundaries: Sequence[Any], first_ns: int, last_ns: int) -> Iterator[tuple[int, int, int | None]]:
    """Start, end and samples of a window's steps: up to the optimizer's end each, or from call to call between them."""
    if any(kind == "optimizer" for _, kind, _ in boundaries):
        start, samples = first_ns, []
        called: tuple[int, int | None] | None = None  # a call between two steps, as of an evaluation
        for moment, kind, batch in boundaries:
            if called is not None and kind != "optimizer":
                yield called[0], moment, called[1]
                start, called = moment, None
            if kind == "training":
                samples.append(batch)
            elif kind == "optimizer":
                yield start, moment, None if None in samples or not samples else sum(samples)
                start, samples, called = moment, [], None
            elif not samples:
                called = (moment, batch)
        if called is not None and last_ns > called[0]:
            yield called[0], last_ns, called[1]
        return
    following = [moment for moment, _, _ in boundaries[1:]] + [last_ns] * bool(boundaries)
    for (start, _, batch), end in zip(boundaries, following, strict=True):
        if end > start:
            yield start, end, batch


def _kernels(rows: Sequence[dict[str, Any]], process: int) -> pa.Table:
    columns = {
        "name": [scrub(row["name"]) for row in rows],
        "start_ns": [row["start_ns"] for row in rows],
        "end_ns": [row["start_ns"] + row["duration_ns"] for row in rows],
        "process": [process] * len(rows),
        "stream": [row["stream"] for row in rows],
        "thread_key": [(process << 32) + row["stream"] for row in rows],
        "flops": [row.get("flops") for row in rows],
        "bytes_compulsory": [row.get("bytes_compulsory") for row in rows],
        "source": [row["source"] for row in rows],
    }
    return pa.Table.from_pydict(columns, _KERNELS)


class _Backward:
    """The stretches of each thread in which the backward pass runs."""

    def __init__(self, events: Sequence[HostEvent]) -> None:
        self._reached: dict[int, tuple[list[int], list[int]]] = {}
        for event in sorted((e for e in events if e.name.startswith(_NODE)), key=lambda e: e.start_ns):
            starts, ends = self._reached.setdefault(event.thread, ([], []))
            starts.append(event.start_ns)
            ends.append(max(event.start_ns + event.duration_ns, ends[-1] if ends else 0))

    def holds(self, event: HostEvent) -> bool:
        """Whether the event lies in one."""
        starts, ends = self._reached.get(event.thread, ([], []))
        place = bisect_right(starts, event.start_ns) - 1
        return place >= 0 and event.start_ns < ends[place]


def _ranges(events: Sequence[HostEvent], process: int) -> pa.Table:
    backward = _Backward(events)
    shown = [event.is_range and not event.name.startswith((LAYER_RANGE, _OPTIMIZER_RANGE)) for event in events]
    columns = {
        "name": [_name(event, backward) for event in events],
        "start_ns": [event.start_ns for event in events],
        "end_ns": [event.start_ns + event.duration_ns for event in events],
        "process": [process] * len(events),
        "thread": [event.thread for event in events],
        "thread_key": [(process << 32) + event.thread for event in events],
        "domain": [None if own else TORCH_DOMAIN for own in shown],
        "kind": ["push_pop"] * len(events),
        "shown": shown,
        "source": ["torch"] * len(events),
    }
    return pa.Table.from_pydict(columns, _RANGES)


def _name(event: HostEvent, backward: _Backward) -> str:
    """The name of a range of the program as it is, of an operator as emit_nvtx would give it."""
    name = event.name
    if name.startswith(LAYER_RANGE) and not backward.holds(event):  # a module called in it computes anew
        return FORWARD_RANGE + name.removeprefix(LAYER_RANGE)
    if not event.is_range:
        name += f", seq = {event.sequence}" if event.sequence >= 0 else ""
        name += f", sizes = {json.dumps(event.shapes)}" if event.name.startswith(_SIZED) else ""
    return name
