"""Backends that run problems: one per library, loaded late, with install instructions where the library is missing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ...base.errors import CurvescopeError
from ...profiling.attribution.events import StepRows
from ...profiling.hardware.precisions import precision_of
from ..conditions import Conditions
from ..problem import Array, Problem
from ..timers import Run, Timer


class UnsupportedError(Exception):
    """The backend or the device does not support the operation. The message says what is missing."""


class Prepared(NamedTuple):
    """A problem ready to run.

    Attributes:
        run: function that runs the problem once; on a GPU it only queues the work, in the stream of the timer's events.
        result: function that returns the result as float64 on the host, or None where the kernel keeps no result.
        kernel: name of the kernel, for backends without a profiler.
        inner: repetitions of the problem in one run; short problems are repeated inside to avoid call overhead.
        before: function that runs before every sample, untimed.
        timer: timer to use instead of the backend's.
        once: function that runs the problem once, where `run` repeats it: for cold caches, because a repetition finds
            its operands in them.
    """

    run: Run
    result: Callable[[], Array | None]
    kernel: str
    inner: int = 1
    before: Run | None = None
    timer: Timer | None = None
    once: Run | None = None


@runtime_checkable
class PreparesItself(Protocol):
    """A problem of another room that makes its own call, e.g. a recorded one."""

    def prepare(self, device: str) -> Prepared:
        """The call on a device.

        Raises:
            UnsupportedError: the call cannot run there.
        """


class ClockWatch(Protocol):
    """Observes the machine's conditions during a measurement."""

    def begin(self) -> None:
        """Begin to observe."""

    def end(self) -> Conditions:
        """The conditions since `begin`."""


class Backend(Protocol):
    """A library on a device."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def timer(self) -> Timer:
        """Timer for its work."""

    @property
    def watch(self) -> ClockWatch:
        """Observer of its device."""

    @property
    def flush_ns(self) -> int:
        """Duration of a cache flush, ns."""

    def prepare(self, problem: Problem, operands: tuple[Array, ...]) -> Prepared:
        """Copy the operands to the device and choose the kernel.

        Raises:
            UnsupportedError: the backend does not support the problem.
        """

    def flush(self) -> None:
        """Evict the operands from the caches."""

    def record(self, run: Run, layer: str | None, phase: str | None) -> StepRows | None:
        """Run once under a profiler; None for backends without a profiler."""

    def describe(self) -> dict[str, Any]:
        """The device, as a recording's `device` entry."""


_MODULES = {"torch": ".pytorch", "numba": ".numba_cuda", "cupy": ".cupy", "pycuda": ".pycuda"}
BACKENDS = tuple(_MODULES)


def peak_problem(backend: Backend, precision: str) -> Problem:
    """The arithmetic problem that keeps the whole device busy.

    Raises:
        CurvescopeError: the backend has no such problem.
    """
    precision_of(precision)
    peak = getattr(backend, "peak", None)
    if peak is None:
        raise CurvescopeError(
            f"The backend {backend.name} has no kernel for the arithmetic peak: use --backend numba on a CPU, cupy or "
            "pycuda on a GPU."
        )
    try:
        problem: Problem = peak(precision)
    except UnsupportedError as error:
        raise CurvescopeError(f"The arithmetic peak of {precision} cannot be measured: {error}.") from error
    return problem


def peak_problems(backend: Backend) -> list[Problem]:
    """The peak problem of every precision that the backend supports."""
    return [peak_problem(backend, precision) for precision in getattr(backend, "peak_precisions", ())]


def open_backend(name: str, device: str | None = None) -> Backend:
    """Open a backend on a device.

    Args:
        name: one of `BACKENDS`.
        device: cpu, cuda or cuda:N; None for CUDA if present, else the CPU; numba takes the CPU.

    Raises:
        CurvescopeError: the backend does not exist, or cannot use the device.
        BackendMissingError: the library is not installed.
    """
    if name not in _MODULES:
        raise CurvescopeError(f"Unknown backend {name!r}: choose from {', '.join(BACKENDS)}.")
    module = ".numba_cpu" if name == "numba" and device in (None, "cpu") else _MODULES[name]
    backend: Backend = importlib.import_module(module, __package__).open_backend(device)
    return backend
