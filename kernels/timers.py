"""Timers for kernels: the host's performance counter, and the CUDA events of any library."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any, NamedTuple

Run = Callable[[], Any]
# A sample for which the device may have waited for the host by more than this share of it is not
# the device's time.
_MOST_WAITING = 0.02
# A hold lasts this much longer than the host needs to queue a sample, and no longer than the limit:
# while it queues 500 launches from Python the device waits for 10 ms, and a queue holds some
# thousand.
_HOLD_FACTOR, _LEAST_HOLD_NS, _MOST_HOLD_NS = 1.5, 20_000, 20_000_000
# "a resolution of approximately 0.5 microseconds": CUDA Runtime API, cudaEventElapsedTime
_EVENT_RESOLUTION_NS = 500.0
_EMPTY_PAIRS = 51
# above every boost clock in hardware/devices_*.toml; at a lower clock a hold lasts longer
_CYCLES_PER_NS = 3


class Sample(NamedTuple):
    """One sample: its start on the host's monotonic clock, and the duration of one call in it."""

    start_ns: int
    duration_ns: float
    waits_for_host: bool = False  # whether the device may have waited for the host inside it


def without_waiting(samples: Sequence[Sample]) -> list[Sample]:
    """The samples that do not wait for the host; all if each does, because then the work itself
    waits.
    """
    return [sample for sample in samples if not sample.waits_for_host] or list(samples)


class PerfCounter:
    """Timer over `time.perf_counter_ns`, for work that is complete when `run` returns.

    On Linux this is the same clock as `time.monotonic_ns`. A sample adds two clock readings and an
    append: under a microsecond.
    """

    name = "perf_counter"
    empty_ns: float | None = None  # what it reads around nothing, where that is not its resolution

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        reads = [clock_ns() for _ in range(1001)]
        self.resolution_ns = max(1.0, statistics.median(b - a for a, b in pairwise(reads)))

    def take(self, run: Run, calls: int, count: int, before: Run | None) -> list[Sample]:
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
    """The CUDA event functions of one library."""

    create: Callable[[], Any]  # an event with timing enabled
    synchronize: Callable[[], Any]  # waits for the device
    record: Callable[[Any], Any] = lambda event: event.record()  # in the stream of the work
    # From the first event to the second, once both have completed.
    elapsed_ms: Callable[[Any, Any], float] = lambda start, end: start.elapsed_time(end)
    # whether the device has reached it; does not wait
    done: Callable[[Any], bool] = lambda event: event.query()
    # keeps the stream busy for clock cycles; None without such a kernel
    hold: Callable[[int], Any] | None = None


@dataclass
class CudaEvents:
    """Timer with one event before and one after each sample, in the stream of the work.

    A short kernel holds the stream in front of each sample, for longer than the host took to queue
    the one before. So the device finds the work queued and never waits for the host, as with
    nvbench's blocking kernel. All samples are queued before the host waits once. A sample that the
    device began before the host had queued all of it says so, e.g. of a copy that waits for the
    device itself.
    """

    api: EventApi
    name: str = "CUDA events"
    clock_ns: Callable[[], int] = time.monotonic_ns
    _call_ns: float = 0.0  # what the host last took to queue one call

    @cached_property
    def empty_ns(self) -> float:
        """What a pair of events reads around nothing, once a process: 1.3 µs on an H100."""
        _first, *samples = self.take(lambda: None, 1, 1 + _EMPTY_PAIRS, None)
        return statistics.median(sample.duration_ns for sample in samples)

    @property
    def resolution_ns(self) -> float:
        """The largest error of a sample: an empty pair of events, or their resolution."""
        return max(self.empty_ns, _EVENT_RESOLUTION_NS)

    def take(self, run: Run, calls: int, count: int, before: Run | None) -> list[Sample]:
        api, clock_ns = self.api, self.clock_ns
        origin = api.create()
        events = [(api.create(), api.create()) for _ in range(count)]
        api.record(origin)
        began_ns = clock_ns()
        queue_ns: list[int] = []
        early: list[bool] = []
        for start, end in events:
            if before is not None:
                before()
            if api.hold is not None:
                # The fastest: a launch waits while some thousand are queued.
                hold_ns = (
                    _HOLD_FACTOR * min(queue_ns, default=calls * self._call_ns) + _LEAST_HOLD_NS
                )
                api.hold(round(_CYCLES_PER_NS * min(hold_ns, _MOST_HOLD_NS)))
            held_ns = clock_ns()
            api.record(start)
            for _ in repeat(None, calls):
                run()
            api.record(end)
            queue_ns.append(clock_ns() - held_ns)
            early.append(api.done(start))
        api.synchronize()
        self._call_ns = min(queue_ns, default=0) / calls
        samples = []
        for (start, end), host_ns, began_early in zip(events, queue_ns, early, strict=True):
            total_ns = api.elapsed_ms(start, end) * 1e6
            waits = began_early and host_ns > _MOST_WAITING * total_ns
            samples.append(
                Sample(
                    began_ns + round(api.elapsed_ms(origin, start) * 1e6), total_ns / calls, waits
                )
            )
        return samples


# A timer's `take` times `count` samples of `calls` calls each; `before` runs ahead of each, outside
# its time. Its `resolution_ns` is the largest error of a sample's duration.
Timer = PerfCounter | CudaEvents
