"""The algorithms of a convolution by phase: the launches of each, and its workspace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .launches import ModelledGpu, ModelledLaunch, Tile
from .problems import ITEM_BYTES, Convolutions, Flags
from .product import CostEstimate, split_depth

# Fused Winograd F(2×2, 3×3): a block holds 32 tiles of 4×4 inputs (2×2 outputs) and 32 output channels: 16 products of
# 32 × 32, the work of one 128 × 128 tile. The kernels' names give their arrangement: tile148 is 1 image, 4 × 8 tiles.
_FUSED_TILES = ((1, 4, 8), (2, 4, 4), (2, 2, 8), (4, 1, 8), (4, 2, 4), (4, 4, 2))
# NeuSight's 1,279 rows on V100 all name tile148; on P100 all six shapes occur.
_ONE_FUSED_TILE = ("volta", "hopper")
_FUSED_CHANNELS = 32
# Threads from NeuSight's launches.
_CONVOLUTION_TILES = tuple(Tile(*tile, "prologue_cycles") for tile in ((128, 128, 256), (128, 64, 128), (128, 32, 64)))
_FFT_TILES = (Tile(64, 64, 256, "prologue_cycles"), Tile(32, 32, 64, "prologue_cycles"))
_PIXELS_PER_STEP = 32
_COMPLEX_BYTES = 8
# Real products per complex product: cuDNN's kernels are named gcgemm (all 46 in NeuSight), after Gauss's three.
_REAL_PRODUCTS = 3
_FFT_TILE = 32
_LARGEST_FFT = 256


def forward(problems: Convolutions, machine: ModelledGpu) -> dict[str, CostEstimate]:
    """Every algorithm of the forward pass, by cuDNN's name."""
    constants = machine.constants
    pixels = problems.n * problems.p * problems.q
    depth = problems.c * problems.r * problems.s
    operands = problems.touched_bytes + problems.weight_bytes + problems.output_bytes

    def implicit(slowdown: float) -> ModelledLaunch:
        return machine.tiled(
            "implicit_gemm", constants["implicit"], (pixels, problems.k, np.ones_like(pixels)), depth, operands,
            tiles=_CONVOLUTION_TILES, slowdown=slowdown,
        )  # fmt: skip

    plain, precomputed = implicit(constants["index"]), implicit(1.0)
    indices = machine.transforming("compute_indices", ITEM_BYTES * depth)
    with_indices = CostEstimate.of(indices, precomputed, workspace_bytes=ITEM_BYTES * depth)
    return {
        "IMPLICIT_GEMM": CostEstimate.of(plain),
        "IMPLICIT_PRECOMP_GEMM": replace(with_indices, time_s=precomputed.time_s),
        "GEMM": _explicit(problems, machine),
        **_transformed(problems, machine, constants["winograd"]),
    }


def backward_data(problems: Convolutions, machine: ModelledGpu) -> dict[str, CostEstimate]:
    """Every algorithm of the data gradient."""
    constants = machine.constants
    doublings = np.log2(problems.stride_h) + np.log2(problems.stride_w)
    ones = np.ones_like(problems.n)
    operands = problems.input_bytes + problems.weight_bytes + problems.output_bytes
    # Gather: each input pixel sums its contributions, 1/stride² of the kernel on average.
    depth = problems.k * problems.r * problems.s * problems.p * problems.q / (problems.h * problems.w)
    gather = machine.tiled(
        "dgrad_gather", constants["data"], (problems.n * problems.h * problems.w, problems.c, ones),
        np.ceil(np.minimum(depth * constants["stride_waste"] ** doublings, problems.k * problems.r * problems.s)),
        operands, tiles=_CONVOLUTION_TILES,
    )  # fmt: skip
    # Scatter: one product per tap, added into an image of zeros.
    taps, pixels = problems.c * problems.r * problems.s, problems.n * problems.p * problems.q
    added = ITEM_BYTES * taps * pixels * constants["scatter"]
    zero = machine.transforming("set_zero", problems.input_bytes)
    scatter = machine.tiled(
        "dgrad_scatter", constants["data"], (taps, pixels, ones), problems.k, operands + added,
        tiles=_CONVOLUTION_TILES,
    )  # fmt: skip
    return {
        "ALGO_0": CostEstimate.of(zero, scatter),
        "ALGO_1": CostEstimate.of(gather),
        **_transformed(problems.mirrored(), machine, constants["winograd"], unit=_unit(problems)),
    }


def backward_weights(problems: Convolutions, machine: ModelledGpu) -> dict[str, CostEstimate]:
    """Every algorithm of the weight gradient; its sum runs over the batch and all pixels, so it is split."""
    constants = machine.constants
    taps = problems.c * problems.r * problems.s
    # Each image's pixels are summed in steps that do not extend into the next image.
    pixels = problems.n * np.ceil(problems.p * problems.q / _PIXELS_PER_STEP) * _PIXELS_PER_STEP
    operands = problems.touched_bytes + problems.weight_bytes + problems.output_bytes
    # Split sums are added by atomics, which need no scratch memory.
    main, added, _ = split_depth(
        machine, "wgrad", constants["weights"], (taps, problems.k, np.ones_like(taps)), pixels, operands,
        tiles=_CONVOLUTION_TILES,
    )  # fmt: skip
    return {
        "ALGO_1": CostEstimate.of(main, added),
        "WINOGRAD_NONFUSED": _nonfused(problems, machine, weights=True),
        "FFT_TILING": _fft(problems, machine, tiled=True, weights=True),
    }


PHASE_ALGORITHMS = {"forward": forward, "backward_data": backward_data, "backward_weights": backward_weights}


def _unit(problems: Convolutions) -> Flags:
    return np.asarray((problems.stride_h == 1) & (problems.stride_w == 1))


def _transformed(
    problems: Convolutions, machine: ModelledGpu, share: float, unit: Flags | None = None
) -> dict[str, CostEstimate]:
    """Winograd and FFT, which need stride 1; for a data gradient `problems` is mirrored, `unit` is not."""
    estimates = {
        "WINOGRAD": _fused(problems, machine, share),
        "WINOGRAD_NONFUSED": _nonfused(problems, machine),
        "FFT": _fft(problems, machine, tiled=False),
        "FFT_TILING": _fft(problems, machine, tiled=True),
    }
    if unit is None:
        return estimates
    return {name: replace(one, possible=one.possible & unit) for name, one in estimates.items()}


def _explicit(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    """im2col to memory, then a matrix product."""
    pixels = problems.n * problems.p * problems.q
    depth = problems.c * problems.r * problems.s
    columns_bytes = ITEM_BYTES * pixels * depth
    unfold = machine.transforming("im2col", problems.input_bytes + columns_bytes)
    main = machine.tiled(
        "sgemm", machine.constants["product"], (pixels, problems.k, np.ones_like(pixels)), depth,
        columns_bytes + problems.weight_bytes + problems.output_bytes,
    )  # fmt: skip
    return CostEstimate.of(unfold, main, workspace_bytes=columns_bytes)


def _fused(problems: Convolutions, machine: ModelledGpu, share: float) -> CostEstimate:
    shapes = _FUSED_TILES[:1] if machine.device.architecture in _ONE_FUSED_TILE else _FUSED_TILES
    groups = np.min(
        [
            np.ceil(problems.n / images) * np.ceil(problems.p / (2 * down)) * np.ceil(problems.q / (2 * across))
            for images, down, across in shapes
        ],
        axis=0,
    )
    blocks = groups * np.ceil(problems.k / _FUSED_CHANNELS)
    compute_s = machine.blocks_s(share, _CONVOLUTION_TILES[0], blocks, problems.c)
    operands = problems.input_bytes + 16 / 9 * problems.weight_bytes + problems.output_bytes
    # A block reads its 4×4 input tiles (at stride 2, so 4 values each are new) and transformed weights per channel.
    l2_bytes = ITEM_BYTES * blocks * problems.c * (32 * 16 / 2 + 16 * _FUSED_CHANNELS) + problems.output_bytes
    zeros = np.zeros_like(blocks)
    main = ModelledLaunch(
        "winograd_3x3", machine.combine(compute_s, l2_bytes, operands), blocks, zeros + 256,
        np.broadcast_to([128.0, 128.0], (*blocks.shape, 2)), 2 * 128 * 128 * blocks * problems.c, l2_bytes, operands,
    )  # fmt: skip
    weights = machine.transforming("transform_weights", 25 / 9 * problems.weight_bytes)
    possible = (problems.r == 3) & (problems.s == 3) & _unit(problems)
    return CostEstimate.of(weights, main, workspace_bytes=16 / 9 * problems.weight_bytes, possible=possible)


def _nonfused(problems: Convolutions, machine: ModelledGpu, *, weights: bool = False) -> CostEstimate:
    """Transform, one product per point, transform back: F(4×4, 3×3) with 36 points, F(4×4, 5×5) with 64.

    In a weight gradient the roles are swapped: outputs are the taps, and the sum runs over tiles of the output.
    """
    points = (problems.r + 3) * (problems.s + 3)
    tiles = problems.n * np.ceil(problems.p / 4) * np.ceil(problems.q / 4)
    factor = machine.constants["transform"]
    data_bytes = ITEM_BYTES * points * tiles * problems.c
    result_bytes = ITEM_BYTES * points * tiles * problems.k
    filter_bytes = ITEM_BYTES * points * problems.c * problems.k
    inputs = machine.transforming("winograd_input", factor * (problems.input_bytes + data_bytes))
    outputs = machine.transforming("winograd_output", factor * (problems.output_bytes + result_bytes))
    filters = machine.transforming("winograd_filter", factor * (problems.weight_bytes + filter_bytes))
    everything = data_bytes + result_bytes + filter_bytes
    share = machine.constants["nonfused"]
    launches: tuple[ModelledLaunch, ...]
    if weights:
        main, added, sums = split_depth(
            machine, "winograd_sgemm", share, (problems.k, problems.c, points), tiles, everything
        )
        launches, workspace = (inputs, outputs, main, added, filters), everything + sums
    else:
        main = machine.tiled("winograd_sgemm", share, (tiles, problems.k, points), problems.c, everything)
        launches, workspace = (inputs, filters, main, outputs), everything
    square = (problems.r == problems.s) & ((problems.r == 3) | (problems.r == 5))
    return CostEstimate.of(*launches, workspace_bytes=workspace, possible=square & _unit(problems))


def _fft(problems: Convolutions, machine: ModelledGpu, *, tiled: bool, weights: bool = False) -> CostEstimate:
    """Transform images and filters, one complex product per frequency (half for real data), transform back."""
    height, width = problems.h + 2 * problems.pad_h, problems.w + 2 * problems.pad_w
    if tiled:
        size_h = size_w = np.full_like(problems.n, _FFT_TILE)
        tiles = np.ceil(problems.p / (_FFT_TILE + 1 - problems.r)) * np.ceil(problems.q / (_FFT_TILE + 1 - problems.s))
    else:
        size_h, size_w = (np.maximum(2 ** np.ceil(np.log2(extent)), 8) for extent in (height, width))
        tiles = np.ones_like(problems.n)
    frequencies = size_h * (size_w / 2 + 1)
    images = problems.n * tiles
    factor = machine.constants["fft_transform"]
    spectrum = _COMPLEX_BYTES * frequencies
    data, results, filters = (
        spectrum * images * problems.c, spectrum * images * problems.k, spectrum * problems.c * problems.k,
    )  # fmt: skip
    rows, columns, depth = (problems.k, problems.c, images) if weights else (images, problems.k, problems.c)
    # Like that many real products in sequence: the depth is multiplied by their number.
    main = machine.tiled(
        "fft_cgemm", machine.constants["fft"], (rows, columns, frequencies), _REAL_PRODUCTS * depth,
        data + results + filters, tiles=_FFT_TILES,
    )  # fmt: skip
    launches = (
        machine.transforming("fft_input", factor * (problems.input_bytes + data)),
        machine.transforming("fft_filter", factor * (problems.weight_bytes + filters)),
        main,
        machine.transforming("fft_output", factor * (problems.output_bytes + results)),
    )
    small = (height <= _LARGEST_FFT) & (width <= _LARGEST_FFT) if not tiled else np.ones(height.shape, bool)
    possible = _unit(problems) & small & (problems.r > 1) & (problems.r <= _FFT_TILE) & (problems.s <= _FFT_TILE)
    return CostEstimate.of(*launches, workspace_bytes=data + results + filters, possible=possible)
