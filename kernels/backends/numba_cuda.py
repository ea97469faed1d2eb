"""numba on CUDA: memory kernels and a tiled SGEMM compiled by numba, timed by its events."""

from __future__ import annotations

import contextlib
import importlib
from functools import partial
from typing import Any

import numpy as np

from ...base.errors import BackendMissingError
from ..cuda_plans import BYTES_PER_LAUNCH, refuse_beyond_sgemm
from ..gemm import Gemm
from ..memory import Memory
from ..problem import Array, Problem
from ..timers import EventApi, Run
from . import Prepared, UnsupportedError, import_library, run_in_turn
from .cuda_device import CudaBackend, DeviceFacts, device_index, device_name

_BLOCK_THREADS = 256


def open_backend(device: str) -> NumbaCudaBackend:
    """See `backends.open_backend`."""
    index = device_index(device, "numba")
    remedy = "This needs numba: `pip install 'curvescope[numba]'`, and numba-cuda for a new CUDA."
    cuda = import_library("numba.cuda", remedy)
    if not cuda.is_available():
        raise BackendMissingError(
            "numba finds no CUDA device or no CUDA toolkit: `curvescope doctor`, and "
            "`pip install numba-cuda`."
        )
    cuda.select_device(index)
    check_that_it_compiles(cuda)
    _silence_few_blocks()
    opened = cuda.get_current_device()
    _, memory_bytes = cuda.current_context().get_memory_info()
    facts = DeviceFacts(
        device_name(opened.name),
        opened.compute_capability,
        opened.MULTIPROCESSOR_COUNT,
        memory_bytes,
        opened.L2_CACHE_SIZE,
    )
    events = EventApi(partial(cuda.event, timing=True), cuda.synchronize)
    return NumbaCudaBackend(cuda, facts, events, index)


def check_that_it_compiles(cuda: Any) -> None:
    """Compile a kernel without a body: numba-cuda asks NumPy for its functions only then.

    Raises:
        BackendMissingError: this NumPy no longer has one of them.
    """
    try:
        cuda.compile_ptx_for_current_device(lambda: None, ())
    except AttributeError as error:
        raise BackendMissingError(
            f"numba-cuda does not compile beside NumPy {np.__version__} ({error}): install a newer "
            "numba-cuda, or an older NumPy."
        ) from error


def _silence_few_blocks() -> None:
    """Let numba not warn at every launch of few blocks, which is no news for a small problem."""
    for settings in ("numba.core.config", "numba.cuda.core.config"):  # the latter is numba-cuda's
        with contextlib.suppress(ImportError):
            module: Any = importlib.import_module(settings)
            module.CUDA_LOW_OCCUPANCY_WARNINGS = 0


class NumbaCudaBackend(CudaBackend):
    """Runs the kernels of `numba_cuda_kernels` in the default stream."""

    name = "numba"

    def __init__(self, cuda: Any, facts: DeviceFacts, events: EventApi, index: int = 0) -> None:
        super().__init__(facts, events, index)
        self._cuda = cuda

    def prepare(self, problem: Problem, operands: tuple[Array, ...]) -> Prepared:
        if problem.precision != "fp32":
            raise UnsupportedError("Curvescope's numba kernels are fp32")
        if isinstance(problem, Memory):
            return self._memory(problem, operands)
        if isinstance(problem, Gemm):
            return self._gemm(problem, operands)
        raise UnsupportedError(f"Curvescope has no numba kernel for {type(problem).__name__}")

    def _memory(self, problem: Memory, operands: tuple[Array, ...]) -> Prepared:
        from . import numba_cuda_kernels as kernels

        if problem.stride > 1:
            raise UnsupportedError("Curvescope's numba kernels do not support a stride")
        arrays = [self._cuda.to_device(array) for array in operands]
        kernel = getattr(kernels, problem.kind)
        is_read = problem.kind == "read"
        threads = kernels.SUM_THREADS if is_read else _BLOCK_THREADS
        blocks = min(-(-problem.elements // threads), self._resident_blocks(threads))
        out = self._cuda.device_array(blocks if is_read else problem.elements, np.float32)

        passes = problem.repeats(BYTES_PER_LAUNCH)
        launch = partial(kernel[blocks, threads], *arrays, out)
        once = partial(launch, 1)

        def result() -> Array:
            once()
            values: Array = out.copy_to_host().astype(np.float64)
            return values.sum(keepdims=True) if is_read else values

        return Prepared(partial(launch, passes), result, f"numba {problem.kind}", passes, once=once)

    def _gemm(self, problem: Gemm, operands: tuple[Array, ...]) -> Prepared:
        from . import numba_cuda_kernels as kernels

        refuse_beyond_sgemm(problem)
        # numba transposes a device array by a copy: a transposed problem runs untransposed, and the
        # copy is not timed.
        first, second = map(self._cuda.to_device, operands)
        a, b = problem.views((first, second))
        out = self._cuda.device_array((problem.n, problem.m), np.float32)
        tile = kernels.TILE
        grid = (-(-problem.m // tile), -(-problem.n // tile))
        run = partial(kernels.sgemm[grid, (tile, tile)], b, a, out)
        return Prepared(run, lambda: out.copy_to_host().astype(np.float64), "numba sgemm")

    def _buffer_pass(self, size_bytes: int) -> Run:
        from . import numba_cuda_kernels as kernels

        buffer = self._cuda.to_device(np.zeros(size_bytes // 4, np.float32))
        scaling = self._resident_blocks(_BLOCK_THREADS)
        reading = self._resident_blocks(kernels.SUM_THREADS)
        sums = self._cuda.device_array(reading, np.float32)
        scale = partial(kernels.scale[scaling, _BLOCK_THREADS], buffer, buffer, 1)
        read = partial(kernels.read[reading, kernels.SUM_THREADS], buffer, sums, 1)
        return run_in_turn(scale, read)
