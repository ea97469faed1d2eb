"""GoogLeNet (Inception v1), Inception-BN (batch-normalised, 5×5 replaced by two 3×3) and
Inception-V3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from . import Network

if TYPE_CHECKING:
    from torch import nn

Block = dict[str, Any]  # branches: rows of `blocks.layers`, or one unit without a name


def _v1(
    one: int, three_reduce: int, three: int, five_reduce: int, five: int, projection: int
) -> Block:
    return {
        "1x1": (one, 1),
        "3x3": [("reduce", three_reduce, 1), ("3x3", three, 3, 1, 1)],
        "5x5": [("reduce", five_reduce, 1), ("5x5", five, 5, 1, 2)],
        "pool": [("pool", "max", 3, 1, 1), ("proj", projection, 1)],
    }


def _bn(
    one: int,
    three_reduce: int,
    three: int,
    double_reduce: int,
    double: int,
    pool: str,
    projection: int,
) -> Block:
    """Without a projection there is no 1×1 branch, and the stride is 2."""
    stride = 1 if projection else 2
    block: Block = {}
    if one:
        block["1x1"] = (one, 1)
    block["3x3"] = [("reduce", three_reduce, 1), ("3x3", three, 3, stride, 1)]
    block["double_3x3"] = [
        ("reduce", double_reduce, 1),
        ("3x3_1", double, 3, 1, 1),
        ("3x3_2", double, 3, stride, 1),
    ]
    block["pool"] = [("pool", pool, 3, stride, 1)]
    if projection:
        block["pool"].append(("proj", projection, 1))
    return block


def _units(*shapes: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [(f"unit{number}", *shape) for number, shape in enumerate(shapes, start=1)]


# size, stride, padding, as (height, width)
_ROW = ((1, 7), 1, (0, 3))
_COLUMN = ((7, 1), 1, (3, 0))
_MAX = [("pool", "max", 3, 2)]


def _v3_average(width: int) -> list[tuple[Any, ...]]:
    return [("pool", "avg", 3, 1, 1), ("unit2", width, 1)]


def _v3_5(pool: int) -> Block:
    return {
        "1x1": _units((64, 1)),
        "5x5": _units((48, 1), (64, 5, 1, 2)),
        "double_3x3": _units((64, 1), (96, 3, 1, 1), (96, 3, 1, 1)),
        "pool": _v3_average(pool),
    }


def _v3_6(width: int) -> Block:
    row = (width, *_ROW)
    column = (width, *_COLUMN)
    return {
        "1x1": _units((192, 1)),
        "7x7": _units((width, 1), row, (192, *_COLUMN)),
        "double_7x7": _units((width, 1), column, row, column, (192, *_ROW)),
        "pool": _v3_average(192),
    }


_SPLIT = ("split", {"1x3": (384, (1, 3), 1, (0, 1)), "3x1": (384, (3, 1), 1, (1, 0))})
_V3_7 = {
    "1x1": _units((320, 1)),
    "3x3": [*_units((384, 1)), _SPLIT],
    "double_3x3": [*_units((448, 1), (384, 3, 1, 1)), _SPLIT],
    "pool": _v3_average(192),
}

# Rows of `blocks.layers`.
_GOOGLENET = (
    ("conv1", 64, 7, 2, 3),
    ("pool1", "max, rounded up", 3, 2),
    ("norm1", "norm", 5),
    ("conv2_reduce", 64, 1),
    ("conv2", 192, 3, 1, 1),
    ("norm2", "norm", 5),
    ("pool2", "max, rounded up", 3, 2),
    ("inception_3a", _v1(64, 96, 128, 16, 32, 32)),
    ("inception_3b", _v1(128, 128, 192, 32, 96, 64)),
    ("pool3", "max, rounded up", 3, 2),
    ("inception_4a", _v1(192, 96, 208, 16, 48, 64)),
    ("inception_4b", _v1(160, 112, 224, 24, 64, 64)),
    ("inception_4c", _v1(128, 128, 256, 24, 64, 64)),
    ("inception_4d", _v1(112, 144, 288, 32, 64, 64)),
    ("inception_4e", _v1(256, 160, 320, 32, 128, 128)),
    ("pool4", "max, rounded up", 3, 2),
    ("inception_5a", _v1(256, 160, 320, 32, 128, 128)),
    ("inception_5b", _v1(384, 192, 384, 48, 128, 128)),
    ("pool5", "mean", 1),
    ("flatten", "flatten"),
    ("dropout", "dropout", 0.4),
)
_INCEPTION_BN = (
    ("conv1", 64, 7, 2, 3),
    ("pool1", "max", 3, 2, 1),
    ("conv2_reduce", 64, 1),
    ("conv2", 192, 3, 1, 1),
    ("pool2", "max", 3, 2, 1),
    ("inception_3a", _bn(64, 64, 64, 64, 96, "avg", 32)),
    ("inception_3b", _bn(64, 64, 96, 64, 96, "avg", 64)),
    ("inception_3c", _bn(0, 128, 160, 64, 96, "max", 0)),
    ("inception_4a", _bn(224, 64, 96, 96, 128, "avg", 128)),
    ("inception_4b", _bn(192, 96, 128, 96, 128, "avg", 128)),
    ("inception_4c", _bn(160, 128, 160, 128, 160, "avg", 128)),
    ("inception_4d", _bn(96, 128, 192, 160, 192, "avg", 128)),
    ("inception_4e", _bn(0, 128, 192, 192, 256, "max", 0)),
    ("inception_5a", _bn(352, 192, 320, 160, 224, "avg", 128)),
    ("inception_5b", _bn(352, 192, 320, 192, 224, "max", 128)),
    ("pool5", "mean", 1),
    ("flatten", "flatten"),
)
_INCEPTION_V3 = (
    ("conv_1a", 32, 3, 2),
    ("conv_2a", 32, 3),
    ("conv_2b", 64, 3, 1, 1),
    ("pool_2", "max", 3, 2),
    ("conv_3b", 80, 1),
    ("conv_4a", 192, 3),
    ("pool_4", "max", 3, 2),
    ("mixed_5b", _v3_5(32)),
    ("mixed_5c", _v3_5(64)),
    ("mixed_5d", _v3_5(64)),
    (
        "mixed_6a",
        {
            "3x3": _units((384, 3, 2)),
            "double_3x3": _units((64, 1), (96, 3, 1, 1), (96, 3, 2)),
            "pool": _MAX,
        },
    ),
    ("mixed_6b", _v3_6(128)),
    ("mixed_6c", _v3_6(160)),
    ("mixed_6d", _v3_6(160)),
    ("mixed_6e", _v3_6(192)),
    (
        "mixed_7a",
        {
            "3x3": _units((192, 1), (320, 3, 2)),
            "7x7_3x3": _units((192, 1), (192, *_ROW), (192, *_COLUMN), (192, 3, 2)),
            "pool": _MAX,
        },
    ),
    ("mixed_7b", _V3_7),
    ("mixed_7c", _V3_7),
    ("pool", "mean", 1),
    ("dropout", "dropout", 0.5),
    ("flatten", "flatten"),
)


def _build(rows: Sequence[tuple[Any, ...]], epsilon: float | None) -> nn.Module:
    from torch import nn

    from .blocks import chain, layers

    parts, channels = layers(3, rows, epsilon)
    return chain([*parts, ("fc", nn.Linear(channels, 1000))])


NETWORKS = {
    "googlenet": Network(
        "googlenet",
        "Szegedy et al., Going Deeper with Convolutions, arXiv:1409.4842 (2014), table 1, no "
        "auxiliary classifiers",
        (3, 224, 224),
        partial(_build, _GOOGLENET, None),
    ),
    "inception_bn": Network(
        "inception_bn",
        "Ioffe and Szegedy, Batch Normalization, arXiv:1502.03167 (2015), appendix; pool "
        "projections of 4c and 4d are 128 wide, as in the benchmarked implementations",
        (3, 224, 224),
        partial(_build, _INCEPTION_BN, 1e-5),
    ),
    "inception_v3": Network(
        "inception_v3",
        "Szegedy et al., Rethinking the Inception Architecture for Computer Vision, "
        "arXiv:1512.00567 (2015), as released by its authors, without the auxiliary classifier",
        (3, 299, 299),
        partial(_build, _INCEPTION_V3, 1e-3),
    ),
}
