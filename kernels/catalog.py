"""Our own CUDA kernels as data: source file, launch configuration, and work of one launch.

The sources in kernels/cuda explain how they work; `bench compile` shows their resources on each architecture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Rows and columns of C per block of the GEMM; kTile of cuda/tile.cuh.
TILE = 128


@dataclass(frozen=True)
class CudaKernel:
    """One `__global__` function of a source file.

    Attributes:
        name: name of the function.
        source: file in kernels/cuda, without `.cu`.
        block_threads: threads per block at launch, which is also the largest block.
        since: first architecture that supports it, e.g. 80 for sm_80.
        flops_per_thread_round: FLOPs of a peak kernel per thread and round, one FMA counted as two; None for the
            others.
    """

    name: str
    source: str
    block_threads: int = 256
    since: int = 35
    flops_per_thread_round: int | None = None


# A round of an arithmetic peak: 16 steps on each of 8 chains; each thread does 1/32 of a matrix instruction.
_STEPS = 16 * 8
KERNELS = (
    *(CudaKernel(f"sgemm_{transposes}", "gemm") for transposes in ("nn", "nt", "tn", "tt")),
    CudaKernel("convolution_forward", "convolution"),
    CudaKernel("convolution_backward_data", "convolution"),
    CudaKernel("convolution_backward_weights", "convolution"),
    CudaKernel("memory_copy", "memory"),
    CudaKernel("memory_scale", "memory"),
    CudaKernel("memory_add", "memory"),
    CudaKernel("memory_triad", "memory"),
    CudaKernel("memory_write", "memory"),
    CudaKernel("memory_read", "memory"),
    CudaKernel("memory_read_strided", "memory"),
    CudaKernel("chase_link", "latency"),
    CudaKernel("chase", "latency", block_threads=1),
    CudaKernel("empty", "launch", block_threads=1024),
    CudaKernel("peak_fp32", "peak", flops_per_thread_round=2 * _STEPS),
    CudaKernel("peak_fp64", "peak", flops_per_thread_round=2 * _STEPS),
    CudaKernel("peak_fp16x2", "peak", since=53, flops_per_thread_round=4 * _STEPS),
    CudaKernel("peak_bf16x2", "peak", since=80, flops_per_thread_round=4 * _STEPS),
    CudaKernel("peak_fp16_tensor", "peak", since=70, flops_per_thread_round=2 * 16 * 8 * 16 // 32 * _STEPS),
    CudaKernel("peak_bf16_tensor", "peak", since=80, flops_per_thread_round=2 * 16 * 8 * 16 // 32 * _STEPS),
    CudaKernel("peak_tf32_tensor", "peak", since=80, flops_per_thread_round=2 * 16 * 8 * 8 // 32 * _STEPS),
    CudaKernel("peak_fp64_tensor", "peak", since=80, flops_per_thread_round=2 * 8 * 8 * 4 // 32 * _STEPS),
)


def tile_grid(rows: int, columns: int, groups: int = 1) -> tuple[int, int, int]:
    """Grid of a tiled product: SGEMM with m rows and n columns, or a convolution as its source describes it."""
    return -(-columns // TILE), -(-rows // TILE), groups


@dataclass(frozen=True)
class ConvolutionShape:
    """The last argument of the convolution kernels: `struct Convolution` of cuda/convolution.cu, field by field.

    Channels are totals over all groups; `out_size` is the size of the output.
    """

    batch: int
    in_channels: int
    in_h: int
    in_w: int
    out_channels: int
    kernel_h: int
    kernel_w: int
    stride_h: int = 1
    stride_w: int = 1
    pad_h: int = 0
    pad_w: int = 0
    dilation_h: int = 1
    dilation_w: int = 1
    groups: int = 1

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of the output."""

        def positions(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
            return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1

        return (
            positions(self.in_h, self.kernel_h, self.stride_h, self.pad_h, self.dilation_h),
            positions(self.in_w, self.kernel_w, self.stride_w, self.pad_w, self.dilation_w),
        )

    def packed(self) -> npt.NDArray[np.int32]:
        """The structure as the kernel takes it by value: 16 integers of 4 bytes."""
        image = (self.batch, self.in_channels, self.in_h, self.in_w)
        filters = (self.out_channels, self.kernel_h, self.kernel_w, *self.out_size)
        steps = (self.stride_h, self.stride_w, self.pad_h, self.pad_w, self.dilation_h, self.dilation_w, self.groups)
        return np.array([*image, *filters, *steps], dtype=np.int32)

    def grid(self, kernel: str) -> tuple[int, int, int]:
        """Grid of `convolution_forward`, `convolution_backward_data` or `convolution_backward_weights`."""
        in_channels, out_channels = self.in_channels // self.groups, self.out_channels // self.groups
        out_h, out_w = self.out_size
        rows, columns = {
            "convolution_forward": (out_channels, self.batch * out_h * out_w),
            "convolution_backward_data": (in_channels, self.batch * self.in_h * self.in_w),
            "convolution_backward_weights": (out_channels, in_channels * self.kernel_h * self.kernel_w),
        }[kernel]
        return tile_grid(rows, columns, self.groups)
