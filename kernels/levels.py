"""The memory levels of a device, with a working-set size for the benchmarks of each level."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..profiling.hardware.host import cache_bytes

_CPUS = Path("/sys/devices/system/cpu")


class MemoryLevel(NamedTuple):
    """One level: L1, L2, L3 or DRAM, and the working set of its benchmark."""

    name: str
    # Half the capacity, on a GPU a quarter, because half of an L2 may be far from an SM; for DRAM
    # four times the last cache, on a GPU at least 1 GB and sixteen times, because launch and tail
    # of a shorter kernel count.
    size_bytes: int


def memory_levels(
    device: Mapping[str, Any], processors: int | None = None, cpus: Path = _CPUS
) -> list[MemoryLevel]:
    """The levels of a device (`Backend.describe`), nearest first; on a CPU of some of
    its threads.
    """
    cuda = device["kind"] == "cuda"
    if cuda:
        capacities = {"L2": int(device.get("l2_cache_bytes") or 0)}
    else:
        threads = processors or int(device.get("threads") or 1)
        capacities = cache_capacities(threads, cpus)
    levels, below = [], 0
    for name, capacity in capacities.items():
        # A working set in a level must not fit into the previous one.
        size = capacity // 4 if cuda else capacity // 2
        if size > below:
            levels.append(MemoryLevel(name, size))
            below = capacity
    if cuda:
        size = max(16 * below, 1_000_000_000)
        if memory_bytes := int(device.get("memory_bytes") or 0):
            size = min(size, memory_bytes // 4)
    else:
        # Without any known cache: a size larger than any current cache.
        size = 4 * below or 512_000_000
    return [*levels, MemoryLevel("DRAM", size)]


def cache_capacities(processors: int, cpus: Path = _CPUS) -> dict[str, int]:
    """Total data cache capacity in bytes by level, for the first `processors` processors."""
    caches: dict[str, dict[str, int]] = {}
    for number in range(processors):
        for index in sorted((cpus / f"cpu{number}/cache").glob("index*")):
            with suppress(OSError):
                capacity = cache_bytes(index / "size")
                if capacity is None or _read_line(index / "type") == "Instruction":
                    continue
                level = "L" + _read_line(index / "level")
                shared = _read_line(index / "shared_cpu_list")
                caches.setdefault(level, {})[shared] = capacity
    return {level: sum(caches[level].values()) for level in sorted(caches)}


def _read_line(path: Path) -> str:
    return path.read_text().strip()
