"""Runs one step of a configuration inside an NVTX start/end range, for a tool that counts its kernels.

`python -m curvescope.profiling.measure.counted_step CONFIGURATION BATCH`; the configuration is the JSON of
`entry_of`. The range spans all threads: torch launches the kernels of the backward pass from a thread of its own.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from ..errors import CurvescopeError
from ..workload.any_workload import AnyWorkload
from .configuration import Configuration

RANGE = "curvescope.counted"
_WARM_UP_STEPS = 2  # besides the first: libraries choose their algorithms in the first steps of a size


def command(configuration: Configuration, batch: int) -> list[str]:
    """The command that runs the step in a process of its own."""
    return [sys.executable, "-m", __spec__.name, json.dumps(asdict(configuration)), str(batch)]


def run_marked(workload: AnyWorkload, batch: int) -> None:
    """Run one step in the range, after a warm-up outside it.

    Raises:
        CurvescopeError: the step failed.
    """
    import nvtx

    workload.try_step(batch)
    for _ in range(_WARM_UP_STEPS):
        workload.time_step()
    marked = nvtx.start_range(RANGE)
    workload.time_step()
    nvtx.end_range(marked)


def main() -> None:
    """Run the step that the arguments name; what is wrong with it is the last line on standard error."""
    try:
        run_marked(Configuration.from_entry(json.loads(sys.argv[1])).build(), int(sys.argv[2]))
    except CurvescopeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
