"""One factor of complete steps, in a process of its own: its start, its times and its kernels, as a
row.

Arguments: recording of a sweep, name of the factor or `unmodified`, file that gets the row. Kernels
are those of one profiled step by name: how many names it has, and which the step without the factor
does not have.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import scripts

from curvescope.base.errors import CurvescopeError
from curvescope.experiments.factors import step_change
from curvescope.experiments.recorded_steps import target_of
from curvescope.profiling.collect.torch_step import record_step
from curvescope.profiling.measure.configuration import configuration_of
from curvescope.profiling.measure.sites.here import build_workload
from curvescope.profiling.measure.visit import discard_steps, time_steps
from curvescope.profiling.recording.store import Recording, open_recording
from curvescope.profiling.workload.steps import Steps

_STEPS = 5
_UNMODIFIED = "unmodified"


def measure(recording: Recording, factor: str, known: set[str]) -> tuple[dict[str, Any], set[str]]:
    began_s = time.monotonic()
    change = step_change(None if factor == _UNMODIFIED else factor)
    configuration = configuration_of(recording.meta)
    target = target_of(recording, configuration, tuple(recording.meta["batches"]))
    if (reason := change.reason_against(target)) is not None:
        raise CurvescopeError(reason)
    os.environ.update(change.environment)
    change.prepare(target)
    workload = build_workload(configuration)
    steps = change.change(workload, target)
    for batch in target.batches:
        steps.load(batch)
        steps.time_step()
    start_s = time.monotonic() - began_s
    times_ms = []
    for batch in target.batches:
        with change.around(target):
            discard_steps(steps, batch, 1)
            timed = [row["duration_ns"] / 1e6 for row in time_steps(steps, _STEPS, exactly=True)]
        times_ms.append(f"{statistics.median(timed):.3f} at {batch}")
    with change.around(target):
        steps.load(target.batches[-1])
        steps.time_step()
        record_step(lambda _: run(steps), (), device=steps.device)  # the profiler's first start
        kernels = record_step(lambda _: run(steps), (), device=steps.device).kernels
    names = {str(row["name"]) for row in kernels}
    new = ", ".join(f"`{name[:60]}`" for name in sorted(names - (known or names))[:5])
    row = {
        "start_s": start_s,
        "median ms": ", ".join(times_ms),
        "kernel names": len(names),
        "new names": new or "none",
    }
    return row, names


def run(steps: Steps) -> None:
    steps.time_step()


def main() -> int:
    recording, factor, path = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    kept = path.with_name(f"{path.stem}-{_UNMODIFIED}.json")
    known = set(json.loads(kept.read_text())) if kept.exists() else set()
    try:
        row, names = measure(open_recording(recording), factor, known)
        if factor == _UNMODIFIED:
            kept.write_text(json.dumps(sorted(names)))
    except CurvescopeError as error:
        row = {"median ms": str(error)}
    scripts.add_row(path, {"factor": factor, **row})
    return 0


if __name__ == "__main__":
    scripts.run(main)
