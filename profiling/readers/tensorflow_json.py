"""Reads timelines of TensorFlow 1 and trace.json(.gz) of TensorFlow 2 and JAX.

TensorFlow 1 (`timeline.Timeline`) has one session run, so one step, and each kernel of a GPU under
its stream and under `stream:all`; without a GPU the operators on the CPU are the kernels.
TensorFlow 2 and JAX have kernels in a device's streams (`Stream #7(Compute)`), and steps are host
events with a `step_num`, else the line `Steps` of a device, else the calls of the one module that
its line `XLA Modules` has most of. A kernel that names no scope has the scope of its time in the
line `TensorFlow Ops`. Without a device, events that name an HLO instruction are the kernels.

Of the host, the tracer's functions of Python are read (`$train.py:29 update`); what calls and runs
compiled functions, and what gets the next batch, as ranges; and waits for the device, as calls.

Layers are the paths of scopes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa

from ...base.budget import Budget
from ...base.errors import CurvescopeError
from ..attribution.assemble import assemble
from ..attribution.framework_scopes import KERAS_OPTIMIZERS, read_scopes
from ..attribution.profile import Profile, profile_of_tables, table_of_rows
from ..attribution.range_names import ANNOTATION, LONGEST_NAME, name_forward, scrub
from ..recording.store import RecordingWriter
from . import Options
from .source import Source
from .trace_events import Event, TraceEvents
from .values import LATEST_NS, MOST_U64, nanoseconds, read_extents, signed, whole

NAME = "TensorFlow or JAX trace"

_MARKS = (
    '"/device:',
    '"/host:CPU',
    '"/job:',
    '"Allocators"',
    '"highres-ticks"',
    '"kernel_details"',
)
# The arguments of an event that are read; a profile may have thousands.
FACTS = frozenset(
    {
        "correlation_id",
        "hlo_module",
        "hlo_op",
        "kernel_details",
        "long_name",
        "memcpy_details",
        "name",
        "op",
        "program_id",
        "step_num",
        "tf_op",
    }
)
_TF1_PROCESS = re.compile(
    r"/(?:device:)?(?P<device>[cg]pu):(?P<index>\d+)(?:/stream:(?P<stream>\S+))? Compute",
    re.IGNORECASE,
)
_DEVICE = re.compile(r"/device:(?:GPU|TPU):(\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
# The word boundary avoids quadratic time in long words.
_DETAILS = re.compile(r"\b(\w+):([\w.,]+)")
_COPIES = {"H2D": "HtoD", "HtoD": "HtoD", "D2H": "DtoH", "DtoH": "DtoH"}
_COPIES |= {"D2D": "DtoD", "DtoD": "DtoD", "P2P": "PtoP"}
_SCOPES, _STEPS, _MODULES = "TensorFlow Ops", "Steps", "XLA Modules"  # lines of a device
_LEAST_CALLS, _MOST_OF = 3, 0.8  # of a module whose calls are steps: their number, and of the time
_PYTHON = re.compile(r"\$(?:(?P<file>\S+):(?P<line>\d+) )?(?P<function>.+)")
_LEAST_FUNCTION_NS = 100_000  # a shorter function of Python explains no gap that is worth a line
_RUNTIME = re.compile(r"PjitFunction\(|\w*Execut|\w*Compil|IteratorGetNext")
_WAIT = re.compile(r"(?:\$\S+ )?(block_until_ready|BlockHostUntilReady)$")
_STEPS_THREAD = -2  # stands for the thread of steps that the first device names
_EXECUTORS = "tf_Compute/"  # threads of a CPU that run TensorFlow's operators, as `path:operator`
_NODE = re.compile(r"(?P<path>[\w.][\w./>-]*):(?P<op>\w+)")
_FUNCTION_CALL = re.compile(r"(Stateful)?PartitionedCall(_\d+)?")
_VARIABLE_OPS = ("ReadVariableOp", "AssignVariableOp", "AssignSubVariableOp", "AssignAddVariableOp")
_OPERATOR_PIECE = re.compile(r"[A-Z]\w*|convolution(_\d+)?")
_NUMBER = re.compile(r"_\d+$")


def recognises(source: Source) -> bool:
    return (
        source.text.startswith("{")
        and '"traceEvents"' in source.text
        and any(mark in source.text for mark in _MARKS)
    )


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    trace = FrameworkTrace(source.budget)
    events = TraceEvents(source, Event, options.report)
    for batch in events:
        for event in batch:
            trace.take(event)
    trace.lost.update(events.lost)
    write_trace(trace, writer, options)


def write_trace(trace: FrameworkTrace, writer: RecordingWriter, options: Options) -> None:
    """Write a complete trace; raises `CurvescopeError` if it has no kernel and no operator."""
    profile, missing = trace.profile()
    writer.update(missing=missing, profiler={"name": "JAX" if trace.is_jax else "TensorFlow"})
    for name, count in trace.lost.items():
        writer.count_lost(name, count)
    trace.budget.take_texts(row["name"] for row in trace.functions)
    if trace.functions:
        rows = [{**row, "source": profile.source} for row in trace.functions]
        writer.write("functions", pa.Table.from_pylist(rows))
    assemble(profile, writer, options)


_Rows = list[dict[str, Any]]
_Key = TypeVar("_Key")


class FrameworkTrace:
    """The events of TensorFlow's or JAX's profiler, from JSON or an XSpace."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.lost: Counter[str] = Counter()
        self.is_jax = False
        self.processes: dict[Any, str] = {}
        self.threads: dict[Any, str] = {}
        # Names of processes may follow their events, so events are assigned to devices at the end.
        # event, whose args are a dict, start and end in ns
        self.events: list[tuple[Event, int, int]] = []
        self.functions: _Rows = []  # of Python, on the host

    def take(self, event: Event) -> None:
        """Store an event of JSON that may be needed."""
        if event.ph == "M":
            args = event.args if isinstance(event.args, dict) else {}
            name = args.get("name")
            if isinstance(name, str) and _hashable(event.pid, event.tid):
                if event.name == "process_name":
                    self.processes[event.pid] = name
                elif event.name == "thread_name":
                    self.threads[event.pid, event.tid] = name
        elif event.ph == "X":
            try:
                start = nanoseconds(event.ts)
                duration = nanoseconds(event.dur)
            except (TypeError, ValueError, OverflowError):
                self.lost["events_unreadable"] += 1
                return
            if not isinstance(event.name, str) or not _hashable(event.pid, event.tid):
                self.lost["events_unreadable"] += 1
                return
            if not isinstance(event.args, dict):
                event.args = {}
            self.events.append((event, start, start + duration))

    def profile(self) -> tuple[Profile, dict[str, str]]:
        """The neutral tables, and sentences about missing data by name."""
        first = any(map(_TF1_PROCESS.search, self.processes.values()))
        kernels, launches, ranges = self._timeline() if first else self._trace()
        memory = [row for row in kernels if "kind" in row]
        kernels = [row for row in kernels if "kind" not in row]
        # A name or scope may have any length, and many kernels share it.
        self.budget.take_texts(row[name] for row in kernels for name in ("name", "layer", "op"))
        if not kernels and not memory:
            raise CurvescopeError(
                "it has no operator or kernel; record with the device profiler on."
            )
        name_forward(kernels)
        missing = {}
        if not any(row.get("device") is not None for row in kernels):
            missing["device"] = "no event of a device in it, only operators of the host"
        if kernels and not any(row["layer"] for row in kernels):
            what = "operator" if "device" in missing else "kernel, and no line of its device,"
            missing["layers"] = f"no {what} names a scope: layer and phase are unknown"
        source = "jax" if self.is_jax else "tensorflow"
        return profile_of_tables(
            source, *map(table_of_rows, (ranges, launches, kernels, memory))
        ), missing

    def _timeline(self) -> tuple[_Rows, _Rows, _Rows]:
        """Device work of TensorFlow 1; no launches and ranges."""
        lines = {}  # device, its number, stream
        for pid, name in self.processes.items():
            match = _TF1_PROCESS.search(name)
            if match:
                lines[pid] = (match["device"].lower(), int(match["index"]), match["stream"])
        streams = {stream for *_, stream in lines.values() if stream is not None}
        by_stream = streams != {"all"}
        ran = set(lines)
        if streams:
            ran = set()
            for pid, (*_, stream) in lines.items():
                if stream is not None and (stream != "all") == by_stream:
                    ran.add(pid)
        rows = []
        for event, start, end in self.events:
            if event.pid in ran:
                device, index, stream = lines[event.pid]
                node = str(event.args.get("name", ""))
                is_numbered = stream is not None and stream.isdecimal()
                row = {
                    **_name_kernel(event.name, node.partition(":")[0], event.args.get("op")),
                    "start_ns": start,
                    "end_ns": end,
                    "device": index if device == "gpu" else None,
                    "stream": int(stream) if is_numbered else _id(event.tid),
                }
                rows.append(row | _copy(event.name, {}))
        return rows, [], []

    def _trace(self) -> tuple[_Rows, _Rows, _Rows]:
        """Device work, launches and ranges of TensorFlow 2 and JAX."""
        kernels = []
        on_host = []
        launches = []
        ranges = []
        device_steps = []
        around: _Rows = []  # what the host does, beside steps
        modules: _Rows = []  # calls of XLA's modules on a device
        without_xla = []  # TensorFlow's operators on a CPU, if no module of XLA ran there
        scopes: dict[int, list[tuple[int, int, str]]] = {}  # by device: start, end, path
        devices = _numbers_in(self.processes, _DEVICE)
        lines = {key: name for key, name in self.threads.items() if key[0] in devices}
        streams = _numbers_in(lines, _STREAM)
        if not streams:  # a TPU has no streams, but one line of operators
            for number, (key, name) in enumerate(lines.items()):
                if name == "XLA Ops":
                    streams[key] = number
        for event, start, end in self.events:
            args = event.args
            self.is_jax = self.is_jax or _is_of_jax(args)
            key = event.pid, event.tid
            correlation = _id(args.get("correlation_id"))
            times = {"start_ns": start, "end_ns": end, "correlation_id": correlation}
            if key in streams:
                details = _details(str(args.get("kernel_details", args.get("memcpy_details", ""))))
                named = _name_kernel(event.name, _path(args), args.get("hlo_op"))
                row = {**named, **times, "device": devices[event.pid], "stream": streams[key]}
                kernels.append(row | _shape(details) | _copy(event.name, details))
            elif lines.get(key) == _SCOPES:
                # A short name, e.g. MatMul, stands for the path of a scope.
                path = _path({"tf_op": args.get("long_name", event.name), **args})
                scopes.setdefault(devices[event.pid], []).append((start, end, path or event.name))
            elif lines.get(key) in (_STEPS, _MODULES):
                own = dict.fromkeys(("thread", "thread_key"), _STEPS_THREAD - devices[event.pid])
                row = {**times, **own, "kind": "push_pop"}
                if lines[key] == _STEPS:
                    device_steps.append({**row, "name": f"step {event.name}"})
                else:
                    modules.append({**row, "name": event.name})
            elif event.pid not in devices:
                thread = dict.fromkeys(("thread", "thread_key"), _id(event.tid))
                self._take_function(event, start, end)
                if "step_num" in args:
                    name = f"step {args['step_num']}"
                    ranges.append({**times, **thread, "name": name, "kind": "push_pop"})
                elif correlation is not None:
                    launches.append({**times, **thread, "name": scrub(event.name) or "?"})
                elif waits := _WAIT.match(event.name):
                    launches.append({**times, **thread, "name": waits[1]})
                elif "hlo_op" in args:
                    named = _name_kernel(event.name, _path(args), args.get("hlo_op"))
                    on_host.append({**named, **times, "stream": _id(event.tid)})
                elif self.threads.get(key, "").startswith(_EXECUTORS) and (
                    node := _node(str(args.get("long_name", "")))
                ):
                    named = _name_kernel(event.name, _node_path(**node.groupdict()), node["op"])
                    without_xla.append({**named, **times, "stream": _id(event.tid)})
                elif _RUNTIME.match(event.name):
                    row = {**times, **thread, "name": scrub(event.name), "kind": "push_pop"}
                    around.append({**row, "role": ANNOTATION})
        for of_device in scopes.values():
            of_device.sort()
        for row in kernels:
            if row["layer"] is None:
                path = _scope_at(row["start_ns"], scopes.get(row["device"], []))
                if path:
                    row |= _name_kernel(row["name"], path, row["op"])
        if device_steps and not ranges:
            # Times of the device, which hold its work by when it ran: that was launched before.
            ranges = _steps_of_devices(device_steps)
            launches = []
        elif not ranges and (calls := _calls_of_main(modules)):
            ranges = _steps_of_devices(calls)
            launches = []
        return kernels or on_host or without_xla, launches, ranges + around

    def _take_function(self, event: Event, start: int, end: int) -> None:
        """Keep a long function of Python, by the name that the PyTorch profiler would give it."""
        match = _PYTHON.fullmatch(event.name)
        if match is None or end - start < _LEAST_FUNCTION_NS:
            return
        place = f"{match['file']}({match['line']}): " if match["file"] else ""
        name = scrub(f"{place}{match['function']}", LONGEST_NAME)
        row = {"name": name, "start_ns": start, "duration_ns": end - start}
        self.functions.append({**row, "thread": _id(event.tid)})


def _calls_of_main(modules: _Rows) -> _Rows:
    """The calls of the one module that takes most of the time of a device, as steps; empty without
    one.
    """
    times: Counter[str] = Counter()
    for row in modules:
        times[row["name"]] += row["end_ns"] - row["start_ns"]
    if not times:
        return []
    (main, time_ns), *_ = times.most_common(1)
    calls = [row for row in modules if row["name"] == main]
    if len(calls) < _LEAST_CALLS or time_ns < _MOST_OF * times.total():
        return []
    return [{**row, "name": f"step {number}"} for number, row in enumerate(calls)]


def _steps_of_devices(steps: _Rows) -> _Rows:
    """Steps that devices name: all, if one follows the other; else the device that has most counts,
    e.g. where every device has its part of a step.
    """
    ordered = sorted(steps, key=lambda row: (row["start_ns"], row["end_ns"]))
    if all(before["end_ns"] <= after["start_ns"] for before, after in pairwise(ordered)):
        no_thread = dict.fromkeys(("thread", "thread_key"), _STEPS_THREAD)
        return [{**row, **no_thread} for row in ordered]
    count = Counter(row["thread"] for row in steps)
    most = max(count, key=lambda thread: (count[thread], thread))
    return [row for row in steps if row["thread"] == most]


def _scope_at(start_ns: int, scopes: Sequence[tuple[int, int, str]]) -> str:
    """The path of the scope in which a kernel starts; empty without one.

    Scopes: start, end and path, by start.
    """
    at = bisect_right(scopes, start_ns, key=lambda scope: scope[0]) - 1
    if at >= 0 and start_ns < scopes[at][1]:
        return scopes[at][2]
    return ""


# Events of one kind share their texts, of which each is read once.
@lru_cache(maxsize=1 << 14)
def _details(text: str) -> Mapping[str, str]:
    """The facts of a launch or a copy, by name."""
    return dict(_DETAILS.findall(text))


@lru_cache(maxsize=1 << 14)
def _node(text: str) -> re.Match[str] | None:
    return _NODE.fullmatch(text)


def _path(args: Mapping[str, Any]) -> str:
    """The scope path of a kernel: JAX gives it as `name`, TensorFlow as `tf_op`."""
    for key in ("name", "tf_op"):
        path = args.get(key)
        if isinstance(path, str) and "/" in path:
            return path.partition(":")[0]
    return ""


def _node_path(path: str, op: str) -> str:
    """The path of a node of TensorFlow's graph, without calls of functions, and the operator that
    reads a variable.
    """
    pieces = [piece for piece in path.split("/") if not _FUNCTION_CALL.fullmatch(piece)]
    if op in _VARIABLE_OPS and len(pieces) > 1 and _OPERATOR_PIECE.fullmatch(pieces[-2]):
        del pieces[-2]  # `conv1/BiasAdd/ReadVariableOp`
    if pieces:
        first = _NUMBER.sub("", pieces[0])  # of a second call: `sgd_1`
        pieces[0] = first if first in KERAS_OPTIMIZERS else pieces[0]
    return "/".join(pieces)


def _name_kernel(kernel: str, path: str, op: Any) -> Mapping[str, Any]:
    """Columns name, layer, phase and op."""
    return _name_by_texts(kernel, path, op if isinstance(op, str) else None)


def _numbers_in(names: Mapping[_Key, str], pattern: re.Pattern[str]) -> dict[_Key, int]:
    """The numbers in names that match."""
    numbers = {}
    for key, name in names.items():
        match = pattern.search(name)
        if match is not None:
            numbers[key] = int(match[1])
    return numbers


def _is_of_jax(args: Mapping[str, Any]) -> bool:
    module = str(args.get("hlo_module", ""))
    return module.startswith(("jit_", "pmap_")) or "jit(" in str(args.get("name", ""))


@lru_cache(maxsize=1 << 14)
def _name_by_texts(kernel: str, path: str, op: str | None) -> Mapping[str, Any]:
    layer, phase, kind = read_scopes(path, op)
    return {
        "name": scrub(kernel) or "?",
        "layer": scrub(layer) or None if layer else None,
        "phase": phase,
        "op": None if kind is None else scrub(kind),
    }


def _copy(name: str, details: Mapping[str, str]) -> dict[str, Any]:
    """Columns of a memcpy or memset; none for a kernel."""
    lowered = name.lower()
    if not lowered.startswith(("memcpy", "memset")):
        return {}
    copies = lowered.startswith("memcpy")
    memcpy_kind = next(
        (kind for short, kind in _COPIES.items() if copies and short.lower() in lowered), None
    )
    size = whole(details.get("size", details.get("num_bytes")), LATEST_NS - 1)
    return {"kind": lowered[:6], "memcpy_kind": memcpy_kind, "bytes": size}


def _shape(details: Mapping[str, str]) -> dict[str, Any]:
    """Columns of a kernel's launch."""
    columns: dict[str, Any] = {"registers_per_thread": whole(details.get("regs"))}
    static = whole(details.get("static_shared"))
    dynamic = whole(details.get("dynamic_shared"))
    if static is not None and dynamic is not None:
        columns["shared_memory_bytes"] = static + dynamic
    for what in ("grid", "block"):
        extents = details.get(what, "").split(",")
        if len(extents) == 3:
            columns |= read_extents(what, extents)
    return columns


def _id(value: Any) -> int | None:
    number = whole(value, MOST_U64)
    return None if number is None else signed(number)


def _hashable(*values: Any) -> bool:
    return all(value is None or isinstance(value, (int, str, float)) for value in values)
