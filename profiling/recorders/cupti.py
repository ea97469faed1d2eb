"""CUPTI's activity records of one process as rows of `kernels`, `launches`, `memory` and `clocks`.

GPU work joins the host by correlation id alone: to the call that launched it, and through that call's thread and time
to the layer that `curvescope.annotate` had open. Times are CUPTI's, moved to the host's monotonic clock by readings of
both clocks taken while the process ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..clocks import throttle_names
from ..cupti_facts import COPY_KINDS, LAUNCH_SHAPE
from .chunks import Integers, ProcessChunks, TablePart
from .nvtx import LayerRanges, split_layer

_PART_ROWS = 1 << 20  # of one Parquet part
_WAITS = {1: "event", 2: "stream_event", 3: "stream", 4: "context"}
_OVERHEADS = {
    0: "unknown",
    1: "driver_compiler",
    1 << 16: "cupti_buffer_flush",
    2 << 16: "cupti_instrumentation",
    3 << 16: "cupti_resource",
    4 << 16: "runtime_triggered_module_loading",
    5 << 16: "lazy_function_loading",
    6 << 16: "command_buffer_full",
    7 << 16: "activity_buffer_request",
    8 << 16: "uvm_activity_init",
}
_THROTTLE_UNSUPPORTED = 0x4000_0000
_SPEED, _TEMPERATURE, _POWER = 1, 2, 3
_ALLOCATION = 1
_NO_STREAM = 0xFFFF_FFFF


@dataclass
class Clock:
    """From CUPTI's clock to the host's monotonic one.

    Attributes:
        error_ns: half the widest pair of host readings around one of CUPTI's, plus the largest step of the offset
            between neighbouring samples; null without a sample, when times stay CUPTI's own.
    """

    samples: int
    error_ns: int | None
    _cupti_ns: Integers
    _offset_ns: Integers

    @classmethod
    def of(cls, process: ProcessChunks) -> Clock:
        """The clock that a process's samples tell."""
        table = process.table("clock")
        if not table.rows:
            return cls(0, None, np.zeros(0, np.int64), np.zeros(0, np.int64))
        cupti = table["cupti_ns"]
        order = np.argsort(cupti, kind="stable")
        offset = (table["host_ns"] - cupti)[order]
        steps = np.abs(np.diff(offset))
        error = int(table["error_ns"].max()) + int(steps.max(initial=0))
        return cls(table.rows, error, cupti[order], offset)

    def to_host(self, times_ns: Integers) -> Integers:
        """The times on the host's clock; 0, which stands for a time that is not known, stays."""
        if not self.samples:
            return times_ns
        first, base = self._cupti_ns[0], self._offset_ns[0]
        # Differences alone go through floating point, which holds no nanoseconds since 1970.
        moved = np.interp(times_ns - first, self._cupti_ns - first, self._offset_ns - base)
        return np.where(times_ns == 0, 0, times_ns + base + np.rint(moved).astype(np.int64))


class Launches:
    """The host calls of a process by correlation id, with the layer that each was made in."""

    def __init__(self, process: ProcessChunks, clock: Clock, layers: dict[int, LayerRanges]) -> None:
        table = process.table("calls")
        correlation, is_driver = table["correlation_id"], table["is_driver"]
        # A driver call inside a runtime call carries the same id: the outer one comes first.
        order = np.lexsort((is_driver, correlation))
        order = order[np.r_[True, np.diff(correlation[order]) != 0]] if len(order) else order
        self._correlation = correlation[order]
        self.starts_ns = clock.to_host(table["start_ns"])[order]
        threads = table["thread"][order]
        self._layers = np.full(len(order), -1)
        for thread, ranges in layers.items():
            here = threads == thread
            self._layers[here] = ranges.innermost(self.starts_ns[here])

    def find(self, correlation: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """The place of each id's call, and whether there is one."""
        if not len(self._correlation):
            return np.zeros(len(correlation), np.int64), np.zeros(len(correlation), bool)
        place = np.minimum(np.searchsorted(self._correlation, correlation), len(self._correlation) - 1)
        return place, self._correlation[place] == correlation

    def layers(self, place: Integers, found: npt.NDArray[np.bool_]) -> Integers:
        """Ids of the names of the layers' ranges, -1 where there was none."""
        if not len(self._layers):
            return np.full(len(place), -1)
        return np.where(found, self._layers[place], -1)


class ProcessTables:
    """The rows of one process, part by part, and what was found on the way.

    Attributes:
        lost: named counts of what could not be timed or joined.
    """

    def __init__(self, process: ProcessChunks, layers: dict[int, LayerRanges]) -> None:
        self._process = process
        self._clock = Clock.of(process)
        self._launches = Launches(process, self._clock, layers)
        self._layer_texts, self._phase_texts = self._name_layers(layers)
        self._early = 0
        self._earliest_ns = 0
        self.lost: dict[str, int] = {"cupti_untimed": 0, "cupti_unjoined": 0}

    def _name_layers(self, layers: dict[int, LayerRanges]) -> tuple[pa.Array, pa.Array]:
        """Layer and phase by the id of a range's name."""
        used = set(np.concatenate([np.zeros(0, np.int64), *(np.unique(r.names) for r in layers.values())]).tolist())
        split = [split_layer(name) if i in used else (None, None) for i, name in enumerate(self._process.names)]
        return pa.array([s[0] for s in split], pa.string()), pa.array([s[1] for s in split], pa.string())

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """(name of a table of the schema, rows), as often as there are parts."""
        p = self._process
        for part in p.parts("kernels", _PART_ROWS):
            yield "kernels", self._kernels(part)
        for part in p.parts("copies", _PART_ROWS):
            kinds = _words(part["copy_kind"], COPY_KINDS)
            yield "memory", self._transfers(part, "copy", kinds)
        for part in p.parts("sets", _PART_ROWS):
            yield "memory", self._transfers(part, "set", None)
        for part in p.parts("allocations", _PART_ROWS):
            yield "memory", self._allocations(part)
        waits = self._waits()
        for part in p.parts("calls", _PART_ROWS):
            yield "launches", self._calls(part, *waits)
        for part in p.parts("environment", _PART_ROWS):
            yield "clocks", self._environment(part)

    def facts(self) -> dict[str, Any]:
        """What `recording.json` says of the collector in this process; call it after `tables`."""
        p = self._process
        table = p.table("facts")
        found: dict[str, Any] = {"process": p.process}
        rows = zip(table["key"].tolist(), table["value"].tolist(), strict=True) if table.rows else ()
        for key, value in rows:
            name, text = p.names[key].replace(".", "_"), p.names[value]
            if name == "cupti_refused":
                found.setdefault(name, []).append(text)
            else:
                found[name] = int(text) if text.isdigit() else text
        if self._clock.samples:
            found["clock_samples"] = self._clock.samples
            found["clock_error_ns"] = self._clock.error_ns
        if self._early:
            # No kernel can start before the call that launches it: what CUPTI's own conversion is off at least.
            found["kernels_before_launch"] = self._early
            found["kernel_before_launch_ns"] = self._earliest_ns
        overheads = p.table("overheads")
        if overheads.rows:
            kinds, durations = overheads["kind"], overheads["duration_ns"]
            found["overhead_ns"] = {
                _OVERHEADS.get(kind, str(kind)): int(durations[kinds == kind].sum())
                for kind in np.unique(kinds).tolist()
            }
        return found

    def devices(self) -> list[dict[str, Any]]:
        """Facts of the devices, as the driver gives them."""
        table = self._process.table("devices")
        if not table.rows:
            return []
        _, first = np.unique(table["device"], return_index=True)
        columns = {name: table[name][first].tolist() for name in table.chunks[0]}
        major, minor = columns["compute_capability_major"], columns["compute_capability_minor"]
        return [
            {
                "kind": "cuda",
                "device": device,
                "name": self._process.names[columns["name"][i]],
                "compute_capability": f"{major[i]}.{minor[i]}",
                "sm_count": columns["sm_count"][i],
                "memory_bytes": columns["memory_bytes"][i],
                "memory_bandwidth_bytes_per_s": columns["memory_bandwidth_kbyte_per_s"][i] * 1000,
                "l2_bytes": columns["l2_bytes"][i],
                "sm_clock_hz": columns["sm_clock_khz"][i] * 1000,
                "shared_memory_per_sm_bytes": columns["shared_memory_per_sm_bytes"][i],
                "registers_per_sm": columns["registers_per_sm"][i],
                "warps_per_sm": columns["warps_per_sm"][i],
            }
            for i, device in enumerate(columns["device"])
        ]

    def _placed(self, part: TablePart) -> dict[str, Any]:
        """Columns that all device work shares."""
        start = self._clock.to_host(part["start_ns"])
        untimed = part["timed"] == 0
        correlation = part["correlation_id"]
        place, found = self._launches.find(correlation)
        layers = self._launches.layers(place, found)
        self.lost["cupti_untimed"] += int(untimed.sum())
        self.lost["cupti_unjoined"] += int((~found).sum())
        if found.any():
            early = np.where(found & ~untimed, self._launches.starts_ns[place] - start, 0)
            self._early += int((early > 0).sum())
            self._earliest_ns = max(self._earliest_ns, int(early.max()))
        at = pa.array(layers, mask=layers < 0)
        return {
            "start_ns": pa.array(start, mask=start == 0),
            "duration_ns": pa.array(part["duration_ns"], mask=untimed),
            "process": np.full(part.rows, self._process.process),
            "device": part["device"],
            "stream": part["stream"],
            "correlation_id": correlation,
            "layer": self._layer_texts.take(at),
            "phase": self._phase_texts.take(at),
            "source": pa.repeat("cupti", part.rows),
        }

    def _kernels(self, part: TablePart) -> pa.Table:
        graph = part["graph_id"]
        return pa.table(
            {
                "name": self._process.text(part["name"]),
                **self._placed(part),
                **{name: part[name] for name in (*LAUNCH_SHAPE, "shared_memory_bytes")},
                "graph_id": pa.array(graph, mask=graph == 0),
            }
        )

    def _transfers(self, part: TablePart, kind: str, copy_kinds: pa.Array | None) -> pa.Table:
        columns = {"kind": pa.repeat(kind, part.rows), "bytes": part["bytes"], **self._placed(part)}
        if copy_kinds is not None:
            columns["copy_kind"] = copy_kinds
        return pa.table(columns)

    def _allocations(self, part: TablePart) -> pa.Table:
        is_allocation = part["operation"] == _ALLOCATION
        time, stream = self._clock.to_host(part["time_ns"]), part["stream"]
        return pa.table(
            {
                "kind": pa.array(["free", "allocate"]).take(pa.array(is_allocation.astype(np.int8))),
                "start_ns": pa.array(time, mask=time == 0),
                "bytes": part["bytes"],
                "process": np.full(part.rows, self._process.process),
                "device": part["device"],
                "stream": pa.array(stream, mask=stream == _NO_STREAM),
                "correlation_id": part["correlation_id"],
                "address": part["address"],
                "source": pa.repeat("cupti", part.rows),
            }
        )

    def _waits(self) -> tuple[Integers, pa.Array, Integers]:
        """Correlation ids in order, with what the call of each waits for."""
        table = self._process.table("waits")
        if not table.rows:
            return np.zeros(0, np.int64), pa.array([], pa.string()), np.zeros(0, np.int64)
        correlation, first = np.unique(table["correlation_id"], return_index=True)
        return correlation, _words(table["type"][first], _WAITS), table["stream"][first]

    def _calls(self, part: TablePart, waiting: Integers, words: pa.Array, streams: Integers) -> pa.Table:
        start = self._clock.to_host(part["start_ns"])
        correlation = part["correlation_id"]
        columns: dict[str, Any] = {
            "name": self._process.text(part["name"]),
            "start_ns": pa.array(start, mask=start == 0),
            "duration_ns": pa.array(part["duration_ns"], mask=part["timed"] == 0),
            "process": np.full(part.rows, self._process.process),
            "thread": part["thread"],
            "correlation_id": correlation,
            "return_value": part["return_value"],
            "source": pa.repeat("cupti", part.rows),
        }
        if len(waiting):
            place = np.minimum(np.searchsorted(waiting, correlation), len(waiting) - 1)
            no_wait = waiting[place] != correlation
            columns["waits_for"] = words.take(pa.array(place, mask=no_wait))
            columns["stream"] = pa.array(streams[place], mask=no_wait | (streams[place] == _NO_STREAM))
        return pa.table(columns)

    def _environment(self, part: TablePart) -> pa.Table:
        kind, first, second = part["kind"], part["first"], part["second"]
        reasons = part["throttle_reasons"]
        names = {bits: throttle_names(bits) for bits in np.unique(reasons).tolist() if not bits & _THROTTLE_UNSUPPORTED}
        speed = kind == _SPEED
        return pa.table(
            {
                "start_ns": self._clock.to_host(part["time_ns"]),
                "device": part["device"],
                "sm_clock_hz": pa.array(first * 1_000_000, mask=~speed),
                "memory_clock_hz": pa.array(second * 1_000_000, mask=~speed),
                "power_w": pa.array(first / 1000, mask=kind != _POWER),
                "temperature_c": pa.array(first.astype(float), mask=kind != _TEMPERATURE),
                "throttle_reasons": pa.array(
                    [names.get(bits) if s else None for bits, s in zip(reasons.tolist(), speed.tolist(), strict=True)],
                    pa.string(),
                ),
            }
        ).filter(pa.array((kind >= _SPEED) & (kind <= _POWER)))


def _words(numbers: Integers, words: dict[int, str]) -> pa.Array:
    """The word of each number; null where there is none."""
    return pa.array(list(words.values())).take(
        pa.array(np.searchsorted(list(words), numbers), mask=~np.isin(numbers, list(words)))
    )
