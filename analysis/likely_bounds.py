"""The likely bound of kernels whose FLOPs and bytes are unknown, as far as their names and launches
say.

This is a guess, e.g. for a profile of Nsight Systems, which has no shapes; only counters measure
the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..profiling.attribution import kernel_names as names
from ..profiling.hardware.limits import Hardware
from ..profiling.hardware.occupancy import Occupancy

HOST_LINK, LINKS, FEW_BLOCKS, SHORT, MEMORY = (
    "host link",
    "communication",
    "few blocks",
    "short calls",
    "memory",
)
OPEN = "memory or compute"
# An empty kernel takes about 2 µs on NVIDIA's GPUs (`curvescope bench launch` measures it), so in a
# shorter call than this most of the time is its start and end.
SHORT_S = 5e-6
# Families with few FLOPs per byte: far below the ridge of every GPU in the table of devices.
_STREAMING = frozenset(
    {
        names.ELEMENTWISE,
        names.LAYOUT,
        names.INDEXING,
        names.NORMALISATION,
        names.POOLING,
        names.REDUCTION,
        *(names.SOFTMAX, names.OPTIMIZER, names.QUANTISATION, names.GEMV),
    }
)


@dataclass(frozen=True)
class LikelyPoint:
    """One kernel, layer or phase without known work."""

    label: str  # name of the kernel, layer or phase
    calls: float  # launches and copies per step
    time_s: float  # time per step
    # what most of its time is likely bound by: `host link`, `communication`, `few blocks` (fewer
    # than the GPU has SMs), `short calls` (under 5 µs), `memory` (by the kind of kernel), or
    # `memory or compute`, if its names and launches do not tell
    likely: str
    share: float  # share of its time for which `likely` holds
    # blocks over those that the GPU holds at once, of its longest kernel; None if unknown
    waves: float | None
    occupancy: float | None  # theoretical occupancy of that kernel; None if unknown


def plain_rows(table: pd.DataFrame) -> list[Any]:
    """The rows of a table as objects with an attribute for each column, None where it is missing.

    Groups of them are lists: a frame for each of ten thousand kernels takes a minute.
    """
    plain = table.astype(object)
    return list(plain.where(plain.notna(), None).itertuples(index=False))


def likely_point(label: str, rows: Sequence[Any], per: int, hardware: Hardware) -> LikelyPoint:
    """The likely bound of a group: `plain_rows` of `kernel_times` or `kernel_totals`, which add up
    `per` steps.
    """
    times_ms: dict[str, float] = {}
    for row in rows:
        likely = _likely(row, hardware)
        times_ms[likely] = times_ms.get(likely, 0.0) + row.exclusive_ms
    whole_ms, likely = (
        math.fsum(times_ms.values()),
        min(times_ms, key=lambda bound: (-times_ms[bound], bound)),
    )
    longest = max(rows, key=lambda row: row.exclusive_ms)
    share = times_ms[likely] / whole_ms if whole_ms else 1.0
    calls = math.fsum(row.calls for row in rows)
    return LikelyPoint(
        label, calls / per, whole_ms / 1e3 / per, likely, share, *_fit(longest, hardware)
    )


def _likely(row: Any, hardware: Hardware) -> str:
    name, calls, time_s = str(row.name), float(row.calls), float(row.exclusive_ms) / 1e3
    if name.startswith("Memcpy") and ("HtoD" in name or "DtoH" in name):
        return HOST_LINK
    family = names.family(name)
    if family == names.COMMUNICATION:
        return LINKS
    if calls and time_s / calls < SHORT_S:
        return SHORT
    if name.startswith(("Memcpy", "Memset")):
        return MEMORY
    blocks = _product(row, ("grid_x", "grid_y", "grid_z"))
    if blocks is not None and hardware.sm_count is not None and blocks < hardware.sm_count:
        return FEW_BLOCKS
    if family in _STREAMING or row.phase == "optimizer":
        return MEMORY
    return OPEN


def _fit(row: Any, hardware: Hardware) -> tuple[float | None, float | None]:
    """Waves and occupancy of one kernel; None if unknown."""
    fits, blocks = fit_on_sm(row, hardware), _product(row, ("grid_x", "grid_y", "grid_z"))
    if fits is None:
        return None, None
    if blocks is None or hardware.sm_count is None:
        return None, fits.fraction
    return blocks / (fits.blocks * hardware.sm_count), fits.fraction


def fit_on_sm(row: Any, hardware: Hardware) -> Occupancy | None:
    """How a kernel fits on an SM, by its launch; None if that or the SM is unknown."""
    threads = _product(row, ("block_x", "block_y", "block_z"))
    registers = _integer(row, "registers_per_thread")
    shared_bytes = _integer(row, "shared_memory_bytes") or 0
    if threads is None or registers is None:
        return None
    return hardware.fit_on_sm(threads, registers, shared_bytes)


def _product(row: Any, columns: tuple[str, ...]) -> int | None:
    sizes = [_integer(row, column) for column in columns]
    if None in sizes:
        return None
    return math.prod(size for size in sizes if size is not None)


def _integer(row: Any, column: str) -> int | None:
    value = getattr(row, column, None)
    return None if value is None else int(value)
