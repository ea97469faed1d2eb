"""What watching costs: of a training step, and in nanoseconds for each record; a row for each
watcher.

Arguments: network, device, batch size, rounds, file of the rows, file of the answer to `ranges`.
Every sample is a process of its own, because profilers leave something attached to the process.
Every round has one process of each watcher, so drift affects all of them alike. A watcher that did
not watch, e.g. recorded no kernel, is said and left out from then on; the others go on, and then
the exit code is 1.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import scripts

import curvescope
from curvescope.base.errors import CurvescopeError
from curvescope.base.torch_runtime import import_torch
from curvescope.profiling.hardware.cuda_driver import KERNEL_NAME, CudaDriver
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network

_STEPS = 20
# Watchers, and how many empty kernels each watches; torch.profiler makes Python objects of its
# records.
WATCHERS = {
    "none": 100_000,
    "collector": 100_000,
    "collector and ranges": 100_000,
    "torch.profiler": 20_000,
}
_RANGES = "What do ranges of every layer add to a step that the collector records?"


@contextlib.contextmanager
def watched(watcher: str, workload: Workload, folder: Path) -> Iterator[dict[str, Any]]:
    """The watcher around a block; what it recorded is in the dictionary after the block."""
    seen: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        if watcher == "torch.profiler":
            profiler = import_torch().profiler.profile()
            stack.enter_context(profiler)
        if watcher.startswith("collector"):
            recording = stack.enter_context(curvescope.record(folder))
        if "ranges" in watcher:
            stack.enter_context(curvescope.annotate(workload.model))
        yield seen
    if watcher == "torch.profiler":
        on_device = [event for event in profiler.events() if "CUDA" in str(event.device_type)]
        seen["launched"] = sum(event.name == KERNEL_NAME for event in on_device)
        seen["kernels"] = len(on_device) - seen["launched"]
    elif watcher.startswith("collector"):
        names = recording.frame("kernels")["name"]
        seen["launched"] = int((names == KERNEL_NAME).sum())
        seen["kernels"] = len(names) - seen["launched"]
        seen["records"] = (
            len(names) + recording.count_rows("api_calls") + recording.count_rows("ranges")
        )
        # Work without a range or an operator is recorded.
        lost = {name: entry["count"] for name, entry in recording.meta["lost"].items()}
        seen["lost"] = sum(
            count for name, count in lost.items() if not name.startswith("device_work")
        )
        seen["status"] = [one.get("cupti_status") for one in recording.meta["collectors"]]


def sample(watcher: str, network: str, device: str, batch: int, folder: Path) -> dict[str, Any]:
    """Time steps and empty kernels in this process under one watcher; what it returns is one JSON
    document.
    """
    workload = Workload(get_network(network), device)
    workload.load(batch)
    for _ in range(5):
        workload.time_step()
    count = WATCHERS[watcher]
    with CudaDriver().empty_kernel() as start:
        start()
        with watched(watcher, workload, folder) as seen:
            workload.time_step()
            step_ms = statistics.median(workload.time_step()[1] / 1e6 for _ in range(_STEPS))
            began_ns = time.perf_counter_ns()
            for _ in range(count):
                start()
            import_torch().cuda.synchronize()
            launch_ns = (time.perf_counter_ns() - began_ns) / count
    check(watcher, seen)
    return {
        "step_ms": step_ms,
        "launch_ns": launch_ns,
        "steps": _STEPS + 1,
        "launches": count,
        **seen,
    }


def check(watcher: str, seen: dict[str, Any]) -> None:
    """Refuse the time of a watcher that did not watch."""
    if seen.get("kernels") == 0 or "recording" not in seen.get("status", ["recording"]):
        what = f"{seen.get('kernels')} kernels of steps and {seen.get('launched')} empty ones"
        raise CurvescopeError(
            f"{watcher} recorded {what}: {seen.get('status')}, lost {seen.get('lost')}"
        )


def row(
    watcher: str, samples: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The figures of a watcher: medians over its processes, differences to the unwatched ones of
    the same rounds.
    """

    def median(name: str) -> float | None:
        values = [one[name] for one in samples if one.get(name) is not None]
        return float(statistics.median(values)) if values else None

    pairs = list(zip(samples, plain, strict=False))
    ratios = sorted(one["step_ms"] / other["step_ms"] for one, other in pairs)
    kernels = median("kernels")
    kernels_per_step = kernels and kernels / samples[0]["steps"]
    added_ms = statistics.median(one["step_ms"] - other["step_ms"] for one, other in pairs)
    added_ns = statistics.median(one["launch_ns"] - other["launch_ns"] for one, other in pairs)
    seen = watcher != "none"
    return {
        "watched by": watcher,
        "processes": len(samples),
        "step_ms": median("step_ms"),
        "ratio to none": statistics.median(ratios),
        "lowest ratio": ratios[0],
        "highest ratio": ratios[-1],
        "kernels_per_step": kernels_per_step,
        "step's ns per kernel": added_ms * 1e6 / kernels_per_step
        if seen and kernels_per_step
        else None,
        "ns of an empty launch": median("launch_ns"),
        # A launch leaves two records: the call and the kernel.
        "ns per record": added_ns / 2 if seen else None,
        "launches": samples[0]["launches"],
        "launches recorded": median("launched"),
        "lost": median("lost"),
    }


def run_sample(watcher: str, words: list[str]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--sample", watcher, *words]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def write(samples: dict[str, list[dict[str, Any]]], path: Path, answers: Path) -> None:
    """Write the tables anew, from the samples so far."""
    for target in (path, answers):
        target.unlink(missing_ok=True)
    rows = {
        watcher: row(watcher, taken, samples["none"]) for watcher, taken in samples.items() if taken
    }
    for one in rows.values():
        scripts.add_row(path, one)
    if {"collector", "collector and ranges"} <= set(rows):
        with_ranges, without = rows["collector and ranges"], rows["collector"]
        added = with_ranges["step_ms"] / without["step_ms"]
        answer = f"{added:.4f} times; {with_ranges['processes']} processes each"
        scripts.add_row(answers, {"check": "ranges", "question": _RANGES, "answer": answer})


def main() -> int:
    if sys.argv[1] == "--sample":
        watcher, network, device, batch = sys.argv[2:]
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(sample(watcher, network, device, int(batch), Path(folder, "r"))))
        return 0
    *words, rounds, path, answers = sys.argv[1:]
    samples: dict[str, list[dict[str, Any]]] = {watcher: [] for watcher in WATCHERS}
    failed: set[str] = set()
    for _ in range(int(rounds)):
        for watcher, taken in samples.items():
            if watcher in failed:
                continue
            try:
                taken.append(run_sample(watcher, words))
            except subprocess.CalledProcessError as error:
                print(
                    f"{watcher}: its process ended with {error.returncode}, see above",
                    file=sys.stderr,
                )
                failed.add(watcher)
            if samples["none"]:
                write(samples, Path(path), Path(answers))
    return int(bool(failed))


if __name__ == "__main__":
    scripts.run(main)
