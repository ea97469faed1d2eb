"""Timers for kernels: the host's performance counter, and the CUDA events of any library."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any, NamedTuple, Protocol

Run = Callable[[], Any]
# Share of the device's time per sample that the host needs to queue one, from which on the device waits: it then does
# the work as it comes, so both times are about equal.
_HOST_BOUND = 0.9


class Sample(NamedTuple):
    """One timed sample.

    Attributes:
        start_ns: start on the host's monotonic clock.
        duration_ns: duration of one call in it.
        waits_for_host: whether the device did the work faster than the host queued it.
    """

    start_ns: int
    duration_ns: float
    waits_for_host: bool = False


class Timer(Protocol):
    """Takes samples."""

    @property
    def name(self) -> str:
        """Name of the clock."""

    @property
    def resolution_ns(self) -> float:
        """Largest error of a sample's duration, ns."""

    def take(self, run: Run, calls: int, count: int, before: Run | None) -> list[Sample]:
        """Time `count` samples of `calls` calls each; `before` runs ahead of each, outside its time."""


class PerfCounter:
    """Timer over `time.perf_counter_ns`, for work that is complete when `run` returns.

    On Linux this is the same clock as `time.monotonic_ns`. A sample adds two clock readings and an append
    (benchmarks/sample_overhead.py).
    """

    name = "perf_counter"

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        reads = [clock_ns() for _ in range(1001)]
        self.resolution_ns = max(1.0, statistics.median(b - a for a, b in pairwise(reads)))

    def take(self, run: Run, calls: int, count: int, before: Run | None) -> list[Sample]:
        """See `Timer.take`."""
        clock = self._clock_ns
        samples = []
        for _ in repeat(None, count):
            if before is not None:
                before()
            if calls == 1:
                start = clock()
                run()
                end = clock()
            else:
                start = clock()
                for _ in repeat(None, calls):
                    run()
                end = clock()
            samples.append((start, end))
        return [Sample(start, (end - start) / calls) for start, end in samples]


@dataclass(frozen=True)
class EventApi:
    """The CUDA event functions of one library.

    Attributes:
        create: function that creates an event with timing enabled.
        record: function that records the event in the stream of the work.
        elapsed_ms: time from the first event to the second in ms, once both have completed.
        synchronize: function that waits for the device.
    """

    create: Callable[[], Any]
    record: Callable[[Any], Any]
    elapsed_ms: Callable[[Any, Any], float]
    synchronize: Callable[[], Any]


@dataclass(frozen=True)
class CudaEvents:
    """Timer with one event before and one after each sample, in the stream of the work.

    All samples are queued before the host waits once. So the device goes from one sample to the next without waiting
    for the host, as long as the host queues faster than the kernels run (a cache flush between samples gives it time).
    Otherwise the samples say that they wait for the host.
    """

    api: EventApi
    name: str = "CUDA events"
    # "a resolution of approximately 0.5 microseconds": CUDA Runtime API, cudaEventElapsedTime
    resolution_ns: float = 500.0
    clock_ns: Callable[[], int] = time.monotonic_ns

    def take(self, run: Run, calls: int, count: int, before: Run | None) -> list[Sample]:
        """See `Timer.take`."""
        api = self.api
        events = [(api.create(), api.create()) for _ in range(count)]
        began_ns = self.clock_ns()
        queued_ns = [began_ns]
        for start, end in events:
            if before is not None:
                before()
            api.record(start)
            for _ in repeat(None, calls):
                run()
            api.record(end)
            queued_ns.append(self.clock_ns())
        api.synchronize()
        first, last = events[0][0], events[-1][1]
        # The fastest: CUDA makes the host wait once about a thousand launches are queued.
        host_ns = min(after - before for before, after in pairwise(queued_ns))
        waits = host_ns >= _HOST_BOUND * api.elapsed_ms(first, last) * 1e6 / count
        starts_ns = [began_ns + round(api.elapsed_ms(first, start) * 1e6) for start, _ in events]
        durations_ns = [api.elapsed_ms(start, end) * 1e6 / calls for start, end in events]
        return [Sample(*times, waits) for times in zip(starts_ns, durations_ns, strict=True)]
