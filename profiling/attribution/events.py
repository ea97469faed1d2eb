"""From profiler events to kernel rows: nesting, layers, phases, and the backward pass joined by sequence number.

Pure functions over `HostEvent` and `DeviceEvent`; nothing here imports torch, so tests build the events by hand.

Rules, in the order they apply:
- A layer and a phase are the innermost enclosing ranges named `curvescope.layer:…` and `curvescope.phase:…`.
- A backward node carries the sequence number that its forward operator drew. Several forward operators may show the
  same number (one that made no node does not use it up): the last of them made the node, and gives it its layer.
- AccumulateGrad nodes carry no number; the engine runs them right after the node whose gradient they take, and they
  get its layer.
- The operator of a row is the outermost one around it; inside a call of torch.distributed it is that call, so that
  what communication costs beside its collectives (copies into buckets and back) is told from the layer it runs under.
- A host operator's own time, what its children and primitives leave of it, becomes rows of its own, so that the rows
  of one thread never overlap and with idle add up to the step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from ..collect.onednn import MklCall, VerboseLog

STEP_RANGE = "curvescope.step"
PHASE_RANGE = "curvescope.phase:"
LAYER_RANGE = "curvescope.layer:"
INPUT_PHASE = "input"

NODE_PREFIX = "autograd::engine::evaluate_function: "
# Collectives: they run on threads of their backend.
COLLECTIVES = ("gloo:", "nccl:")
# Calls of torch.distributed and of DDP's reducer, and collectives.
_COMMUNICATION = ("c10d::", "torch::distributed::", "torch.distributed.", *COLLECTIVES)
_BATCHED_OPERATORS = {"aten::bmm", "aten::baddbmm"}
_GEMM_OPERATORS = {f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "linear", "addmv", "mv", "dot")}


class HostEvent(NamedTuple):
    """One operator, autograd node or range on a host thread."""

    name: str
    start_ns: int
    duration_ns: int
    thread: int
    is_range: bool = False  # a user annotation: places what is inside it, is no work itself
    is_backward: bool = False
    sequence: int = -1  # -1: none
    forward_thread: int = 0
    correlation_id: int = 0
    shapes: Sequence[Any] = ()
    concrete: Sequence[Any] = ()
    dtypes: Sequence[str] = ()
    phase: str | None = None  # where the event itself tells it; else it comes from the ranges


class DeviceEvent(NamedTuple):
    """One kernel, copy or set on a device; `host_correlation_id` names the host operator that launched it."""

    name: str
    start_ns: int
    duration_ns: int
    device: int
    stream: int
    correlation_id: int
    host_correlation_id: int
    columns: Mapping[str, Any] = MappingProxyType({})  # further columns of its row


@dataclass(eq=False)
class _Node:
    """An event in its place: enclosing layer, phase, and outermost operator."""

    event: HostEvent
    end_ns: int
    parent: _Node | None
    layer: str | None
    phase: str | None
    source: str = "torch"
    children: list[_Node] = field(default_factory=list)

    @property
    def op(self) -> str:
        """The outermost operator around this one, without the engine's wrapper, or the call of torch.distributed."""
        node = self
        while not node.event.name.startswith(_COMMUNICATION):
            if node.parent is None or node.parent.event.is_range:
                break
            node = node.parent
        return node.event.name.removeprefix(NODE_PREFIX)

    def own_segments(self) -> list[tuple[int, int]]:
        """The stretches of this event that no child covers, as (start, end)."""
        segments, position = [], self.event.start_ns
        for child in self.children:
            if child.event.start_ns > position:
                segments.append((position, child.event.start_ns))
            position = max(position, child.end_ns)
        if position < self.end_ns:
            segments.append((position, self.end_ns))
        return segments


@dataclass
class StepRows:
    """Kernel rows of the steps that were watched, as dicts of schema columns.

    Attributes:
        kernels: rows for the `kernels` table, without `step`.
        windows: (start_ns, duration_ns) of each step, in order.
        lost: named counts of what could not be placed.
        inputs: (start_ns, duration_ns) of the ranges in which the steps fetched their batches.
    """

    kernels: list[dict[str, Any]]
    windows: list[tuple[int, int]]
    lost: dict[str, int]
    inputs: list[tuple[int, int]] = field(default_factory=list)


class Operation(NamedTuple):
    """An operator call whose work is counted once, on the largest of its rows."""

    name: str
    shapes: Sequence[Any]
    dtypes: Sequence[str]
    concrete: Sequence[Any]


CountWork = Callable[[Operation], tuple["int | None", "int | None"]]  # FLOPs and compulsory bytes


def kernel_rows(
    host: Iterable[HostEvent],
    device: Iterable[DeviceEvent] = (),
    verbose: VerboseLog | None = None,
    count_work: CountWork | None = None,
    host_rows: bool = True,
) -> StepRows:
    """Turn the events of some steps into kernel rows.

    Args:
        host: events of every host thread, any order; times on one clock, in nanoseconds.
        device: events of the device, if there is one, on the same clock.
        verbose: oneDNN primitives on the same clock, and MKL calls in order.
        count_work: gives the work of an operator call; without it nothing is counted.
        host_rows: whether host operators are the work itself (CPU), or only launch it (device).
    """
    nodes = _nest(host)
    _inherit_forward_layers(nodes)
    windows, inputs = (_windows(nodes, name) for name in (STEP_RANGE, PHASE_RANGE + INPUT_PHASE))
    lost: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    if host_rows:
        _place_primitives(nodes, verbose or VerboseLog(), lost)
        for node in nodes:
            if not node.event.is_range:
                rows.extend(_host_rows(node))
    rows.extend(_device_rows(device, nodes, lost))
    if count_work is not None:
        _attach_work(nodes, rows, count_work)
    for row in rows:
        del row["_node"]
    rows.sort(key=lambda row: row["start_ns"])
    return StepRows(rows, windows, lost, inputs)


def _windows(nodes: Sequence[_Node], name: str) -> list[tuple[int, int]]:
    return sorted((n.event.start_ns, n.event.duration_ns) for n in nodes if n.event.name == name)


def _nest(events: Iterable[HostEvent]) -> list[_Node]:
    """Nodes in order of start, each under the innermost event of its thread that contains it."""
    nodes: list[_Node] = []
    stacks: dict[int, list[_Node]] = {}
    for event in sorted(events, key=lambda e: (e.start_ns, -e.duration_ns)):
        stack = stacks.setdefault(event.thread, [])
        while stack and stack[-1].end_ns <= event.start_ns:
            stack.pop()
        parent = stack[-1] if stack else None
        end = event.start_ns + event.duration_ns
        if parent is not None:
            end = min(end, parent.end_ns)  # clocks are read one after the other; a child cannot outlast its parent
        phase = event.phase or (parent.phase if parent else None)
        node = _Node(event, end, parent, parent.layer if parent else None, phase)
        if event.is_range:
            if event.name.startswith(LAYER_RANGE):
                node.layer = event.name.removeprefix(LAYER_RANGE)
            elif event.name.startswith(PHASE_RANGE):
                node.phase = event.name.removeprefix(PHASE_RANGE)
        if parent is not None:
            parent.children.append(node)
        stack.append(node)
        nodes.append(node)
    return nodes


def _inherit_forward_layers(nodes: Sequence[_Node]) -> None:
    layer_of: dict[tuple[int, int], str | None] = {}
    for node in nodes:
        event = node.event
        if event.sequence >= 0 and not event.is_backward and not event.is_range:
            layer_of[event.thread, event.sequence] = node.layer
    last: dict[int, str | None] = {}
    for node in nodes:
        event, parent = node.event, node.parent
        if event.is_range:
            continue
        accumulates = "AccumulateGrad" in event.name
        if event.is_backward or accumulates:
            node.phase = "backward"
            if (event.forward_thread, event.sequence) in layer_of:
                node.layer = last[event.thread] = layer_of[event.forward_thread, event.sequence]
            elif accumulates:
                node.layer = last.get(event.thread)
        elif parent is not None and not parent.event.is_range:
            node.layer, node.phase = parent.layer, parent.phase


def _place_primitives(nodes: list[_Node], verbose: VerboseLog, lost: dict[str, int]) -> None:
    """Add primitives and MKL calls as the innermost children of the operators that ran them."""
    # A collective runs beside the operators and calls neither library: what begins after it is not inside it.
    operators = [n for n in nodes if not n.event.is_range and not n.event.name.startswith(COLLECTIVES)]
    starts = [n.event.start_ns for n in operators]
    placed: list[_Node] = []
    for primitive in verbose.primitives:
        parent = _innermost(operators, starts, primitive.start_ns + primitive.duration_ns // 2)
        if parent is None:
            _count(lost, "primitives_outside_operators")
            continue
        placed.append(_leaf(parent, primitive.name, primitive.start_ns, primitive.duration_ns, "onednn"))
    calls = list(verbose.mkl_calls)
    for node in operators:
        if not _is_gemm(node.event) or any(_is_gemm(child.event) for child in node.children):
            continue
        place = next((i for i, call in enumerate(calls) if _multiplies(node.event, call)), None)
        if place is not None:
            call = calls.pop(place)
            # The multiplication is the last thing its operator does; views and copies of operands come before it.
            placed.append(_leaf(node, call.name, node.end_ns - call.duration_ns, call.duration_ns, "mkl"))
    _count(lost, "mkl_calls_not_placed", len(calls))
    _count(lost, "primitives_without_time", verbose.untimed)
    nodes.extend(placed)


def _is_gemm(event: HostEvent) -> bool:
    return event.name in _GEMM_OPERATORS


def _multiplies(event: HostEvent, call: MklCall) -> bool:
    """Whether the call can be the operator's: batched for batched, and extents m, n, k of the shapes in any order.

    MKL prints the extents of a batched product as pointers: those go by order and by fitting into their operator.
    """
    if call.duration_ns > event.duration_ns:
        return False
    if "BATCH" in call.name:
        return event.name in _BATCHED_OPERATORS
    extents = {extent for shape in event.shapes if isinstance(shape, (list, tuple)) for extent in shape}
    return bool(call.sizes) and all(size in extents or size == 1 for size in call.sizes[:3])


def _innermost(operators: Sequence[_Node], starts: Sequence[int], moment_ns: int) -> _Node | None:
    node: _Node | None = None
    place = bisect_right(starts, moment_ns) - 1
    if place >= 0:
        node = operators[place]
    while node is not None and node.end_ns <= moment_ns:
        node = node.parent
    return node if node is not None and not node.event.is_range else None


def _leaf(parent: _Node, name: str, start_ns: int, duration_ns: int, source: str) -> _Node:
    """Add a library call under its operator, cut to the free stretch around its middle: rows never overlap."""
    middle = start_ns + duration_ns // 2
    low, high = parent.event.start_ns, parent.end_ns
    for child in parent.children:
        if child.event.start_ns <= middle:
            low = max(low, child.end_ns)
        else:
            high = min(high, child.event.start_ns)
    start = min(max(start_ns, low), parent.end_ns)
    end = max(min(start_ns + duration_ns, high), start)
    event = HostEvent(name, start, end - start, parent.event.thread, correlation_id=parent.event.correlation_id)
    node = _Node(event, end, parent, parent.layer, parent.phase, source)
    parent.children.append(node)
    parent.children.sort(key=lambda child: child.event.start_ns)
    return node


def _host_rows(node: _Node) -> Iterable[dict[str, Any]]:
    for start, end in node.own_segments():
        yield {
            "name": node.event.name.removeprefix(NODE_PREFIX),
            "start_ns": start,
            "duration_ns": end - start,
            "stream": node.event.thread,
            "correlation_id": node.event.correlation_id,
            "phase": node.phase,
            "layer": node.layer,
            "op": node.op,
            "source": node.source,
            "_node": node,
        }


def _device_rows(
    device: Iterable[DeviceEvent], nodes: Sequence[_Node], lost: dict[str, int]
) -> Iterable[dict[str, Any]]:
    launcher = {n.event.correlation_id: n for n in nodes if not n.event.is_range}
    for event in device:
        node = launcher.get(event.host_correlation_id) if event.host_correlation_id else None
        if node is None:
            _count(lost, "kernels_without_operator")
        yield {
            "name": event.name,
            "start_ns": event.start_ns,
            "duration_ns": event.duration_ns,
            "device": event.device,
            "stream": event.stream,
            "correlation_id": event.correlation_id,
            "phase": node.phase if node else None,
            "layer": node.layer if node else None,
            "op": node.op if node else None,
            "source": "torch",
            **event.columns,
            "_node": node,
        }


def _attach_work(nodes: Sequence[_Node], rows: Sequence[dict[str, Any]], count_work: CountWork) -> None:
    """Count each operator call once: at the outermost operator whose work is known, on its longest row."""
    counted: dict[int, tuple[int | None, int | None]] = {}
    owner: dict[int, int] = {}
    for node in nodes:  # parents come before their children
        parent = node.parent
        if parent is not None and id(parent) in owner:
            owner[id(node)] = owner[id(parent)]
        elif not node.event.is_range and node.event.shapes:
            event = node.event
            flops, size = count_work(Operation(event.name, event.shapes, event.dtypes, event.concrete))
            if flops is not None or size is not None:
                counted[id(node)] = (flops, size)
                owner[id(node)] = id(node)
    longest: dict[int, dict[str, Any]] = {}
    for row in rows:
        key = owner.get(id(row["_node"]))
        if key is not None and (key not in longest or row["duration_ns"] > longest[key]["duration_ns"]):
            longest[key] = row
    for key, row in longest.items():
        row["flops"], row["bytes_compulsory"] = counted[key]


def _count(lost: dict[str, int], name: str, count: int = 1) -> None:
    if count:
        lost[name] = lost.get(name, 0) + count
