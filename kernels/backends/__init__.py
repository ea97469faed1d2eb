"""What runs a problem: one backend per library, loaded late; each says how to get it where it is missing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ...profiling.attribution.events import StepRows
from ...profiling.errors import CurvescopeError
from ...profiling.hardware.precisions import precision_of
from ..conditions import Conditions
from ..problem import Array, Problem
from ..timers import Run, Timer


class UnsupportedError(Exception):
    """The backend, or the device, has no such operation. The message says which it lacks."""


class Prepared(NamedTuple):
    """A problem ready to run.

    Attributes:
        run: does it once; on a device it only asks for it, in the stream that the timer records events in.
        result: what a run gives, float64, on the host; null where the kernel keeps nothing.
        kernel: the name of what runs, where no profiler tells.
        inner: how many times a run does the problem: short ones are repeated inside, where no call is in between.
        before: runs ahead of every sample, outside its time.
        timer: what times it, where it is not the backend's.
    """

    run: Run
    result: Callable[[], Array | None]
    kernel: str
    inner: int = 1
    before: Run | None = None
    timer: Timer | None = None


class Watch(Protocol):
    """Watches the conditions of a stretch of work."""

    def begin(self) -> None:
        """Start a stretch."""

    def end(self) -> Conditions:
        """The conditions since then."""


class Backend(Protocol):
    """A library on a device."""

    @property
    def name(self) -> str:
        """What the command line calls it."""

    @property
    def timer(self) -> Timer:
        """What times its work."""

    @property
    def watch(self) -> Watch:
        """What watches its device."""

    @property
    def flush_ns(self) -> int:
        """What a flush costs."""

    def prepare(self, problem: Problem, operands: tuple[Array, ...]) -> Prepared:
        """Put the operands on the device and choose the kernel.

        Raises:
            UnsupportedError: it has no such operation.
        """

    def flush(self) -> None:
        """Drive everything else out of the caches."""

    def record(self, run: Run, layer: str | None, phase: str | None) -> StepRows | None:
        """Run once under a profiler; null where there is none for this backend."""

    def describe(self) -> dict[str, Any]:
        """The device, as a recording's `device` entry."""


_MODULES = {"torch": ".pytorch", "numba": ".numba", "cupy": ".cupy", "pycuda": ".pycuda"}
BACKENDS = tuple(_MODULES)


def peak_problem(backend: Backend, precision: str) -> Problem:
    """The problem that keeps all of the backend's device busy with arithmetic.

    Raises:
        CurvescopeError: the backend has none.
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
        raise CurvescopeError(f"No arithmetic peak of {precision} here: {error}.") from error
    return problem


def peak_problems(backend: Backend) -> list[Problem]:
    """Those of every precision that the backend has."""
    return [peak_problem(backend, precision) for precision in getattr(backend, "peak_precisions", ())]


def open_backend(name: str, device: str | None = None) -> Backend:
    """The backend of that name on a device.

    Args:
        name: one of `BACKENDS`.
        device: cpu, cuda or cuda:N; null for CUDA where there is one.

    Raises:
        CurvescopeError: there is no such backend, or it cannot use the device.
        BackendMissingError: its library is not installed.
    """
    if name not in _MODULES:
        raise CurvescopeError(f"Unknown backend {name!r}: choose from {', '.join(BACKENDS)}.")
    backend: Backend = importlib.import_module(_MODULES[name], __package__).open_backend(device)
    return backend
