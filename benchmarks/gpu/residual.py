"""What an earlier profiler leaves behind: the same step in a fresh process, after torch.profiler, after a recording.

Arguments: network, device, batch size, file to write. One process: 50 steps unprofiled; one profile of a step by
torch.profiler; 50 steps; one `curvescope.record()` block of a step; 50 steps. A ratio above 1 says that T(b), timed
after a profile, holds some of the profiler's cost.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import scripts

import curvescope
from curvescope.base.torch_runtime import import_torch
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network

_STEPS = 50
_WARM_UP = 10


def main() -> int:
    """Write the table."""
    network, device, batch, path = sys.argv[1:]
    torch = import_torch()
    workload = Workload(get_network(network), device)
    workload.load(int(batch))
    count = _STEPS if workload.cuda else 2

    def steps_ms() -> list[float]:
        for _ in range(_WARM_UP if workload.cuda else 1):
            workload.time_step()
        return [workload.time_step()[1] / 1e6 for _ in range(count)]

    times_ms = {"fresh process": steps_ms()}
    with torch.profiler.profile() as profiler:
        workload.time_step()
    events = len(profiler.events())
    times_ms["after torch.profiler"] = steps_ms()
    with tempfile.TemporaryDirectory() as folder:
        with curvescope.record(Path(folder, "r")) as recording:
            workload.time_step()
        kernels, statuses = (
            recording.count_rows("kernels"),
            [c.get("cupti_status") for c in recording.meta["collectors"]],
        )
    times_ms["after a recording"] = steps_ms()
    fresh_ms = statistics.median(times_ms["fresh process"])
    lines = ["| steps | median ms | quartiles | ratio to fresh | n |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, values in times_ms.items():
        low, middle, high = statistics.quantiles(values, n=4)
        lines.append(f"| {name} | {middle:.3f} | {low:.3f} … {high:.3f} | {middle / fresh_ms:.4f} | {count} |")
    said = ", ".join(map(str, statuses)) or "no process used CUDA"
    lines += ["", f"{network}, batch size {batch}, {device}. torch.profiler saw {events} events."]
    lines += [f"The recording has {kernels} kernels; its collector: {said}."]
    Path(path).write_text("\n".join(lines) + "\n")
    return int(not events or (workload.cuda and not kernels))


if __name__ == "__main__":
    scripts.run(main)
