"""Blocks that several networks share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

Parts = list[tuple[str, nn.Module]]
_PLAIN: dict[str, Any] = {
    "max": nn.MaxPool2d,
    "max, rounded up": partial(nn.MaxPool2d, ceil_mode=True),
    "avg": nn.AvgPool2d,
    "mean": nn.AdaptiveAvgPool2d,
    "norm": nn.LocalResponseNorm,
    "flatten": nn.Flatten,
    "dropout": nn.Dropout,
}


class ConvolutionUnit(nn.Sequential):
    """Convolution, batch normalisation (if given an epsilon), ReLU; sizes are a number or (height,
    width).
    """

    def __init__(
        self,
        channels: int,
        width: int,
        size: Any,
        stride: int = 1,
        padding: Any = 0,
        *,
        epsilon: float | None,
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


def chain(parts: Parts) -> nn.Sequential:
    """Named modules in sequence."""
    return nn.Sequential(OrderedDict(parts))


def layers(
    channels: int, rows: Sequence[tuple[Any, ...]], epsilon: float | None
) -> tuple[Parts, int]:
    """Named modules from rows of a table, over `channels` input channels, and the number of output
    channels.

    A row is a name, and the width, size, stride and padding of a convolution unit; or one of the
    modules above with its arguments; or branches by name, each of rows like these or of one unit
    without a name.
    """
    parts: Parts = []
    for name, what, *arguments in rows:
        if isinstance(what, str):
            parts.append((name, _PLAIN[what](*arguments)))
        elif isinstance(what, dict):
            branches = {}
            together = 0
            for key, branch in what.items():
                branches[key], width = _branch(channels, branch, epsilon)
                together += width
            parts.append((name, Branches(branches)))
            channels = together
        else:
            parts.append((name, ConvolutionUnit(channels, what, *arguments, epsilon=epsilon)))
            channels = what
    return parts, channels


def _branch(channels: int, branch: Any, epsilon: float | None) -> tuple[nn.Module, int]:
    if isinstance(branch, tuple):
        return ConvolutionUnit(channels, *branch, epsilon=epsilon), branch[0]
    parts, channels = layers(channels, branch, epsilon)
    return chain(parts), channels
