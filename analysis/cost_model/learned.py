"""The algorithm that a library takes, learned from examples: one small decision tree over shapes
per library.

No rule of cuDNN's heuristics is published, but for cuDNN 7.6 which algorithm it advises and which
is the fastest, for hundreds of shapes. `choices.json` has the trees, learned with the constants'
fit (docs/internals/cost-model.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...profiling.hardware.devices import Device
from .constants import ARCHITECTURES
from .problems import Convolutions, Floats

LEARNED = Path(__file__).with_name("choices.json")
ASKED, TIMED = "asked", "timed"
# pixels and output channels of the output tile that most rows of an implicit GEMM have
_BLOCK_PIXELS, _BLOCK_CHANNELS = 128, 64
Labels: TypeAlias = npt.NDArray[np.str_]


@dataclass(frozen=True)
class Branch:
    """A question: is a feature at most a limit?"""

    feature: str  # name of the feature, a key of `describe`
    most: float  # the limit
    below: Tree  # tree of the problems up to it
    above: Tree  # tree of the others


Tree: TypeAlias = Branch | str  # a leaf is an algorithm


@dataclass(frozen=True)
class LearnedChoice:
    """The choices of one library, asked or after every algorithm has been timed."""

    tree: Tree  # the questions
    # (kernel height, stride) of the convolutions that it has seen; it says nothing about others
    kernels: frozenset[tuple[int, int]]
    knows_kepler: bool  # whether it has seen Kepler, about which newer architectures say nothing

    def take(self, problems: Convolutions, device: Device) -> Labels:
        """Algorithm of each problem, empty where it has seen nothing alike; shape (problems,)."""
        if device.architecture == "kepler" and not self.knows_kepler:
            return np.full(problems.n.shape, "")
        kernels = zip(problems.r.tolist(), problems.stride_h.tolist(), strict=True)
        is_learned = np.array([kernel in self.kernels for kernel in kernels])
        features = describe(problems, device)
        algorithms = classify(self.tree, features)
        return np.where(is_learned, algorithms, "")


def describe(problems: Convolutions, device: Device) -> dict[str, Floats]:
    """What trees ask about, each of shape (problems,).

    `fill` is the number of blocks of 128 pixels and 64 output channels per SM, `generation` the
    position of the architecture in `ARCHITECTURES`.
    """
    pixels = problems.n * problems.p * problems.q
    rows = np.ceil(pixels / _BLOCK_PIXELS)
    columns = np.ceil(problems.k / _BLOCK_CHANNELS)
    blocks = rows * columns
    generation = float(ARCHITECTURES.index(device.architecture))
    return {
        "fill": blocks / device.sm_count,
        "kernel": problems.r,
        "inputs": problems.c,
        "outputs": problems.k,
        "batch": problems.n,
        "generation": np.full_like(problems.n, generation),
    }


def classify(tree: Tree, features: Mapping[str, Floats]) -> Labels:
    """Leaf of each problem; shape (problems,)."""
    if isinstance(tree, str):
        some_feature = next(iter(features.values()))
        return np.full(len(some_feature), tree)
    is_below = features[tree.feature] <= tree.most
    below = classify(tree.below, features)
    above = classify(tree.above, features)
    return np.where(is_below, below, above)


@cache
def load_learned() -> dict[str, LearnedChoice]:
    """Load the stored choices by library and by how it chooses, e.g. "cudnn8 asked"."""
    choices = {}
    for name, stored in json.loads(LEARNED.read_text()).items():
        tree = _tree(stored["tree"])
        kernels = frozenset(map(tuple, stored["kernels"]))
        choices[name] = LearnedChoice(tree, kernels, stored["knows_kepler"])
    return choices


def _tree(stored: Any) -> Tree:
    if isinstance(stored, str):
        return stored
    below = _tree(stored["below"])
    above = _tree(stored["above"])
    return Branch(stored["feature"], stored["most"], below, above)
