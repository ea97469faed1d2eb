"""A sweep: steps of one network over several batch sizes, timed and recorded in interleaved rounds.

Every round visits every batch size, so that slow drift of the machine touches all of them alike; the visits of the
first round go upwards (what an interrupted sweep leaves is whole up to a batch size), the later ones in shuffled order.
A visit runs one discarded step (the first after a change of batch size pays for fresh memory), the timed steps,
and in some rounds one profiled step, taken in the same minute as the timed ones it is held against.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import CurvescopeError
from .host import cpu_frequency_hz, describe_device, describe_host, describe_versions
from .recorders.events import Operation, StepRows
from .store import RecordingWriter
from .workload import Workload

_SEED = 0
StepRow = dict[str, Any]  # a row of the `steps` table
# What torch's allocators say on CUDA and on the CPU.
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory")
LOST_SENTENCES = {
    "primitives_outside_operators": "oneDNN calls that ran in no operator the profiler saw; their time is in idle",
    "primitives_without_time": "oneDNN calls without a timestamp; their time stays with their operator",
    "mkl_calls_not_placed": "MKL calls whose operator was not found; their time stays with the operator that made them",
    "kernels_without_operator": "device kernels without the operator that launched them; layer and phase are unknown",
}


@dataclass(frozen=True)
class Protocol:
    """How a sweep measures; printed with every result.

    Attributes:
        name: what to call it.
        rounds: least and most rounds over all batch sizes; between them the time limit and `until` decide.
        discarded_steps: steps at the start of each visit that are run and not kept; at least one.
        steps_per_visit: least and most timed steps of one visit; between them `visit_s` decides.
        visit_s: time the timed steps of one visit may take.
        profiled_rounds: rounds in which each visit ends with a profiled step; the first rounds are taken.
        time_limit_s: no round starts that is not expected to end within it, once the least number is done; null for
            none: all rounds are run.
        statistic: what stands for T(b): median or mean of the timed steps.
        until: stop once the interval of every batch size is within this share of its T(b) to either side; null: never.
    """

    name: str
    rounds: tuple[int, int]
    discarded_steps: int
    steps_per_visit: tuple[int, int]
    visit_s: float
    profiled_rounds: int
    time_limit_s: float | None
    statistic: str = "median"
    until: float | None = None


PROTOCOLS = {
    "default": Protocol("default", (6, 40), 1, (1, 8), 0.6, 6, 112.0),
    "quick": Protocol("quick", (4, 12), 1, (1, 2), 0.3, 3, 27.0),
    # The benchmark post that gave the VGG figures on a GTX 1080: the mean of 100 runs.
    "addfor": Protocol("addfor", (10, 10), 1, (10, 10), 0.0, 3, None, "mean"),
    # 20 steps ignored, 100 measured, 7 repeats, the median.
    "dlperf": Protocol("dlperf", (7, 7), 20, (100, 100), 0.0, 3, None),
}


def parse_batches(text: str) -> tuple[int, ...]:
    """Batch sizes from `1,2,4` (as listed), `1..32` (powers of two times the first), or `32..160:8` (steps of 8).

    Raises:
        CurvescopeError: not of these forms, or not positive and increasing.
    """
    form = "use a list as in 1,2,4, powers of two as in 1..32, or a step as in 32..160:8"
    if match := re.fullmatch(r"(\d+)\.\.(\d+)(?::(\d+))?", text.strip()):
        first, last, step = int(match[1]), int(match[2]), int(match[3] or 0)
        if first < 1 or last < first or (match[3] and step < 1):
            raise CurvescopeError(f"--batch {text}: batch sizes start at 1 and increase; {form}.")
        if match[3]:
            return tuple(range(first, last + 1, step))
        doubled = []
        while first <= last:
            doubled.append(first)
            first *= 2
        return tuple(doubled)
    try:
        batches = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise CurvescopeError(f"--batch {text}: not batch sizes; {form}.") from None
    if min(batches) < 1 or list(batches) != sorted(set(batches)):
        raise CurvescopeError(f"--batch {text}: batch sizes start at 1 and increase; {form}.")
    return batches


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands, for a progress bar: seconds passed and expected in all, and what runs now."""

    elapsed_s: float
    expected_s: float
    doing: str


def run_sweep(
    workload: Workload,
    batches: Sequence[int],
    protocol: Protocol,
    path: Path,
    report: Callable[[Progress], None] = lambda _: None,
    precise: Callable[[Sequence[StepRow]], bool] = lambda _: False,
    clock_s: Callable[[], float] = time.monotonic,
) -> None:
    """Measure and record one workload over batch sizes.

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
        CurvescopeError: the network takes no step, the recording cannot be written, or a batch size does not fit the
            memory.
        KeyboardInterrupt: passed on, after the recording is marked interrupted.
    """
    meta = {
        "kind": "sweep",
        "argv": sys.argv[1:],
        "network": workload.network.name,
        "step": workload.kind,
        "batches": list(batches),
        "protocol": asdict(protocol),
        "seed": _SEED,
        "device": describe_device(workload.device),
        "host": describe_host(),
        "versions": describe_versions(),
    }
    workload.try_step(min(batches))
    with RecordingWriter(path, meta) as writer:
        _Sweep(workload, batches, protocol, writer, report, precise, clock_s).run()


class _Sweep:
    def __init__(
        self,
        workload: Workload,
        batches: Sequence[int],
        protocol: Protocol,
        writer: RecordingWriter,
        report: Callable[[Progress], None],
        precise: Callable[[Sequence[StepRow]], bool],
        clock_s: Callable[[], float],
    ) -> None:
        self._workload, self._batches, self._protocol = workload, tuple(batches), protocol
        self._writer, self._report, self._precise, self._clock_s = writer, report, precise, clock_s
        self._steps: list[StepRow] = []
        self._visit_s: dict[int, float] = {}  # the last visit of each batch size, profiling included
        self._warmed_up = False

    def run(self) -> None:
        began = self._clock_s()
        least, most = self._protocol.rounds
        limit_s = self._protocol.time_limit_s
        done = 0
        for repeat, order in enumerate(self._orders(most)):
            if repeat >= least:
                next_end_s = self._clock_s() - began + sum(self._visit_s.values())
                if (limit_s is not None and next_end_s > limit_s) or self._precise(self._steps):
                    break
            for place, batch in enumerate(order):
                visit_began = self._clock_s()
                self._visit(batch, repeat)
                self._visit_s[batch] = self._clock_s() - visit_began
                elapsed_s = self._clock_s() - began
                remaining_s = sum(self._visit_s.get(b, 0.0) for b in order[place + 1 :])
                remaining_s += sum(self._visit_s.values()) * (least - repeat - 1)
                expected_s = max(elapsed_s + remaining_s, limit_s or 0.0)
                self._report(Progress(elapsed_s, expected_s, f"round {repeat + 1}, batch {batch}"))
            done = repeat + 1
            self._sample_clocks()
        self._writer.update(rounds=done)

    def _orders(self, most: int) -> Iterator[list[int]]:
        shuffled = random.Random(_SEED)  # noqa: S311 - an order of measurement, no secret
        for repeat in range(most):
            order = list(self._batches)
            if repeat:
                shuffled.shuffle(order)
            yield order

    def _visit(self, batch: int, repeat: int) -> None:
        try:
            self._workload.load(batch)
            for _ in range(self._protocol.discarded_steps):
                _, discarded_ns = self._workload.time_step()
            least, most = self._protocol.steps_per_visit
            count = max(least, min(most, round(self._protocol.visit_s / max(discarded_ns / 1e9, 1e-6))))
            timed = [self._workload.time_step() for _ in range(count)]
            rows = None
            if repeat < self._protocol.profiled_rounds:
                if not self._warmed_up:
                    self._workload.record_step()  # the profiler's and the libraries' own first time
                    self._warmed_up = True
                rows = self._workload.record_step(count_work)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY):
                raise CurvescopeError(
                    f"Batch {batch} does not fit the memory of {self._workload.device}. What was measured before is "
                    f"in {self._writer.path}; choose smaller sizes with --batch."
                ) from error
            raise
        steps = [self._step_row(batch, repeat, i, start, duration, False) for i, (start, duration) in enumerate(timed)]
        if rows is not None:
            self._write_profiled(batch, repeat, len(steps), rows, steps)
        self._writer.write("steps", _columns(steps))

    def _write_profiled(self, batch: int, repeat: int, index: int, rows: StepRows, steps: list[dict[str, Any]]) -> None:
        (start, duration), *_ = rows.windows
        step = self._step_row(batch, repeat, index, start, duration, True)
        steps.append(step)
        for row in rows.kernels:
            row["step"] = step["step"]
        self._writer.write("kernels", _columns(rows.kernels))
        for name, count in rows.lost.items():
            self._writer.count_lost(name, count, LOST_SENTENCES[name])

    def _step_row(
        self, batch: int, repeat: int, index: int, start_ns: int, duration_ns: int, profiled: bool
    ) -> StepRow:
        row = {
            "step": len(self._steps),
            "batch": batch,
            "repeat": repeat,
            "index": index,
            "phase": self._workload.kind,
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "profiled": profiled,
        }
        self._steps.append(row)
        return row

    def _sample_clocks(self) -> None:
        if not self._workload.cuda:
            sample = {"start_ns": time.monotonic_ns(), "sm_clock_hz": cpu_frequency_hz(), "load": os.getloadavg()[0]}
            self._writer.write("clocks", _columns([sample]))


def count_work(operation: Operation) -> tuple[int | None, int | None]:
    """FLOPs and compulsory bytes of an operator call, from its shapes."""
    from .operators import work

    counted = work(operation.name, operation.shapes, operation.dtypes, operation.concrete)
    return counted.flops, counted.bytes_compulsory


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns; a key that some rows lack is null there."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
