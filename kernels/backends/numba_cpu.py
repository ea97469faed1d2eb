"""numba on the CPU: memory, mix, latency and peak kernels, compiled for this processor, on all its
threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from ...profiling.hardware.host import cpu_name, last_level_cache_bytes
from ...profiling.hardware.precisions import PRECISIONS
from ..conditions import CpuWatch
from ..latency import Latency
from ..launch import Launch
from ..memory import Memory
from ..mix import Mix
from ..peak import A, B, Peak
from ..problem import Array, Problem
from ..timers import PerfCounter, Run
from . import Backend, Prepared, UnsupportedError, import_library

# Least bytes per run, reached with small arrays by repeated passes: some hundred microseconds,
# which makes the few microseconds that starting the threads takes negligible.
_BYTES_PER_RUN = 32_000_000
# Registers for chains: with AVX-512 16 of 64 bytes (two pipes, four cycles each, twice over); with
# AVX2 10 of the 16 registers of 32 bytes; with 128-bit vectors 16 of the 32.
_CHAIN_BYTES = (("avx512f", 1024), ("avx2", 320), ("", 256))


def open_backend(device: str | None) -> NumbaCpuBackend:  # noqa: ARG001 - the CPU
    """See `backends.open_backend`."""
    remedy = "This needs numba. Install it with `pip install 'curvescope[numba]'`."
    return NumbaCpuBackend(import_library("numba", remedy))


class NumbaCpuBackend(Backend):
    """numba's compiled loops, timed by the performance counter."""

    name = "numba"
    peak_precisions = ("fp32", "fp64")

    def __init__(self, numba: Any) -> None:
        super().__init__(last_level_cache_bytes())
        self._threads = _start_threads(numba)
        self.timer, self.watch = PerfCounter(), CpuWatch()

    def prepare(self, problem: Problem, operands: tuple[Array, ...]) -> Prepared:
        build = _BUILDERS.get(type(problem))
        if build is None:
            raise UnsupportedError(
                f"numba has no {type(problem).__name__} on the CPU; use the torch backend"
            )
        if problem.precision not in self.peak_precisions:
            raise UnsupportedError(
                f"the numba backend does not support {problem.precision} on the CPU"
            )
        return build(problem, operands, self._threads)

    def describe(self) -> dict[str, Any]:
        return {"kind": "cpu", "name": cpu_name(), "threads": self._threads}

    def peak(self, precision: str) -> Peak:
        """The problem that keeps the arithmetic units of every thread busy."""
        return Peak(self._threads * _chain_bytes() // PRECISIONS[precision].item_bytes, precision)

    def _buffer_pass(self, size_bytes: int) -> Run:
        from .numba_cpu_kernels import KERNELS

        buffer = np.zeros(size_bytes // 4, np.float32)
        return partial(KERNELS["scale"], 1, buffer, buffer)


def _start_threads(numba: Any) -> int:
    """Start numba's threads and return their number; torch keeps the number that it had.

    Once torch is loaded, numba finds torch's OpenMP library, and sets its own number there.
    """
    torch = sys.modules.get("torch")
    of_torch = torch.get_num_threads() if torch else None
    threads = int(numba.get_num_threads())
    if torch:
        torch.set_num_threads(of_torch)
    return threads


def _chain_bytes() -> int:
    from llvmlite.binding import get_host_cpu_features

    features = get_host_cpu_features()
    return next(size for name, size in _CHAIN_BYTES if not name or features.get(name))


def _memory(problem: Problem, operands: tuple[Array, ...], threads: int) -> Prepared:
    assert isinstance(problem, Memory)
    from .numba_cpu_kernels import KERNELS

    dtype = PRECISIONS[problem.precision].torch_dtype
    passes = problem.repeats(_BYTES_PER_RUN)
    touched = [array[:: problem.stride] for array in operands]
    if problem.kind == "read":
        out = np.zeros(threads * 64, dtype)  # at least a cache line apart, to avoid false sharing
        result: Callable[[], Array] = lambda: out[::64].astype(np.float64).sum(keepdims=True)  # noqa: E731
    else:
        out = np.empty(problem.elements * problem.stride, dtype)[:: problem.stride]
        result = lambda: out.astype(np.float64)  # noqa: E731
    run, once = (partial(KERNELS[problem.kind], count, *touched, out) for count in (passes, 1))
    return Prepared(run, result, f"numba {problem.kind}", passes, once=once)


def _latency(problem: Problem, operands: tuple[Array, ...], threads: int) -> Prepared:  # noqa: ARG001 - one chain
    assert isinstance(problem, Latency)
    from .numba_cpu_kernels import chase

    last = np.zeros(1, np.int64)
    run = partial(chase, problem.loads, operands[0], last)

    def result() -> Array:
        last[0] = 0
        run()
        return last.astype(np.float64)

    return Prepared(run, result, "numba chase")


def _peak(problem: Problem, operands: tuple[Array, ...], threads: int) -> Prepared:
    assert isinstance(problem, Peak)
    from .numba_cpu_kernels import create_fused_multiply_adds

    if problem.chains % threads:
        raise UnsupportedError(f"{problem.chains} chains cannot be divided over {threads} threads")
    start = operands[0].reshape(threads, -1)
    end = np.empty_like(start)
    kernel = create_fused_multiply_adds(start.shape[1])
    run = partial(kernel, problem.steps, start.dtype.type(A), start.dtype.type(B), start, end)
    return Prepared(run, lambda: end.ravel().astype(np.float64), "numba fma")


def _mix(problem: Problem, operands: tuple[Array, ...], threads: int) -> Prepared:  # noqa: ARG001 - by numba
    assert isinstance(problem, Mix)
    source = operands[0]
    target = np.empty_like(source)
    kernel = _mix_of_width(_chain_bytes() // source.itemsize)
    number = source.dtype.type
    run = partial(kernel, problem.fmas, number(A), number(B), source, target)
    return Prepared(run, lambda: target.astype(np.float64), "numba mix")


@cache
def _mix_of_width(width: int) -> Callable[..., None]:
    """The kernel, compiled once for all numbers of multiply-adds."""
    from .numba_cpu_kernels import create_mix

    kernel: Callable[..., None] = create_mix(width)
    return kernel


def _launch(problem: Problem, operands: tuple[Array, ...], threads: int) -> Prepared:  # noqa: ARG001 - one thread
    assert isinstance(problem, Launch)
    from .numba_cpu_kernels import add_one

    if problem.kind != "call":
        raise UnsupportedError("a CPU has no launch queue")
    number = operands[0]

    def result() -> Array:
        number[0] = 0
        add_one(number)
        return number.astype(np.float64)

    return Prepared(partial(add_one, number), result, "numba add_one")


_BUILDERS = {Memory: _memory, Mix: _mix, Latency: _latency, Peak: _peak, Launch: _launch}
