"""A CUDA stream on a virtual clock: each call costs the host time, each kernel the device; nothing sleeps."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from curvescope.kernels.timers import CudaEvents, EventApi


class VirtualStream:
    """Work runs in order, from the call that queues it on; a call waits while 1,024 others are queued."""

    def __init__(self, call_ns: int = 7_000, cycles_per_ns: float = 1.98, queue: int = 1024) -> None:
        self.host_ns, self._free_ns = 0, 0.0
        self._call_ns, self._cycles_per_ns, self._queue = call_ns, cycles_per_ns, queue
        self._ends_ns: deque[float] = deque()

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
        self.launch(0)
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
