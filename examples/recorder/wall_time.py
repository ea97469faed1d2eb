"""A recorder that runs a command five times and takes each run, start to exit, as one step.

curvescope record --with wall-time -- gzip --keep --force data.bin
"""

import subprocess
import time

NAME = "wall-time"
RUNS = 5


def record(command, writer):
    """Run the command and write the `steps` table; the exit code of the last run is ours."""
    steps = []
    for index in range(RUNS):
        start = time.monotonic_ns()
        code = subprocess.run(command, check=False).returncode
        steps.append(
            {"start_ns": start, "duration_ns": time.monotonic_ns() - start, "index": index}
        )
        if code != 0:
            writer.count_lost(
                "failed_runs", 1, "runs that ended with an error; the rest was not tried"
            )
            break
    # Every column of a table may be given at once; those that are absent are null.
    writer.write(
        "steps",
        {
            "step": list(range(len(steps))),
            "round": [0] * len(steps),
            **{name: [row[name] for row in steps] for name in ("index", "start_ns", "duration_ns")},
            "profiled": [False] * len(steps),
        },
    )
    return code
