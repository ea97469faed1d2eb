"""One training step under torch.profiler, exported as it writes traces.

Arguments: network, device, batch, file.
"""

from __future__ import annotations

import sys

import scripts

from curvescope.base.torch_runtime import import_torch
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network


def main() -> int:
    network, device, batch, path = sys.argv[1:]
    torch = import_torch()
    workload = Workload(get_network(network), device)
    workload.load(int(batch))
    for _ in range(2):
        workload.time_step()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if workload.cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    # The first use of the profiler pays for its own start.
    with torch.profiler.profile(activities=activities):
        workload.time_step()
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        workload.time_step()
        profiler.step()
    profiler.export_chrome_trace(path)
    return 0


if __name__ == "__main__":
    scripts.run(main)
