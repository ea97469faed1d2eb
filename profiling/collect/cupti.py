"""CUPTI's activity records of one process as columns for `attribution.assemble` and as rows of
`clocks`.

CUPTI's times are converted to the host's monotonic clock with pairs of readings of both clocks
during the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..attribution.cupti_names import COPY_KINDS, CUPTI_MEMORY, LAUNCH_SHAPE
from ..attribution.graph_nodes import GraphNodes
from ..attribution.range_names import scrub
from ..attribution.waits import NO_NUMBER, Waits
from ..hardware.clocks import throttle_names
from .chunk_tables import Integers
from .chunks import ProcessChunks, TablePart

_PART_ROWS = 1 << 20  # rows of one batch, which becomes one Parquet part
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
_DEVICE_COLUMNS = (
    *("device", "sm_count", "memory_bytes", "l2_bytes"),
    *("shared_memory_per_sm_bytes", "registers_per_sm", "warps_per_sm"),
)
_THROTTLE_UNSUPPORTED = 0x4000_0000
_SPEED = 1
_TEMPERATURE = 2
_POWER = 3
_ALLOCATION = 1
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass
class Clock:
    """Conversion from CUPTI's clock to the host's monotonic clock."""

    samples: int
    # Half the widest pair of host readings around a CUPTI reading, plus the largest change of the
    # offset between neighbouring samples; None without samples, when times stay on CUPTI's clock.
    error_ns: int | None
    _cupti_ns: Integers
    _offset_ns: Integers

    @classmethod
    def of(cls, process: ProcessChunks) -> Clock:
        """The conversion from the clock samples of a process."""
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
        """Convert times to the host's clock; 0 stands for an unknown time and stays 0."""
        if not self.samples:
            return times_ns
        first = self._cupti_ns[0]
        base = self._offset_ns[0]
        # Only differences pass through floating point, which cannot represent nanoseconds since
        # 1970.
        moved = np.interp(times_ns - first, self._cupti_ns - first, self._offset_ns - base)
        return np.where(times_ns == 0, 0, times_ns + base + np.rint(moved).astype(np.int64))


class Texts:
    """The texts of several processes as one dictionary, which all their columns share."""

    def __init__(self, processes: Sequence[ProcessChunks], more: Iterable[str] = ()) -> None:
        code: dict[str, int] = {}
        self._codes = {
            id(process): np.array(
                [code.setdefault(name, len(code)) for name in process.names], np.int32
            )
            for process in processes
        }
        for text in more:
            code.setdefault(text, len(code))
        self._texts = pa.array([scrub(text) for text in code] or [""], pa.string())

    def column(self, process: ProcessChunks, ids: Integers) -> pa.DictionaryArray:
        """The texts of a process's ids."""
        return pa.DictionaryArray.from_arrays(pa.array(self._codes[id(process)][ids]), self._texts)

    def encode(self, texts: pa.ChunkedArray) -> pa.DictionaryArray:
        """Encode texts that are all in the dictionary."""
        codes = pc.index_in(texts, value_set=self._texts)
        return pa.DictionaryArray.from_arrays(pa.array(codes.to_numpy(), pa.int32()), self._texts)


class ProcessColumns:
    """The columns of one process, in batches."""

    def __init__(self, process: ProcessChunks, texts: Texts) -> None:
        self._process = process
        self._texts = texts
        self._clock = Clock.of(process)
        nodes = process.table("graph_nodes")
        self._graph_nodes = GraphNodes(
            np.full(nodes.rows, process.process),
            nodes["node"],
            nodes["original"],
            nodes["time_ns"],
            process.thread_key(nodes["thread"]),
        )

    @property
    def count(self) -> int:
        """Number of API calls, kernels, memcpy and memset."""
        return sum(
            self._process.table(name).rows for name in ("calls", "kernels", "copies", "sets")
        )

    def launches(self) -> Iterator[pa.Table]:
        """CUDA API calls, the runtime's first: the first of two with one correlation id counts."""
        table = self._process.table("waits")
        waits = Waits(table["correlation_id"], table["type"].astype(np.int64), table["stream"])
        for is_driver in (0, 1):
            for part in self._process.parts("calls", _PART_ROWS):
                chosen = np.flatnonzero(part["is_driver"] == is_driver)
                if len(chosen):
                    yield self._calls(part, chosen, waits)

    def kernels(self, needed: Sequence[str] | None) -> Iterator[pa.Table]:
        """Kernels."""
        for part in self._process.parts("kernels", _PART_ROWS):
            columns = {
                "name": self._texts.column(self._process, part["name"]),
                **self._work_columns(part),
            }
            if needed is None:
                graph = part["graph_id"]
                columns |= {name: part[name] for name in (*LAUNCH_SHAPE, "shared_memory_bytes")}
                columns["graph_id"] = pa.array(graph, mask=graph == 0)
            yield pa.table(columns)

    def memory(self, needed: Sequence[str] | None) -> Iterator[pa.Table]:
        """Memcpy and memset."""
        for table, kind in (("copies", "memcpy"), ("sets", "memset")):
            for part in self._process.parts(table, _PART_ROWS):
                columns = self._work_columns(part)
                if needed is None:
                    columns |= {"kind": pa.repeat(kind, part.rows), "bytes": part["bytes"]}
                    columns |= _describe_copies(part) if kind == "memcpy" else _no_copies(part.rows)
                yield pa.table(columns)

    def allocations(self) -> Iterator[pa.Table]:
        """Rows of `memory` with a time and no duration: allocations and frees."""
        for part in self._process.parts("allocations", _PART_ROWS):
            is_allocation = part["operation"] == _ALLOCATION
            time = self._clock.to_host(part["time_ns"])
            stream = part["stream"]
            yield pa.table(
                {
                    "kind": pa.array(["free", "allocate"]).take(
                        pa.array(is_allocation.astype(np.int8))
                    ),
                    "start_ns": pa.array(time, mask=time == 0),
                    "bytes": part["bytes"],
                    "process": np.full(part.rows, self._process.process),
                    "device": part["device"],
                    "stream": pa.array(stream, mask=stream == NO_NUMBER),
                    "correlation_id": part["correlation_id"],
                    "address": part["address"],
                    "source": pa.repeat("cupti", part.rows),
                }
            )

    def clocks(self) -> Iterator[pa.Table]:
        """Rows of `clocks`."""
        for part in self._process.parts("environment", _PART_ROWS):
            yield self._environment(part)

    def facts(self) -> dict[str, Any]:
        """The collector's facts about this process for `recording.json`."""
        p = self._process
        facts: dict[str, Any] = {"process": p.process}
        for key, value in p.rows("facts"):
            name = p.names[key].replace(".", "_")
            text = p.names[value]
            if name == "cupti_refused":
                facts.setdefault(name, []).append(text)
            else:
                facts[name] = int(text) if _NUMBER.fullmatch(text) else text
        if self._clock.samples:
            facts["clock_samples"] = self._clock.samples
            facts["clock_error_ns"] = self._clock.error_ns
        overheads = p.table("overheads")
        if overheads.rows:
            kinds = overheads["kind"]
            durations = overheads["duration_ns"]
            facts["overhead_ns"] = {
                _OVERHEADS.get(kind, str(kind)): int(durations[kinds == kind].sum())
                for kind in np.unique(kinds).tolist()
            }
        return facts

    def devices(self) -> list[dict[str, Any]]:
        """Facts of the devices from the driver."""
        table = self._process.table("devices")
        if not table.rows:
            return []
        _, first = np.unique(table["device"], return_index=True)
        columns = {name: table[name][first].tolist() for name in table.chunks[0]}
        major = columns["compute_capability_major"]
        minor = columns["compute_capability_minor"]
        return [
            {
                "kind": "cuda",
                "name": self._process.names[columns["name"][i]],
                "compute_capability": f"{major[i]}.{minor[i]}",
                "memory_bytes_per_s": columns["memory_bandwidth_kbyte_per_s"][i] * 1000,
                "clock_hz": columns["sm_clock_khz"][i] * 1000,
                **{name: columns[name][i] for name in _DEVICE_COLUMNS},
            }
            for i in range(len(first))
        ]

    def _times(self, part: TablePart) -> dict[str, pa.Array]:
        start = self._clock.to_host(part["start_ns"])
        return {
            "start_ns": pa.array(start, mask=start == 0),
            "end_ns": pa.array(start + part["duration_ns"], mask=part["timed"] == 0),
        }

    def _work_columns(self, part: TablePart) -> dict[str, Any]:
        process = np.full(part.rows, self._process.process)
        return {
            **self._times(part),
            "process": process,
            **{name: part[name] for name in ("device", "context", "stream", "correlation_id")},
            **self._graph_nodes.columns(process, part["graph_node_id"]),
        }

    def _calls(self, part: TablePart, chosen: Integers, waits: Waits) -> pa.Table:
        correlation = part["correlation_id"]
        thread = part["thread"]
        columns: dict[str, Any] = {
            **self._times(part),
            "process": np.full(part.rows, self._process.process),
            "thread": thread,
            "thread_key": self._process.thread_key(thread),
            "correlation_id": correlation,
            "name": self._texts.column(self._process, part["name"]),
            "return_value": part["return_value"],
        }
        columns |= waits.columns(correlation)
        return pa.table(columns).take(pa.array(chosen))

    def _environment(self, part: TablePart) -> pa.Table:
        kind = part["kind"]
        first = part["first"]
        second = part["second"]
        reasons = part["throttle_reasons"]
        names = {
            bits: throttle_names(bits)
            for bits in np.unique(reasons).tolist()
            if not bits & _THROTTLE_UNSUPPORTED
        }
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
                    [
                        names.get(bits) if s else None
                        for bits, s in zip(reasons.tolist(), speed.tolist(), strict=True)
                    ],
                    pa.string(),
                ),
            }
        ).filter(pa.array((kind >= _SPEED) & (kind <= _POWER)))


def _describe_copies(part: TablePart) -> dict[str, pa.Array]:
    """The columns that only copies have."""
    source = _words(part["source_memory"], CUPTI_MEMORY)
    destination = _words(part["destination_memory"], CUPTI_MEMORY)
    return {
        "memcpy_kind": _words(part["copy_kind"], COPY_KINDS),
        "host_memory": pc.coalesce(source, destination),
    }


def _no_copies(rows: int) -> dict[str, pa.Array]:
    return dict.fromkeys(("memcpy_kind", "host_memory"), pa.nulls(rows, pa.string()))


def _words(numbers: Integers, words: dict[int, str]) -> pa.Array:
    return pa.array(list(words.values())).take(
        pa.array(np.searchsorted(list(words), numbers), mask=~np.isin(numbers, list(words)))
    )
