"""Our own CUDA kernels as data: source file, launch configuration, and work of one launch.

The sources in kernels/cuda explain how they work.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import memory

# Rows and columns of C per block of the GEMM; kTile of cuda/tile.cuh.
TILE = 128


@dataclass(frozen=True)
class CudaKernel:
    """One `__global__` function of a source file."""

    name: str
    source: str  # file in kernels/cuda, without `.cu`
    block_threads: int = 256  # at launch, which is also the largest block
    since: int = 35  # first architecture that supports it
    flops_per_thread_round: int | None = None  # of a peak kernel, one FMA counted as two


def _kernels_of(source: str, *names: str, **launch: int) -> list[CudaKernel]:
    """Kernels of one source that are launched alike."""
    return [CudaKernel(name, source, **launch) for name in names]


# Steps of a round on each of the 8 chains, as cuda/peak.cu has them.
_LANE_STEPS, _TENSOR_STEPS = 64, 16


def _peak(name: str, flops_per_step: int, since: int = 35) -> CudaKernel:
    """An arithmetic peak, of the tensor cores if its name says so."""
    steps = _TENSOR_STEPS if name.endswith("_tensor") else _LANE_STEPS
    flops = flops_per_step * steps * 8
    return CudaKernel(f"peak_{name}", "peak", since=since, flops_per_thread_round=flops)


# FLOPs of the matrix instructions for one of 32 threads, by the instruction's m, n and k.
_M16N8K8 = 2 * 16 * 8 * 8 // 32
_M16N8K16 = 2 * _M16N8K8
_M16N8K32 = 4 * _M16N8K8
_M8N8K4 = 2 * 8 * 8 * 4 // 32
_PRODUCTS = _kernels_of("gemm", "sgemm_nn", "sgemm_nt", "sgemm_tn", "sgemm_tt")
_CONVOLUTIONS = _kernels_of(
    "convolution",
    "convolution_forward",
    "convolution_backward_data",
    "convolution_backward_weights",
)
_MEMORY = _kernels_of("memory", *map("memory_{}".format, memory.KINDS), "memory_read_strided")
_PEAKS = (
    _peak("fp32", 2),
    _peak("fp64", 2),
    _peak("fp16x2", 4, since=53),
    _peak("bf16x2", 4, since=80),
    _peak("fp16_tensor", _M16N8K16, since=70),
    _peak("int8_tensor", _M16N8K32, since=75),
    _peak("bf16_tensor", _M16N8K16, since=80),
    _peak("tf32_tensor", _M16N8K8, since=80),
    _peak("fp64_tensor", _M8N8K4, since=80),
)
KERNELS = (
    *_PRODUCTS,
    *_CONVOLUTIONS,
    *_MEMORY,
    CudaKernel("mix_fp32", "mix"),
    CudaKernel("chase_link", "latency"),
    CudaKernel("chase", "latency", block_threads=1),
    CudaKernel("empty", "launch", block_threads=1024),
    CudaKernel("spin", "launch", block_threads=1),
    *_PEAKS,
)


def _wgmma_peak(precision: str, depth: int) -> CudaKernel:
    """A peak for sm_90 alone, in kernels/cuda/sm_90a: a round is 128 steps, each of 2 x 64 x 128 x
    K operations for 128 threads.
    """
    flops = 2 * 64 * 128 * depth
    name = f"peak_{precision}_wgmma"
    return CudaKernel(name, "peak_wgmma", since=90, flops_per_thread_round=flops)


WGMMA_DEPTHS = {"fp16": 16, "bf16": 16, "tf32": 8, "fp8": 32, "int8": 32}
HOPPER_KERNELS = tuple(_wgmma_peak(*item) for item in WGMMA_DEPTHS.items())
BY_NAME = {kernel.name: kernel for kernel in (*KERNELS, *HOPPER_KERNELS)}


def tile_grid(rows: int, columns: int, groups: int = 1) -> tuple[int, int, int]:
    """Grid of a tiled product: SGEMM with m rows and n columns, or a convolution as its source
    describes it.
    """
    return -(-columns // TILE), -(-rows // TILE), groups
