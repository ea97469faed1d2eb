"""A large export of Nsight Systems, as a training run with NVTX layers would leave it.

Every step launches 1,000 kernels under 100 layers, forward and backward, and an optimizer; every layer has a range
on the thread that launches it. The columns are those of an export of 2024.5.

    python benchmarks/generate_nsys.py 10000000 /tmp/large.sqlite
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

PER_STEP, LAYERS = 1000, 200
_PID = (1 << 48) | 4321 << 24
_MAIN, _AUTOGRAD = _PID | 4322, _PID | 4323
_KERNEL = [
    "start",
    "end",
    "deviceId",
    "contextId",
    "greenContextId",
    "streamId",
    "correlationId",
    "globalPid",
    "demangledName",
    "shortName",
    "mangledName",
    "launchType",
    "cacheConfig",
    "registersPerThread",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "staticSharedMemory",
    "dynamicSharedMemory",
    "localMemoryPerThread",
    "localMemoryTotal",
    "gridId",
    "sharedMemoryExecuted",
    "graphNodeId",
    "sharedMemoryLimitConfig",
]
_RUNTIME = ["start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue", "callchainId"]
_NVTX = [
    "start",
    "end",
    "eventType",
    "rangeId",
    "category",
    "color",
    "text",
    "globalTid",
    "endGlobalTid",
    "textId",
    "domainId",
]


def generate(kernels: int, path: Path) -> None:
    """Write the export; 0.9 GB and about a minute and a half for ten million kernels."""
    steps = kernels // PER_STEP
    database = sqlite3.connect(path)
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    strings = {1: "cudaLaunchKernel_v7000", 2: "forward", 3: "backward", 4: "optimizer.step"}
    strings |= {10 + i: f"void kernel_{i}<float, {i}>(float const*, float*, int)" for i in range(100)}
    strings |= {200 + i: f"layer:block{i // 10}.conv{i % 10}" for i in range(LAYERS)}
    strings |= {1000 + step: f"iteration {step}" for step in range(steps)}
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", strings.items())
    for name, columns, rows in (
        ("CUPTI_ACTIVITY_KIND_RUNTIME", _RUNTIME, _launches(steps)),
        ("CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL, _kernels(steps)),
        ("NVTX_EVENTS", _NVTX, _ranges(steps)),
    ):
        quoted = ", ".join(f'"{column}" INTEGER' for column in columns)
        database.execute(f"CREATE TABLE {name} ({quoted})")
        database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
    gpu = "id name smCount computeMajor computeMinor totalMemory memoryBandwidth clockRate cuDevice"
    database.execute(f"CREATE TABLE TARGET_INFO_GPU ({', '.join(gpu.split())})")
    facts = (0, "NVIDIA A100-SXM4-80GB", 108, 8, 0, 84987740160, 2039040000000, 1410000000, 0)
    database.execute(f"INSERT INTO TARGET_INFO_GPU VALUES ({', '.join('?' * len(facts))})", facts)
    database.commit()
    database.close()


def _launches(steps: int) -> Iterator[tuple[int | None, ...]]:
    for step in range(steps):
        at = step * 20_000_000
        for i in range(PER_STEP):
            thread = _AUTOGRAD if 400 <= i < 900 else _MAIN
            yield at + i * 10_000, at + i * 10_000 + 4_000, 0, thread, step * PER_STEP + i + 1, 1, 0, None


def _kernels(steps: int) -> Iterator[tuple[int | None, ...]]:
    for step in range(steps):
        at = step * 20_000_000 + 2_000_000
        for i in range(PER_STEP):
            start = at + i * 17_000
            yield (
                *(
                    start,
                    start + 9_000 + i % 97 * 50,
                    0,
                    1,
                    None,
                    7,
                    step * PER_STEP + i + 1,
                    _PID,
                    10 + i % 100,
                    10,
                    10,
                ),
                *(1, 0, 32 + i % 64, 128 + i, 1, 1, 256, 1, 1, 1024, 0, 0, 0, step * PER_STEP + i, 0, None, 0),
            )


def _ranges(steps: int) -> Iterator[tuple[int | None, ...]]:
    def push_pop(text_id: int, start: int, end: int, thread: int) -> tuple[int | None, ...]:
        return start, end, 59, None, None, None, None, thread, None, text_id, 0

    for step in range(steps):
        at = step * 20_000_000
        yield push_pop(1000 + step, at, at + 19_000_000, _MAIN)
        yield push_pop(2, at, at + 4_000_000, _MAIN)
        for layer in range(80):  # 400 kernels forward
            yield push_pop(200 + layer, at + layer * 50_000, at + layer * 50_000 + 49_000, _MAIN)
        yield push_pop(3, at + 4_000_000, at + 9_000_000, _AUTOGRAD)
        for layer in range(100):  # 500 backward
            begin = at + 4_000_000 + layer * 50_000
            yield push_pop(200 + layer, begin, begin + 49_000, _AUTOGRAD)
        yield push_pop(4, at + 9_000_000, at + 10_000_000, _MAIN)


if __name__ == "__main__":
    generate(int(sys.argv[1]), Path(sys.argv[2]))
