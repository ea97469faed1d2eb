"""A sweep: steps of one network over several batch sizes, timed and profiled in interleaved rounds.

The batch sizes are the conditions of an `Experiment`. A batch size that does not fit the memory is a result: it is
named in `recording.json`, and the others continue.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ..errors import CurvescopeError
from ..hardware import ceilings
from ..hardware.clocks import ClockSampler
from ..hardware.host import describe_device, describe_host, describe_versions
from ..masking import without_secrets
from ..recording.remote_store import AnyPath
from ..recording.store import RecordingWriter
from ..workload.network_step import Workload
from .experiment import SEED, Empty, Experiment, Progress, StepRow, Visit, VisitWriter
from .protocol import Protocol
from .visit import visit


def run_sweep(
    workload: Workload,
    batches: Sequence[int],
    protocol: Protocol,
    path: AnyPath,
    report: Callable[[Progress], None] = lambda _: None,
    precise: Callable[[Sequence[StepRow]], bool] = lambda _: False,
    clock_s: Callable[[], float] = time.monotonic,
) -> None:
    """Measure and record one workload over batch sizes, in this process.

    The recording grows visit by visit: interrupted, it is readable up to its last whole visit.

    Args:
        workload: what to step.
        batches: batch sizes, increasing.
        protocol: number and length of visits.
        path: folder to create for the recording.
        report: receives the progress after every visit.
        precise: says after a round whether its argument, the steps so far, is enough.
        clock_s: the clock of the time limit.

    Raises:
        CurvescopeError: the network takes no step, the recording cannot be written, or no batch size fits the memory.
        KeyboardInterrupt: passed on, after the recording is marked interrupted.
    """
    clocks = ClockSampler(workload.device)
    device = describe_device(workload.device)
    meta = {
        **describe_sweep(workload.network.name, workload.mode, batches, protocol),
        "precision": workload.precision,
        "compiled": workload.compiled,
        "device": device,
        "ceilings": ceilings.entry_for(device),
        "clocks_missing": clocks.missing,
    }
    workload.try_step(min(batches))

    def measure(batch: int) -> Visit | Empty:
        with clocks:
            found = visit(workload, batch, protocol)
        return found if isinstance(found, Empty) else replace(found, clocks=clocks.take())

    with RecordingWriter(path, meta) as writer:
        visits = VisitWriter(writer, workload.mode)
        if why := sweep_batches(visits, measure, protocol, report, precise, clock_s):
            raise CurvescopeError(f"No batch size could be measured; {why}. Choose smaller sizes with --batch.")


def describe_sweep(network: str, mode: str, batches: Sequence[int], protocol: Protocol) -> dict[str, Any]:
    """Entries of `recording.json` that every sweep has."""
    return {
        "recording_type": "sweep",
        "argv": without_secrets(sys.argv[1:]),
        "network": network,
        "mode": mode,
        "batches": list(batches),
        "protocol": asdict(protocol),
        "seed": SEED,
        "host": describe_host(),
        "versions": describe_versions(),
        "unmeasured": [],
    }


def sweep_batches(
    visits: VisitWriter,
    measure: Callable[[int], Visit | Empty],
    protocol: Protocol,
    report: Callable[[Progress], None] = lambda _: None,
    precise: Callable[[Sequence[StepRow]], bool] = lambda _: False,
    clock_s: Callable[[], float] = time.monotonic,
) -> str | None:
    """Measure the visits that the recording of a sweep does not have yet.

    Args:
        visits: of the recording, whose `batches` are measured.
        measure: makes one visit of a batch size.
        protocol: see `run_sweep`, as the arguments below.
        report: receives the progress.
        precise: says whether the steps are enough.
        clock_s: the clock of the time limit.

    Returns:
        Why no batch size could be measured; None if one was.

    Raises:
        CurvescopeError: the recording cannot be written.
    """
    writer = visits.writer

    def run_visit(batch: int, round_: int) -> None:
        found = measure(batch)
        if isinstance(found, Empty):
            entry = {"batch": batch, "round": round_, **asdict(found)}
            writer.update(unmeasured=[*writer.meta["unmeasured"], entry])
        else:
            visits.write(batch, round_, found)

    def note(progress: Progress) -> None:
        writer.update(elapsed_s=round(progress.elapsed_s, 3))
        report(progress)

    rounds = Experiment(
        writer.meta["batches"],
        run_visit,
        protocol.rounds,
        protocol.time_limit_s,
        finished=lambda batch: any(entry["batch"] == batch for entry in writer.meta["unmeasured"]),
        visited=visits.has,
        precise=lambda: precise(visits.steps),
        label=lambda batch: f"batch {batch}",
        report=note,
        elapsed_s=float(writer.meta.get("elapsed_s", 0.0)),
        clock_s=clock_s,
    ).run()
    writer.update(rounds=rounds)
    return None if visits.steps else why_empty(writer.meta)


def why_empty(meta: Mapping[str, Any]) -> str:
    """The first batch size of a sweep that could not be measured, and why."""
    first = meta["unmeasured"][0]
    return f"batch {first['batch']}: {first['why']} ({first['detail']})"
