"""Disturbances of a measurement: other work on the processor, a changed clock, a throttled device.

On Linux `schedstat` counts the nanoseconds in which a thread was ready but did not run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..profiling.hardware.clocks import ClockSampler
from ..profiling.hardware.host import cpu_frequency_hz
from ..profiling.hardware.host_usage import read_wait_ns
from ..profiling.hardware.stream_clock import StreamClock
from ..profiling.recording.disturbed import CLOCK_FALLEN, MOST_WAITING, THROTTLES

# Above these limits a result has a note; a step's visit is set aside by the same ones. Work of
# other processes first costs memory bandwidth.
_SHARES = {
    "waiting": (
        MOST_WAITING,
        "threads waited for a processor, together {:.0%} of the time: stop other work, or use "
        "fewer threads (OMP_NUM_THREADS)",
    ),
    "others": (0.10, "other processes used {:.0%} of the processors: stop them and measure again"),
}


class Snapshot(NamedTuple):
    """Values of increasing counters at one moment; None if unknown."""

    wall_ns: int  # monotonic clock
    waiting_ns: int | None  # time in which threads of this process were ready but had no core
    own_ns: int  # processor time of this process
    busy_ns: int | None  # processor time of all processes on all processors


@dataclass(frozen=True)
class Note:
    """A disturbance or a limit of the precision of a result.

    Attributes:
        kind: name of the cause.
        size: severity, comparable between notes of one kind.
        sentence: message with the number and the remedy.
    """

    kind: str
    size: float
    sentence: str


@dataclass(frozen=True)
class Conditions:
    """The machine's conditions during one visit; None if unknown."""

    start_ns: int  # on the monotonic clock
    wall_ns: int
    waiting_share: float | None  # of wall time, in which threads were ready but had no processor
    others_share: float | None  # of the time of all processors, used by other processes
    clock_hz: int | None  # the processor's at the end, or the mean SM clock
    throttle_reasons: tuple[str, ...] | None = None  # empty without a reason


def read_snapshot() -> Snapshot:
    """Read the counters."""
    busy_ns = None
    with suppress(OSError, ValueError, IndexError):
        # cpu user nice system idle iowait irq softirq steal: user includes guest time; steal is
        # work of others too.
        first_line, _, _ = Path("/proc/stat").read_text().partition("\n")
        fields = list(map(int, first_line.split()[1:9]))
        tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        busy_ns = (sum(fields) - fields[3] - fields[4]) * tick_ns
    waits = read_wait_ns()
    waiting_ns = sum(waits.values()) if waits else None
    return Snapshot(time.monotonic_ns(), waiting_ns, time.process_time_ns(), busy_ns)


class CpuWatch:
    """Observes the conditions of work on the processor."""

    def __init__(
        self,
        read: Callable[[], Snapshot] = read_snapshot,
        clock_hz: Callable[[], int | None] = cpu_frequency_hz,
    ) -> None:
        self._read, self._clock_hz = read, clock_hz
        self._processors = os.cpu_count() or 1
        self._began = read()

    def begin(self) -> None:
        self._began = self._read()

    def end(self) -> Conditions:
        began, now = self._began, self._read()
        wall_ns = max(now.wall_ns - began.wall_ns, 1)
        waiting = others = None
        if began.waiting_ns is not None and now.waiting_ns is not None:
            # Counters of threads that ended are gone, so the difference can be negative.
            waiting = max(now.waiting_ns - began.waiting_ns, 0) / wall_ns
        if began.busy_ns is not None and now.busy_ns is not None:
            own_ns = now.own_ns - began.own_ns
            others_ns = now.busy_ns - began.busy_ns - own_ns
            share = others_ns / (wall_ns * self._processors)
            others = min(max(share, 0.0), 1.0)
        return Conditions(began.wall_ns, wall_ns, waiting, others, self._clock_hz())


class CudaWatch:
    """Observes the conditions of work on a CUDA device, by its clocks; the processor's load does
    not matter there.
    """

    def __init__(
        self, sampler: ClockSampler, clock: Callable[[], StreamClock | None] = lambda: None
    ) -> None:
        self._sampler, self._clock = sampler, clock
        self._began_ns = time.monotonic_ns()

    def begin(self) -> None:
        self._sampler.take()
        self._sampler.sample()
        self._began_ns = time.monotonic_ns()
        if clock := self._clock():
            clock.begin()

    def end(self) -> Conditions:
        """The conditions since `begin`; None for values that neither the device nor
        NVML provides.
        """
        clock = self._clock()
        clock_hz = clock.end() if clock else None
        wall_ns = max(time.monotonic_ns() - self._began_ns, 1)
        self._sampler.sample()
        reasons: set[str] | None = None  # while no sample says any
        for row in self._sampler.take():
            text = row.get("throttle_reasons")
            if text is not None:
                reasons = (reasons or set()) | set(text.split("|"))
        throttles = None if reasons is None else tuple(sorted(THROTTLES & reasons))
        return Conditions(self._began_ns, wall_ns, None, None, clock_hz, throttles)


def describe_disturbance(conditions: Sequence[Conditions]) -> list[Note]:
    """A note for each disturbance of a result, from the conditions of its visits."""
    notes = []
    for kind, (limit, sentence) in _SHARES.items():
        total_ns, disturbed_ns = 0, 0.0
        for each in conditions:
            share = getattr(each, f"{kind}_share")
            if share is not None:
                total_ns += each.wall_ns
                disturbed_ns += each.wall_ns * share
        mean = disturbed_ns / total_ns if total_ns else 0.0
        if mean > limit:
            notes.append(Note(kind, mean, sentence.format(mean)))
    clocks = [each.clock_hz for each in conditions if each.clock_hz]
    slowest, fastest = min(clocks, default=0), max(clocks, default=0)
    if slowest < CLOCK_FALLEN * fastest:
        span = f"{slowest / 1e6:.0f} and {fastest / 1e6:.0f} MHz"
        sentence = f"the clock varied between {span}: lock it, or let the device cool"
        notes.append(Note("clock", fastest / slowest, sentence))
    reasons: set[str] = set()
    for each in conditions:
        reasons.update(each.throttle_reasons or ())
    if reasons:
        listed = ", ".join(sorted(reasons))
        sentence = f"the device throttled ({listed}): let it cool, or lower its clocks"
        notes.append(Note("throttled", len(reasons), sentence))
    return notes
