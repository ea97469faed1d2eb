"""Stands in for `ncu` in a rehearsal: records the command with the collector, and writes the table
that ncu would.

It takes `--log-file=FILE`, `--metrics=NAMES` and the other options of ncu before the command, and
knows the duration and the cycles of each kernel alone. Nothing of it is counted: what it writes is
virtual.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from itertools import takewhile
from pathlib import Path

from curvescope.profiling.recording.store import open_recording

_HZ = 1.98e9
# Of each metric that it knows the unit, and the value of a kernel's nanoseconds.
_METRICS = {
    "gpu__time_duration.sum": ("nsecond", lambda ns: ns),
    "sm__cycles_elapsed.max": ("cycle", lambda ns: round(ns * _HZ / 1e9)),
}
_COLUMNS = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
)


def main() -> int:
    options = list(takewhile(lambda word: word.startswith("-"), sys.argv[1:]))
    given = dict(word.removeprefix("--").split("=", 1) for word in options if "=" in word)
    log, asked = given["log-file"], given.get("metrics", "").split(",")
    metrics = {name: what for name, what in _METRICS.items() if name in asked}
    with tempfile.TemporaryDirectory() as folder:
        recorder = [sys.executable, "-m", "curvescope.cli", "record", "-o", f"{folder}/r", "--"]
        code = subprocess.run([*recorder, *sys.argv[1 + len(options) :]], check=False).returncode
        kernels = open_recording(Path(folder, "r")).frame("kernels").dropna(subset=["grid_x"])
    kernels = kernels.sort_values("correlation_id")
    with Path(log).open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow([*_COLUMNS, "Device", "CC", *metrics])
        writer.writerow([*[""] * (len(_COLUMNS) + 2), *(unit for unit, _ in metrics.values())])
        for number, one in enumerate(kernels.itertuples()):
            block, grid = (
                f"({', '.join(str(getattr(one, f'{what}_{axis}')) for axis in 'xyz')})"
                for what in ("block", "grid")
            )
            own = [number, os.getpid(), "python", "", one.name, 1, 7, block, grid, 0, "9.0"]
            writer.writerow([*own, *(value(one.duration_ns) for _, value in metrics.values())])
    return code


if __name__ == "__main__":
    sys.exit(main())
