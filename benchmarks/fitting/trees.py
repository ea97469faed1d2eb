"""Grows the trees of `learned.py` from published choices: Breiman's CART, by Gini's impurity, without pruning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from curvescope.analysis.cost_model.learned import ASKED, TIMED, Branch, Labels, LearnedChoice, Tree, describe
from curvescope.analysis.cost_model.problems import Convolutions, Floats
from curvescope.profiling.hardware.devices import get_device

from .published import ASKED_ROWS, TIMED_ROWS, Measured, read_choices

# Few questions, so that a tree can be read; a leaf of eight rows is two or three shapes at several batch sizes.
_DEPTH, _LEAST_ROWS = 4, 8
_LEAST_GAIN = 0.5  # of impurity, in rows

FASTEST = ", fastest"  # of the same rows, if the fastest modelled algorithm is assumed


def learn_choices(folder: Path, without: str = "") -> dict[str, LearnedChoice]:
    """Learn what cuDNN 7.6 advises and what is the fastest, from cudnn_scope's cards."""
    groups = [group for group in read_choices(folder) if group.architecture != without]
    return {
        f"cudnn7.6 {name}": learn_choice([group for group in groups if group.source == source])
        for name, source in ((ASKED, ASKED_ROWS), (TIMED, TIMED_ROWS))
    }


def learn_choice(measured: Sequence[Measured]) -> LearnedChoice:
    """Learn which algorithm is taken, from forward convolutions whose algorithms are published."""
    groups = [group.take(group.algorithms != "") for group in measured]
    described = [describe(_convolutions(group), get_device(group.device)) for group in groups]
    names = tuple(described[0])
    features = np.concatenate([np.stack([one[name] for name in names], axis=1) for one in described])
    algorithms = np.concatenate([group.algorithms for group in groups])
    kernels = {
        (int(r), int(stride))
        for group in groups
        for r, stride in zip(_convolutions(group).r, _convolutions(group).stride_h, strict=True)
    }
    knows_kepler = any(group.architecture == "kepler" for group in groups)
    return LearnedChoice(_grow(features, algorithms, names, _DEPTH), frozenset(kernels), knows_kepler)


def _convolutions(group: Measured) -> Convolutions:
    assert isinstance(group.problems, Convolutions)
    return group.problems


def _grow(features: Floats, algorithms: Labels, names: Sequence[str], depth: int) -> Tree:
    classes, index = np.unique(algorithms, return_inverse=True)
    counts = np.bincount(index)
    leaf = str(classes[counts.argmax()])
    splits = [_split(features[:, column], index, len(classes)) for column in range(len(names))]
    found = [(impurity, column, most) for column, split in enumerate(splits) if split for impurity, most in [split]]
    if depth == 0 or not found:
        return leaf
    impurity, column, most = min(found)
    if impurity > _impurity(counts[None])[0] - _LEAST_GAIN:
        return leaf
    below = features[:, column] <= most
    children = [_grow(features[rows], algorithms[rows], names, depth - 1) for rows in (below, ~below)]
    return leaf if children == [leaf, leaf] else Branch(names[column], most, *children)


def _split(feature: Floats, index: np.ndarray, classes: int) -> tuple[float, float] | None:
    """Least impurity after one question about a feature, and its limit; None if no limit leaves enough rows."""
    order = np.argsort(feature, kind="stable")
    ordered = feature[order]
    below = np.cumsum(np.eye(classes)[index[order]], axis=0)
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1])
    cuts = cuts[(cuts + 1 >= _LEAST_ROWS) & (len(feature) - cuts - 1 >= _LEAST_ROWS)]
    if not len(cuts):
        return None
    impurities = _impurity(below[cuts]) + _impurity(below[-1] - below[cuts])
    best = cuts[np.argmin(impurities)]
    return float(impurities.min()), float(round((ordered[best] + ordered[best + 1]) / 2, 4))


def _impurity(counts: Floats) -> Floats:
    rows = counts.sum(axis=1)
    return np.asarray(rows - (counts**2).sum(axis=1) / np.maximum(rows, 1))


def as_document(choice: LearnedChoice) -> dict[str, object]:
    return {"knows_kepler": choice.knows_kepler, "kernels": sorted(choice.kernels), "tree": _document(choice.tree)}


def _document(tree: Tree) -> object:
    if isinstance(tree, str):
        return tree
    return {"feature": tree.feature, "most": tree.most, "below": _document(tree.below), "above": _document(tree.above)}
