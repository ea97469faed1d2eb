"""A backend whose time is a list of numbers and whose kernel is a Python function; and a stream on
a virtual clock.
"""

from __future__ import annotations

import itertools
from collections import deque
from types import SimpleNamespace
from typing import Any

from curvescope.kernels.backends import Prepared
from curvescope.kernels.conditions import Conditions
from curvescope.kernels.timers import CudaEvents, EventApi, Sample


class FakeTimer:
    """Every call lasts what `durations_ns` says next; nothing waits."""

    name, empty_ns = "fake", None

    def __init__(self, durations_ns, resolution_ns=1.0):
        self.resolution_ns = resolution_ns
        self._durations = itertools.cycle(durations_ns)
        self.now_ns = 0
        self.taken = []  # (calls, count, flushed) of every `take`

    def take(self, run, calls, count, before):
        self.taken.append((calls, count, before is not None))
        samples = []
        for _ in range(count):
            if before is not None:
                before()
            run()
            duration = next(self._durations)
            samples.append(Sample(self.now_ns, duration))
            self.now_ns += duration * calls
        return samples


class FakeWatch:
    def __init__(self, timer, **conditions):
        self._timer = timer
        self.conditions = {
            "waiting_share": 0.0,
            "others_share": 0.0,
            "clock_hz": 10**9,
            **conditions,
        }

    def begin(self):
        self._began = self._timer.now_ns

    def end(self):
        return Conditions(self._began, self._timer.now_ns - self._began, **self.conditions)


class FakeBackend:
    name, peak_precisions = "fake", ()

    def __init__(
        self, kernel, durations_ns=(1_000_000,), flush_ns=10_000, resolution_ns=1.0, **conditions
    ):
        self.timer = FakeTimer(durations_ns, resolution_ns)
        self.watch = FakeWatch(self.timer, **conditions)
        self.flush_ns = flush_ns
        self.flushes = self.runs = 0
        self._kernel = kernel

    def prepare(self, problem, operands):
        def run():
            self.runs += 1

        return Prepared(run, lambda: self._kernel(problem, operands), "fake_kernel")

    def flush(self):
        self.flushes += 1

    def record(self, run, layer, phase):
        return None

    def describe(self):
        return {"kind": "cpu", "name": "fake device", "threads": 1}


def exact(problem, operands):
    """The kernel that is right."""
    return problem.reference(operands)


class VirtualStream:
    """Work runs in order, from the call that queues it on; a call waits while 1,024 others are
    queued.
    """

    def __init__(
        self,
        call_ns: int = 7_000,
        cycles_per_ns: float = 1.98,
        queue: int = 1024,
        pair_ns: float = 0.0,  # what a pair of events adds
    ) -> None:
        self.host_ns, self._free_ns = 0, 0.0
        self._call_ns, self._cycles_per_ns, self._queue = call_ns, cycles_per_ns, queue
        self._ends_ns: deque[float] = deque()
        self._pair_ns = pair_ns

    def work_on_host(self, ns: int) -> None:
        self.host_ns += ns

    def launch(self, work_ns: float) -> None:
        self.host_ns += self._call_ns
        while self._ends_ns and self._ends_ns[0] <= self.host_ns:
            self._ends_ns.popleft()
        if len(self._ends_ns) == self._queue:
            self.host_ns = round(self._ends_ns.popleft())
        self._free_ns = max(self._free_ns, self.host_ns) + work_ns
        self._ends_ns.append(self._free_ns)

    def synchronize(self) -> None:
        self.host_ns = max(self.host_ns, round(self._free_ns))

    def _record(self, event: Any) -> None:
        self.launch(self._pair_ns)
        event.at_ns = self._free_ns

    def timer(self) -> CudaEvents:
        """The project's timer over this stream."""
        events = EventApi(
            create=SimpleNamespace,
            record=self._record,
            elapsed_ms=lambda start, end: (end.at_ns - start.at_ns) / 1e6,
            synchronize=self.synchronize,
            done=lambda event: event.at_ns <= self.host_ns,
            hold=lambda cycles: self.launch(cycles / self._cycles_per_ns),
        )
        return CudaEvents(events, clock_ns=lambda: self.host_ns)
