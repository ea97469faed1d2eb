"""The memory levels of a device, and for each a size that its benchmarks use."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..profiling.hardware.host import cache_bytes

_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Level:
    """One level.

    Attributes:
        name: L1, L2, L3 or DRAM.
        capacity_bytes: of all its caches that the threads reach; null for DRAM.
        size_bytes: working set of a benchmark: half its capacity, and of DRAM four times the last cache.
    """

    name: str
    capacity_bytes: int | None
    size_bytes: int


def memory_levels(device: Mapping[str, Any], processors: int | None = None, cpus: Path = _CPUS) -> list[Level]:
    """The levels of a device, nearest first.

    Args:
        device: `Backend.describe()`.
        processors: how many of a CPU's threads work; those of the device unless given.
        cpus: where the kernel describes them.
    """
    if device["kind"] == "cuda":
        capacities = {"L2": int(device.get("l2_cache_bytes") or 0)}
    else:
        capacities = cache_capacities(processors or int(device.get("threads") or 1), cpus)
    levels, below = [], 0
    for name, capacity in capacities.items():
        # A working set in a level must not fit the one before.
        if capacity // 2 > below:
            levels.append(Level(name, capacity, capacity // 2))
            below = capacity
    # Without any cache known: larger than any so far.
    return [*levels, Level("DRAM", None, 4 * below or 512_000_000)]


def cache_capacities(processors: int, cpus: Path = _CPUS) -> dict[str, int]:
    """Bytes of the data caches of each level that the first `processors` processors have together."""
    caches: dict[str, dict[str, int]] = {}
    for number in range(processors):
        for index in sorted((cpus / f"cpu{number}/cache").glob("index*")):
            with suppress(OSError):
                capacity = cache_bytes(index / "size")
                if capacity is None or (index / "type").read_text().strip() == "Instruction":
                    continue
                level = "L" + (index / "level").read_text().strip()
                shared = (index / "shared_cpu_list").read_text().strip()
                caches.setdefault(level, {})[shared] = capacity
    return {level: sum(caches[level].values()) for level in sorted(caches)}
