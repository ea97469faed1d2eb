"""Turns a problem into launches of our own CUDA kernels: buffers, arguments, grid, and how to read
the result.

The plan is data and the same for every library. The order of the arguments follows the sources in
kernels/cuda.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .backends import UnsupportedError
from .catalog import BY_NAME, CudaKernel, tile_grid
from .conv import Conv
from .gemm import Gemm
from .latency import Latency
from .launch import Launch
from .memory import SCALAR, Memory
from .mix import Mix
from .peak import A, B, PeakRounds
from .problem import Array, Problem

_BLOCK_THREADS = 256
_MOST_ELEMENTS = 2**31 - 1  # the kernels count elements in int
_CHASE_UNROLL = 16
# Least bytes of a launch of a memory kernel, by repeated passes: 0.2 ms at the 8 TB/s of an H200's
# L2, where a launch takes the host 3 to 7 µs.
BYTES_PER_LAUNCH = 2_000_000_000
# A read writes the sums above this: none, or all.
NO_SUM, ALL_SUMS = np.float32(np.finfo(np.float32).max), np.float32(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Buffer:
    """An argument that is the address of one of the plan's buffers."""

    index: int


@dataclass(frozen=True)
class KernelLaunch:
    """One launch; the arguments are buffers, numpy scalars, or a structure by value as
    `np.void`.
    """

    kernel: str
    grid: tuple[int, int, int]
    arguments: tuple[Buffer | np.generic, ...]
    block: tuple[int, int, int] = (_BLOCK_THREADS, 1, 1)


@dataclass(frozen=True)
class LaunchPlan:
    """A problem as launches."""

    buffers: tuple[Array, ...]  # initial contents of device memory
    launch: KernelLaunch  # the timed one
    read: Read | None  # None: it keeps no result
    setup: tuple[KernelLaunch, ...] = ()  # run once before timing
    checked: KernelLaunch | None = None  # the one to verify, where it is not the timed one
    repeats: int = 1  # of the problem in the timed launch
    once: KernelLaunch | None = None  # one repetition, where the timed launch makes several


# The result, from functions that give a buffer's contents and its address by index.
Read = Callable[[Callable[[int], Array], Callable[[int], int]], Array]
_Operands = tuple[Array, ...]
# How many blocks of a kernel, by its name, run at once on the device.
Resident = Callable[[str], int]


def plan(problem: Problem, operands: _Operands, resident: Resident) -> LaunchPlan:
    """The launches of a problem on a device.

    Raises:
        UnsupportedError: no kernel exists for it.
    """
    make = _PLANS.get(type(problem))
    if make is None:
        raise UnsupportedError(f"Curvescope has no CUDA kernel for {type(problem).__name__}")
    if isinstance(problem, (Gemm, Conv, Memory, Mix)) and problem.precision != "fp32":
        raise UnsupportedError(
            "Curvescope's CUDA kernels are fp32; the torch backend offers other precisions"
        )
    launches = make(problem, operands, resident)
    if any(buffer.size > _MOST_ELEMENTS for buffer in launches.buffers):
        raise UnsupportedError(
            f"Curvescope's CUDA kernels handle at most {_MOST_ELEMENTS} elements"
        )
    return launches


def refuse_beyond_sgemm(problem: Gemm) -> None:
    """Refuse what Curvescope's own matrix products do not do."""
    if problem.batch > 1 or problem.has_epilogue:
        raise UnsupportedError(
            "Curvescope's own products are single and have no epilogue; the torch backend's may"
        )


def _read_float64(index: int, shape: tuple[int, ...]) -> Read:
    return lambda fetch, address: fetch(index).reshape(shape).astype(np.float64)  # noqa: ARG005 - no address needed


def _gemm(problem: Any, operands: _Operands, resident: Resident) -> LaunchPlan:  # noqa: ARG001
    refuse_beyond_sgemm(problem)
    # Column-major C = op(A) op(B) is row-major Cᵀ = op(B)ᵀ op(A)ᵀ, and an array in C order is the
    # transposed matrix.
    transposes = problem.transpose[::-1].lower()
    shape = (problem.n, problem.m)
    extents = [np.int32(extent) for extent in (*shape, problem.k)]
    arguments: list[Buffer | np.generic] = [Buffer(1), Buffer(0), Buffer(2), *extents]
    arguments += [np.float32(1), np.float32(0)]
    launch = KernelLaunch(f"sgemm_{transposes}", tile_grid(*shape), tuple(arguments))
    buffers = (*operands, np.zeros(shape, np.float32))
    return LaunchPlan(buffers, launch, _read_float64(2, shape))


def convolution_launch(problem: Conv) -> KernelLaunch:
    """The launch of a convolution: buffers 0 and 1 hold its operands, 2 its result.

    The last argument is `struct Convolution` of cuda/convolution.cu by value, field by field: 16
    integers of 4 bytes. Its channels and filters are totals over all groups.
    """
    n, _, h, w = problem.image_shape
    k, c_of_group, r, s = problem.weights_shape
    p, q = problem.output
    filters = k // problem.groups
    kernel, rows, columns = {
        "fwd": ("convolution_forward", filters, n * p * q),
        "bwd_data": ("convolution_backward_data", c_of_group, n * h * w),
        "bwd_weights": ("convolution_backward_weights", filters, c_of_group * r * s),
    }[problem.direction]
    geometry = (*problem.stride, *problem.padding, *problem.dilation, problem.groups)
    fields = [*problem.image_shape, k, r, s, p, q, *geometry]
    structure = np.void(np.array(fields, np.int32).tobytes())
    grid = tile_grid(rows, columns, problem.groups)
    return KernelLaunch(kernel, grid, (Buffer(0), Buffer(1), Buffer(2), structure))


def _conv(problem: Any, operands: _Operands, resident: Resident) -> LaunchPlan:  # noqa: ARG001
    if problem.layout != "nchw":
        raise UnsupportedError("Curvescope's CUDA convolution needs the NCHW layout")
    result = np.zeros(problem.shape, np.float32)
    read = _read_float64(2, result.shape)
    return LaunchPlan((*operands, result), convolution_launch(problem), read)


def _memory(problem: Any, operands: _Operands, resident: Resident) -> LaunchPlan:
    strided = problem.stride > 1
    if strided and problem.kind != "read":
        raise UnsupportedError(
            "only the read kernel of Curvescope's CUDA kernels supports a stride"
        )
    if not strided and problem.elements % 4:
        raise UnsupportedError("Curvescope's CUDA memory kernels need a multiple of four elements")
    count = problem.elements if strided else problem.elements // 4
    kernel = f"memory_{problem.kind}" + ("_strided" if strided else "")
    blocks = min(_blocks(count), resident(kernel))
    buffers = [Buffer(i) for i in range(len(operands) + 1)]
    extents = [np.int64(problem.stride)] if strided else []
    extents.append(np.int64(count))
    passes = problem.repeats(BYTES_PER_LAUNCH)

    def launch(passes: int, *scalars: np.float32) -> KernelLaunch:
        arguments: list[Buffer | np.generic] = [*buffers, *scalars, *extents, np.int32(passes)]
        return KernelLaunch(kernel, (blocks, 1, 1), tuple(arguments))

    if problem.kind == "read":
        sums = np.zeros(blocks * _BLOCK_THREADS, np.float32)
        timed, once, checked = launch(passes, NO_SUM), launch(1, NO_SUM), launch(1, ALL_SUMS)
        return LaunchPlan((*operands, sums), timed, _read_total, (), checked, passes, once)
    factor = [np.float32(SCALAR)] if problem.kind in ("scale", "triad", "write") else []
    timed, once = launch(passes, *factor), launch(1, *factor)
    result = np.zeros(problem.elements, np.float32)
    read = _read_float64(len(operands), result.shape)
    return LaunchPlan((*operands, result), timed, read, (), once, passes, once)


def _read_total(fetch: Callable[[int], Array], address: Callable[[int], int]) -> Array:  # noqa: ARG001 - no address needed
    return np.asarray(fetch(1).sum(dtype=np.float64, keepdims=True))


def _mix(problem: Any, operands: _Operands, resident: Resident) -> LaunchPlan:
    if problem.elements % 4:
        raise UnsupportedError("Curvescope's CUDA mix needs a multiple of four elements")
    count = problem.elements // 4
    grid = (min(_blocks(count), resident("mix_fp32")), 1, 1)
    numbers = (np.float32(A), np.float32(B), np.int32(problem.fmas), np.int64(count))
    launch = KernelLaunch("mix_fp32", grid, (Buffer(0), Buffer(1), *numbers))
    result = np.zeros(problem.elements, np.float32)
    return LaunchPlan((*operands, result), launch, _read_float64(1, result.shape))


def _blocks(elements: int) -> int:
    return -(-elements // _BLOCK_THREADS)


def _latency(problem: Any, operands: _Operands, resident: Resident) -> LaunchPlan:  # noqa: ARG001 - one thread
    if problem.loads % _CHASE_UNROLL:
        raise UnsupportedError(
            f"Curvescope's CUDA pointer chase needs a multiple of {_CHASE_UNROLL} loads"
        )
    following = operands[0].astype(np.uint32)
    size = following.size
    arguments = (Buffer(0), Buffer(1), np.uint32(size))
    link = KernelLaunch("chase_link", (_blocks(size), 1, 1), arguments)

    def chase(goes_on: bool) -> KernelLaunch:
        arguments = (Buffer(0), np.int64(problem.loads), Buffer(2), Buffer(3), np.int32(goes_on))
        return KernelLaunch("chase", (1, 1, 1), arguments, (1, 1, 1))

    def read(fetch: Callable[[int], Array], address: Callable[[int], int]) -> Array:
        # 8 bytes for each item; in float64 the difference is exact.
        distance = fetch(3) - np.uint64(address(0))
        return distance.astype(np.float64) / 8

    chain, last = np.zeros(size, np.uint64), np.zeros(1, np.uint64)
    buffers = (chain, following, np.zeros(1, np.int64), last)
    first = chase(False)
    return LaunchPlan(buffers, chase(True), read, (link, first), checked=first)


def _launch(problem: Any, operands: _Operands, resident: Resident) -> LaunchPlan:  # noqa: ARG001 - nothing to work on
    return LaunchPlan((), KernelLaunch("empty", (1, 1, 1), (), (1, 1, 1)), None)


def hold_launch(cycles: int) -> KernelLaunch:
    """The launch that holds the stream for a number of clock cycles."""
    return KernelLaunch("spin", (1, 1, 1), (np.int64(cycles),), (1, 1, 1))


# The value 1 in each number format, as the kernels take it: packed formats have it in every part of
# a register.
_ONES: dict[str, np.generic] = {
    "fp64": np.float64(1),
    "fp32": np.float32(1),
    "tf32": np.float32(1),
    "fp16": np.uint32(0x3C003C00),
    "bf16": np.uint32(0x3F803F80),
    "fp8": np.uint32(0x38383838),  # E4M3: exponent bias 7
    "int8": np.uint32(0x01010101),
}


def _peak(problem: Any, operands: _Operands, resident: Resident) -> LaunchPlan:  # noqa: ARG001
    unit = _ONES[problem.precision]
    grid = (problem.threads // _BLOCK_THREADS, 1, 1)

    def rounds(count: int) -> KernelLaunch:
        return KernelLaunch(problem.kernel, grid, (Buffer(0), unit, unit, np.int32(count)))

    # The sums of one round are exact in every format, but not of many.
    sums = np.zeros(problem.threads, np.float32)
    read = _read_float64(0, sums.shape)
    return LaunchPlan((sums,), rounds(problem.rounds), read, checked=rounds(1))


_PLANS: dict[type, Callable[[Any, _Operands, Resident], LaunchPlan]] = {
    Gemm: _gemm,
    Conv: _conv,
    Memory: _memory,
    Mix: _mix,
    Latency: _latency,
    Launch: _launch,
    PeakRounds: _peak,
}

_PEAKS = ("peak_{}_wgmma", "peak_{}_tensor", "peak_{}x2", "peak_{}")  # best first
_GET_WGMMA = "`pip install nvidia-cuda-nvrtc-cu12`"
# What reaches the peak of the tensor cores where mma.sync does not, but of fp64: PTX ISA,
# "Asynchronous Warpgroup Level Matrix Instructions" and "TensorCore 5th Generation Family".
_BEYOND_MMA_SYNC = {
    90: f"wgmma ({_GET_WGMMA})",
    100: "tcgen05",
    103: "tcgen05",
    110: "tcgen05",
}


def peak_kernel(precision: str, architecture: int, wgmma: bool = False) -> CudaKernel:
    """The kernel of an arithmetic peak; `wgmma` if Hopper's own kernels can be compiled.

    Raises:
        UnsupportedError: no kernel exists for it.
    """
    hopper, *others = (BY_NAME.get(name.format(precision)) for name in _PEAKS)
    is_hopper = architecture == 90
    for kernel in (hopper if wgmma and is_hopper else None, *others):
        if kernel is not None and kernel.since <= architecture:
            return kernel
    why = f"Curvescope has no kernel for the peak of {precision} on sm_{architecture}"
    if is_hopper and hopper is not None:
        why = f"the peak of {precision} needs wgmma: {_GET_WGMMA}"
    raise UnsupportedError(why)


def peak_rounds(
    kernel: CudaKernel, precision: str, architecture: int, resident: Resident
) -> PeakRounds:
    """The peak problem that keeps every SM busy."""
    assert kernel.flops_per_thread_round is not None
    threads = resident(kernel.name) * _BLOCK_THREADS
    is_mma_sync = kernel.name.endswith("_tensor") and precision != "fp64"
    beyond = _BEYOND_MMA_SYNC.get(architecture, "") if is_mma_sync else ""
    flops = kernel.flops_per_thread_round
    return PeakRounds(kernel.name, threads, flops, precision, beyond=beyond)
