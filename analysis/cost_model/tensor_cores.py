"""Products and convolutions on tensor cores, in fp16 and bf16: launches of tiles, with the rule of
multiples of 8.

Tensor cores take operands of 16 bytes at a time, i.e. 8 values of fp16: other extents are padded by
the library (cuDNN) or the caller (DeepBench). Winograd and FFT are not modelled: for all of
DeepBench's 94 forward convolutions in fp16 on V100, cuDNN 7.6 took IMPLICIT_PRECOMP_GEMM. The
constants are fitted to that V100; for other cards they are predictions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...base.errors import CurvescopeError
from ...profiling.hardware.devices import Device
from .constants import Constants, load_fitted
from .launches import ModelledGpu, Tile
from .problems import Convolutions, Floats, Products
from .product import CostEstimate, split_depth

TENSOR_PRECISIONS = ("fp16", "bf16")
# Extents are padded to 16 bytes (NVIDIA, Deep Learning Performance: Matrix Multiplication
# Background, section 4).
MULTIPLE = 8
_ITEM_BYTES = 2
# Tiles of cuBLAS's kernels on Volta, from their names (volta_fp16_s884gemm_fp16_256x128_...).
_TILES = (
    Tile(256, 128, 256),
    Tile(128, 256, 256),
    Tile(128, 128, 256),
    Tile(128, 64, 128),
    Tile(64, 128, 128),
    Tile(64, 64, 128),
)
_EDGE = "prologue_cycles"
_CONVOLUTION_TILES = (
    Tile(256, 128, 256, _EDGE),
    Tile(128, 128, 256, _EDGE),
    Tile(256, 64, 256, _EDGE),
    Tile(128, 64, 128, _EDGE),
    Tile(64, 64, 128, _EDGE),
    Tile(256, 32, 128, _EDGE),
)


@dataclass(frozen=True)
class TensorGpu(ModelledGpu):
    """A device whose products run on tensor cores, with the constants of those."""

    item_bytes: int = _ITEM_BYTES
    precision: str = "fp16"  # fp16 or bf16

    @property
    def sm_flops_per_s(self) -> float:
        """Peak of one SM's tensor cores; one FMA is two FLOPs."""
        peak = self.device.tensor_flops_per_s(self.precision)
        assert peak is not None
        return peak / self.device.sm_count


def tensor_machine(device: Device, precision: str, constants: Constants | None = None) -> TensorGpu:
    """The tensor cores of a GPU, by default with the fitted constants; CurvescopeError if they lack
    the precision.
    """
    if precision not in TENSOR_PRECISIONS or device.tensor_flops_per_s(precision) is None:
        precisions = ", ".join(TENSOR_PRECISIONS)
        raise CurvescopeError(
            f"The cost model has no tensor cores for {precision} on {device.name}: choose fp32, or "
            f"one of {precisions} on a card that has them (`curvescope doctor --list devices`)."
        )
    return TensorGpu(device, constants or load_fitted().tensor, precision=precision)


def estimate_tensor_products(problems: Products, machine: TensorGpu) -> CostEstimate:
    """Estimate matrix products on tensor cores."""
    rows = pad(problems.m)
    columns = pad(problems.n)
    depth = pad(problems.k)
    elements = rows * depth + depth * columns + rows * columns
    touched = _ITEM_BYTES * problems.count * elements
    grid = rows, columns, problems.count
    share = machine.constants["product"]
    main, added, sums = split_depth(
        machine, "hmma_gemm", share, grid, depth, touched, tiles=_TILES, dram="product_dram"
    )
    return CostEstimate.of(main, added, workspace_bytes=sums)


def estimate_tensor_convolutions(
    phase: str, problems: Convolutions, machine: TensorGpu
) -> CostEstimate:
    """Estimate convolutions on tensor cores, as implicit products."""
    constants = machine.constants
    inputs = pad(problems.c)
    outputs = pad(problems.k)
    taps = problems.r * problems.s
    pixels = problems.n * problems.p * problems.q
    images = problems.n * problems.h * problems.w
    # a stride larger than the kernel skips whole rows
    read_share = np.minimum(1.0, problems.r / problems.stride_h)
    read = images * inputs * read_share
    moved = _ITEM_BYTES * (read + pixels * outputs + inputs * outputs * taps)
    is_aligned = (inputs == problems.c) & (outputs == problems.k)
    slowdown = np.where(is_aligned, 1.0, constants["misaligned"])
    single = np.ones_like(pixels)
    if phase == "backward_weights":
        grid = inputs * taps, outputs, single
        main, added, sums = split_depth(
            machine, "hmma_wgrad", constants["weights"], grid, pixels, moved, slowdown,
            tiles=_CONVOLUTION_TILES,
        )  # fmt: skip
        return CostEstimate.of(main, added, workspace_bytes=sums)
    if phase == "forward":
        share = constants["implicit"]
        grid = pixels, outputs, single
        depth = inputs * taps
    else:  # each input pixel gathers 1 / stride² of the kernel on average
        share = constants["data"]
        grid = images, inputs, single
        doublings = np.log2(problems.stride_h) + np.log2(problems.stride_w)
        wasted = constants["stride_waste"] ** doublings * pixels / images
        depth = outputs * taps * np.minimum(wasted, 1.0)
    main = machine.run_tiles(
        f"hmma_{phase}", share, grid, np.ceil(depth), moved,
        tiles=_CONVOLUTION_TILES, slowdown=slowdown,
    )  # fmt: skip
    return CostEstimate.of(main)


def pad(extent: Floats) -> Floats:
    """An extent, padded to a multiple of 8."""
    multiples = np.ceil(extent / MULTIPLE)
    return np.asarray(multiples * MULTIPLE)
