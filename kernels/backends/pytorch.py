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
from ..experts import Experts
from ..gemm import Gemm
from ..launch import Launch
from ..memory import SCALAR, Memory
from ..problem import Array, Problem
from ..row_operators import RowOperator
from ..timers import CudaEvents, EventApi, PerfCounter, Run
from ..transfer import Transfer
from . import Backend, Prepared, PreparesItself, UnsupportedError, run_in_turn
from .cuda_device import prepare_launch
from .torch_operators import (
    host_array,
    prepare_attention,
    prepare_experts,
    prepare_gemm,
    prepare_rows,
)


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
            facts = torch.cuda.get_device_properties(device)
            super().__init__(getattr(facts, "L2_cache_size", None))
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
            tf32 = problem.precision == "tf32"
            self._torch.backends.cuda.matmul.allow_tf32 = tf32
            self._torch.backends.cudnn.allow_tf32 = tf32
        dtype = getattr(self._torch, PRECISIONS[problem.precision].torch_dtype)
        tensors = [self._torch.from_numpy(array).to(self._device, dtype) for array in operands]
        return build(self._torch, problem, tensors, self._device)

    def record(self, run: Run, layer: str | None, phase: str | None) -> StepRows:
        def step(ranges: Callable[[str], Any]) -> None:
            with contextlib.ExitStack() as stack:
                for prefix, name in names:
                    if name is not None:
                        stack.enter_context(ranges(prefix + name))
                run()
            self._synchronize()

        names = ((range_names.PHASE_RANGE, phase), (range_names.LAYER_RANGE, layer))

        return torch_step.record_step(step, (), device=self._device)

    def describe(self) -> dict[str, Any]:
        return describe_device(self._device)

    def _need(self, precision: str) -> None:
        support = PRECISIONS[precision]
        if not self._cuda:
            if not support.on_cpu:
                raise UnsupportedError(f"a CPU does not support {precision.upper()}")
        elif support.cuda_since is not None:
            capability = self._torch.cuda.get_device_capability(self._device)
            if capability < support.cuda_since:
                here = ".".join(map(str, capability))
                raise UnsupportedError(f"compute capability {here} does not support {precision}")

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
    # The operand that this direction does not read; only its shape matters.
    unread = torch.empty_like(first)
    if problem.to_data:
        unread.resize_(problem.image_shape)
        operands = (first, unread, second)
    else:
        unread.resize_(problem.weights_shape)
        operands = (second, first, unread)
    transposed, output_padding = False, (0, 0)
    options = (*geometry, transposed, output_padding, problem.groups)
    gradients = (problem.to_data, problem.to_weights, False)
    backward = partial(torch.ops.aten.convolution_backward, *operands, None, *options, gradients)
    index = gradients.index(True)
    return Prepared(backward, lambda: host_array(backward()[index]), "torch.convolution_backward")


def _memory(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:
    assert isinstance(problem, Memory)
    read = [tensor[:: problem.stride] for tensor in tensors]
    if problem.kind == "read":
        total = partial(torch.sum, *read)
        return Prepared(total, lambda: host_array(total()[None]), "torch.sum")
    dtype = getattr(torch, PRECISIONS[problem.precision].torch_dtype)
    buffer = torch.empty(problem.elements * problem.stride, dtype=dtype, device=device)
    out = buffer[:: problem.stride]
    run: Run
    if problem.kind == "copy":
        run = partial(out.copy_, *read)
    elif problem.kind == "write":
        run = partial(out.fill_, SCALAR)
    elif problem.kind == "scale":
        run = partial(torch.mul, *read, SCALAR, out=out)
    else:
        factor = SCALAR if problem.kind == "triad" else 1
        run = partial(torch.add, *read, alpha=factor, out=out)
    return Prepared(run, lambda: host_array(out), f"torch {problem.kind}")


def _launch(torch: Any, problem: Problem, tensors: list[Any], device: str) -> Prepared:
    assert isinstance(problem, Launch)
    add_one = partial(tensors[0].add_, 1)
    if device.startswith("cuda"):
        synchronize = partial(torch.cuda.synchronize, device)
        prepared = prepare_launch(problem.kind, "torch.add_", add_one, synchronize)
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
    Experts: prepare_experts,
    RowOperator: prepare_rows,
    Gemm: prepare_gemm,
    Conv: _conv,
    Memory: _memory,
    Launch: _launch,
    Transfer: _transfer,
}
