"""The algorithms of a convolution by phase: the launches of each, and its workspace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .constants import ARCHITECTURES
from .launches import ModelledGpu, ModelledLaunch, Tile
from .problems import ITEM_BYTES, Convolutions, Flags, Floats
from .product import CostEstimate, split_depth

# Fused Winograd F(2×2, 3×3): a block holds 32 tiles of 4×4 inputs (2×2 outputs) and 32 output
# channels: 16 products of 32 × 32, the work of one 128 × 128 tile. The kernel's name, tile148,
# gives their arrangement: 1 image, 4 × 8 tiles. NeuSight's 1,279 rows on V100 all name it. On P100
# it gives the grid of 71 % of 1,603; others take 2 or 4 images, but the one with the fewest blocks
# gives 53 %. K80's and M60's times (cuDNN 7.6, batch 16 and more) go with the blocks of tile148,
# within a tenth; with the fewest blocks, 7×7 images would be 1.7 times as slow as others.
_FUSED_DOWN, _FUSED_ACROSS = 2 * 4, 2 * 8  # outputs of a block
_FUSED_CHANNELS = 32
# Threads from NeuSight's launches.
_CONVOLUTION_TILES = tuple(
    Tile(*tile, "prologue_cycles") for tile in ((128, 128, 256), (128, 64, 128), (128, 32, 64))
)
_FFT_TILES = (Tile(64, 64, 256, "prologue_cycles"), Tile(32, 32, 64, "prologue_cycles"))
_FROM_VOLTA_ON = ARCHITECTURES[ARCHITECTURES.index("volta") :]
# Architectures on which cuDNN is known to take the tile that fills the SMs.
_FILLED_ON = _FROM_VOLTA_ON
_BLOCKS_PER_SM = 2
# From this batch size on, strided 1x1 convolutions on Volta take 1.2 to 2 times as long per image,
# for all six shapes of cudnn_scope on V100 and on Titan V (cuDNN 7.6), and on no other card.
_MANY_IMAGES, _MANY_IMAGES_SLOWDOWN = 512, 1.5  # median
_PIXELS_PER_STEP = 32
# Non-fused Winograd transforms images in such groups: on all five cards of cudnn_scope (Kepler to
# Turing) it takes as long and as much workspace at batch 1 as at 16.
_NONFUSED_IMAGES = 16
# Rows of tiles for which a tiled FFT has scratch memory, and what it has besides, by cudnn_scope.
_FFT_TILES_AT_ONCE, _FFT_TILE_BYTES = 2, 24576
_LEAST_FFT = 16
_COMPLEX_BYTES = 8
# Real products per complex product: cuDNN's kernels are named gcgemm (all 46 in NeuSight), after
# Gauss's three.
_REAL_PRODUCTS = 3
_FFT_TILE = 32
_LARGEST_FFT = 256
# Architectures on which convolutions with groups are modelled.
GROUPED_ON = _FROM_VOLTA_ON
# Algorithms that compute the groups in one launch, side by side: cuDNN has this from 7.0 on, by
# cudnnSetConvolutionGroupCount (release notes).
_BY_GROUPS = frozenset({"IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "ALGO_1"})
DEPTHWISE = "DEPTHWISE"
# Time of cuDNN 7.6's depthwise kernel over that of its bytes at STREAM's rate: the mean of the
# medians of V100 (1.46), Titan V (1.23) and Quadro RTX 6000 (1.28), cudnn_scope's 3x3 kernels of
# MobileNet v2, forward. On K80 and M60 it is 3.4 and 2.6, and up to 14 for small images. No
# gradient is published: they take the same.
DEPTHWISE_SLOWDOWN = 1.32

Algorithms = Mapping[str, Callable[[], CostEstimate]]


def estimate_algorithms(
    phase: str, problems: Convolutions, machine: ModelledGpu, only: Collection[str] | None = None
) -> dict[str, CostEstimate]:
    """Estimate every algorithm of a phase, or only some, by cuDNN's name."""
    algorithms = dict(_PHASE_ALGORITHMS[phase](problems, machine))
    if problems.depthwise.any():
        algorithms[DEPTHWISE] = lambda: _depthwise(problems, machine)
    taken = {
        name: estimate() for name, estimate in algorithms.items() if only is None or name in only
    }
    return {
        name: replace(cost, possible=cost.possible & _computes(name, problems))
        for name, cost in taken.items()
    }


def _computes(name: str, problems: Convolutions) -> Flags:
    """Whether an algorithm computes a convolution with that many groups."""
    if name == DEPTHWISE:
        return problems.depthwise
    return np.asarray(~problems.depthwise & ((problems.groups == 1) | (name in _BY_GROUPS)))


def _depthwise(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    """One product per tap and value, so the bytes decide; all three phases move the same tensors.

    So do the kernels of PyTorch (aten/src/ATen/native/cuda/DepthwiseConv2d.cu: a thread per result)
    and of cuDNN, where IMPLICIT_GEMM is the fastest of its algorithms in all of cudnn_scope's 311
    depthwise cases.
    """
    moved = machine.streaming(
        "depthwise", problems.touched_bytes + problems.weight_bytes + problems.output_bytes
    )
    return CostEstimate.of(replace(moved, time_s=moved.time_s * DEPTHWISE_SLOWDOWN))


def _forward(problems: Convolutions, machine: ModelledGpu) -> Algorithms:
    constants = machine.constants
    pixels = problems.n * problems.p * problems.q
    depth = problems.group_c * problems.r * problems.s
    operands = problems.touched_bytes + problems.weight_bytes + problems.output_bytes

    def implicit(
        slowdown: Floats | float, step: str, taken: npt.NDArray[np.int64] | None = None
    ) -> ModelledLaunch:
        return machine.run_tiles(
            "implicit_gemm", constants["implicit"], (pixels, problems.group_k, problems.groups), depth, operands,
            tiles=_CONVOLUTION_TILES, slowdown=slowdown, step=step, taken=taken,
        )  # fmt: skip

    def run_precomputed() -> CostEstimate:
        indices = machine.take_fixed_time(
            "compute_indices", constants["indices_us"], ITEM_BYTES * depth
        )
        new = machine.device.architecture in _FILLED_ON
        main = implicit(
            1.0, "precomputed_cycles", _filling_tile(pixels, problems, machine) if new else None
        )
        slow = (
            (machine.device.architecture == "volta")
            & _is_strided_pointwise(problems)
            & (problems.n >= _MANY_IMAGES)
        )
        main = replace(main, time_s=main.time_s * np.where(slow, _MANY_IMAGES_SLOWDOWN, 1.0))
        return CostEstimate.of(indices, main, workspace_bytes=ITEM_BYTES * depth)

    return {
        "IMPLICIT_GEMM": lambda: CostEstimate.of(implicit(constants["index"], "plain_cycles")),
        "IMPLICIT_PRECOMP_GEMM": run_precomputed,
        "GEMM": lambda: _explicit(problems, machine),
        **_list_transforms(problems, machine),
    }


def _filling_tile(
    pixels: Floats, problems: Convolutions, machine: ModelledGpu
) -> npt.NDArray[np.int64]:
    """Index of the tile that cuDNN 7.6 takes on Volta: as wide as the output, if its grid fills
    every SM twice.

    V100 and Titan V, cudnn_scope: a 1x1 convolution from 1024 to 256 channels of 14x14 takes 0.338
    ms at batch 32, which is three blocks of 128x64 on the fullest SM, and 0.695 ms at batch 64,
    which is three of 128x128; five of 128x64 would take 0.55 ms.
    """
    columns = problems.group_k
    wide = (
        np.ceil(pixels / 128) * np.ceil(columns / 128) * problems.groups
        >= _BLOCKS_PER_SM * machine.device.sm_count
    )
    return np.where(columns <= 32, 2, np.where((columns <= 64) | ~wide, 1, 0))


def _is_strided_pointwise(problems: Convolutions) -> Flags:
    return np.asarray((problems.r == 1) & (problems.s == 1) & (problems.stride_h > 1))


def _backward_data(problems: Convolutions, machine: ModelledGpu) -> Algorithms:
    constants = machine.constants
    doublings = np.log2(problems.stride_h) + np.log2(problems.stride_w)
    operands = problems.input_bytes + problems.weight_bytes + problems.output_bytes
    # Gather: each input pixel sums its contributions, 1/stride² of the kernel on average.
    taps = problems.group_k * problems.r * problems.s
    depth = taps * problems.p * problems.q / (problems.h * problems.w)

    def gather() -> CostEstimate:
        main = machine.run_tiles(
            "dgrad_gather", constants["data"],
            (problems.n * problems.h * problems.w, problems.group_c, problems.groups),
            np.ceil(np.minimum(depth * constants["stride_waste"] ** doublings, taps)),
            operands, tiles=_CONVOLUTION_TILES,
        )  # fmt: skip
        return CostEstimate.of(main)

    def scatter() -> CostEstimate:
        # One product per tap, added into an image of zeros. This kernel is compiled (dgrad_engine
        # in profiles), the one that gathers is assembled (maxwell_scudnn_..._stridedB), so its main
        # loop is slower.
        taps, pixels = problems.c * problems.r * problems.s, problems.n * problems.p * problems.q
        added = ITEM_BYTES * taps * pixels * constants["scatter"]
        zero = machine.transforming("set_zero", problems.input_bytes)
        main = machine.run_tiles(
            "dgrad_scatter", constants["data"], (taps, pixels, np.ones_like(taps)), problems.k, operands + added,
            tiles=_CONVOLUTION_TILES, slowdown=constants["scatter_loop"],
        )  # fmt: skip
        return CostEstimate.of(zero, main)

    return {
        "ALGO_0": scatter,
        "ALGO_1": gather,
        **_list_transforms(problems.mirror(), machine, unit=_unit(problems)),
    }


def _backward_weights(problems: Convolutions, machine: ModelledGpu) -> Algorithms:
    """Every algorithm of the weight gradient; its sum runs over the batch and all pixels, so it is
    split.
    """
    constants = machine.constants
    taps = problems.group_c * problems.r * problems.s
    # Each image's pixels are summed in steps that do not extend into the next image.
    pixels = problems.n * np.ceil(problems.p * problems.q / _PIXELS_PER_STEP) * _PIXELS_PER_STEP
    operands = problems.touched_bytes + problems.weight_bytes + problems.output_bytes

    # Split sums are added by atomics, which need no scratch memory.
    def split() -> CostEstimate:
        main, added, _ = split_depth(
            machine, "wgrad", constants["weights"], (taps, problems.group_k, problems.groups), pixels, operands,
            tiles=_CONVOLUTION_TILES,
        )  # fmt: skip
        return CostEstimate.of(main, added)

    return {
        "ALGO_1": split,
        "WINOGRAD_NONFUSED": lambda: _estimate_nonfused(problems, machine, weights=True),
        "FFT": lambda: _fft(problems, machine, tiled=False, weights=True),
        "FFT_TILING": lambda: _fft(problems, machine, tiled=True, weights=True),
    }


_PHASE_ALGORITHMS = {
    "forward": _forward,
    "backward_data": _backward_data,
    "backward_weights": _backward_weights,
}


def _unit(problems: Convolutions) -> Flags:
    return np.asarray((problems.stride_h == 1) & (problems.stride_w == 1))


def _list_transforms(
    problems: Convolutions, machine: ModelledGpu, unit: Flags | bool = True
) -> Algorithms:
    """Winograd and FFT, which need stride 1; for a data gradient `problems` is mirrored, `unit` is
    not.
    """

    def where_unit(cost: CostEstimate) -> CostEstimate:
        return replace(cost, possible=cost.possible & unit)

    return {
        "WINOGRAD": lambda: where_unit(
            _estimate_fused(problems, machine, machine.constants["winograd"])
        ),
        "WINOGRAD_NONFUSED": lambda: where_unit(_estimate_nonfused(problems, machine)),
        "FFT": lambda: where_unit(_fft(problems, machine, tiled=False)),
        "FFT_TILING": lambda: where_unit(_fft(problems, machine, tiled=True)),
    }


def _explicit(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    """im2col to memory, then a matrix product."""
    pixels = problems.n * problems.p * problems.q
    depth = problems.c * problems.r * problems.s
    columns_bytes = ITEM_BYTES * pixels * depth
    unfold = machine.transforming("im2col", problems.input_bytes + columns_bytes)
    main = machine.run_tiles(
        "sgemm", machine.constants["product"], (pixels, problems.k, np.ones_like(pixels)), depth,
        columns_bytes + problems.weight_bytes + problems.output_bytes,
    )  # fmt: skip
    return CostEstimate.of(unfold, main, workspace_bytes=columns_bytes)


def _estimate_fused(problems: Convolutions, machine: ModelledGpu, share: float) -> CostEstimate:
    groups = problems.n * np.ceil(problems.p / _FUSED_DOWN) * np.ceil(problems.q / _FUSED_ACROSS)
    blocks = groups * np.ceil(problems.k / _FUSED_CHANNELS)
    compute_s = machine.blocks_s(
        share, _CONVOLUTION_TILES[0], blocks, problems.c, "winograd_cycles"
    )
    operands = problems.input_bytes + 16 / 9 * problems.weight_bytes + problems.output_bytes
    # A block reads its 4×4 input tiles (at stride 2, so 4 values each are new) and transformed
    # weights per channel.
    l2_bytes = (
        ITEM_BYTES * blocks * problems.c * (32 * 16 / 2 + 16 * _FUSED_CHANNELS)
        + problems.output_bytes
    )
    zeros = np.zeros_like(blocks)
    main = ModelledLaunch(
        name="winograd_3x3",
        time_s=machine.combine(compute_s, l2_bytes, operands),
        blocks=blocks,
        threads=zeros + 256,
        tile=np.broadcast_to([128.0, 128.0], (*blocks.shape, 2)),
        flops_executed=2 * 128 * 128 * blocks * problems.c,
        l2_bytes=l2_bytes,
        dram_bytes=operands,
    )
    weights = machine.transforming("transform_weights", 25 / 9 * problems.weight_bytes)
    possible = (problems.r == 3) & (problems.s == 3) & _unit(problems)
    return CostEstimate.of(
        weights, main, workspace_bytes=25 / 9 * problems.weight_bytes, possible=possible
    )


def _estimate_nonfused(
    problems: Convolutions, machine: ModelledGpu, *, weights: bool = False
) -> CostEstimate:
    """Transform, one product per point, transform back: F(4×4, 3×3) with 36 points, F(4×4, 5×5)
    with 64.

    In a weight gradient the roles are swapped: outputs are the taps, and the sum runs over tiles of
    the output.
    """
    points = (problems.r + 3) * (problems.s + 3)
    # Weight gradients are not grouped: DeepBench's conv3_1 takes 1.9 times as long at batch 16 as
    # at 8 (P100, V100).
    images = problems.n if weights else np.ceil(problems.n / _NONFUSED_IMAGES) * _NONFUSED_IMAGES
    tiles = images * np.ceil(problems.p / 4) * np.ceil(problems.q / 4)
    factor = machine.constants["transform"]
    data_bytes = ITEM_BYTES * points * tiles * problems.c
    result_bytes = ITEM_BYTES * points * tiles * problems.k
    filter_bytes = ITEM_BYTES * points * problems.c * problems.k
    inputs = machine.transforming("winograd_input", factor * (problems.input_bytes + data_bytes))
    outputs = machine.transforming(
        "winograd_output", factor * (problems.output_bytes + result_bytes)
    )
    filters = machine.transforming(
        "winograd_filter", factor * (problems.weight_bytes + filter_bytes)
    )
    everything = data_bytes + result_bytes + filter_bytes
    share = machine.constants["nonfused"]
    launches: tuple[ModelledLaunch, ...]
    if weights:
        main, added, sums = split_depth(
            machine, "winograd_sgemm", share, (problems.k, problems.c, points), tiles, everything
        )
        launches, workspace = (inputs, outputs, main, added, filters), everything + sums
    else:
        main = machine.run_tiles(
            "winograd_sgemm", share, (tiles, problems.k, points), problems.c, everything
        )
        launches, workspace = (inputs, filters, main, outputs), everything
    square = (problems.r == problems.s) & ((problems.r == 3) | (problems.r == 5))
    return CostEstimate.of(*launches, workspace_bytes=workspace, possible=square & _unit(problems))


def _fft(
    problems: Convolutions, machine: ModelledGpu, *, tiled: bool, weights: bool = False
) -> CostEstimate:
    """Transform images and filters, one complex product per frequency (half for real data),
    transform back.
    """
    height, width = problems.h + 2 * problems.pad_h, problems.w + 2 * problems.pad_w
    if tiled:
        size_h = size_w = np.full_like(problems.n, _FFT_TILE)
        tiles = np.ceil(problems.p / (_FFT_TILE + 1 - problems.r)) * np.ceil(
            problems.q / (_FFT_TILE + 1 - problems.s)
        )
    else:
        size_h, size_w = (
            np.maximum(2 ** np.ceil(np.log2(extent)), _LEAST_FFT) for extent in (height, width)
        )
        tiles = np.ones_like(problems.n)
    frequencies = size_h * (size_w / 2 + 1)
    images = problems.n * tiles
    factor = machine.constants["fft_transform"]
    spectrum = _COMPLEX_BYTES * frequencies
    data, results, filters = (
        spectrum * images * problems.c, spectrum * images * problems.k, spectrum * problems.c * problems.k,
    )  # fmt: skip
    rows, columns, depth = (
        (problems.k, problems.c, images) if weights else (images, problems.k, problems.c)
    )
    # Like that many real products in sequence: the depth is multiplied by their number.
    main = machine.run_tiles(
        "fft_cgemm", machine.constants["fft"], (rows, columns, frequencies), _REAL_PRODUCTS * depth,
        data + results + filters, tiles=_FFT_TILES,
    )  # fmt: skip
    launches = (
        machine.transforming("fft_input", factor * (problems.input_bytes + data)),
        machine.transforming("fft_filter", factor * (problems.weight_bytes + filters)),
        main,
        machine.transforming("fft_output", factor * (problems.output_bytes + results)),
    )
    small = (
        (height <= _LARGEST_FFT) & (width <= _LARGEST_FFT)
        if not tiled
        else np.ones(height.shape, bool)
    )
    possible = (
        _unit(problems)
        & small
        & (problems.r > 1)
        & (problems.r <= _FFT_TILE)
        & (problems.s <= _FFT_TILE)
    )
    # cudnn_scope's 2,400 workspaces: the filters' spectrum twice or, in tiles, once, and not all
    # tiles at once.
    if tiled:
        at_once = np.minimum(tiles, _FFT_TILES_AT_ONCE)
        workspace = (data + results) * at_once / tiles + filters + _FFT_TILE_BYTES * at_once
    else:
        workspace = data + results + 2 * filters + problems.weight_bytes
    return CostEstimate.of(*launches, workspace_bytes=workspace, possible=possible)
