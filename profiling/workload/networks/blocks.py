"""Blocks that several networks share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn


class ConvolutionUnit(nn.Sequential):
    """Convolution, batch normalisation (optional), ReLU; `size` and `padding` are one number or (height, width)."""

    def __init__(
        self,
        channels: int,
        width: int,
        size: Any,
        stride: int = 1,
        padding: Any = 0,
        *,
        epsilon: float | None = None,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, size, stride, padding, bias=epsilon is None)
        if epsilon is not None:
            self.bn = nn.BatchNorm2d(width, eps=epsilon)
        self.relu = nn.ReLU(inplace=True)


class Branches(nn.Module):
    """Named branches over one input, concatenated along the channels."""

    def __init__(self, branches: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, branch in branches.items():
            self.add_module(name, branch)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, sum of the branches' channels, height, width)."""
        return torch.cat([branch(x) for branch in self.children()], dim=1)


def chain(parts: Sequence[tuple[str, nn.Module]]) -> nn.Sequential:
    """Named modules in sequence."""
    return nn.Sequential(OrderedDict(parts))


def units(channels: int, rows: Sequence[tuple[Any, ...]], epsilon: float | None = None) -> nn.Sequential:
    """Convolution units in sequence.

    Args:
        channels: number of input channels.
        rows: name, width, size, and optionally stride and padding of each unit.
        epsilon: see `ConvolutionUnit`.
    """
    built: list[tuple[str, nn.Module]] = []
    for name, width, *shape in rows:
        built.append((name, ConvolutionUnit(channels, width, *shape, epsilon=epsilon)))
        channels = width
    return chain(built)


# name, output channels, kernel, stride, padding, whether a max pool follows
ConvolutionRow = tuple[str, int, int, int, int, bool]


def convolutions(rows: Sequence[ConvolutionRow], pool: tuple[int, int]) -> tuple[list[tuple[str, nn.Module]], int]:
    """Convolutions with ReLU over an RGB image, some followed by a max pool of `pool` size and stride.

    Returns:
        The named modules, and the number of output channels.
    """
    parts: list[tuple[str, nn.Module]] = []
    channels = 3
    for name, width, kernel, stride, padding, pooled in rows:
        parts.append((f"conv{name}", nn.Conv2d(channels, width, kernel, stride, padding)))
        parts.append((f"relu{name}", nn.ReLU(inplace=True)))
        if pooled:
            parts.append((f"pool{name}", nn.MaxPool2d(*pool)))
        channels = width
    return parts, channels
