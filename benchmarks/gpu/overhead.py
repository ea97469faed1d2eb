"""What watching adds to a training step: ranges, the native collector, torch.profiler; ratios as Markdown.

Every round times the step plain and under each watcher, so that drift touches all of them alike.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import curvescope
from curvescope.profiling.workload.network_step import Workload, import_torch
from curvescope.profiling.workload.networks import get_network

_ROUNDS = 7
_STEPS = 5
# On a slow or busy machine fewer rounds are run, so that the stage ends with what it has: a quartile takes two.
_LEAST_ROUNDS = 2
_TIME_LIMIT_S = 300.0


def watchers(workload: Workload, folder: Path) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Each watcher as a context in which steps are timed; the first is none."""
    torch = import_torch()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if workload.cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    count = iter(range(10**6))

    @contextlib.contextmanager
    def collected_ranges() -> Any:
        with curvescope.record(folder / str(next(count))), curvescope.annotate(workload.model):
            yield

    return {
        "none": contextlib.nullcontext,
        "ranges, nobody listening": lambda: curvescope.annotate(workload.model),
        "collector": lambda: curvescope.record(folder / str(next(count))),
        "collector and ranges": collected_ranges,
        "torch.profiler": lambda: torch.profiler.profile(activities=activities),
        "torch.profiler with shapes": lambda: torch.profiler.profile(activities=activities, record_shapes=True),
    }


def main() -> int:
    """Arguments: network, device, batch size, file to write."""
    network, device, batch, path = sys.argv[1:]
    workload = Workload(get_network(network), device)
    workload.load(int(batch))
    for _ in range(3):
        workload.time_step()
    times_ms: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        # Before anything uses NVTX: a library whose first range found no collector does not look for one again.
        with curvescope.record(Path(folder, "first")):
            workload.time_step()
        contexts = watchers(workload, Path(folder))
        began_s = time.monotonic()
        for done in range(_ROUNDS):
            if done >= _LEAST_ROUNDS and (time.monotonic() - began_s) * (done + 1) / done > _TIME_LIMIT_S:
                break
            for name, watched in contexts.items():
                with watched():
                    workload.time_step()
                    steps = [workload.time_step()[1] / 1e6 for _ in range(_STEPS)]
                times_ms.setdefault(name, []).append(statistics.median(steps))
    plain = times_ms["none"]
    rounds = len(plain)
    lines = ["| watched by | step ms | ratio to none | quartiles | n |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, values in times_ms.items():
        low, middle, high = statistics.quantiles([w / p for w, p in zip(values, plain, strict=True)], n=4)
        step_ms = statistics.median(values)
        lines.append(f"| {name} | {step_ms:.3f} | {middle:.4f} | {low:.4f} … {high:.4f} | {rounds}×{_STEPS} |")
    lines += ["", f"{network} training step, batch {batch}, {device}; medians of {_STEPS} steps in {rounds} rounds."]
    Path(path).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
