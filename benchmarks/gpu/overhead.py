"""What watching adds to a training step: ranges, the native collector, torch.profiler; ratios as Markdown.

Arguments: network, device, batch size, file to write. Every sample is a process of its own, because profilers leave
something attached to the process. Every round has one process per watcher, so drift affects all of them alike. A sample
whose watcher recorded no kernel fails.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import scripts

import curvescope
from curvescope.base.errors import CurvescopeError
from curvescope.base.torch_runtime import import_torch
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network

_ROUNDS = 7
_STEPS = 20
# On a slow or busy machine there are fewer rounds, so that the stage ends with a result: a quartile takes two. A CPU is
# measured once, as a rehearsal, by those watchers that do all that the others do.
_LEAST_ROUNDS = 2
_TIME_LIMIT_S = 140.0
WATCHERS = (
    "none",
    "ranges, nobody listening",
    "collector",
    "collector and ranges",
    "torch.profiler",
    "torch.profiler with shapes",
)
REHEARSED = ("none", "collector and ranges", "torch.profiler with shapes")


@contextlib.contextmanager
def watched(watcher: str, workload: Workload, folder: Path) -> Iterator[dict[str, Any]]:
    """The watcher around a block; its count of kernels is in the dictionary after the block."""
    counts: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        if watcher.startswith("torch.profiler"):
            profiler = import_torch().profiler.profile(record_shapes=watcher.endswith("shapes"))
            stack.enter_context(profiler)
        if watcher.startswith("collector"):
            recording = stack.enter_context(curvescope.record(folder))
        if "ranges" in watcher:
            stack.enter_context(curvescope.annotate(workload.model))
        yield counts
    if watcher.startswith("torch.profiler"):
        counts["kernels"] = sum("CUDA" in str(event.device_type) for event in profiler.events())
    elif watcher.startswith("collector"):
        counts["kernels"] = recording.count_rows("kernels")
        counts["status"] = [one.get("cupti_status") for one in recording.meta["collectors"]]


def sample(watcher: str, network: str, device: str, batch: int, folder: Path) -> dict[str, Any]:
    """Time steps in this process under one watcher; returns its median in milliseconds and what was recorded."""
    workload = Workload(get_network(network), device)
    workload.load(batch)
    for _ in range(5 if workload.cuda else 1):
        workload.time_step()
    with watched(watcher, workload, folder) as counts:
        workload.time_step()
        step_ms = statistics.median(workload.time_step()[1] / 1e6 for _ in range(_STEPS if workload.cuda else 3))
    if workload.cuda:
        check(watcher, counts)
    return {"step_ms": step_ms, **counts}


def check(watcher: str, counts: dict[str, Any]) -> None:
    """Refuse the time of a watcher that did not watch."""
    if counts.get("kernels") == 0 or "recording" not in counts.get("status", ["recording"]):
        raise CurvescopeError(f"{watcher} recorded {counts.get('kernels')} kernels: {counts.get('status')}")


def run_sample(watcher: str, words: list[str]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--sample", watcher, *words]
    return dict(
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    )


def main() -> int:
    if sys.argv[1] == "--sample":
        watcher, network, device, batch = sys.argv[2:]
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(sample(watcher, network, device, int(batch), Path(folder, "r"))))
        return 0
    *words, path = sys.argv[1:]
    rehearsed = words[1] == "cpu"
    times_ms: dict[str, list[float]] = {watcher: [] for watcher in (REHEARSED if rehearsed else WATCHERS)}
    began_s = time.monotonic()
    for done in range(1 if rehearsed else _ROUNDS):
        if done >= _LEAST_ROUNDS and (time.monotonic() - began_s) * (done + 1) / done > _TIME_LIMIT_S:
            break
        for watcher in times_ms:
            times_ms[watcher].append(run_sample(watcher, words)["step_ms"])
    plain = times_ms["none"]
    lines = ["| watched by | step ms | ratio to none | quartiles | processes |", "| --- | ---: | ---: | ---: | ---: |"]
    for watcher, values in times_ms.items():
        ratios = [w / p for w, p in zip(values, plain, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        step_ms = statistics.median(values)
        lines.append(f"| {watcher} | {step_ms:.3f} | {middle:.4f} | {low:.4f} … {high:.4f} | {len(values)} |")
    network, device, batch = words
    lines += ["", f"{network} training step, batch size {batch}, {device}; each process gives the median of its steps."]
    Path(path).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    scripts.run(main)
