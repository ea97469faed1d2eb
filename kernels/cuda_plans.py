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
from .catalog import HOPPER_KERNELS, KERNELS, tile_grid
from .conv import Conv
from .gemm import Gemm
from .latency import Latency
from .launch import Launch
from .memory import SCALAR, Memory
from .peak import PeakRounds
from .problem import Array, Problem

_BLOCK_THREADS = 256
# Eight blocks of 256 fill an SM's 2048 threads; the memory kernels loop over the rest.
_BLOCKS_PER_SM = 8
_MOST_ELEMENTS = 2**31 - 1  # the kernels count elements in int
_CHASE_UNROLL = 16
# Least bytes of a launch of a memory kernel, by repeated passes: 0.2 ms at the 8 TB/s of an H200's
# L2, where a launch takes the host 3 to 7 µs.
BYTES_PER_LAUNCH = 2_000_000_000
UNLIKELY_SUM = np.float32(np.finfo(np.float32).max)  # a read writes its sum if it is this


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
    # None: it keeps no result
    read: Callable[[Callable[[int], Array], Callable[[int], int]], Array] | None
    setup: tuple[KernelLaunch, ...] = ()  # run once before timing
    checked: KernelLaunch | None = None  # the one to verify, where it is not the timed one
    repeats: int = 1  # of the problem in the timed launch; `checked` has one


def plan(problem: Problem, operands: tuple[Array, ...], sm_count: int) -> LaunchPlan:
    """The launches of a problem on a device with so many SMs; an UnsupportedError if no kernel
    exists for it.
    """
    make = _PLANS.get(type(problem))
    if make is None:
        raise UnsupportedError(f"Curvescope has no CUDA kernel for {type(problem).__name__}")
    if isinstance(problem, (Gemm, Conv, Memory)) and problem.precision != "fp32":
        raise UnsupportedError(
            "Curvescope's CUDA kernels are fp32; the torch backend offers other precisions"
        )
    made = make(problem, operands, sm_count)
    if max((buffer.size for buffer in made.buffers), default=0) > _MOST_ELEMENTS:
        raise UnsupportedError(
            f"Curvescope's CUDA kernels handle at most {_MOST_ELEMENTS} elements"
        )
    return made


def _float64(
    index: int, shape: tuple[int, ...]
) -> Callable[[Callable[[int], Array], Callable[[int], int]], Array]:
    return lambda fetch, address: fetch(index).reshape(shape).astype(np.float64)  # noqa: ARG005 - no address needed


def _gemm(problem: Any, operands: tuple[Array, ...], sm_count: int) -> LaunchPlan:  # noqa: ARG001
    # Column-major C = op(A) op(B) is row-major Cᵀ = op(B)ᵀ op(A)ᵀ, and an array in C order is the
    # transposed matrix.
    kernel, shape = f"sgemm_{problem.transpose[::-1].lower()}", (problem.n, problem.m)
    scalars = (*map(np.int32, (*shape, problem.k)), np.float32(1), np.float32(0))
    launch = KernelLaunch(kernel, tile_grid(*shape), (Buffer(1), Buffer(0), Buffer(2), *scalars))
    return LaunchPlan((*operands, np.zeros(shape, np.float32)), launch, _float64(2, shape))


def convolution_launch(problem: Conv) -> KernelLaunch:
    """The launch of a convolution: buffers 0 and 1 hold its operands, 2 its result.

    The last argument is `struct Convolution` of cuda/convolution.cu by value, field by field: 16
    integers of 4 bytes. Its channels and filters are totals over all groups.
    """
    (n, c, h, w), (k, c_of_group, r, s), (p, q) = (
        problem.image_shape,
        problem.weights_shape,
        problem.output,
    )
    kernel, rows, columns = {
        "fwd": ("convolution_forward", k // problem.groups, n * p * q),
        "bwd_data": ("convolution_backward_data", c_of_group, n * h * w),
        "bwd_weights": ("convolution_backward_weights", k // problem.groups, c_of_group * r * s),
    }[problem.direction]
    steps = (*problem.stride, *problem.padding, *problem.dilation, problem.groups)
    structure = np.void(np.array([n, c, h, w, k, r, s, p, q, *steps], np.int32).tobytes())
    grid = tile_grid(rows, columns, problem.groups)
    return KernelLaunch(kernel, grid, (Buffer(0), Buffer(1), Buffer(2), structure))


def _conv(problem: Any, operands: tuple[Array, ...], sm_count: int) -> LaunchPlan:  # noqa: ARG001
    if problem.layout != "nchw":
        raise UnsupportedError("Curvescope's CUDA convolution needs the NCHW layout")
    result = np.zeros(problem.shape, np.float32)
    return LaunchPlan((*operands, result), convolution_launch(problem), _float64(2, result.shape))


def _memory(problem: Any, operands: tuple[Array, ...], sm_count: int) -> LaunchPlan:
    strided = problem.stride > 1
    if strided and problem.kind != "read":
        raise UnsupportedError(
            "only the read kernel of Curvescope's CUDA kernels supports a stride"
        )
    if not strided and problem.elements % 4:
        raise UnsupportedError("Curvescope's CUDA memory kernels need a multiple of four elements")
    count = problem.elements if strided else problem.elements // 4
    blocks = min(-(-count // _BLOCK_THREADS), sm_count * _BLOCKS_PER_SM)
    *inputs, out = (Buffer(i) for i in range(len(operands) + 1))
    end: tuple[np.generic, ...] = (np.int64(count),)
    if problem.kind in ("scale", "triad", "write"):
        end = (np.float32(SCALAR), *end)
    if problem.kind == "read":
        end = (UNLIKELY_SUM, np.int64(problem.stride), *end) if strided else (UNLIKELY_SUM, *end)
    kernel = f"memory_{problem.kind}" + ("_strided" if strided else "")
    passes = problem.repeats(BYTES_PER_LAUNCH)

    def launch(count: int) -> KernelLaunch:
        return KernelLaunch(kernel, (blocks, 1, 1), (*inputs, out, *end, np.int32(count)))

    read, result = None, np.zeros(1, np.float32)
    if problem.kind != "read":
        result = np.zeros(problem.elements, np.float32)
        read = _float64(out.index, result.shape)
    return LaunchPlan((*operands, result), launch(passes), read, checked=launch(1), repeats=passes)


def _latency(problem: Any, operands: tuple[Array, ...], sm_count: int) -> LaunchPlan:  # noqa: ARG001 - one thread
    if problem.loads % _CHASE_UNROLL:
        raise UnsupportedError(
            f"Curvescope's CUDA pointer chase needs a multiple of {_CHASE_UNROLL} loads"
        )
    following = operands[0].astype(np.uint32)
    blocks = -(-following.size // _BLOCK_THREADS)
    link = KernelLaunch(
        "chase_link", (blocks, 1, 1), (Buffer(0), Buffer(1), np.uint32(following.size))
    )

    def chase(goes_on: bool) -> KernelLaunch:
        arguments = (Buffer(0), np.int64(problem.loads), Buffer(2), Buffer(3), np.int32(goes_on))
        return KernelLaunch("chase", (1, 1, 1), arguments, (1, 1, 1))

    def read(fetch: Callable[[int], Array], address: Callable[[int], int]) -> Array:
        # 8 bytes for each item; in float64 the difference is exact.
        return (fetch(3) - np.uint64(address(0))).astype(np.float64) / 8

    buffers = (
        np.zeros(following.size, np.uint64),
        following,
        np.zeros(1, np.int64),
        np.zeros(1, np.uint64),
    )
    return LaunchPlan(buffers, chase(True), read, (link, chase(False)), checked=chase(False))


def _launch(problem: Any, operands: tuple[Array, ...], sm_count: int) -> LaunchPlan:  # noqa: ARG001 - nothing to work on
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


def _peak(problem: Any, operands: tuple[Array, ...], sm_count: int) -> LaunchPlan:  # noqa: ARG001
    unit = _ONES[problem.precision]
    grid = (problem.threads // _BLOCK_THREADS, 1, 1)

    def rounds(count: int) -> KernelLaunch:
        return KernelLaunch(problem.kernel, grid, (Buffer(0), unit, unit, np.int32(count)))

    # The sums of one round are exact in every format; those of many are not.
    sums = np.zeros(problem.threads, np.float32)
    return LaunchPlan((sums,), rounds(problem.rounds), _float64(0, sums.shape), checked=rounds(1))


_PLANS: dict[type, Callable[[Any, tuple[Array, ...], int], LaunchPlan]] = {
    Gemm: _gemm,
    Conv: _conv,
    Memory: _memory,
    Latency: _latency,
    Launch: _launch,
    PeakRounds: _peak,
}

_HOPPER = 90
_PEAKS = ("peak_{}_wgmma", "peak_{}_tensor", "peak_{}x2", "peak_{}")  # best first


def peak_rounds(
    precision: str, architecture: int, sm_count: int, wgmma: bool = False
) -> PeakRounds:
    """The peak problem that keeps every SM busy; `wgmma` if Hopper's own kernels can be
    compiled.
    """
    by_name = {kernel.name: kernel for kernel in (*KERNELS, *HOPPER_KERNELS)}
    first, *others = (by_name.get(name.format(precision)) for name in _PEAKS)
    for kernel in (first if wgmma and architecture == _HOPPER else None, *others):
        if (
            kernel is not None
            and kernel.since <= architecture
            and kernel.flops_per_thread_round is not None
        ):
            threads = sm_count * _BLOCKS_PER_SM * _BLOCK_THREADS
            return PeakRounds(kernel.name, threads, kernel.flops_per_thread_round, precision)
    if architecture == _HOPPER and first is not None:
        raise UnsupportedError(
            f"the peak of {precision} needs `pip install nvidia-cuda-nvrtc-cu12`, to compile wgmma"
        )
    raise UnsupportedError(
        f"Curvescope has no kernel for the peak of {precision} on sm_{architecture}"
    )
