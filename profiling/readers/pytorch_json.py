"""The PyTorch profiler's JSON, in the spellings of its versions (`Kernel` and `kernel`, `Operator` and `cpu_op`).

A runtime call takes its place among the operators of its thread by time, and gives it to the device work that carries
its correlation id. Steps are the profiler's `ProfilerStep#` marks. The host runs ahead of the device, so a step's
window reaches from its mark, or the end of the step before it, to the end of the device work launched in it: windows
do not overlap. Call stacks, file names and process names are not read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..errors import CurvescopeError
from ..recorders.events import LAYER_RANGE, PHASE_RANGE, DeviceEvent, HostEvent, kernel_rows
from ..schema import TABLES
from ..store import RecordingWriter
from ..visit import count_work
from . import Options, describe_steps
from .source import Source
from .steps import MARKS
from .trace_events import LOST as REPAIRED
from .trace_events import Event, TraceEvents, nanoseconds

NAME = "PyTorch profiler JSON"

_STEP_MARK = "ProfilerStep#"
_MODULE = "nn.Module: "
_OPTIMIZER = "Optimizer.step#"
# Old versions write annotations of the framework itself among the operators.
_ANNOTATIONS = (_STEP_MARK, "Optimizer.", "enumerate(DataLoader)")
_COPY_KINDS = {"HtoD": "host_to_device", "DtoH": "device_to_host", "DtoD": "device_to_device", "PtoP": "peer"}
# Operators whose operand of this place has the batch as its first extent.
_BATCH_OPERAND = {f"aten::{name}": 0 for name in ("conv1d", "conv2d", "conv3d", "convolution", "linear", "matmul")}
_BATCH_OPERAND |= {"aten::mm": 0, "aten::addmm": 1}
_LOST = REPAIRED | {
    "device_work_without_launch": "kernels, copies and sets whose runtime call was not recorded; operator is unknown",
    "device_work_without_operator": "kernels, copies and sets launched outside every operator; layer and phase unknown",
    "device_work_outside_steps": "kernels, copies and sets that belong to no ProfilerStep mark; no step counts them",
    "device_work_cut_by_steps": "kernels, copies and sets that reach into another step's time; the step cuts them off",
    "backward_without_forward": "backward nodes whose forward operator was not recorded; their layer is unknown",
    "counter_ranges": "kernels replayed for counters, without a time of their own; they are left out",
}


@dataclass
class _Events:
    host: list[HostEvent] = field(default_factory=list)
    device: list[DeviceEvent] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)  # start and end
    processes: set[Any] = field(default_factory=set)
    lost: Counter[str] = field(default_factory=Counter)


def recognises(source: Source) -> bool:
    """Whether it starts like a JSON trace."""
    keys = ('"traceEvents"', '"schemaVersion"', '"deviceProperties"')
    return source.text.startswith("{") and any(key in source.text for key in keys)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the whole file; every step counts as profiled.

    Args:
        source: the JSON text.
        writer: takes the tables.
        options: the batch size is that of the first convolution or product of each step if not given.

    Raises:
        CurvescopeError: broken JSON, no trace of this profiler, or several processes in one file.
    """
    events = _Events()
    trace = TraceEvents(source, options.report)
    for piece in trace:
        for event in piece:
            if event.ph == "X":
                try:
                    _take(event, events)
                except (AttributeError, LookupError, OverflowError, TypeError, ValueError):
                    events.lost["events_unreadable"] += 1
    events.lost.update(trace.lost)
    if not (events.host or events.device):
        raise CurvescopeError("no event of the PyTorch profiler in it; other Chrome traces are not read.")
    if len(events.processes) > 1:
        raise CurvescopeError("it merges several processes; import the file of each rank by itself.")
    _write(events, trace.document.get("deviceProperties"), writer, options)


def _take(event: Event, events: _Events) -> None:
    category, name = str(event.cat or "").lower(), event.name
    if not isinstance(name, str):
        raise TypeError(name)
    if category == "cuda_profiler_range":
        events.lost["counter_ranges"] += 1
        return
    if category in ("operator", "cpu_op", "user_annotation", "python_function"):
        if category == "python_function" and not name.startswith(_MODULE):
            return
        _take_host(event, category, events)
    elif category in ("runtime", "cuda_runtime", "cuda_driver"):
        start, duration, thread = _ns(event.ts), _ns(event.dur), _number(event.tid)
        correlation, process = int(event.args["correlation"]), event.pid
        events.host.append(HostEvent(name, start, duration, thread, correlation_id=correlation))
        call = {"name": name, "start_ns": start, "duration_ns": duration, "thread": thread, "source": "torch"}
        events.calls.append({**call, "correlation_id": correlation})
        events.processes.add(process)
    elif category in ("kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset"):
        args = event.args
        columns = _launch(args) if category == "kernel" else _copy(name, category, args)
        start, duration, correlation = _ns(event.ts), _ns(event.dur), int(args["correlation"])
        place = int(args["device"]), int(args["stream"])
        events.device.append(DeviceEvent(name, start, duration, *place, correlation, correlation, columns))


def _take_host(event: Event, category: str, events: _Events) -> None:
    name, args = event.name, event.args if event.args is not None else {}
    start, duration, thread = _ns(event.ts), _ns(event.dur), _number(event.tid)
    events.processes.add(event.pid)
    if name.startswith(_MODULE):
        name = LAYER_RANGE + name.removeprefix(_MODULE)
        events.host.append(HostEvent(name, start, duration, thread, is_range=True))
    elif category == "user_annotation" or name.startswith(_ANNOTATIONS):
        row = {"name": name, "start_ns": start, "duration_ns": duration, "thread": thread}
        events.ranges.append({**row, "kind": "push_pop", "source": "torch"})
        if name.startswith(_STEP_MARK):
            events.marks.append((start, start + duration))
        label = PHASE_RANGE + "optimizer" if name.startswith(_OPTIMIZER) else name
        events.host.append(HostEvent(label, start, duration, thread, is_range=True))
    else:
        sequence, forward_thread = int(args.get("Sequence number", -1)), int(args.get("Fwd thread id", 0))
        backward = forward_thread > 0 and sequence >= 0
        operator = HostEvent(
            name,
            start,
            duration,
            thread,
            is_backward=backward,
            sequence=sequence,
            forward_thread=forward_thread,
            shapes=_list(args, "Input Dims"),
            concrete=_list(args, "Concrete Inputs"),
            dtypes=_list(args, "Input type"),
            # Only an operator that autograd watches shows a number: it is part of the forward pass.
            phase="forward" if sequence >= 0 and not backward else None,
        )
        events.host.append(operator)


def _launch(args: Mapping[str, Any]) -> dict[str, Any]:
    columns = {
        "registers_per_thread": _whole(args, "registers per thread"),
        "shared_memory_bytes": _whole(args, "shared memory"),
    }
    for what in ("grid", "block"):
        if what in args:
            columns |= dict(zip((f"{what}_x", f"{what}_y", f"{what}_z"), map(int, args[what]), strict=True))
    return columns


def _copy(name: str, category: str, args: Mapping[str, Any]) -> dict[str, Any]:
    if category.endswith("memset"):
        return {"kind": "set", "bytes": _whole(args, "bytes")}
    kind = next((kind for short, kind in _COPY_KINDS.items() if short in name), None)
    return {"kind": "copy", "copy_kind": kind, "bytes": _whole(args, "bytes")}


def _whole(args: Mapping[str, Any], key: str) -> int | None:
    return int(args[key]) if args.get(key) is not None else None


def _list(args: Mapping[str, Any], key: str) -> list[Any]:
    found = args.get(key, [])
    if not isinstance(found, list):
        raise TypeError(found)
    return found


def _ns(microseconds: Any) -> int:
    time = nanoseconds(microseconds)
    if time < 0:
        raise ValueError(microseconds)
    return time


def _number(thread: int | str) -> int:
    return int(str(thread).split()[-1])


def _write(events: _Events, properties: Any, writer: RecordingWriter, options: Options) -> None:
    lost = events.lost
    host = _with_forward_threads(events.host, lost)
    called = {call["correlation_id"]: call for call in events.calls}
    on_device = bool(events.device or events.calls or lost["counter_ranges"])
    rows = kernel_rows(host, events.device, count_work=count_work, host_rows=not on_device).kernels
    steps, windows = _steps(events, rows if on_device else [], called, options.batch)
    starts = [start for start, _ in events.marks]
    memory: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    for row in rows:
        launch = called.get(row["correlation_id"]) if on_device else None
        step = _inside(starts, events.marks, launch["start_ns"] if launch else row["start_ns"])
        row["step"] = step
        if on_device:
            if launch is None:
                lost["device_work_without_launch"] += 1
            elif row["op"] == launch["name"]:
                row["op"] = None
                lost["device_work_without_operator"] += 1
            if step is None:
                lost["device_work_outside_steps"] += bool(starts)
            elif row["start_ns"] < windows[step][0] or row["start_ns"] + row["duration_ns"] > windows[step][1]:
                lost["device_work_cut_by_steps"] += 1
        (memory if "kind" in row else kernels).append(row)
    for row in [*events.calls, *events.ranges]:
        row["step"] = _inside(starts, events.marks, row["start_ns"])
    tables = {"kernels": kernels, "memory": memory, "launches": events.calls, "ranges": events.ranges}
    for table, found in tables.items():
        writer.write(table, pa.Table.from_pylist(found, TABLES[table].arrow))
    for name, count in lost.items():
        writer.count_lost(name, count, _LOST[name])
    writer.update(device=_device(properties, {event.device for event in events.device}))
    describe_steps(writer, steps, MARKS if steps else None)


def _with_forward_threads(host: Iterable[HostEvent], lost: Counter[str]) -> list[HostEvent]:
    """Replace the profiler's own numbers of forward threads by the threads that drew the same sequence numbers."""
    events = list(host)
    drawn: dict[int, set[int]] = {}
    taken: dict[int, set[int]] = {}
    for event in events:
        if event.sequence >= 0:
            threads, key = (taken, event.forward_thread) if event.is_backward else (drawn, event.thread)
            threads.setdefault(key, set()).add(event.sequence)
    thread_of = {n: max(drawn, key=lambda t: len(drawn[t] & numbers), default=0) for n, numbers in taken.items()}
    joined = []
    for event in events:
        if event.is_backward:
            event = event._replace(forward_thread=thread_of[event.forward_thread])
            lost["backward_without_forward"] += event.sequence not in drawn.get(event.forward_thread, ())
        joined.append(event)
    return joined


def _inside(starts: Sequence[int], marks: Sequence[tuple[int, int]], moment_ns: int) -> int | None:
    place = bisect_right(starts, moment_ns) - 1
    return place if place >= 0 and moment_ns < marks[place][1] else None


def _steps(
    events: _Events, rows: Iterable[Mapping[str, Any]], called: Mapping[int, Mapping[str, Any]], batch: int | None
) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """Rows of `steps`, and their windows as (start, end)."""
    marks = events.marks
    marks.sort()
    starts = [start for start, _ in marks]
    ends = [end for _, end in marks]
    for row in rows:
        launch = called.get(row["correlation_id"])
        if launch is not None and (step := _inside(starts, marks, launch["start_ns"])) is not None:
            ends[step] = max(ends[step], row["start_ns"] + row["duration_ns"])
    batches: dict[int, int] = {}
    phases: dict[int, set[str]] = {}
    for event in sorted(events.host, key=lambda e: (e.start_ns, -e.duration_ns)):
        step = _inside(starts, marks, event.start_ns)
        if step is None:
            continue
        seen = phases.setdefault(step, set())
        if event.is_backward:
            seen.add("backward")
        elif event.name == PHASE_RANGE + "optimizer":
            seen.add("optimizer")
        place = _BATCH_OPERAND.get(event.name)
        if step not in batches and place is not None and len(event.shapes) > place:
            shape = event.shapes[place]
            if isinstance(shape, list) and shape and isinstance(shape[0], int):
                batches[step] = shape[0]
    steps, windows, before = [], [], 0
    for step, (start, end) in enumerate(zip(starts, ends, strict=True)):
        start = max(start, before)
        before = end = max(start, end)
        windows.append((start, end))
        seen = phases.get(step, set())
        what = "training" if "optimizer" in seen else "forward+backward" if "backward" in seen else "forward"
        row = {"step": step, "batch": batch or batches.get(step), "repeat": 0, "index": step, "phase": what}
        steps.append({**row, "start_ns": start, "duration_ns": end - start, "profiled": True})
    return steps, windows


def _device(properties: Any, used: set[int]) -> dict[str, Any] | None:
    if isinstance(properties, list):
        for facts in properties:
            if isinstance(facts, dict) and isinstance(facts.get("id"), int) and facts["id"] in used:
                return {
                    "name": facts.get("name"),
                    "compute_capability": f"{facts.get('computeMajor')}.{facts.get('computeMinor')}",
                    "sm_count": facts.get("numSms"),
                    "memory_bytes": facts.get("totalGlobalMem"),
                }
    return None
