"""A sweep of any function: its steps timed over batch sizes in interleaved rounds, without a profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..hardware.clocks import ClockSampler
from ..hardware.host import describe_environment
from ..recording.store import RecordingWriter
from .experiment import Empty, StepRow, Visit, VisitWriter
from .protocol import Protocol
from .sweep import describe_sweep, sweep_batches

MakeStep = Callable[[int], Callable[[], object]]
_MODE = "training"


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
        name: name of the steps.
        make_step: takes a batch size, prepares its data, and returns a function that runs one step and waits for the
            device.
        batches: batch sizes, increasing.
        protocol: number and length of visits.
        path: folder of the recording to create.
        clock_ns: clock that times steps.

    Raises:
        CurvescopeError: the recording cannot be written. Errors of the step are passed on.
    """
    clocks = ClockSampler("cpu")

    def measure(batch: int) -> Visit | Empty:
        step = make_step(batch)

        def run() -> StepRow:
            start_ns, began_ns = time.monotonic_ns(), clock_ns()
            step()
            return {"start_ns": start_ns, "duration_ns": clock_ns() - began_ns}

        with clocks:
            discarded = [run() for _ in range(protocol.discarded_steps)]
            count = protocol.steps_of_visit(batch, discarded[-1]["duration_ns"])
            timed = [run() for _ in range(count)]
        return Visit(timed, clocks=clocks.take())

    meta = describe_sweep(name, _MODE, batches, protocol)
    meta |= {**describe_environment(), "device": None, "clocks_missing": clocks.missing}
    with RecordingWriter(path, meta) as writer:
        sweep_batches(VisitWriter(writer, _MODE), measure, protocol)
