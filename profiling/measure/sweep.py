"""A sweep: steps of one network over several batch sizes, timed and recorded in interleaved rounds.

Every round visits every batch size, so that slow drift of the machine touches all of them alike; the visits of the
first round go upwards (what an interrupted sweep leaves is whole up to a batch size), the later ones in shuffled order.
A visit runs one discarded step (the first after a change of batch size pays for fresh memory), the timed steps,
and in some rounds one profiled step, taken in the same minute as the timed ones it is held against.
A batch size that does not fit the memory is a result: it is named, and the others go on.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any
from typing import Protocol as TypingProtocol

from ..errors import CurvescopeError
from ..hardware import ceilings
from ..hardware.clocks import ClockSampler
from ..hardware.host import describe_device, describe_host, describe_versions
from ..masking import without_secrets
from ..recording.remote_store import AnyPath
from ..recording.store import Recording, RecordingWriter, columns_of
from ..workload.network_step import Workload
from .progress import Pace, Progress
from .protocol import Protocol
from .visit import Empty, Visit, part_of_visit, visit

SEED = 0
StepRow = dict[str, Any]  # a row of the `steps` table
Measure = Callable[[int, bool], Visit | Empty]  # batch size, whether to profile


class Clocks(TypingProtocol):
    """Where rows of the `clocks` table come from."""

    def take(self) -> list[dict[str, Any]]:
        """Those since the last call."""


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
        protocol: how often.
        path: folder to create for the recording.
        report: told where the sweep stands after every visit.
        precise: given the steps so far after every round, whether they are enough.
        clock_s: the clock that the time limit is held against.

    Raises:
        CurvescopeError: the network takes no step, the recording cannot be written, or no batch size fits the memory.
        KeyboardInterrupt: passed on, after the recording is marked interrupted.
    """
    meta = {
        **describe_sweep(workload.network.name, workload.kind, batches, protocol),
        "precision": workload.precision,
        "compiled": workload.compiled,
        "device": (device := describe_device(workload.device)),
        "ceilings": ceilings.entry_for(device),
        "clocks_missing": (clocks := ClockSampler(workload.device)).missing,
    }
    workload.try_step(min(batches))

    def measure(batch: int, profile: bool) -> Visit | Empty:
        with clocks:
            return visit(workload, batch, protocol, profile)

    with RecordingWriter(path, meta) as writer:
        rounds = Rounds(measure, clocks, batches, protocol, writer, report, precise, clock_s)
        rounds.run()
        if not rounds.steps:
            first = writer.meta["empty"][0]
            raise CurvescopeError(
                f"No batch size could be measured; batch {first['batch']}: {first['why']} ({first['detail']}). "
                "Choose smaller sizes with --batch."
            )


def describe_sweep(network: str, kind: str, batches: Sequence[int], protocol: Protocol) -> dict[str, Any]:
    """Entries of `recording.json` that every sweep has."""
    return {
        "kind": "sweep",
        "argv": without_secrets(sys.argv[1:]),
        "network": network,
        "step": kind,
        "batches": list(batches),
        "protocol": asdict(protocol),
        "seed": SEED,
        "host": describe_host(),
        "versions": describe_versions(),
        "empty": [],
    }


class Rounds:
    """The rounds of one sweep, into one recording. A recording that has some of the visits is gone on with.

    Each visit is a part of every table, under one name; that of `steps` is written last and makes the visit count.

    Attributes:
        steps: rows of the `steps` table so far.
        next_step: number of the next one.
    """

    def __init__(
        self,
        measure: Measure,
        clocks: Clocks,
        batches: Sequence[int],
        protocol: Protocol,
        writer: RecordingWriter,
        report: Callable[[Progress], None],
        precise: Callable[[Sequence[StepRow]], bool],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measure, self._clocks = measure, clocks
        self._batches, self._protocol = tuple(batches), protocol
        self._writer, self._report, self._precise, self._clock_s = writer, report, precise, clock_s
        before = Recording(writer.path, dict(writer.meta))
        self._visited = {part.stem for part in before.parts("steps")}
        self.steps: list[StepRow] = before.arrow("steps").to_pylist() if self._visited else []
        self.next_step = max((row["step"] for row in self.steps), default=-1) + 1

    def run(self) -> None:
        """Run what is missing.

        Raises:
            CurvescopeError: the recording cannot be written.
        """
        pace: Pace[int] = Pace(self._protocol, float(self._writer.meta.get("elapsed_s", 0.0)), self._clock_s)
        least, most = self._protocol.rounds
        done = 0
        for repeat, order in enumerate(self._orders(most)):
            missing = [b for b in order if part_of_visit(b, repeat) not in self._visited and b not in self._empty()]
            if repeat >= least and missing and (not pace.has_time_for(missing) or self._precise(self.steps)):
                break
            for place, batch in enumerate(missing):
                with pace.visit(batch):
                    self._visit(batch, repeat)
                self._writer.update(elapsed_s=round(pace.elapsed_s, 3))
                self._report(pace.progress(missing[place + 1 :], repeat, f"round {repeat + 1}, batch {batch}"))
            if len(self._empty()) == len(self._batches):
                break
            done = repeat + 1
        self._writer.update(rounds=done)

    def _empty(self) -> set[int]:
        return {cell["batch"] for cell in self._writer.meta["empty"]}

    def _orders(self, most: int) -> Iterator[list[int]]:
        shuffled = random.Random(SEED)  # noqa: S311 - an order of measurement, no secret
        for repeat in range(most):
            order = list(self._batches)
            if repeat:
                shuffled.shuffle(order)
            yield order

    def _visit(self, batch: int, repeat: int) -> None:
        found = self._measure(batch, repeat < self._protocol.profiled_rounds)
        if isinstance(found, Empty):
            cell = {"batch": batch, "round": repeat, **asdict(found)}
            self._writer.update(empty=[*self._writer.meta["empty"], cell])
            return
        part = part_of_visit(batch, repeat)
        steps = [self._step_row(batch, repeat, i, row, False) for i, row in enumerate(found.timed)]
        if (profiled := found.profiled) is not None:
            (start_ns, duration_ns), *_ = profiled.windows
            window = {"start_ns": start_ns, "duration_ns": duration_ns}
            steps.append(self._step_row(batch, repeat, len(steps), window, True))
            for row in profiled.kernels:
                row["step"] = steps[-1]["step"]
            self._writer.write("kernels", columns_of(profiled.kernels), part)
            for name, count in profiled.lost.items():
                self._writer.count_lost(name, count)
        self._writer.count_lost("profiles_out_of_memory", int(not found.profile_fits))
        self._writer.write("clocks", columns_of(self._clocks.take()), part)
        self._writer.write("steps", columns_of(steps), part)

    def _step_row(self, batch: int, repeat: int, index: int, timed: StepRow, profiled: bool) -> StepRow:
        row = {
            "step": self.next_step,
            "batch": batch,
            "repeat": repeat,
            "index": index,
            "phase": self._writer.meta["step"],
            "profiled": profiled,
            **timed,
        }
        self.steps.append(row)
        self.next_step += 1
        return row
