"""PyTorch: the library calls that a training step makes (oneDNN and MKL on a CPU, cuBLAS and cuDNN on CUDA)."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ...profiling.host import describe_device, last_level_cache_bytes
from ...profiling.recorders import events, torch_step
from ...profiling.workload import import_torch, pick_device
from ..conditions import CpuWatch
from ..conv import Conv
from ..gemm import Gemm
from ..problem import PRECISIONS, Array, Problem
from ..timers import CudaEvents, EventApi, PerfCounter, Run, Timer
from . import Prepared, UnsupportedError, Watch

# Where the size of the last-level cache is not told: larger than any so far (AMD's 3D caches hold 96 MB per die,
# Hopper's L2 50 MB), as triton.testing.do_bench takes it.
_FLUSH_BYTES = 256_000_000
# Ampere brought TF32 and bfloat16 to the tensor cores: CUDA C++ Programming Guide, compute capability 8.x.
_AMPERE = (8, 0)


def open_backend(device: str | None) -> TorchBackend:
    """The backend on a device; see `backends.open_backend`."""
    return TorchBackend(import_torch(), pick_device(device))


class TorchBackend:
    """Torch on the CPU, timed by the performance counter, or on a CUDA device, timed by events in its stream."""

    name = "torch"

    def __init__(self, torch: Any, device: str) -> None:
        self._torch, self._device = torch, device
        self._cuda = device.startswith("cuda")
        self.timer: Timer = CudaEvents(_event_api(torch, device)) if self._cuda else PerfCounter()
        self.watch: Watch = CpuWatch()
        self._flushed: Any = None
        self.flush_ns = 0

    def prepare(self, problem: Problem, operands: tuple[Array, ...]) -> Prepared:
        """See `Backend.prepare`."""
        self._need(problem.precision)
        build = _BUILDERS.get(type(problem))
        if build is None:
            raise UnsupportedError(f"torch has no {type(problem).__name__}")
        if self._cuda:  # for the process: the problems that are visited in turn share their precision
            self._torch.backends.cuda.matmul.allow_tf32 = problem.precision == "tf32"
            self._torch.backends.cudnn.allow_tf32 = problem.precision == "tf32"
        dtype = getattr(self._torch, PRECISIONS[problem.precision].torch_dtype)
        tensors = [self._torch.from_numpy(array).to(self._device, dtype) for array in operands]
        try:
            prepared = build(self._torch, problem, tensors)
            prepared.run()
        except (NotImplementedError, RuntimeError) as error:
            if isinstance(error, NotImplementedError) or "not implemented for" in str(error):
                raise UnsupportedError(str(error).splitlines()[0]) from error
            raise
        self._synchronize()
        return prepared

    def flush(self) -> None:
        """Go through a buffer twice the size of the last-level cache."""
        if self._flushed is None:
            self._flushed = self._torch.zeros(2 * self._cache_bytes() // 4, device=self._device)
            self._synchronize()
            began = time.perf_counter_ns()
            self.flush()
            self._synchronize()
            self.flush_ns = time.perf_counter_ns() - began
        # Read and written: a plain fill may go past the caches with streaming stores, and leave them as they were.
        self._flushed.add_(1)

    def record(self, run: Run, layer: str | None, phase: str) -> events.StepRows:
        """See `Backend.record`."""

        def step(ranges: Callable[[str], Any]) -> None:
            with ranges(events.PHASE_RANGE + phase):
                if layer is None:
                    run()
                else:
                    with ranges(events.LAYER_RANGE + layer):
                        run()
            self._synchronize()

        return torch_step.record_step(step, (), cuda=self._cuda)

    def describe(self) -> dict[str, Any]:
        """See `Backend.describe`."""
        return describe_device(self._device)

    def _need(self, precision: str) -> None:
        if not self._cuda:
            if precision == "tf32":
                raise UnsupportedError("a CPU has no TF32")
            return
        capability = self._torch.cuda.get_device_capability(self._device)
        if precision in ("tf32", "bf16") and capability < _AMPERE:
            raise UnsupportedError(f"compute capability {'.'.join(map(str, capability))} has no {precision}")

    def _cache_bytes(self) -> int:
        if not self._cuda:
            return last_level_cache_bytes() or _FLUSH_BYTES // 2
        return getattr(self._torch.cuda.get_device_properties(self._device), "L2_cache_size", None) or _FLUSH_BYTES // 2

    def _synchronize(self) -> None:
        if self._cuda:
            self._torch.cuda.synchronize(self._device)


def _event_api(torch: Any, device: str) -> EventApi:
    return EventApi(
        create=partial(torch.cuda.Event, enable_timing=True),
        record=lambda event: event.record(torch.cuda.current_stream(device)),
        elapsed_ms=lambda start, end: start.elapsed_time(end),
        synchronize=partial(torch.cuda.synchronize, device),
    )


def _host(tensor: Any) -> Array:
    array: Array = tensor.detach().double().cpu().numpy()
    return array


def _gemm(torch: Any, problem: Problem, tensors: list[Any]) -> Prepared:
    assert isinstance(problem, Gemm)
    a, b = problem.views((tensors[0], tensors[1]))
    c = torch.empty((problem.n, problem.m), dtype=a.dtype, device=a.device)
    return Prepared(partial(torch.mm, b, a, out=c), lambda: _host(c), "torch.mm")


def _conv(torch: Any, problem: Problem, tensors: list[Any]) -> Prepared:
    assert isinstance(problem, Conv)
    if problem.layout == "nhwc":
        tensors = [tensor.contiguous(memory_format=torch.channels_last) for tensor in tensors]
    first, second = tensors
    geometry = (problem.stride, problem.padding, problem.dilation)
    if problem.direction == "fwd":
        run = partial(torch.conv2d, first, second, None, *geometry, problem.groups)
        return Prepared(run, lambda: _host(run()), "torch.conv2d")
    to_data = problem.direction == "bwd_data"
    # The operand that the direction does not read: only its shape counts.
    unread = torch.empty_like(first).resize_(problem.image_shape if to_data else problem.weights_shape)
    gradient, image, weights = (first, unread, second) if to_data else (second, first, unread)
    backward = partial(
        torch.ops.aten.convolution_backward,
        *(gradient, image, weights, None, *geometry, False, (0, 0), problem.groups, (to_data, not to_data, False)),
    )
    return Prepared(backward, lambda: _host(backward()[0 if to_data else 1]), "torch.convolution_backward")


_BUILDERS: dict[type, Callable[[Any, Problem, list[Any]], Prepared]] = {Gemm: _gemm, Conv: _conv}
