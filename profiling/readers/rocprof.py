"""What the outputs of ROCm's rocprofv3 share: CSV, JSON and rocpd contain the same records.

A grid counts work-items, a work-group is a block. Agents count processors, too. A dispatch has the internal correlation
id of the HIP or HSA call that made it (https://rocm.docs.amd.com/projects/rocprofiler-sdk).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import CurvescopeError
from ..attribution.assemble import assemble
from ..attribution.profile import profile_of_tables, table_of_rows
from ..attribution.range_names import scrub
from ..recording.store import RecordingWriter
from . import Options
from .event_columns import signed

MOST_I32 = (1 << 31) - 1
_LATEST_NS = (1 << 62) - 1
_COPY = re.compile(r"(HOST|DEVICE)_TO_(HOST|DEVICE)")
_RECORD = "record with `rocprofv3 --kernel-trace`"


@dataclass
class Records:
    """Rows of a profile; devices of work are agents until `write` numbers them.

    Attributes:
        kernels: dispatches.
        memory: copies.
        launches: HIP and HSA calls.
        ranges: roctx ranges.
        lost: named counts.
        gpus: number of each GPU by agent; empty if agents are only numbers.
    """

    kernels: list[dict[str, Any]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    gpus: dict[Any, int] = field(default_factory=dict)

    def add_kernel(
        self,
        name: Any,
        start_ns: Any,
        end_ns: Any,
        agent: Any,
        *,
        items: Sequence[Any],
        block: Sequence[Any],
        **columns: Any,
    ) -> None:
        """Add a dispatch, or count it as unreadable.

        Args:
            name: name of the kernel.
            start_ns: start.
            end_ns: end.
            agent: agent that ran it.
            items: work-items in x, y and z.
            block: work-items of a work-group in x, y and z.
            **columns: further columns; see `_columns`.
        """
        times = _times(start_ns, end_ns)
        if times is None or not isinstance(name, str) or not name or agent is None:
            self.lost["rows_unreadable"] += 1
            return
        row = {"name": scrub(name) or "?", **times, "agent": agent, **_columns(columns)}
        for axis, of_grid, of_block in zip("xyz", items, block, strict=True):
            threads, all_items = whole(of_block), whole(of_grid)
            row |= {
                f"block_{axis}": threads,
                f"grid_{axis}": -(-all_items // threads) if threads and all_items else None,
            }
        self.kernels.append(row)

    def add_copy(self, name: Any, start_ns: Any, end_ns: Any, agents: Iterable[Any], **columns: Any) -> None:
        """Add a copy, or count it as unreadable.

        Args:
            name: name of the operation, e.g. MEMORY_COPY_HOST_TO_DEVICE.
            start_ns: start.
            end_ns: end.
            agents: destination and source; the first GPU of them is the device.
            **columns: further columns; see `_columns`.
        """
        times = _times(start_ns, end_ns)
        if times is None:
            self.lost["rows_unreadable"] += 1
            return
        found = _COPY.search(str(name))
        kind = f"{found[1][0]}to{found[2][0]}" if found else None
        agent = next((one for one in agents if one in self.gpus), None)
        self.memory.append({"kind": "memcpy", "memcpy_kind": kind, **times, "agent": agent, **_columns(columns)})

    def add_call(self, name: Any, start_ns: Any, end_ns: Any, process: Any, thread: Any, correlation_id: Any) -> None:
        """Add an API call, or count it as unreadable."""
        self._add_on_host(self.launches, name, start_ns, end_ns, process, thread, correlation_id=correlation_id)

    def add_range(self, name: Any, start_ns: Any, end_ns: Any, process: Any, thread: Any) -> None:
        """Add a roctx range, or count it as unreadable."""
        self._add_on_host(self.ranges, name, start_ns, end_ns, process, thread, kind="push_pop")

    def _add_on_host(
        self, rows: list[dict[str, Any]], name: Any, start_ns: Any, end_ns: Any, process: Any, thread: Any, **more: Any
    ) -> None:
        times, process, thread = _times(start_ns, end_ns), whole(process), whole(thread)
        if times is None or not isinstance(name, str) or not name or process is None or thread is None:
            self.lost["rows_unreadable"] += 1
            return
        place = {"process": process, "thread": thread, "thread_key": process << 32 | thread}
        rows.append({"name": scrub(name) or "?", **times, **place, **_columns(more)})

    def write(self, writer: RecordingWriter, options: Options) -> None:
        """Write every table; without known GPUs devices are numbered in the order of their agents.

        Raises:
            CurvescopeError: there is no kernel.
        """
        if not self.kernels:
            raise CurvescopeError(f"it has no kernel; {_RECORD}.")
        gpus = self.gpus or {agent: index for index, agent in enumerate(sorted({row["agent"] for row in self.kernels}))}
        for row in (*self.kernels, *self.memory):
            row["device"] = gpus.get(row.pop("agent"))
        for name, count in self.lost.items():
            writer.count_lost(name, count)
        missing = {}
        if not self.ranges:
            missing["ranges"] = "no roctx range: layer and phase are unknown; record with `rocprofv3 --marker-trace`"
        if not self.launches:
            missing["api_calls"] = (
                "no HIP call: kernels cannot be joined to ranges; record with `rocprofv3 --hip-trace`"
            )
        writer.update(profiler={"name": "rocprofv3"}, missing=missing)
        tables = (self.ranges, self.launches, self.kernels, self.memory)
        assemble(profile_of_tables("rocprof", *map(table_of_rows, tables)), writer, options)


def whole(value: Any, most: int = MOST_I32) -> int | None:
    """A whole number from 0 to `most`; None for others."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def device_facts(name: Any, target: Any, compute_units: Any = None) -> dict[str, Any] | None:
    """Facts of a GPU for `recording.json`; None without a name.

    Args:
        name: name of the product.
        target: instruction set, e.g. gfx942.
        compute_units: number of compute units; of RDNA (gfx10 on) two are one multiprocessor, as HIP counts.
    """
    known = [text for text in (name, target) if isinstance(text, str) and text]
    if not known:
        return None
    units = whole(compute_units)
    if units is not None and re.fullmatch(r"gfx1\d{3}", known[-1]):
        units //= 2
    return {"name": known[0], "compute_capability": known[-1], "sm_count": units}


def _times(start_ns: Any, end_ns: Any) -> dict[str, int] | None:
    start, end = whole(start_ns, _LATEST_NS), whole(end_ns, _LATEST_NS)
    return None if start is None or end is None else {"start_ns": start, "end_ns": end}


def _columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns with readable values: process, registers_per_thread and other numbers, and ids of 64 bits."""
    found = {}
    for name, value in columns.items():
        if name in ("stream", "correlation_id"):
            found[name] = signed(value) if whole(value, (1 << 64) - 1) is not None else None
        elif name == "kind":
            found[name] = value
        else:
            found[name] = whole(value, MOST_I32 if name in ("process", "registers_per_thread") else _LATEST_NS)
    return found
