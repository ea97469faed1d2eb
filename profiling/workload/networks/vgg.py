"""VGG-A (11 layers), VGG-16 (configuration D) and VGG-19 (configuration E)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from . import Network

if TYPE_CHECKING:
    import torch

_WIDTHS = (64, 128, 256, 512, 512)
# 3×3 convolutions in each of the five blocks; a 2×2 max pool ends a block.
_BLOCKS = {"vgg_a": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}


def build(blocks: tuple[int, ...]) -> torch.nn.Module:
    """Build a VGG with these numbers of convolutions per block."""
    from torch import nn

    from .blocks import chain

    parts: list[tuple[str, nn.Module]] = []
    channels = 3
    for block, (count, width) in enumerate(zip(blocks, _WIDTHS, strict=True), start=1):
        for index in range(1, count + 1):
            parts.append((f"conv{block}_{index}", nn.Conv2d(channels, width, 3, padding=1)))
            parts.append((f"relu{block}_{index}", nn.ReLU(inplace=True)))
            channels = width
        parts.append((f"pool{block}", nn.MaxPool2d(2)))
    parts.append(("flatten", nn.Flatten()))
    for number, inputs in ((6, channels * 7 * 7), (7, 4096)):
        parts.append((f"fc{number}", nn.Linear(inputs, 4096)))
        parts.append((f"relu{number}", nn.ReLU(inplace=True)))
        parts.append((f"drop{number}", nn.Dropout()))
    parts.append(("fc8", nn.Linear(4096, 1000)))
    return chain(parts)


_PAPER = "Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, arXiv:1409.1556"

NETWORKS = {
    name: Network(name, f"{_PAPER} (2014), table 1", (3, 224, 224), partial(build, blocks))
    for name, blocks in _BLOCKS.items()
}
