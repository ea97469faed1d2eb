"""What disturbed a measurement: other work on the processor, a clock that changed, a device that throttled.

On Linux every thread's `schedstat` counts the nanoseconds it stood ready and did not run, which is the disturbance
itself; /proc/stat tells how busy the others kept the processor. Where the system does not tell, the share is null.
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

# Above these a result is said to be disturbed. Published GPU benchmarks take 2 % for the limit of a stable result; a
# thread that waited for 2 % of the time made its kernel that much slower. Others' work first costs memory bandwidth.
WAITING_LIMIT = 0.02
OTHERS_LIMIT = 0.10
CLOCK_LIMIT = 0.05


class Snapshot(NamedTuple):
    """Counters that only grow, at one moment.

    Attributes:
        wall_ns: monotonic clock.
        waiting_ns: time that threads of this process were ready and had no core; None if unknown.
        own_ns: processor time of this process.
        busy_ns: processor time of everybody, all processors together; null where not told.
    """

    wall_ns: int
    waiting_ns: int | None
    own_ns: int
    busy_ns: int | None


class Note(NamedTuple):
    """Something that a reader of a result should know.

    Attributes:
        kind: the same for the same cause.
        size: how bad; notes of one kind compare by it.
        sentence: with the number and the remedy.
    """

    kind: str
    size: float
    sentence: str


@dataclass(frozen=True)
class Conditions:
    """How one stretch of measurement went.

    Attributes:
        start_ns: its start on the monotonic clock.
        wall_ns: its length.
        waiting_share: time that threads stood ready without a processor, over wall time; null where not told.
        others_share: processor time that others used, over that of all processors; null where not told.
        clock_hz: processor or SM clock at its end; null where not told.
        throttle_reasons: why a device held its clock down; empty for no reason, null where not told.
    """

    start_ns: int
    wall_ns: int
    waiting_share: float | None
    others_share: float | None
    clock_hz: int | None
    throttle_reasons: tuple[str, ...] | None = None


def read_snapshot() -> Snapshot:
    """The counters now."""
    busy_ns = None
    with suppress(OSError, ValueError, IndexError):
        # cpu user nice system idle iowait irq softirq steal: guest time is inside user. Steal is others' work too.
        fields = [int(f) for f in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy_ns = (sum(fields) - fields[3] - fields[4]) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
    waits = read_wait_ns()
    waiting_ns = sum(waits.values()) if waits else None
    return Snapshot(time.monotonic_ns(), waiting_ns, time.process_time_ns(), busy_ns)


class CpuWatch:
    """Watches stretches of work on the processor."""

    def __init__(
        self, read: Callable[[], Snapshot] = read_snapshot, clock_hz: Callable[[], int | None] = cpu_frequency_hz
    ) -> None:
        self._read, self._clock_hz = read, clock_hz
        self._processors = os.cpu_count() or 1
        self._began = read()

    def begin(self) -> None:
        """Start a stretch."""
        self._began = self._read()

    def end(self) -> Conditions:
        """The conditions since `begin`."""
        began, now = self._began, self._read()
        wall_ns = max(now.wall_ns - began.wall_ns, 1)
        waiting = others = None
        if began.waiting_ns is not None and now.waiting_ns is not None:
            # Threads that ended took their counters with them: the difference cannot be less than nothing.
            waiting = max(now.waiting_ns - began.waiting_ns, 0) / wall_ns
        if began.busy_ns is not None and now.busy_ns is not None:
            others_ns = now.busy_ns - began.busy_ns - (now.own_ns - began.own_ns)
            others = min(max(others_ns / (wall_ns * self._processors), 0.0), 1.0)
        return Conditions(began.wall_ns, wall_ns, waiting, others, self._clock_hz())


# NVML's reasons that hold the clock below what the card could do for long; its power limit is everyday life under load,
# and the clock that follows from it is noted as such.
_THROTTLES = {"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"}


class CudaWatch:
    """Watches stretches of work on a CUDA device, by its clocks; what the processor does then is of no account."""

    def __init__(self, sampler: ClockSampler) -> None:
        self._sampler = sampler
        self._began_ns = time.monotonic_ns()

    def begin(self) -> None:
        """Start a stretch."""
        self._sampler.take()
        self._sampler.sample()
        self._began_ns = time.monotonic_ns()

    def end(self) -> Conditions:
        """The conditions since `begin`; null where NVML does not tell."""
        wall_ns = max(time.monotonic_ns() - self._began_ns, 1)
        self._sampler.sample()
        rows = self._sampler.take()
        told = [row["throttle_reasons"] for row in rows if row.get("throttle_reasons") is not None]
        reasons = sorted(_THROTTLES & {reason for text in told for reason in text.split("|")})
        clock_hz = rows[-1].get("sm_clock_hz") if rows else None
        return Conditions(self._began_ns, wall_ns, None, None, clock_hz, tuple(reasons) if told else None)


def describe_disturbance(stretches: Sequence[Conditions]) -> list[Note]:
    """A note for everything that disturbed a result; none for a quiet machine."""
    notes = []
    waiting = _mean_share(stretches, lambda c: c.waiting_share)
    if waiting is not None and waiting > WAITING_LIMIT:
        sentence = (
            f"threads waited for a processor, together {waiting:.0%} of the time: stop other work, or use fewer "
            "threads (OMP_NUM_THREADS)"
        )
        notes.append(Note("waiting", waiting, sentence))
    others = _mean_share(stretches, lambda c: c.others_share)
    if others is not None and others > OTHERS_LIMIT:
        sentence = f"other processes used {others:.0%} of the processors: stop them and measure again"
        notes.append(Note("others", others, sentence))
    clocks = [c.clock_hz for c in stretches if c.clock_hz]
    if clocks and min(clocks) < (1 - CLOCK_LIMIT) * max(clocks):
        sentence = (
            f"the clock went between {min(clocks) / 1e6:.0f} and {max(clocks) / 1e6:.0f} MHz: fix it, or let the "
            "device cool"
        )
        notes.append(Note("clock", max(clocks) / min(clocks), sentence))
    reasons = sorted({reason for c in stretches for reason in c.throttle_reasons or ()})
    if reasons:
        sentence = f"the device throttled ({', '.join(reasons)}): let it cool, or lower its clocks"
        notes.append(Note("throttled", len(reasons), sentence))
    return notes


def _mean_share(stretches: Sequence[Conditions], share: Callable[[Conditions], float | None]) -> float | None:
    known = [(c.wall_ns, value) for c in stretches if (value := share(c)) is not None]
    wall_ns = sum(wall for wall, _ in known)
    return sum(wall * value for wall, value in known) / wall_ns if wall_ns else None
