"""Reads tree files of Proton, Triton's profiler (format `hatchet`; JSON of `proton.finalize`, also
of vLLM's workers).

A node is a scope, a Python frame or a kernel, with the sum of its own launches: there is no
timeline, and a launch has the mean duration. Scopes are layers, phases and operators like ranges. A
kernel of a CUDA graph lies under `<captured_at>` and the scopes of its capture, which count
(triton-lang/triton, third_party/proton/csrc).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from ...base.errors import CurvescopeError
from ..attribution.nesting import Ints
from ..attribution.profile import Options, describe_steps
from ..attribution.range_names import LONGEST_NAME, RangeNames, scrub
from ..recording.schema import KERNELS
from ..recording.store import RecordingWriter
from .ncu_csv import memory_rate
from .source import Source
from .values import whole

NAME = "Proton tree JSON"

_KEYS = ('"frame"', '"metrics"', '"children"')
_CAPTURED = "<captured_at>"
_HELPERS = "__proton_launch_metadata"  # kernels that compute metrics of others
_PYTHON_FRAME = re.compile(r"(?P<file>.+):(?P<function>[^:@]+)@(?P<line>\d+)")
_MOST_BYTES = 1 << 30
_MOST = 1 << 50  # ns or launches of a kernel
_MOST_LAUNCHES = 1 << 22
_MISSING = {
    "timeline": "Proton adds up the launches of a kernel: durations are means, and there are no "
    "start times",
    "steps": "no timeline, so no steps",
}


class _Frame(msgspec.Struct):
    name: str = "?"


class _Node(msgspec.Struct):
    frame: _Frame = msgspec.field(default_factory=_Frame)
    metrics: dict[str, Any] = {}
    children: list[_Node] = []


def recognises(source: Source) -> bool:
    return source.text.startswith("[") and all(key in source.text for key in _KEYS)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    described: dict[str, dict[str, dict[str, Any]]] = {}
    try:
        data = source.read_all(_MOST_BYTES)
        root, *devices = msgspec.json.decode(data, type=list[msgspec.Raw])
        tree = msgspec.json.decode(root, type=_Node)
        if devices:
            described = msgspec.json.decode(devices[0], type=dict[str, dict[str, dict[str, Any]]])
    except (msgspec.DecodeError, ValueError) as error:
        raise CurvescopeError(
            f"its JSON is no tree of Proton ({error}); record it again."
        ) from error
    lost: Counter[str] = Counter()
    rows = list(_kernels(tree, options.names, lost))
    counts = np.array([row.pop("count") for row in rows], np.int64)
    if not len(counts):
        raise CurvescopeError(
            "the tree has no kernel; start Proton before the kernels run, and finalize after them."
        )
    if counts.sum() > _MOST_LAUNCHES:
        raise CurvescopeError(
            f"it has {counts.sum():,} launches, more than {_MOST_LAUNCHES:,}; record fewer steps "
            "with proton.activate and proton.deactivate."
        )
    row_of_launch = np.repeat(np.arange(len(rows)), counts)
    launches = pa.Table.from_pylist(rows, KERNELS.arrow).take(pa.array(row_of_launch))
    at = KERNELS.arrow.get_field_index("duration_ns")
    durations = pa.array(_durations(rows, counts))
    writer.write("kernels", launches.set_column(at, "duration_ns", durations))
    for name, count in lost.items():
        writer.count_lost(name, count)
    device = _device(described, rows[0]["device"])
    writer.update(missing=_MISSING, profiler={"name": "Proton"}, device=device)
    describe_steps(writer, [], None)


def _kernels(root: _Node, names: RangeNames, lost: Counter[str]) -> Iterator[dict[str, Any]]:
    """Every node with time of its own: its name, its place among the scopes around it, and its
    sums.
    """
    pending: list[tuple[_Node, tuple[str, ...]]] = [(root, ())]
    while pending:
        node, around = pending.pop()
        name = node.frame.name
        metrics = node.metrics
        inside = around
        if node is not root:
            inside = () if name == _CAPTURED else (*around, name)
        pending += [(child, inside) for child in reversed(node.children)]
        has_time = metrics.get("time (ns)") or metrics.get("count")
        if node is root or not has_time:
            continue
        time_ns = whole(metrics.get("time (ns)"), _MOST)
        count = whole(metrics.get("count"), _MOST)
        if time_ns is None or not count:
            lost["rows_unreadable"] += 1
            continue
        flops = []
        for key, amount in metrics.items():
            if re.fullmatch(r"flops\d*", key) and _is_amount(amount):
                flops.append(amount)
        moved = metrics.get("bytes")
        size = None
        if moved is not None and _is_amount(moved):
            size = round(moved / count)
        yield {
            **_place(around, names),
            "name": scrub(name),
            "count": count,
            "duration_ns": time_ns,
            "device": whole(metrics.get("device_id")),
            "flops": round(sum(flops) / count) if flops else None,
            "bytes_compulsory": size,
            "source": "proton",
        }


def _place(around: Sequence[str], names: RangeNames) -> dict[str, str | None]:
    """Layer, phase and operator by the scopes around a kernel, outermost first; a Python frame is
    an operator.
    """
    layers: list[str] = []
    phase: str | None = None
    op: str | None = None
    for name in around:
        if frame := _PYTHON_FRAME.fullmatch(name):
            file = frame["file"].rpartition("/")[2]
            op = f"{frame['function']} ({file}:{frame['line']})"
            continue
        meaning = names.read(name)
        if name.partition(":")[0] == _HELPERS:
            op = _HELPERS
        elif meaning.layer is not None:
            layers = [meaning.layer] if meaning.whole_layer else [*layers, meaning.layer]
        phase = meaning.phase or phase
        op = op or meaning.op
    layer = scrub("/".join(layers), LONGEST_NAME) or None
    return {"layer": layer, "phase": phase, "op": op}


def _durations(rows: Sequence[dict[str, Any]], counts: Ints) -> Ints:
    """The mean of each node for each of its launches, in whole nanoseconds that add up
    to its sum.
    """
    sums = np.array([row["duration_ns"] for row in rows], np.int64)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    number = np.arange(counts.sum()) - first
    rest = np.repeat(sums % counts, counts)
    durations: Ints = np.repeat(sums // counts, counts) + (number < rest)
    return durations


def _device(
    described: dict[str, dict[str, dict[str, Any]]], number: int | None
) -> dict[str, Any] | None:
    """Facts of the device with the first kernel; Proton tells no name.

    Clocks are in kHz, the bus in bits.
    """
    for kind, by_number in described.items():
        facts = by_number.get(str(number))
        if facts is None:
            continue
        arch = str(facts.get("arch", ""))
        capability = arch or None
        if arch.isdecimal() and len(arch) > 1:
            capability = f"{arch[:-1]}.{arch[-1]}"
        clock = whole(facts.get("clock_rate"))
        memory_clock = whole(facts.get("memory_clock_rate"))
        return {
            "name": f"{kind} {capability}",
            "compute_capability": capability,
            "sm_count": whole(facts.get("num_sms")),
            "clock_hz": None if clock is None else clock * 1000,
            "memory_bytes_per_s": memory_rate(memory_clock, whole(facts.get("bus_width"))),
        }
    return None


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18
