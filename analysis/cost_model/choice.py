"""Chooses the algorithm like a library: the one it is known to take, or else the fastest that it
offers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...base.errors import CurvescopeError
from ...profiling.hardware.devices import Device
from .constants import ARCHITECTURES
from .launches import TILES, ModelledGpu, Tile
from .learned import ASKED, TIMED, Labels, LearnedChoice
from .problems import PHASES, Convolutions, Flags, Floats, Products
from .product import CostEstimate, estimate_products


@dataclass(frozen=True)
class Library:
    """Behaviour of a generation of cuDNN and its contemporary cuBLAS, derived from
    published times.
    """

    name: str  # name, e.g. cudnn5
    versions: str  # versions that it stands for
    fused_channels: int  # least sum of channels for fused Winograd
    # kernel heights of non-fused Winograd in the forward pass and the data gradient
    nonfused_kernels: tuple[int, ...]
    nonfused_batch: int  # least batch size for non-fused Winograd there
    nonfused_width: int  # least image width for non-fused Winograd there
    # most channels for non-fused Winograd in the weight gradient; 0 for none
    nonfused_weight_channels: float
    fft_tiling: bool  # whether its heuristic chooses tiled FFT
    split_depth: int  # least depth of a product that its cuBLAS splits
    product_tiles: tuple[Tile, ...]  # output tiles of its cuBLAS
    slow_transposed: bool  # whether its cuBLAS is slow for a transposed operand with large outputs
    offers_fft: bool = False  # whether its heuristic chooses FFT of the whole image
    lacks: frozenset[tuple[str, str]] = frozenset()  # algorithms that it does not have, by phase


# cudnn_scope: on five cards it advised non-fused Winograd for none of 3,100 problems.
_LEGACY = "cuDNN 7.5 and 7.6 asked by cudnnGetConvolutionForwardAlgorithm"
# cudnn.h of 5.0 and 5.1: cudnnConvolutionBwdFilterAlgo_t has 0, 1, FFT and 3 (and, from 5.1,
# non-fused Winograd).
_LACKS = frozenset({("backward_weights", "FFT_TILING")})
_CUDNN5 = Library(
    name="cudnn5",
    versions="cuDNN 5.0 with cuBLAS 7.5",
    fused_channels=64,
    nonfused_kernels=(3,),
    nonfused_batch=16,
    nonfused_width=29,
    nonfused_weight_channels=0,
    fft_tiling=False,
    split_depth=8192,
    product_tiles=TILES[:3],
    slow_transposed=True,
    lacks=_LACKS,
)
_CUDNN51 = replace(
    _CUDNN5,
    name="cudnn5.1",
    versions="cuDNN 5.1 with cuBLAS 8.0",
    nonfused_weight_channels=256,
)
_CUDNN6 = Library(
    name="cudnn6",
    versions="cuDNN 6 with cuBLAS 8.0",
    fused_channels=64,
    nonfused_kernels=(3,),
    nonfused_batch=16,
    nonfused_width=0,
    nonfused_weight_channels=np.inf,
    fft_tiling=False,
    split_depth=0,
    product_tiles=TILES,
    slow_transposed=False,
)
_CUDNN7 = replace(
    _CUDNN6,
    name="cudnn7",
    versions="cuDNN 7 with cuBLAS 9 or 10",
    fused_channels=32,
    nonfused_kernels=(3, 5),
    fft_tiling=True,
)
_CUDNN76 = replace(
    _CUDNN7,
    name="cudnn7.6",
    versions=_LEGACY,
    nonfused_kernels=(),
    nonfused_batch=0,
    offers_fft=True,
)
_CUDNN8 = replace(_CUDNN7, name="cudnn8", versions="cuDNN 8 with cuBLAS 11 or 12", nonfused_batch=0)
_BY_AGE = (_CUDNN5, _CUDNN51, _CUDNN6, _CUDNN7, _CUDNN76, _CUDNN8)
LIBRARIES = {library.name: library for library in _BY_AGE}
# Architectures with published choices: a library's omissions there do not apply to other
# architectures, which have other kernels; for those the fastest algorithm is assumed.
CHOICES_SEEN = ARCHITECTURES[1:]  # from Turing on like Volta: the libraries are the same or newer
# Below this number of channels on either side, no library was observed to use non-fused Winograd.
_NONFUSED_CHANNELS = 128


@dataclass(frozen=True)
class Quirk:
    """A published choice that is not the fastest."""

    library: str  # library of the observation
    phase: str  # phase of the observation
    shape: tuple[int, int, int, int, int, int]  # (c, h, w, k, r, s) of the convolution
    from_batch: int  # least batch size of the observation; assumed for larger ones too
    algorithm: str  # the chosen algorithm
    source: str  # source of the observation


# VGG's conv3_1 with cuDNN 5: FFT, whose transformed filters (64·33 frequencies × 128 × 256 complex)
# alone are 0.55 GB. The forward rows name FFT; the backward rows name no algorithm, but their times
# match FFT. Observed at 8 and 16.
_CONV3_1 = (128, 56, 56, 256, 3, 3)
_TIMES_ONLY = "DeepBench da81ba7: times only"
QUIRKS = (
    Quirk("cudnn5", "forward", _CONV3_1, 8, "FFT", "DeepBench da81ba7: M40, Titan X"),
    Quirk("cudnn5", "backward_data", _CONV3_1, 16, "FFT", _TIMES_ONLY),
    Quirk("cudnn5.1", "forward", _CONV3_1, 8, "FFT", "DeepBench da81ba7: Titan X (Pascal)"),
    Quirk("cudnn5.1", "backward_data", _CONV3_1, 16, "FFT", _TIMES_ONLY),
)


def get_library(name: str) -> Library:
    """Find a library by name; an unknown one raises CurvescopeError."""
    if name not in LIBRARIES:
        names = ", ".join(LIBRARIES)
        raise CurvescopeError(f"Unknown library {name!r}: choose from {names}.")
    return LIBRARIES[name]


def lacks_transposed(device: Device, library: Library) -> bool:
    """Whether nothing tells the time of products with transposed weights.

    cuBLAS 12 has kernels of small tiles for them on Maxwell and Pascal, from which a P100 takes up
    to 3.2 times and a P4 up to 6.1 times the modelled time (nine of ten products; NeuSight's,
    benchmarks/published).
    """
    return library.name == "cudnn8" and device.architecture in ("maxwell", "pascal")


def is_offered(library: Library, phase: str, problems: Convolutions, algorithm: str) -> Flags:
    """Whether the library's heuristic considers an algorithm, for each problem."""
    everywhere = np.ones(problems.n.shape, bool)
    if algorithm == "WINOGRAD":
        summed = problems.k if phase == "backward_data" else problems.c
        return np.asarray(summed >= library.fused_channels)
    if algorithm == "WINOGRAD_NONFUSED":
        return _offers_nonfused(library, phase, problems)
    if algorithm == "FFT_TILING":
        return everywhere & library.fft_tiling
    if algorithm == "FFT":
        return everywhere & library.offers_fft
    if algorithm == "GEMM":
        return ~everywhere
    return everywhere


def _offers_nonfused(library: Library, phase: str, problems: Convolutions) -> Flags:
    least = np.minimum(problems.c, problems.k)
    most = np.maximum(problems.c, problems.k)
    is_three = (problems.r == 3) & (least >= _NONFUSED_CHANNELS)
    is_wide = problems.w >= library.nonfused_width
    if phase == "backward_weights":
        # cuDNN 5 uses it only for equal numbers of channels, or for 512 on wide images.
        takes_shape = (least == most) | (library.nonfused_width == 0)
        is_observed = (most <= library.nonfused_weight_channels) & takes_shape
        is_large = (least >= 512) & is_wide
        return np.asarray(is_three & (is_observed | is_large))
    is_many = problems.n >= library.nonfused_batch
    is_kernel = np.isin(problems.r, library.nonfused_kernels)
    has_channels = is_three | (problems.r == 5)
    return np.asarray(is_many & is_wide & is_kernel & has_channels)


@dataclass(frozen=True)
class Chosen:
    """The chosen algorithms; arrays of shape (problems,)."""

    names: tuple[str, ...]  # candidate algorithms
    index: npt.NDArray[np.int64]  # index of the chosen algorithm in `names`
    time_s: Floats
    workspace_bytes: Floats


def choose_algorithm(
    estimates: Mapping[str, CostEstimate],
    problems: Convolutions,
    phase: str,
    library: Library,
    workspace_limit_bytes: Floats | float = np.inf,
    *,
    autotuned: bool = False,
    taken: Labels | None = None,
) -> Chosen:
    """Choose the algorithm that the library is known to take (`taken`), or else the fastest that it
    offers.

    No algorithm is chosen that the workspace does not allow. If the framework times every algorithm
    (`autotuned`), all are candidates, and there are no exceptions. `taken` has the shape
    (problems,) and is empty where nothing is known.
    """
    names = tuple(estimates)
    times = np.stack([estimate.time_s for estimate in estimates.values()])
    workspaces = np.stack([estimate.workspace_bytes for estimate in estimates.values()])
    fits = workspaces <= workspace_limit_bytes
    usable = np.zeros_like(fits)
    allowed = np.zeros_like(fits)
    for row, (name, estimate) in enumerate(estimates.items()):
        if (phase, name) not in library.lacks:
            usable[row] = fits[row] & estimate.possible
        offered = autotuned | is_offered(library, phase, problems, name)
        allowed[row] = usable[row] & offered
    allowed_s = np.where(allowed, times, np.inf)
    index = np.argmin(allowed_s, axis=0)
    if taken is not None:
        is_taken = usable & (np.array(names)[:, None] == taken)
        index = np.where(is_taken.any(axis=0), is_taken.argmax(axis=0), index)
    if not autotuned:
        for quirk in _find_quirks(library, phase, names):
            candidate = names.index(quirk.algorithm)
            is_seen = _is(problems, quirk) & fits[candidate]
            index = np.where(is_seen, candidate, index)
    rows = np.arange(len(index))
    return Chosen(names, index, times[index, rows], workspaces[index, rows])


def _find_quirks(library: Library, phase: str, names: Collection[str]) -> Iterator[Quirk]:
    """The published exceptions that concern these algorithms."""
    for quirk in QUIRKS:
        is_here = quirk.library == library.name and quirk.phase == phase
        if is_here and quirk.algorithm in names:
            yield quirk


def look_up_choice(
    library: Library,
    phase: str,
    problems: Convolutions,
    device: Device,
    learned: Mapping[str, LearnedChoice],
    *,
    timed: bool = False,
) -> Labels | None:
    """The algorithms that a library is known to take; None if nothing is known, as of all phases
    but forward.
    """
    if phase != PHASES[0]:
        return None
    way = TIMED if timed else ASKED
    choice = learned.get(f"{library.name} {way}")
    if choice is None:
        return None
    return choice.take(problems, device)


def _is(problems: Convolutions, quirk: Quirk) -> Flags:
    extents = problems.c, problems.h, problems.w, problems.k, problems.r, problems.s
    shapes = np.stack(extents, axis=1)
    has_shape = (shapes == quirk.shape).all(axis=1)
    is_many = problems.n >= quirk.from_batch
    return np.asarray(has_shape & is_many & (problems.stride_h == 1))


def estimate_products_of(
    problems: Products, machine: ModelledGpu, library: Library
) -> CostEstimate:
    """Estimate matrix products as the library computes them."""
    return estimate_products(
        problems,
        machine,
        tiles=library.product_tiles,
        split_from=library.split_depth,
        slow_transposed=library.slow_transposed,
    )
