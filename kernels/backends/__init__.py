"""Backends that run problems: one per library, loaded late, with install instructions where the
library is missing.
"""

from __future__ import annotations

import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ...base.errors import BackendMissingError, CurvescopeError, check_choice
from ...profiling.attribution.events import StepRows
from ...profiling.hardware.precisions import precision_of
from ..conditions import CpuWatch, CudaWatch
from ..problem import Array, Problem
from ..timers import Run, Timer

# Used if the size of the last-level cache is unknown: larger than any so far (AMD's 3D caches hold
# 96 MB per die, Hopper's L2 50 MB). Twice this size is the buffer of triton.testing.do_bench.
_UNKNOWN_CACHE_BYTES = 128_000_000
_MODULES = {"torch": ".pytorch", "numba": ".numba_cuda", "cupy": ".cupy", "pycuda": ".pycuda"}
BACKENDS = tuple(_MODULES)


class UnsupportedError(Exception):
    """The backend or the device does not support the operation; the message says why."""


class Prepared(NamedTuple):
    """A problem ready to run; on a GPU runs only queue the work, in the stream of the timer's
    events.
    """

    run: Run
    # as float64 on the host, or None where the kernel keeps no result
    result: Callable[[], Array | None]
    kernel: str  # name of the kernel, for backends without a profiler
    inner: int = 1  # repetitions of the problem in one run, to avoid call overhead
    before: Run | None = None  # runs before every sample, untimed
    timer: Timer | None = None  # instead of the backend's
    once: Run | None = None  # one repetition, for cold caches, where `run` makes several


@runtime_checkable
class PreparesItself(Protocol):
    """A problem of another room that makes its own call, e.g. a recorded one."""

    def prepare(self, device: str) -> Prepared:
        """The call on a device; an UnsupportedError where it cannot run."""


def import_library(module: str, remedy: str) -> Any:
    """The module; where it is missing, an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BackendMissingError(remedy) from error


def run_in_turn(*runs: Run) -> Run:
    """A function that runs several, one after the other."""

    def run() -> None:
        for each in runs:
            each()

    return run


class Backend(ABC):
    """A library on a device, with a cache flush by a buffer of twice the last-level cache."""

    name: str  # on the command line
    timer: Timer
    watch: CpuWatch | CudaWatch  # observer of its device
    peak_precisions: tuple[str, ...] = ()  # those whose arithmetic peak it can measure

    def __init__(self, cache_bytes: int | None) -> None:
        self.cache_bytes = cache_bytes or _UNKNOWN_CACHE_BYTES
        self._flush_bytes = 2 * self.cache_bytes
        self._flush: Run | None = None
        self.flush_ns = 0  # duration of a flush; 0 before the first

    @abstractmethod
    def prepare(self, problem: Problem, operands: tuple[Array, ...]) -> Prepared:
        """Copy the operands to the device and choose the kernel; an UnsupportedError if there is
        none.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The device, as a recording's `device` entry."""

    def peak(self, precision: str) -> Problem:
        """The arithmetic problem that keeps the whole device busy, of one of `peak_precisions`."""
        raise UnsupportedError(precision)

    def record(self, run: Run, layer: str | None, phase: str | None) -> StepRows | None:  # noqa: ARG002
        """Run once under a profiler; None for backends without one, whose kernels are
        timed alone.
        """
        return None

    def flush(self) -> None:
        """Evict the operands from the caches; on a GPU this is only queued, in the stream of the
        work.
        """
        if self._flush is None:
            self._flush = self._buffer_pass(self._flush_bytes)
            self._flush()
            # From now on its pages are mapped and its code is compiled.
            self._synchronize()
            began = time.perf_counter_ns()
            self._flush()
            self._synchronize()
            self.flush_ns = time.perf_counter_ns() - began
        self._flush()

    @abstractmethod
    def _buffer_pass(self, size_bytes: int) -> Run:
        """Allocate a zeroed buffer and return a function that reads and writes all of it on every
        processor.

        A plain fill does not serve: it may use streaming stores, which bypass the caches. On a GPU
        the function ends with a pass that only reads. Else L2 is full of changed lines, and every
        line that the timed kernel brings in first writes one back.
        """

    def _synchronize(self) -> None:  # noqa: B027 - nothing to do on a CPU
        """Wait for the device."""


def peak_problem(backend: Backend, precision: str) -> Problem:
    """The arithmetic problem that keeps the whole device busy; a CurvescopeError if the backend has
    none.
    """
    precision_of(precision)
    if not backend.peak_precisions:
        raise CurvescopeError(
            f"The backend {backend.name} has no kernel for the arithmetic peak: use --backend "
            "numba on a CPU, cupy or pycuda on a GPU."
        )
    try:
        return backend.peak(precision)
    except UnsupportedError as error:
        raise CurvescopeError(
            f"The arithmetic peak of {precision} cannot be measured: {error}."
        ) from error


def open_backend(name: str, device: str | None = None) -> Backend:
    """Open one of `BACKENDS` on cpu, cuda or cuda:N.

    The default is CUDA if present, else the CPU; numba takes the CPU.

    Raises:
        CurvescopeError: the backend does not exist, its library is missing, or it cannot use the
            device.
    """
    check_choice("backend", name, BACKENDS)
    module = ".numba_cpu" if name == "numba" and device in (None, "cpu") else _MODULES[name]
    backend: Backend = importlib.import_module(module, __package__).open_backend(device)
    return backend
