"""Profiles that others recorded, played to the test double of libcupti: their fields are those of CUPTI's records.

Ranges cannot be played, because they carry the time of now, nor waits, whose kinds nsys numbers otherwise than CUPTI.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import tempfile
from pathlib import Path

from fake_gpu import FakeGpu

_THREAD = 0xFFFFFF  # low bits of nsys's global thread ids; the process has the 24 above


class Calls:
    """The double's names of calls; the collector chooses among them when it starts."""

    def __init__(self, gpu: FakeGpu, names: set[str]) -> None:
        self._gpu = gpu
        self._ids = {name: (int(not name.startswith("cuda")), 100 + i) for i, name in enumerate(sorted(names))}
        for name, (is_driver, number) in self._ids.items():
            gpu.cupti.fake_name_call(is_driver, number, name.encode())

    def play(self, name: str, start_ns: int, end_ns: int, thread: int, correlation_id: int, returned: int = 0) -> None:
        is_driver, number = self._ids[name]
        self._gpu.call(number, start_ns, end_ns, thread, correlation_id, driver=is_driver, returned=returned)


def nsys_tables(path: Path) -> sqlite3.Connection:
    """The database of an nsys export that is compressed."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite", delete=False) as file:
        file.write(gzip.decompress(path.read_bytes()))
    database = sqlite3.connect(file.name)
    Path(file.name).unlink()
    database.row_factory = sqlite3.Row
    return database


def play_nsys(gpu: FakeGpu, path: str) -> None:
    """Start the GPU, and play the first process of an nsys export to it."""
    database = nsys_tables(Path(path))
    (process,) = database.execute("SELECT MIN(globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    texts = dict(database.execute("SELECT id, value FROM StringIds").fetchall())
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}

    def rows(kind: str) -> list[sqlite3.Row]:
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        owner = "globalTid - globalTid % 16777216" if kind == "RUNTIME" else "globalPid"
        query = f"SELECT * FROM {table} WHERE {owner} = {process}"
        return list(database.execute(query)) if table in tables else []

    called = rows("RUNTIME")
    calls = Calls(gpu, {texts[row["nameId"]] for row in called})
    assert gpu.start() == 0
    for row in called:
        thread = row["globalTid"] & _THREAD
        calls.play(texts[row["nameId"]], row["start"], row["end"], thread, row["correlationId"], row["returnValue"])
    for row in rows("KERNEL"):
        gpu.kernel(
            texts[row["demangledName"]], row["start"], row["end"], row["correlationId"],
            device=row["deviceId"], context=row["contextId"], stream=row["streamId"],
            grid=(row["gridX"], row["gridY"], row["gridZ"]), block=(row["blockX"], row["blockY"], row["blockZ"]),
            registers_per_thread=row["registersPerThread"], static_shared_bytes=row["staticSharedMemory"],
            dynamic_shared_bytes=row["dynamicSharedMemory"],
        )  # fmt: skip
    for row in rows("MEMCPY"):
        gpu.copy(row["copyKind"], row["bytes"], row["start"], row["end"], row["correlationId"],
                 device=row["deviceId"], stream=row["streamId"])  # fmt: skip
    for row in rows("MEMSET"):
        gpu.set(row["bytes"], row["start"], row["end"], row["correlationId"], device=row["deviceId"],
                stream=row["streamId"])  # fmt: skip


def play_kineto(gpu: FakeGpu, path: str) -> None:
    """Start the GPU, and play the kernels, copies, sets and calls of a Kineto trace to it."""
    events = [one for one in json.loads(gzip.decompress(Path(path).read_bytes()))["traceEvents"] if "dur" in one]
    kinds: dict[str, list[dict]] = {}
    for event in events:
        kinds.setdefault(event.get("cat", "").lower(), []).append(event)

    def times(event: dict) -> tuple[int, int]:
        start = round(event["ts"] * 1000)
        return start, start + round(event["dur"] * 1000)

    called = [one for kind in ("cuda_runtime", "cuda_driver") for one in kinds.get(kind, ())]
    calls = Calls(gpu, {event["name"] for event in called})
    assert gpu.start() == 0
    for event in called:
        calls.play(event["name"], *times(event), event["tid"], event["args"]["correlation"])
    for event in kinds.get("kernel", ()):
        args = event["args"]
        gpu.kernel(
            event["name"], *times(event), args["correlation"],
            device=args["device"], context=args["context"], stream=args["stream"], grid=args["grid"],
            block=args["block"], registers_per_thread=args["registers per thread"],
            static_shared_bytes=args["shared memory"],
        )  # fmt: skip
    copy_kinds = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
    for event in kinds.get("gpu_memcpy", ()):
        args, kind = event["args"], next(copy_kinds[kind] for kind in copy_kinds if kind in event["name"])
        gpu.copy(kind, args["bytes"], *times(event), args["correlation"], device=args["device"], stream=args["stream"])
    for event in kinds.get("gpu_memset", ()):
        args = event["args"]
        gpu.set(args["bytes"], *times(event), args["correlation"], device=args["device"], stream=args["stream"])
