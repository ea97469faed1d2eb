"""The constants of the model by architecture; `parameters.json` has the meaning of each."""

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
# Of each constant: the start of a fit, which is also its prior where the data are uninformative,
# the least and the greatest physically plausible value, and its meaning.
PARAMETERS = Path(__file__).with_name("parameters.json")

# Shares of the peak; none can exceed 1.
PEAK_SHARES = ("product", "implicit", "winograd", "nonfused", "fft", "weights", "data")


@dataclass(frozen=True)
class Constants:
    """The fitted constants for one architecture; `parameters.json` says what each means."""

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
        spreads = {}
        for kind in self.spreads:
            spreads[kind] = self._spread(kind, architecture, library, precision)
        return spreads

    def _spread(self, kind: str, architecture: str, library: str, precision: str) -> Spread:
        spread = self.spreads[kind]
        if kind == "streaming":  # no library is involved
            return spread
        measured_kind = "product" if kind == NARROW else kind
        libraries: Collection[str] = ()
        if precision == "fp32":
            kinds = self.measured.get(architecture, {})
            libraries = kinds.get(measured_kind, ())
        offsets = []
        if not libraries:
            offsets.append(self.unseen[kind])
            libraries = self._list_libraries(measured_kind)
        if library not in libraries:
            offsets.append(self.other_library)
        size = math.hypot(*(offset.size for offset in offsets))
        if size <= spread.gpu:
            return spread
        cases = min(offset.cases for offset in offsets)
        return replace(spread, gpu=size, gpus=cases)

    def _list_libraries(self, kind: str) -> set[str]:
        """Libraries with which a kind was measured on some architecture."""
        libraries: set[str] = set()
        for kinds in self.measured.values():
            libraries.update(kinds.get(kind, ()))
        return libraries


@cache
def load_fitted() -> Fitted:
    """Load the stored fit."""
    loaded = json.loads(FITTED.read_text())
    constants = {}
    spreads = {}
    unseen = {}
    for architecture, values in loaded["values"].items():
        constants[architecture] = Constants(values)
    for kind, spread in loaded["spreads"].items():
        rest = tuple(spread.pop("rest"))
        spreads[kind] = Spread(rest=rest, **spread)
    for kind, offset in loaded["unseen"].items():
        unseen[kind] = Offset(**offset)
    return Fitted(
        constants=constants,
        spreads=spreads,
        unseen=unseen,
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
    older = _list_fitted(ARCHITECTURES[:index], fitted)
    if older:
        return _carry_on(older)
    newer = _list_fitted(ARCHITECTURES[index:], fitted)
    if not newer:
        raise ValueError("no architecture is fitted")
    return newer[0]


def _list_fitted(names: Sequence[str], fitted: Mapping[str, Constants]) -> list[Constants]:
    return [fitted[name] for name in names if name in fitted]


def _carry_on(older: Sequence[Constants]) -> Constants:
    oldest, newest = older[0], older[-1]
    values = dict(newest.values)
    steps = len(older) - 1
    for name in PEAK_SHARES if steps else ():
        first = 1 - oldest[name]
        last = 1 - newest[name]
        if first > last > 0:
            factor = (last / first) ** (1 / steps)
            values[name] = 1 - last * factor
    return Constants(values)
