"""Shared by the backends on CUDA devices: properties of the device, events, clocks, cache flush,
and launches.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from ...base.errors import CurvescopeError
from ...profiling.hardware.clocks import ClockSampler
from ...profiling.hardware.occupancy import nearest_limits, occupancy_of
from ...profiling.hardware.stream_clock import stream_clock
from ..conditions import CudaWatch
from ..launch import QUEUED
from ..timers import CudaEvents, EventApi, PerfCounter, Run
from . import Backend, Prepared


@dataclass(frozen=True)
class DeviceFacts:
    """Properties of a device; sizes in bytes."""

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    l2_cache_bytes: int

    def describe(self) -> dict[str, Any]:
        """The `device` entry of a recording."""
        capability = "{}.{}".format(*self.compute_capability)
        return {"kind": "cuda", **asdict(self), "compute_capability": capability}


def device_name(name: str | bytes) -> str:
    """A device's name as text, as some versions of libraries give bytes."""
    return name.decode() if isinstance(name, bytes) else name


class CudaBackend(Backend):
    """Base of the backends that only run on CUDA; their kernels are timed by events, and `index`
    finds the clocks.
    """

    def __init__(self, facts: DeviceFacts, events: EventApi, index: int) -> None:
        super().__init__(facts.l2_cache_bytes)
        self._facts, self._events = facts, events
        self.timer = CudaEvents(events)
        device = f"cuda:{index}"
        clock = partial(stream_clock, device, in_torch=False)
        self.watch = CudaWatch(ClockSampler(device), clock)

    def describe(self) -> dict[str, Any]:
        return self._facts.describe()

    def _resident_blocks(
        self, threads: int, registers_per_thread: int = 32, shared_bytes: int = 0
    ) -> int:
        """How many blocks run at once on the device: the occupancy of an SM, times its SMs.

        numba tells no registers; 32 leave room for all threads of an SM.
        """
        major, minor = self._facts.compute_capability
        limits = nearest_limits(10 * major + minor)
        blocks = occupancy_of(limits, threads, registers_per_thread, shared_bytes).blocks
        return self._facts.sm_count * max(blocks, 1)

    def _synchronize(self) -> None:
        self._events.synchronize()


def device_index(device: str | None, backend: str) -> int:
    """The number in `cuda:N`; 0 for `cuda` or None."""
    match = re.fullmatch(r"cuda(?::(\d+))?", device or "cuda")
    if match is None:
        raise CurvescopeError(
            f"The backend {backend} runs on CUDA devices: --device cuda or cuda:N, not {device}."
        )
    return int(match[1] or 0)


def prepare_launch(kind: str, kernel: str, launch: Run, wait: Run) -> Prepared:
    """A launch problem of a kind in `launch.KINDS` without result; for a graph, the work to
    capture.
    """

    def queue() -> None:
        for _ in range(QUEUED):
            launch()

    def launch_and_wait() -> None:
        launch()
        wait()

    if kind == "call":
        return Prepared(queue, lambda: None, kernel, QUEUED, wait, PerfCounter())
    if kind == "synchronize":
        return Prepared(launch_and_wait, lambda: None, kernel, 1, wait, PerfCounter())
    return Prepared(queue, lambda: None, kernel, QUEUED)
