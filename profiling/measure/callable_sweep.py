"""A sweep of any function: its steps timed over batch sizes in the interleaved rounds of `sweep.py`, unprofiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..hardware.clocks import ClockSampler
from ..recording.store import RecordingWriter
from .protocol import Protocol
from .sweep import Rounds, describe_sweep
from .visit import Empty, Visit

MakeStep = Callable[[int], Callable[[], object]]


def sweep_callable(
    name: str,
    make_step: MakeStep,
    batches: Sequence[int],
    protocol: Protocol,
    path: Path,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> None:
    """Time the steps of a function over batch sizes and record them; nothing is profiled, so anomalies have no terms.

    Args:
        name: what to call the steps.
        make_step: given a batch size, prepares its data and returns a function that runs one whole step, and returns
            when the device is done with it.
        batches: batch sizes, increasing.
        protocol: how often.
        path: folder of the recording to create.
        clock_ns: that steps are timed by.

    Raises:
        CurvescopeError: the recording cannot be written. What a step raises is passed on.
    """
    clocks = ClockSampler("cpu")

    def measure(batch: int, _profile: bool) -> Visit | Empty:
        step = make_step(batch)
        duration_ns = 0
        timed: list[dict[str, Any]] = []

        def run() -> None:
            nonlocal duration_ns
            start_ns, began_ns = time.monotonic_ns(), clock_ns()
            step()
            duration_ns = clock_ns() - began_ns
            timed.append({"start_ns": start_ns, "duration_ns": duration_ns})

        with clocks:
            for _ in range(protocol.discarded_steps):
                run()
            timed.clear()
            for _ in range(protocol.steps_of_visit(batch, duration_ns)):
                run()
        return Visit(timed)

    meta = {**describe_sweep(name, "training", batches, protocol), "device": None, "clocks_missing": clocks.missing}
    with RecordingWriter(path, meta) as writer:
        Rounds(measure, clocks, batches, protocol, writer, lambda _: None, lambda _: False).run()
