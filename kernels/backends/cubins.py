"""Our own CUDA kernels, compiled once to cubins and launched by any library that can load them.

A library is wrapped as a `Driver` with a few calls. Everything else is shared, so backends differ
only in the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Protocol

import numpy as np

from ...profiling.hardware.precisions import PRECISIONS
from ..catalog import BY_NAME
from ..compile import ARCHITECTURES, can_compile_wgmma, compile_source, hopper_source, own_sources
from ..cubin import read_cubin
from ..cuda_plans import (
    NO_SUM,
    Buffer,
    KernelLaunch,
    LaunchPlan,
    hold_launch,
    peak_kernel,
    peak_rounds,
    plan,
)
from ..launch import Launch
from ..peak import PeakRounds
from ..problem import Array, Problem
from ..timers import EventApi, Run
from . import Prepared, UnsupportedError, run_in_turn
from .cuda_device import CudaBackend, DeviceFacts, prepare_launch


class Driver(Protocol):
    """The calls that a library must provide; all work goes to one stream."""

    facts: DeviceFacts
    events: EventApi

    def load(self, cubin: bytes, kernel: str) -> Any:
        """Load a kernel's function; its module stays loaded."""

    def upload(self, array: Array) -> Any:
        """Create a device buffer with the contents of the array."""

    def download(self, buffer: Any, like: Array) -> Array:
        """Copy a buffer to an array of the same shape and type as `like`."""

    def address(self, buffer: Any) -> int:
        """Device address of a buffer."""

    def launcher(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: tuple[Any, ...],
    ) -> Run:
        """A function that queues one launch; arguments are buffers, numpy scalars or `np.void`."""


class CubinBackend(CudaBackend):
    """Runs our own CUDA kernels through a wrapped library, timed by events."""

    def __init__(self, name: str, driver: Driver, index: int = 0) -> None:
        super().__init__(driver.facts, replace(driver.events, hold=self._hold), index)
        self.name = name
        self._driver = driver
        major, minor = driver.facts.compute_capability
        # A cubin runs on its own major version from its minor version on: CUDA C++ Programming
        # Guide, binary compatibility.
        older = [a for a in ARCHITECTURES if a // 10 == major and a % 10 <= minor]
        self._architecture = max(older, default=10 * major + minor)
        self._wgmma = self._architecture == 90 and can_compile_wgmma()
        self._load, self._compile = cache(self._load_once), cache(self._compile_once)
        self.peak_precisions = tuple(filter(self._has_peak, PRECISIONS))

    def peak(self, precision: str) -> PeakRounds:
        kernel = peak_kernel(precision, self._architecture, self._wgmma)
        return peak_rounds(kernel, precision, self._architecture, self._count_resident)

    def prepare(self, problem: Problem, operands: tuple[Array, ...]) -> Prepared:
        planned = plan(problem, operands, self._count_resident)
        buffers = [self._driver.upload(array) for array in planned.buffers]
        for launch in planned.setup:
            self._launcher(launch, buffers)()
        run = self._launcher(planned.launch, buffers)
        if isinstance(problem, Launch):
            if problem.kind == "graph":
                raise UnsupportedError(
                    f"the {self.name} backend does not launch graphs; the torch backend does"
                )
            kernel = planned.launch.kernel
            return prepare_launch(problem.kind, kernel, run, self._events.synchronize)
        checked = run if planned.checked is None else self._launcher(planned.checked, buffers)
        result = self._result(planned, buffers, checked)
        once = None if planned.once is None else self._launcher(planned.once, buffers)
        return Prepared(run, result, planned.launch.kernel, planned.repeats, once=once)

    def _has_peak(self, precision: str) -> bool:
        try:
            peak_kernel(precision, self._architecture, self._wgmma)
        except UnsupportedError:
            return False
        return True

    def _result(
        self, planned: LaunchPlan, buffers: list[Any], checked: Run
    ) -> Callable[[], Array | None]:
        read = planned.read
        if read is None:
            return lambda: None

        def fetch(index: int) -> Array:
            return self._driver.download(buffers[index], planned.buffers[index])

        def result() -> Array:
            checked()
            self._events.synchronize()
            return read(fetch, lambda index: self._driver.address(buffers[index]))

        return result

    def _hold(self, cycles: int) -> None:
        self._launcher(hold_launch(cycles), [])()

    def _launcher(self, launch: KernelLaunch, buffers: list[Any]) -> Run:
        arguments = [buffers[a.index] if isinstance(a, Buffer) else a for a in launch.arguments]
        function = self._load(launch.kernel)
        return self._driver.launcher(function, launch.grid, launch.block, tuple(arguments))

    def _count_resident(self, kernel: str) -> int:
        """How many blocks of a kernel run at once on the device."""
        cubin = self._compile(BY_NAME[kernel].source)
        (resources,) = (each for each in read_cubin(cubin) if each.name == kernel)
        registers, shared_bytes = resources.registers_per_thread, resources.shared_bytes
        return self._resident_blocks(BY_NAME[kernel].block_threads, registers, shared_bytes)

    def _load_once(self, kernel: str) -> Any:
        return self._driver.load(self._compile(BY_NAME[kernel].source), kernel)

    def _compile_once(self, name: str) -> bytes:
        ours = {source.name: source for source in own_sources()}
        source = ours[name] if name in ours else hopper_source(name)
        return compile_source(source, self._architecture)

    def _buffer_pass(self, size_bytes: int) -> Run:
        count = size_bytes // 16  # in vectors of four
        buffers = [self._driver.upload(np.zeros(n, np.float32)) for n in (count * 4, 1)]
        end = (np.int64(count), np.int32(1))
        runs = []
        for kernel, second, scalar in (
            ("memory_scale", Buffer(0), np.float32(1)),
            ("memory_read", Buffer(1), NO_SUM),
        ):
            grid = (self._count_resident(kernel), 1, 1)
            launch = KernelLaunch(kernel, grid, (Buffer(0), second, scalar, *end))
            runs.append(self._launcher(launch, buffers))
        return run_in_turn(*runs)
