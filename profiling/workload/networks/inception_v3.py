"""Inception-V3, 299 pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import Network

if TYPE_CHECKING:
    from torch import nn

_EPSILON = 1e-3

# A unit is (width, size) or (width, size, stride) or (width, size, stride, padding); sizes are (height, width).
# "same" padding is written out; a list of two units at the end of a branch splits it in two, which are concatenated.
_Unit = tuple[Any, ...]


def _a(pool: int) -> dict[str, list[Any]]:
    return {
        "1x1": [(64, 1)],
        "5x5": [(48, 1), (64, 5, 1, 2)],
        "double_3x3": [(64, 1), (96, 3, 1, 1), (96, 3, 1, 1)],
        "pool": ["avg", (pool, 1)],
    }


def _c(width: int) -> dict[str, list[Any]]:
    row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    return {
        "1x1": [(192, 1)],
        "7x7": [(width, 1), (width, *row), (192, *column)],
        "double_7x7": [(width, 1), (width, *column), (width, *row), (width, *column), (192, *row)],
        "pool": ["avg", (192, 1)],
    }


_SPLIT = [(384, (1, 3), 1, (0, 1)), (384, (3, 1), 1, (1, 0))]
_E: dict[str, list[Any]] = {
    "1x1": [(320, 1)],
    "3x3": [(384, 1), _SPLIT],
    "double_3x3": [(448, 1), (384, 3, 1, 1), _SPLIT],
    "pool": ["avg", (192, 1)],
}
_BLOCKS: dict[str, dict[str, list[Any]]] = {
    "mixed_5b": _a(32),
    "mixed_5c": _a(64),
    "mixed_5d": _a(64),
    "mixed_6a": {"3x3": [(384, 3, 2)], "double_3x3": [(64, 1), (96, 3, 1, 1), (96, 3, 2)], "pool": ["max"]},
    "mixed_6b": _c(128),
    "mixed_6c": _c(160),
    "mixed_6d": _c(160),
    "mixed_6e": _c(192),
    "mixed_7a": {
        "3x3": [(192, 1), (320, 3, 2)],
        "7x7_3x3": [(192, 1), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2)],
        "pool": ["max"],
    },
    "mixed_7b": _E,
    "mixed_7c": _E,
}


def build() -> nn.Module:
    """23,834,568 parameters, without the auxiliary classifier."""
    from torch import nn

    from .blocks import Branches, ConvolutionUnit, chain

    def unit(channels: int, spec: _Unit) -> nn.Module:
        return ConvolutionUnit(channels, *spec, epsilon=_EPSILON)

    def branch(channels: int, specs: Sequence[Any]) -> tuple[nn.Module, int]:
        parts: list[tuple[str, nn.Module]] = []
        for index, spec in enumerate(specs, start=1):
            if spec == "avg":
                parts.append(("pool", nn.AvgPool2d(3, 1, padding=1)))
            elif spec == "max":
                parts.append(("pool", nn.MaxPool2d(3, 2)))
            elif isinstance(spec, list):
                parts.append(("split", Branches({f"{s[1][0]}x{s[1][1]}": unit(channels, s) for s in spec})))
                channels = sum(s[0] for s in spec)
            else:
                parts.append((f"unit{index}", unit(channels, spec)))
                channels = spec[0]
        return chain(parts), channels

    parts: list[tuple[str, nn.Module]] = [
        ("conv_1a", unit(3, (32, 3, 2))),
        ("conv_2a", unit(32, (32, 3))),
        ("conv_2b", unit(32, (64, 3, 1, 1))),
        ("pool_2", nn.MaxPool2d(3, 2)),
        ("conv_3b", unit(64, (80, 1))),
        ("conv_4a", unit(80, (192, 3))),
        ("pool_4", nn.MaxPool2d(3, 2)),
    ]
    channels = 192
    for name, block in _BLOCKS.items():
        made = {key: branch(channels, specs) for key, specs in block.items()}
        parts.append((name, Branches({key: module for key, (module, _) in made.items()})))
        channels = sum(width for _, width in made.values())
    parts += [
        ("pool", nn.AdaptiveAvgPool2d(1)),
        ("dropout", nn.Dropout(0.5)),
        ("flatten", nn.Flatten()),
        ("fc", nn.Linear(channels, 1000)),
    ]
    return chain(parts)


NETWORKS = {
    "inception_v3": Network(
        "inception_v3",
        "Szegedy et al., Rethinking the Inception Architecture for Computer Vision, arXiv:1512.00567 (2015), as "
        "released by its authors, without the auxiliary classifier",
        (3, 299, 299),
        build,
    )
}
