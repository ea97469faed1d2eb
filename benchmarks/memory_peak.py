"""Compares the peak memory that Curvescope adds up by layer with the peak that the allocator itself counts.

    python benchmarks/memory_peak.py

Each number is of a process of its own. The allocator's is of a plain program: torch's profiler counts from before the
model is made, and nothing of Curvescope runs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BATCHES = (2, 8)


def allocators_peak(name: str, batch: int) -> int:
    """Bytes at the peak of a step, counted by the allocator from the start of the process."""
    from memory_steps import STEPS
    from torch.autograd.profiler import profile, record_function

    with profile(use_device=None, profile_memory=True) as profiler:
        step = {one.__name__: one for one in STEPS}[name](batch)
        step()
        step()
        with record_function("last"):
            step()
    events = list(_events(profiler.kineto_results.experimental_event_tree()))
    (last,) = (event for event in events if event.name == "last")
    totals = [
        event.extra_fields.total_allocated
        for event in events
        if event.tag.name == "Allocation" and last.start_time_ns <= event.start_time_ns <= last.end_time_ns
    ]
    return int(max(totals))


def _events(roots: list[Any]) -> Iterator[Any]:
    for event in roots:
        yield event
        yield from _events(event.children)


def added_up(name: str, batch: int) -> int:
    """Bytes at the peak of a step as the sum of the rows that Curvescope records."""
    from memory_steps import STEPS

    from curvescope.profiling.measure.visit import discard_steps, record_step
    from curvescope.profiling.workload.own_step import OwnStep

    workload = OwnStep({one.__name__: one for one in STEPS}[name], "cpu")
    discard_steps(workload, batch, 2)
    rows = [record_step(workload, watch=True, samples=False, memory=True) for _ in range(2)][-1].peak
    return sum(row["bytes"] for row in rows)


def main() -> None:
    if len(sys.argv) > 1:
        function, name, batch = sys.argv[1:]
        print(globals()[function](name, int(batch)))
        return
    from memory_steps import STEPS

    print(f"{'step':12} batch  allocator's MB  added up MB  difference")
    for step in STEPS:
        for batch in BATCHES:
            own, ours = (_in_process(function, step.__name__, batch) for function in (allocators_peak, added_up))
            print(f"{step.__name__:12} {batch:5} {own / 1e6:15.3f} {ours / 1e6:12.3f} {ours / own - 1:+11.3%}")


def _in_process(function: Any, *arguments: object) -> int:
    command = [sys.executable, str(Path(__file__)), function.__name__, *map(str, arguments)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


if __name__ == "__main__":
    main()
