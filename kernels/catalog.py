"""Our own CUDA kernels as data: source file, launch configuration, and work of one launch.

The sources in kernels/cuda explain how they work; `bench compile` shows their resources on each
architecture.
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


# A round of an arithmetic peak: 16 steps on each of 8 chains; each thread does 1/32 of a matrix
# instruction.
_STEPS = 16 * 8
KERNELS = (
    *(CudaKernel(f"sgemm_{transposes}", "gemm") for transposes in ("nn", "nt", "tn", "tt")),
    *(
        CudaKernel(f"convolution_{direction}", "convolution")
        for direction in ("forward", "backward_data", "backward_weights")
    ),
    *(CudaKernel(f"memory_{kind}", "memory") for kind in (*memory.KINDS, "read_strided")),
    CudaKernel("chase_link", "latency"),
    CudaKernel("chase", "latency", block_threads=1),
    CudaKernel("empty", "launch", block_threads=1024),
    CudaKernel("spin", "launch", block_threads=1),
    CudaKernel("peak_fp32", "peak", flops_per_thread_round=2 * _STEPS),
    CudaKernel("peak_fp64", "peak", flops_per_thread_round=2 * _STEPS),
    CudaKernel("peak_fp16x2", "peak", since=53, flops_per_thread_round=4 * _STEPS),
    CudaKernel("peak_bf16x2", "peak", since=80, flops_per_thread_round=4 * _STEPS),
    CudaKernel(
        "peak_fp16_tensor", "peak", since=70, flops_per_thread_round=2 * 16 * 8 * 16 // 32 * _STEPS
    ),
    CudaKernel(
        "peak_int8_tensor", "peak", since=75, flops_per_thread_round=2 * 16 * 8 * 32 // 32 * _STEPS
    ),
    CudaKernel(
        "peak_bf16_tensor", "peak", since=80, flops_per_thread_round=2 * 16 * 8 * 16 // 32 * _STEPS
    ),
    CudaKernel(
        "peak_tf32_tensor", "peak", since=80, flops_per_thread_round=2 * 16 * 8 * 8 // 32 * _STEPS
    ),
    CudaKernel(
        "peak_fp64_tensor", "peak", since=80, flops_per_thread_round=2 * 8 * 8 * 4 // 32 * _STEPS
    ),
)

# For sm_90 alone, in kernels/cuda/sm_90a: 128 steps a round, each of 2 x 64 x 128 x K operations
# for 128 threads.
WGMMA_DEPTHS = {"fp16": 16, "bf16": 16, "tf32": 8, "fp8": 32, "int8": 32}
HOPPER_KERNELS = tuple(
    CudaKernel(
        f"peak_{precision}_wgmma",
        "peak_wgmma",
        since=90,
        flops_per_thread_round=2 * 64 * 128 * depth,
    )
    for precision, depth in WGMMA_DEPTHS.items()
)


def tile_grid(rows: int, columns: int, groups: int = 1) -> tuple[int, int, int]:
    """Grid of a tiled product: SGEMM with m rows and n columns, or a convolution as its source
    describes it.
    """
    return -(-columns // TILE), -(-rows // TILE), groups
