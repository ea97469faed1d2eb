"""The rows of a run under ROCm's rocprofv3.

A grid counts work-items, a work-group is a block. Agents count processors, too. A dispatch has the
internal correlation id of the HIP or HSA call that made it
(https://rocm.docs.amd.com/projects/rocprofiler-sdk).
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
from .values import LATEST_NS, MOST_I32, MOST_U64, signed, whole

_COPY = re.compile(r"(HOST|DEVICE)_TO_(HOST|DEVICE)")
_Rows = list[dict[str, Any]]


@dataclass
class Records:
    """Rows of a profile; records that cannot be read are counted in `lost`."""

    kernels: _Rows = field(default_factory=list)
    memory: _Rows = field(default_factory=list)
    launches: _Rows = field(default_factory=list)
    ranges: _Rows = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    # numbers by agent
    gpus: dict[Any, int] = field(default_factory=dict)
    facts: dict[Any, dict[str, Any] | None] = field(default_factory=dict)

    def add_gpu(self, agent: Any, facts: dict[str, Any] | None, number: int | None = None) -> None:
        """Add a GPU; without a number it is the next one."""
        self.gpus.setdefault(agent, len(self.gpus) if number is None else number)
        self.facts.setdefault(agent, facts)

    def add_kernel(
        self,
        name: Any,
        start: Any,
        end: Any,
        agent: Any,
        *,
        items: Sequence[Any],
        block: Sequence[Any],
        **columns: Any,
    ) -> None:
        """Add a dispatch, with the work-items of the grid (`items`) and of a work-group (`block`)
        in x, y and z.
        """
        for axis, of_grid, of_block in zip(
            "xyz", map(whole, items), map(whole, block), strict=True
        ):
            columns[f"block_{axis}"] = of_block
            columns[f"grid_{axis}"] = -(-of_grid // of_block) if of_block and of_grid else None
        self._add(self.kernels, start, end, {"name": _name(name), "agent": agent}, columns)

    def add_copy(
        self, name: Any, start: Any, end: Any, agents: Iterable[Any], **columns: Any
    ) -> None:
        """Add a copy, e.g. MEMORY_COPY_HOST_TO_DEVICE; the first GPU of destination and source is
        its device.
        """
        match = _COPY.search(str(name))
        columns["memcpy_kind"] = f"{match[1][0]}to{match[2][0]}" if match else None
        columns["agent"] = next((agent for agent in agents if agent in self.gpus), None)
        self._add(self.memory, start, end, {"kind": "memcpy"}, columns)

    def add_on_host(
        self,
        rows: _Rows,
        name: Any,
        start: Any,
        end: Any,
        process: Any,
        thread: Any,
        **columns: Any,
    ) -> None:
        """Add a HIP or HSA call to `launches`, or a roctx range to `ranges`."""
        place = {"process": whole(process), "thread": whole(thread)}
        if None not in place.values():
            columns["thread_key"] = process << 32 | thread
        self._add(rows, start, end, {"name": _name(name), **place}, columns)

    def _add(
        self,
        rows: _Rows,
        start: Any,
        end: Any,
        needed: Mapping[str, Any],
        columns: Mapping[str, Any],
    ) -> None:
        needed = {
            "start_ns": whole(start, LATEST_NS - 1),
            "end_ns": whole(end, LATEST_NS - 1),
            **needed,
        }
        if None in needed.values():
            self.lost["rows_unreadable"] += 1
        else:
            rows.append(
                {**needed, **{name: _readable(name, value) for name, value in columns.items()}}
            )

    def write(self, writer: RecordingWriter, options: Options) -> None:
        """Write every table."""
        if not self.kernels:
            raise CurvescopeError("it has no kernel; record with `rocprofv3 --kernel-trace`.")
        used = next(
            (self.facts[row["agent"]] for row in self.kernels if row["agent"] in self.facts), None
        )
        if used is not None:
            writer.update(device=used)
        for row in (*self.kernels, *self.memory):
            row["device"] = self.gpus.get(row.pop("agent"))
        for name, count in self.lost.items():
            writer.count_lost(name, count)
        missing = {}
        if not self.ranges:
            missing["ranges"] = (
                "no roctx range: layer and phase are unknown; record with "
                "`rocprofv3 --marker-trace`"
            )
        if not self.launches:
            missing["api_calls"] = (
                "no HIP call: kernels cannot be joined to ranges; record with "
                "`rocprofv3 --hip-trace`"
            )
        writer.update(profiler={"name": "rocprofv3"}, missing=missing)
        tables = (self.ranges, self.launches, self.kernels, self.memory)
        assemble(profile_of_tables("rocprof", *map(table_of_rows, tables)), writer, options)


def device_facts(name: Any, target: Any, compute_units: Any = None) -> dict[str, Any] | None:
    """Facts of a GPU for `recording.json`, by its product's name and instruction set, e.g. gfx942;
    None without both.

    Of RDNA (gfx10 on) two compute units are one multiprocessor, as HIP counts.
    """
    names = [text for text in (name, target) if isinstance(text, str) and text]
    if not names:
        return None
    units = whole(compute_units)
    if units is not None and re.fullmatch(r"gfx1\d{3}", names[-1]):
        units //= 2
    return {"name": names[0], "compute_capability": names[-1], "sm_count": units}


def _name(name: Any) -> str | None:
    return scrub(name) or "?" if isinstance(name, str) and name else None


def _readable(column: str, value: Any) -> Any:
    """The value, if the column can hold it; ids have 64 bits."""
    if column in ("kind", "memcpy_kind", "agent"):
        return value
    if column in ("stream", "correlation_id"):
        return None if (number := whole(value, MOST_U64)) is None else signed(number)
    return whole(
        value, MOST_I32 if column in ("process", "registers_per_thread") else LATEST_NS - 1
    )
