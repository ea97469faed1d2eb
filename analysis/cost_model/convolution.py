"""The algorithms of a convolution by phase: the launches of each, and its workspace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import numpy.typing as npt

from .constants import ARCHITECTURES
from .launches import ModelledGpu, ModelledLaunch, Tile, repeat_tile
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
_EDGE = "prologue_cycles"
_CONVOLUTION_TILES = (
    Tile(128, 128, 256, _EDGE),
    Tile(128, 64, 128, _EDGE),
    Tile(128, 32, 64, _EDGE),
)
_FFT_TILES = (Tile(64, 64, 256, _EDGE), Tile(32, 32, 64, _EDGE))
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
    estimates = {}
    for name, estimate in algorithms.items():
        if only is None or name in only:
            can_group = _computes(name, problems)
            estimates[name] = estimate().where(can_group)
    return estimates


def _computes(name: str, problems: Convolutions) -> Flags:
    """Whether an algorithm computes a convolution with that many groups."""
    if name == DEPTHWISE:
        return problems.depthwise
    groups_fit = (problems.groups == 1) | (name in _BY_GROUPS)
    return np.asarray(groups_fit & ~problems.depthwise)


def _depthwise(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    """One product per tap and value, so the bytes decide; all three phases move the same tensors.

    So do the kernels of PyTorch (aten/src/ATen/native/cuda/DepthwiseConv2d.cu: a thread per result)
    and of cuDNN, where IMPLICIT_GEMM is the fastest of its algorithms in all of cudnn_scope's 311
    depthwise cases.
    """
    launch = machine.stream("depthwise", _operand_bytes(problems))
    return CostEstimate.of(launch.slow_by(DEPTHWISE_SLOWDOWN))


def _forward(problems: Convolutions, machine: ModelledGpu) -> Algorithms:
    return {
        "IMPLICIT_GEMM": lambda: _index_in_loop(problems, machine),
        "IMPLICIT_PRECOMP_GEMM": lambda: _index_before(problems, machine),
        "GEMM": lambda: _explicit(problems, machine),
        **_list_transforms(problems, machine),
    }


def _index_in_loop(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    slowdown = machine.constants["index"]
    return CostEstimate.of(_implicit(problems, machine, slowdown, "plain_cycles"))


def _index_before(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    table_bytes = ITEM_BYTES * problems.group_c * problems.r * problems.s
    time_us = machine.constants["indices_us"]
    indices = machine.take_fixed_time("compute_indices", time_us, table_bytes)
    architecture = machine.device.architecture
    tile = None
    if architecture in _FILLED_ON:
        tile = _choose_tile(problems, machine)
    main = _implicit(problems, machine, 1.0, "precomputed_cycles", tile)
    if architecture == "volta":
        slow = _is_strided_pointwise(problems) & (problems.n >= _MANY_IMAGES)
        main = main.slow_by(np.where(slow, _MANY_IMAGES_SLOWDOWN, 1.0))
    return CostEstimate.of(indices, main, workspace_bytes=table_bytes)


def _implicit(
    problems: Convolutions,
    machine: ModelledGpu,
    slowdown: float,
    step: str,
    taken: npt.NDArray[np.int64] | None = None,
) -> ModelledLaunch:
    share = machine.constants["implicit"]
    pixels = problems.n * problems.p * problems.q
    depth = problems.group_c * problems.r * problems.s
    grid = pixels, problems.group_k, problems.groups
    return machine.run_tiles(
        "implicit_gemm", share, grid, depth, _operand_bytes(problems),
        tiles=_CONVOLUTION_TILES, slowdown=slowdown, step=step, taken=taken,
    )  # fmt: skip


def _operand_bytes(problems: Convolutions) -> Floats:
    """Bytes of all three tensors, of the input those that are read."""
    return problems.touched_bytes + problems.weight_bytes + problems.output_bytes


def _choose_tile(problems: Convolutions, machine: ModelledGpu) -> npt.NDArray[np.int64]:
    """Index of the tile that cuDNN 7.6 takes on Volta: as wide as the output, if its grid fills
    every SM twice.

    V100 and Titan V, cudnn_scope: a 1x1 convolution from 1024 to 256 channels of 14x14 takes 0.338
    ms at batch 32, which is three blocks of 128x64 on the fullest SM, and 0.695 ms at batch 64,
    which is three of 128x128; five of 128x64 would take 0.55 ms.
    """
    pixels = problems.n * problems.p * problems.q
    columns = problems.group_k
    down = np.ceil(pixels / 128)
    across = np.ceil(columns / 128)
    blocks = down * across * problems.groups
    fills = blocks >= _BLOCKS_PER_SM * machine.device.sm_count
    wide_tile = np.where((columns <= 64) | ~fills, 1, 0)
    return np.where(columns <= 32, 2, wide_tile)


def _is_strided_pointwise(problems: Convolutions) -> Flags:
    is_point = (problems.r == 1) & (problems.s == 1)
    return np.asarray(is_point & (problems.stride_h > 1))


def _backward_data(problems: Convolutions, machine: ModelledGpu) -> Algorithms:
    unit = _unit(problems)
    return {
        "ALGO_0": lambda: _scatter(problems, machine),
        "ALGO_1": lambda: _gather(problems, machine),
        **_list_transforms(problems.mirror(), machine, unit),
    }


def _gather(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    """Each input pixel sums its contributions, 1/stride² of the kernel on average."""
    constants = machine.constants
    taps = problems.group_k * problems.r * problems.s
    depth = taps * problems.p * problems.q / (problems.h * problems.w)
    waste = constants["stride_waste"] ** _doublings(problems)
    wasted = np.minimum(depth * waste, taps)
    grid = problems.n * problems.h * problems.w, problems.group_c, problems.groups
    main = machine.run_tiles(
        "dgrad_gather", constants["data"], grid, np.ceil(wasted), _image_bytes(problems),
        tiles=_CONVOLUTION_TILES,
    )  # fmt: skip
    return CostEstimate.of(main)


def _scatter(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    """One product per tap, added into an image of zeros.

    This kernel is compiled (dgrad_engine in profiles), the one that gathers is assembled
    (maxwell_scudnn_..._stridedB), so its main loop is slower.
    """
    constants = machine.constants
    taps = problems.c * problems.r * problems.s
    pixels = problems.n * problems.p * problems.q
    added = ITEM_BYTES * taps * pixels * constants["scatter"]
    moved = _image_bytes(problems) + added
    zero = machine.reorder("set_zero", problems.input_bytes)
    grid = taps, pixels, np.ones_like(taps)
    main = machine.run_tiles(
        "dgrad_scatter", constants["data"], grid, problems.k, moved,
        tiles=_CONVOLUTION_TILES, slowdown=constants["scatter_loop"],
    )  # fmt: skip
    return CostEstimate.of(zero, main)


def _doublings(problems: Convolutions) -> Floats:
    return np.asarray(np.log2(problems.stride_h) + np.log2(problems.stride_w))


def _image_bytes(problems: Convolutions) -> Floats:
    """Bytes of all three tensors."""
    return problems.input_bytes + problems.weight_bytes + problems.output_bytes


def _backward_weights(problems: Convolutions, machine: ModelledGpu) -> Algorithms:
    """Every algorithm of the weight gradient; its sum runs over the batch and all pixels, so it is
    split.
    """
    return {
        "ALGO_1": lambda: _split_pixels(problems, machine),
        "WINOGRAD_NONFUSED": lambda: _estimate_nonfused(problems, machine, weights=True),
        "FFT": lambda: _fft(problems, machine, tiled=False, weights=True),
        "FFT_TILING": lambda: _fft(problems, machine, tiled=True, weights=True),
    }


def _split_pixels(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    """Split sums are added by atomics, which need no scratch memory."""
    share = machine.constants["weights"]
    taps = problems.group_c * problems.r * problems.s
    # Each image's pixels are summed in steps that do not extend into the next image.
    steps = np.ceil(problems.p * problems.q / _PIXELS_PER_STEP)
    pixels = problems.n * steps * _PIXELS_PER_STEP
    grid = taps, problems.group_k, problems.groups
    main, added, _ = split_depth(
        machine, "wgrad", share, grid, pixels, _operand_bytes(problems), tiles=_CONVOLUTION_TILES
    )
    return CostEstimate.of(main, added)


_PHASE_ALGORITHMS = {
    "forward": _forward,
    "backward_data": _backward_data,
    "backward_weights": _backward_weights,
}


def _unit(problems: Convolutions) -> Flags:
    is_down, is_across = problems.stride_h == 1, problems.stride_w == 1
    return np.asarray(is_down & is_across)


def _list_transforms(
    problems: Convolutions, machine: ModelledGpu, unit: Flags | bool = True
) -> Algorithms:
    """Winograd and FFT, which need stride 1; for a data gradient `problems` is mirrored, `unit` is
    not.
    """
    return {
        "WINOGRAD": lambda: _estimate_fused(problems, machine).where(unit),
        "WINOGRAD_NONFUSED": lambda: _estimate_nonfused(problems, machine).where(unit),
        "FFT": lambda: _fft(problems, machine, tiled=False).where(unit),
        "FFT_TILING": lambda: _fft(problems, machine, tiled=True).where(unit),
    }


def _explicit(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    """im2col to memory, then a matrix product."""
    share = machine.constants["product"]
    pixels = problems.n * problems.p * problems.q
    depth = problems.c * problems.r * problems.s
    columns_bytes = ITEM_BYTES * pixels * depth
    unfold = machine.reorder("im2col", problems.input_bytes + columns_bytes)
    grid = pixels, problems.k, np.ones_like(pixels)
    moved = columns_bytes + problems.weight_bytes + problems.output_bytes
    main = machine.run_tiles("sgemm", share, grid, depth, moved)
    return CostEstimate.of(unfold, main, workspace_bytes=columns_bytes)


def _estimate_fused(problems: Convolutions, machine: ModelledGpu) -> CostEstimate:
    down = np.ceil(problems.p / _FUSED_DOWN)
    across = np.ceil(problems.q / _FUSED_ACROSS)
    channels = np.ceil(problems.k / _FUSED_CHANNELS)
    blocks = problems.n * down * across * channels
    share, tile = machine.constants["winograd"], _CONVOLUTION_TILES[0]
    compute_s = machine.blocks_s(share, tile, blocks, problems.c, "winograd_cycles")
    operands = problems.input_bytes + 16 / 9 * problems.weight_bytes + problems.output_bytes
    # A block reads its 4×4 input tiles (at stride 2, so 4 values each are new) and transformed
    # weights per channel.
    read_per_channel = 32 * 16 / 2 + 16 * _FUSED_CHANNELS
    read = ITEM_BYTES * blocks * problems.c * read_per_channel
    l2_bytes = read + problems.output_bytes
    main = ModelledLaunch(
        name="winograd_3x3",
        time_s=machine.combine(compute_s, l2_bytes, operands),
        blocks=blocks,
        threads=np.full_like(blocks, tile.threads),
        tile=repeat_tile(tile, blocks),
        flops_executed=2 * tile.rows * tile.columns * blocks * problems.c,
        l2_bytes=l2_bytes,
        dram_bytes=operands,
    )
    transformed = 25 / 9 * problems.weight_bytes
    weights = machine.reorder("transform_weights", transformed)
    is_three = (problems.r == 3) & (problems.s == 3)
    possible = is_three & _unit(problems)
    return CostEstimate.of(weights, main, workspace_bytes=transformed, possible=possible)


def _estimate_nonfused(
    problems: Convolutions, machine: ModelledGpu, *, weights: bool = False
) -> CostEstimate:
    """Transform, one product per point, transform back: F(4×4, 3×3) with 36 points, F(4×4, 5×5)
    with 64.

    In a weight gradient the roles are swapped: outputs are the taps, and the sum runs over tiles of
    the output.
    """
    points = (problems.r + 3) * (problems.s + 3)
    images = problems.n
    if not weights:
        # Weight gradients are not grouped: DeepBench's conv3_1 takes 1.9 times as long at batch 16
        # as at 8 (P100, V100).
        groups = np.ceil(images / _NONFUSED_IMAGES)
        images = groups * _NONFUSED_IMAGES
    down = np.ceil(problems.p / 4)
    across = np.ceil(problems.q / 4)
    tiles = images * down * across
    item_bytes = ITEM_BYTES * points
    data_bytes = item_bytes * tiles * problems.c
    result_bytes = item_bytes * tiles * problems.k
    filter_bytes = item_bytes * problems.c * problems.k
    constants = machine.constants

    def transform(name: str, tensor_bytes: Floats, points_bytes: Floats) -> ModelledLaunch:
        moved = constants["transform"] * (tensor_bytes + points_bytes)
        return machine.reorder(name, moved)

    inputs = transform("winograd_input", problems.input_bytes, data_bytes)
    outputs = transform("winograd_output", problems.output_bytes, result_bytes)
    filters = transform("winograd_filter", problems.weight_bytes, filter_bytes)
    workspace = data_bytes + result_bytes + filter_bytes
    name, share = "winograd_sgemm", constants["nonfused"]
    launches: tuple[ModelledLaunch, ...]
    if weights:
        grid = problems.k, problems.c, points
        main, added, sums = split_depth(machine, name, share, grid, tiles, workspace)
        launches = inputs, outputs, main, added, filters
        workspace = workspace + sums
    else:
        grid = tiles, problems.k, points
        main = machine.run_tiles(name, share, grid, problems.c, workspace)
        launches = inputs, filters, main, outputs
    is_square = problems.r == problems.s
    is_known = (problems.r == 3) | (problems.r == 5)
    possible = is_square & is_known & _unit(problems)
    return CostEstimate.of(*launches, workspace_bytes=workspace, possible=possible)


def _fft(
    problems: Convolutions, machine: ModelledGpu, *, tiled: bool, weights: bool = False
) -> CostEstimate:
    """Transform images and filters, one complex product per frequency (half for real data),
    transform back.
    """
    constants = machine.constants
    fits_tile = (problems.r <= _FFT_TILE) & (problems.s <= _FFT_TILE)
    possible = _unit(problems) & (problems.r > 1) & fits_tile
    if tiled:
        size_h = size_w = np.full_like(problems.n, _FFT_TILE)
        down = np.ceil(problems.p / (_FFT_TILE + 1 - problems.r))
        across = np.ceil(problems.q / (_FFT_TILE + 1 - problems.s))
        tiles = down * across
    else:
        height = problems.h + 2 * problems.pad_h
        width = problems.w + 2 * problems.pad_w
        size_h, size_w = _fft_size(height), _fft_size(width)
        tiles = np.ones_like(problems.n)
        possible &= (height <= _LARGEST_FFT) & (width <= _LARGEST_FFT)
    frequencies = size_h * (size_w / 2 + 1)
    images = problems.n * tiles
    spectrum = _COMPLEX_BYTES * frequencies
    data = spectrum * images * problems.c
    results = spectrum * images * problems.k
    filters = spectrum * problems.c * problems.k
    # Like that many real products in sequence: the depth is multiplied by their number.
    if weights:
        grid = problems.k, problems.c, frequencies
        depth = _REAL_PRODUCTS * images
    else:
        grid = images, problems.k, frequencies
        depth = _REAL_PRODUCTS * problems.c
    moved = data + results + filters
    main = machine.run_tiles("fft_cgemm", constants["fft"], grid, depth, moved, tiles=_FFT_TILES)

    def transform(name: str, tensor_bytes: Floats, spectrum_bytes: Floats) -> ModelledLaunch:
        moved = constants["fft_transform"] * (tensor_bytes + spectrum_bytes)
        return machine.reorder(name, moved)

    image = transform("fft_input", problems.input_bytes, data)
    kernel = transform("fft_filter", problems.weight_bytes, filters)
    output = transform("fft_output", problems.output_bytes, results)
    # cudnn_scope's 2,400 workspaces: the filters' spectrum twice or, in tiles, once, and not all
    # tiles at once.
    workspace = data + results + 2 * filters + problems.weight_bytes
    if tiled:
        at_once = np.minimum(tiles, _FFT_TILES_AT_ONCE)
        held = (data + results) * at_once / tiles
        workspace = held + filters + _FFT_TILE_BYTES * at_once
    return CostEstimate.of(
        image, kernel, main, output, workspace_bytes=workspace, possible=possible
    )


def _fft_size(extent: Floats) -> Floats:
    """The power of two that holds an image."""
    exponent = np.ceil(np.log2(extent))
    return np.asarray(np.maximum(2**exponent, _LEAST_FFT))
