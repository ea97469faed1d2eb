"""The constants of the model: meaning, allowed range, and fitted value per architecture."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from .problems import NARROW

ARCHITECTURES = (
    "kepler",
    "maxwell",
    "pascal",
    "volta",
    "turing",
    "ampere",
    "ada",
    "hopper",
    "blackwell",
)  # by age
FITTED = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class Parameter:
    """One constant."""

    name: str  # name in the model
    meaning: str  # meaning in one sentence
    low: float  # least physically plausible value
    high: float  # greatest physically plausible value
    start: float  # start value of a fit, and its prior where the data are uninformative


PARAMETERS = (
    Parameter("product", "share of the fp32 peak that a large matrix product reaches", 0.3, 1.1, 0.8),
    Parameter("implicit", "share of the peak in the main loop of an implicit GEMM", 0.2, 1.1, 0.75),
    Parameter("winograd", "share of the peak in the main loop of fused Winograd", 0.15, 1.1, 0.7),
    Parameter("nonfused", "share of the peak in the products of non-fused Winograd", 0.15, 1.1, 0.7),
    Parameter("fft", "share of the peak in the complex products of an FFT convolution", 0.05, 1.1, 0.5),
    Parameter("weights", "share of the peak in the main loop of a weight gradient", 0.2, 1.1, 0.65),
    Parameter("data", "share of the peak in the main loop of a data gradient", 0.2, 1.1, 0.65),
    Parameter("dram", "share of the datasheet's DRAM rate of a convolution or a transform", 0.2, 1.0, 0.75),
    Parameter("product_dram", "share of the datasheet's DRAM rate of a matrix product", 0.2, 1.0, 0.75),
    Parameter("stream", "share of the datasheet's DRAM rate of a kernel that only moves bytes", 0.5, 1.0, 0.75),
    Parameter("l2_bytes_per_clock", "bytes that L2 delivers to one SM per clock", 8.0, 128.0, 32.0),
    Parameter("half_warps", "resident warps per 64 lanes at which an SM reaches half its rate", 0.2, 8.0, 1.5),
    Parameter("start_us", "least time of a launch, in microseconds", 1.0, 8.0, 4.0),
    Parameter("gpu_boost", "clock of a GeForce board over its datasheet's boost clock", 1.0, 1.25, 1.08),
    Parameter("prologue_cycles", "clocks a block spends before and after its main loop", 200.0, 20000.0, 2500.0),
    Parameter("product_cycles", "clocks before and after a matrix product's main loop", 200.0, 20000.0, 2500.0),
    Parameter("step_cycles", "least clocks of a step of depth 8, however small the tile", 20.0, 2000.0, 150.0),
    Parameter("plain_cycles", "least clocks of a step of IMPLICIT_GEMM", 20.0, 4000.0, 500.0),
    Parameter("precomputed_cycles", "least clocks of a step of IMPLICIT_PRECOMP_GEMM", 20.0, 4000.0, 500.0),
    Parameter("winograd_cycles", "least clocks of a step of fused Winograd", 20.0, 4000.0, 500.0),
    Parameter("indices_us", "time of the kernel that computes an index table, in microseconds", 0.1, 30.0, 5.0),
    Parameter("small_tile", "loss of rate from a tile's perimeter, relative to 128 × 128", 0.01, 2.0, 0.15),
    Parameter("transform", "DRAM traffic of a Winograd transform, relative to one pass each way", 0.3, 4.0, 1.0),
    # A value of 8 bytes fills a quarter of a sector: up to 4 times the traffic each way if neighbours are not written
    # together.
    Parameter("fft_transform", "DRAM traffic of an FFT, relative to one pass each way", 0.5, 16.0, 2.0),
    Parameter("split", "cost of adding up split sums, relative to writing them once", 0.1, 10.0, 1.0),
    Parameter("stride_waste", "work of a data gradient over its FLOPs, per doubled stride", 1.0, 4.0, 1.3),
    Parameter("scatter", "cost of adding products into an image, relative to writing them once", 0.2, 8.0, 1.5),
    Parameter("scatter_loop", "slowdown of a data gradient that scatters over one that gathers", 1.0, 4.0, 1.3),
    Parameter("session_us", "TensorFlow's session.run around an operator, in microseconds", 50.0, 800.0, 250.0),
    Parameter("index", "slowdown of an implicit GEMM that computes its indices in the loop", 1.0, 1.5, 1.05),
    Parameter("transposed_old", "slowdown of a transposed operand in cuBLAS 7.5 and 8.0 early", 1.0, 3.0, 2.0),
)  # fmt: skip


# Shares of the peak; none can exceed 1.
PEAK_SHARES = ("product", "implicit", "winograd", "nonfused", "fft", "weights", "data")


@dataclass(frozen=True)
class Constants:
    """The fitted constants for one architecture; see `PARAMETERS`."""

    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


# Probabilities of the stored quantiles; rarer errors than one in a hundred are not drawn.
LEVELS = (0.01, *(step / 20 for step in range(1, 20)), 0.99)


@dataclass(frozen=True)
class Spread:
    """Variation of log(measured / predicted time) on GPUs that were left out of the fit."""

    gpu: float  # variation between GPUs, common to all operators of a kind
    gpus: int  # number of GPUs behind `gpu`; with few, `gpu` itself is uncertain
    algorithm: float  # variation between GPUs, common to all operators of a kind with one algorithm
    # variation between batch sizes, common to all shapes: a library changes its kernels with the
    # batch size
    size: float
    rest: tuple[float, ...]  # remaining variation between operators: its quantiles at `LEVELS`
    lasting: float  # share of the rest's variance that a shape has at every batch size


@dataclass(frozen=True)
class Offset:
    """Overall error of predictions for something that the fit had not seen."""

    size: float  # root mean square of the logarithm
    cases: int  # number of architectures or GPUs behind it


@dataclass(frozen=True)
class Fitted:
    """The stored fit."""

    constants: Mapping[str, Constants]  # constants by architecture
    spreads: Mapping[str, Spread]  # variation by kind of operator
    unseen: Mapping[str, Offset]  # overall error for architectures that were left out, by kind
    # kinds that were measured, by architecture, with the libraries of each
    measured: Mapping[str, Mapping[str, Sequence[str]]]
    other_library: Offset  # overall error of convolutions with a library that was not fitted
    tensor: Constants  # constants of tensor cores

    def spreads_for(
        self, architecture: str, library: str, precision: str = "fp32"
    ) -> dict[str, Spread]:
        """The variation by kind; wider between GPUs if the kind was not measured there, or not with
        that library.

        Times in fp16 and bf16 come from one card, so they vary like times of an architecture that
        was left out.
        """
        return {kind: self._spread(kind, architecture, library, precision) for kind in self.spreads}

    def _spread(self, kind: str, architecture: str, library: str, precision: str) -> Spread:
        spread = self.spreads[kind]
        if kind == "streaming":  # no library is involved
            return spread
        of_kind = "product" if kind == NARROW else kind
        libraries: Collection[str] = ()
        if precision == "fp32":
            libraries = self.measured.get(architecture, {}).get(of_kind, ())
        offsets = []
        if not libraries:
            offsets.append(self.unseen[kind])
            libraries = {
                name for kinds in self.measured.values() for name in kinds.get(of_kind, ())
            }
        if library not in libraries:
            offsets.append(self.other_library)
        size = math.hypot(*(offset.size for offset in offsets))
        if size <= spread.gpu:
            return spread
        return replace(spread, gpu=size, gpus=min(offset.cases for offset in offsets))


def starting_constants() -> Constants:
    """Every constant at its starting value."""
    return Constants({parameter.name: parameter.start for parameter in PARAMETERS})


@cache
def load_fitted() -> Fitted:
    """Load the stored fit."""
    loaded = json.loads(FITTED.read_text())
    spreads = {}
    for kind, spread in loaded["spreads"].items():
        spreads[kind] = Spread(**spread | {"rest": tuple(spread["rest"])})
    return Fitted(
        constants={name: Constants(values) for name, values in loaded["values"].items()},
        spreads=spreads,
        unseen={kind: Offset(**offset) for kind, offset in loaded["unseen"].items()},
        measured=loaded["measured"],
        other_library=Offset(**loaded["other_library"]),
        tensor=Constants(loaded["tensor"]),
    )


def constants_for(architecture: str, fitted: Mapping[str, Constants]) -> Constants:
    """The constants of an architecture; if it was not fitted, extrapolated from the newest older
    ones.

    With two or more older architectures, their shares of the peak are extrapolated: the unused part
    shrinks by the same factor as between the last two.
    """
    if architecture in fitted:
        return fitted[architecture]
    index = ARCHITECTURES.index(architecture)
    older = [fitted[name] for name in ARCHITECTURES[:index] if name in fitted]
    if older:
        return _carry_on(older)
    newer = [fitted[name] for name in ARCHITECTURES[index:] if name in fitted]
    if not newer:
        raise ValueError("no architecture is fitted")
    return newer[0]


def _carry_on(older: Sequence[Constants]) -> Constants:
    values = dict(older[-1].values)
    steps = len(older) - 1
    for name in PEAK_SHARES if steps else ():
        first, last = 1 - older[0][name], 1 - older[-1][name]
        if first > last > 0:
            factor = (last / first) ** (1 / steps)
            values[name] = 1 - last * factor
    return Constants(values)
