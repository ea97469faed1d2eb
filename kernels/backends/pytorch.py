"""PyTorch backend: the library calls of a training step (oneDNN and MKL on a CPU, cuBLAS and cuDNN
on CUDA).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from ...base.torch_runtime import import_torch, pick_device
from ...profiling.attribution import range_names
from ...profiling.attribution.events import StepRows
from ...profiling.collect import torch_step
from ...profiling.hardware.clocks import ClockSampler
from ...profiling.hardware.host import describe_device, last_level_cache_bytes
from ...profiling.hardware.precisions import PRECISIONS
from ...profiling.hardware.stream_clock import stream_clock
from ..attention import Attention
from ..conditions import CpuWatch, CudaWatch
from ..conv import Conv
from ..gemm import Gemm
from ..launch import Launch
from ..memory import SCALAR, Memory
from ..problem import Array, Problem
from ..row_operators import RowOperator
from ..timers import CudaEvents, EventApi, PerfCounter, Run
from ..transfer import Transfer
from . import Backend, Prepared, PreparesItself, UnsupportedError, run_in_turn
from .cuda_device import prepare_launch
from .torch_operators import host_array, prepare_attention, prepare_gemm, prepare_rows


def open_backend(device: str | None) -> TorchBackend:
    """See `backends.open_backend`."""
    return TorchBackend(import_torch(), pick_device(device))


class TorchBackend(Backend):
    """Torch on the CPU, timed by the performance counter, or on a CUDA device, timed by events in
    its stream.
    """

    name = "torch"

    def __init__(self, torch: Any, device: str) -> None:
        self._torch, self._device = torch, device
        self._cuda = device.startswith("cuda")
        if self._cuda:
            self.timer = CudaEvents(_event_api(torch, device))
            self.watch = CudaWatch(ClockSampler(device), partial(stream_clock, device))
            super().__init__(
                getattr(torch.cuda.get_device_properties(device), "L2_cache_size", None)
            )
        else:
            self.timer, self.watch = PerfCounter(), CpuWatch()
            super().__init__(last_level_cache_bytes())

    def prepare(self, problem: Problem, operands: tuple[Array, ...]) -> Prepared:
        self._need(problem.precision)
        if isinstance(problem, PreparesItself):
            return problem.prepare(self._device)
        build = _BUILDERS.get(type(problem))
        if build is None:
            raise UnsupportedError(f"the torch backend has no {type(problem).__name__}")
        if self._cuda:  # a global setting: all problems of a sweep share their precision
            self._torch.backends.cuda.matmul.allow_tf32 = problem.precision == "tf32"
            self._torch.backends.cudnn.allow_tf32 = problem.precision == "tf32"
        dtype = getattr(self._torch, PRECISIONS[problem.precision].torch_dtype)
        tensors = [self._torch.from_numpy(array).to(self._device, dtype) for array in operands]
        return build(self._torch, problem, tensors, self._device)

    def record(self, run: Run, layer: str | None, phase: str | None) -> StepRows:
        def step(ranges: Callable[[str], Any]) -> None:
            with contextlib.ExitStack() as stack:
                if phase is not None:
                    stack.enter_context(ranges(range_names.PHASE_RANGE + phase))
                if layer is not None:
                    stack.enter_context(ranges(range_names.LAYER_RANGE + layer))
                run()
            self._synchronize()

        return torch_step.record_step(step, (), device=self._device)

    def describe(self) -> dict[str, Any]:
        return describe_device(self._device)

    def _need(self, precision: str) -> None:
        if not self._cuda and not PRECISIONS[precision].on_cpu:
            raise UnsupportedError(f"a CPU does not support {precision.upper()}")
        since = PRECISIONS[precision].cuda_since if self._cuda else None
        if (
            since is not None
            and (capability := self._torch.cuda.get_device_capability(self._device)) < since
        ):
            raise UnsupportedError(
                f"compute capability {'.'.join(map(str, capability))} does not support {precision}"
            )

    def _buffer_pass(self, size_bytes: int) -> Run:
        buffer = self._torch.zeros(size_bytes // 4, device=self._device)
        add_one = partial(buffer.add_, 1)
        return run_in_turn(add_one, buffer.sum) if self._cuda else add_one

    def _synchronize(self) -> None:
        if self._cuda:
            self._torch.cuda.synchronize(self._device)


def _event_api(torch: Any, device: str) -> EventApi:
    def hold(cycles: int) -> None:
        with torch.cuda.device(device):  # whose current stream the kernel goes to
            torch.cuda._sleep(cycles)

    return EventApi(
        partial(torch.cuda.Event, enable_timing=True),
        partial(torch.cuda.synchronize, device),
        record=lambda event: event.record(torch.cuda.current_stream(device)),
        hold=hold,
    )


def _conv(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:  # noqa: ARG001 - in the tensors
    assert isinstance(problem, Conv)
    if problem.precision in ("fp8", "int8"):
        raise UnsupportedError(f"torch has no convolution in {problem.precision}")
    if problem.layout == "nhwc":
        tensors = [tensor.contiguous(memory_format=torch.channels_last) for tensor in tensors]
    first, second = tensors
    geometry = (problem.stride, problem.padding, problem.dilation)
    if problem.direction == "fwd":
        run = partial(torch.conv2d, first, second, None, *geometry, problem.groups)
        return Prepared(run, lambda: host_array(run()), "torch.conv2d")
    to_data = problem.direction == "bwd_data"
    # The operand that this direction does not read; only its shape matters.
    unread = torch.empty_like(first).resize_(
        problem.image_shape if to_data else problem.weights_shape
    )
    gradient, image, weights = (first, unread, second) if to_data else (second, first, unread)
    backward = partial(
        torch.ops.aten.convolution_backward,
        *(
            gradient,
            image,
            weights,
            None,
            *geometry,
            False,
            (0, 0),
            problem.groups,
            (to_data, not to_data, False),
        ),
    )
    return Prepared(
        backward, lambda: host_array(backward()[0 if to_data else 1]), "torch.convolution_backward"
    )


def _memory(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:
    assert isinstance(problem, Memory)
    read = [tensor[:: problem.stride] for tensor in tensors]
    if problem.kind == "read":
        return Prepared(
            partial(torch.sum, *read), lambda: host_array(torch.sum(*read)[None]), "torch.sum"
        )
    dtype = getattr(torch, PRECISIONS[problem.precision].torch_dtype)
    out = torch.empty(problem.elements * problem.stride, dtype=dtype, device=device)[
        :: problem.stride
    ]
    run: Run = {
        "copy": partial(out.copy_, *read),
        "scale": partial(torch.mul, *read, SCALAR, out=out),
        "add": partial(torch.add, *read, out=out),
        "triad": partial(torch.add, *read, alpha=SCALAR, out=out),
        "write": partial(out.fill_, SCALAR),
    }[problem.kind]
    return Prepared(run, lambda: host_array(out), f"torch {problem.kind}")


def _launch(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:
    assert isinstance(problem, Launch)
    add_one = partial(tensors[0].add_, 1)
    if device.startswith("cuda"):
        prepared = prepare_launch(
            problem.kind, "torch.add_", add_one, partial(torch.cuda.synchronize, device)
        )
    elif problem.kind == "call":
        prepared = Prepared(add_one, lambda: None, "torch.add_")
    else:
        raise UnsupportedError("a CPU has no launch queue")
    if problem.kind == "graph":
        graph = torch.cuda.CUDAGraph()
        add_one()  # loading at the first call must not be captured
        with torch.cuda.device(device), torch.cuda.graph(graph):
            prepared.run()
        prepared = prepared._replace(run=graph.replay)

    def result() -> Array:
        tensors[0].zero_()
        prepared.run()
        return host_array(tensors[0]) / prepared.inner

    return prepared._replace(result=result)


def _transfer(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:
    assert isinstance(problem, Transfer)
    if not device.startswith("cuda"):
        raise UnsupportedError("on a CPU there is no link to a device")
    (there,) = tensors
    here = torch.empty(there.shape, dtype=there.dtype, pin_memory=problem.host == "pinned")
    here.copy_(there)
    source, target = (here, there) if problem.kind == "to_device" else (there, here)
    target.zero_()

    def result() -> Array:
        torch.cuda.synchronize(device)
        return host_array(target)

    return Prepared(partial(target.copy_, source, non_blocking=True), result, "torch.copy_")


_BUILDERS: dict[type, Callable[[Any, Problem, list[Any], str], Prepared]] = {
    Attention: prepare_attention,
    RowOperator: prepare_rows,
    Gemm: prepare_gemm,
    Conv: _conv,
    Memory: _memory,
    Launch: _launch,
    Transfer: _transfer,
}
