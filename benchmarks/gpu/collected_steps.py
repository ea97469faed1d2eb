"""Steps of one network at several batch sizes in NVTX ranges, for the native collector around it.

Arguments: network, device, kind of step, batch sizes as in 1..256. A batch size that does not fit the memory is said,
and the larger ones are not tried.
"""

from __future__ import annotations

import sys

import scripts

from curvescope.profiling.measure.protocol import parse_batches
from curvescope.profiling.measure.visit import memory_ran_out
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network

_WARM_UP, _STEPS = 2, 5


def main() -> int:
    """Step."""
    network, device, kind, batches = sys.argv[1:]
    workload = Workload(get_network(network), device, kind)
    for batch in parse_batches(batches):
        try:
            workload.load(batch)
            for _ in range(_WARM_UP):
                workload.time_step()
            durations_ms = sorted(duration_ns / 1e6 for duration_ns in workload.annotated_steps(_STEPS))
        except (MemoryError, RuntimeError) as error:
            if not memory_ran_out(error):
                raise
            print(f"{network} {kind} batch {batch}: out of memory")
            break
        print(f"{network} {kind} batch {batch}: {durations_ms[_STEPS // 2]:.3f} ms, ranges and collector included")
    return 0


if __name__ == "__main__":
    scripts.run(main)
