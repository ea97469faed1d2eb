"""A sweep of any function: its steps timed over batch sizes in interleaved rounds, without a profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..workload.own_step import MakeStep, OwnStep
from .protocol import Protocol
from .sweep import run_sweep


def sweep_callable(
    name: str,
    make_step: MakeStep,
    batches: Sequence[int],
    protocol: Protocol,
    path: Path,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> None:
    """Time the steps of a function over batch sizes and record them; nothing is profiled, so anomalies have no terms.

    Args:
        name: name of the steps.
        make_step: function that prepares the data of a batch size and returns a function that runs one step.
        batches: batch sizes, increasing.
        protocol: number and length of visits.
        path: folder of the recording to create.
        clock_ns: clock that times steps.

    Raises:
        CurvescopeError: the recording cannot be written. Errors of the step are passed on.
    """
    workload = OwnStep(make_step, name=name, errors_are_results=False, clock_ns=clock_ns)
    run_sweep(workload, batches, replace(protocol, profiled_steps=0), path)
