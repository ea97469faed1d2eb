"""VGG-A (11 layers), VGG-16 (configuration D) and VGG-19 (configuration E)."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from . import Network

if TYPE_CHECKING:
    import torch

_WIDTHS = (64, 128, 256, 512, 512)
# 3×3 convolutions in each of the five blocks; a 2×2 max pool ends a block.
_BLOCKS = {"vgg_a": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}


def build(blocks: tuple[int, ...]) -> torch.nn.Module:
    """A VGG with that many convolutions in each block."""
    from torch import nn

    layers: OrderedDict[str, nn.Module] = OrderedDict()
    channels = 3
    for block, (count, width) in enumerate(zip(blocks, _WIDTHS, strict=True), start=1):
        for place in range(1, count + 1):
            layers[f"conv{block}_{place}"] = nn.Conv2d(channels, width, 3, padding=1)
            layers[f"relu{block}_{place}"] = nn.ReLU(inplace=True)
            channels = width
        layers[f"pool{block}"] = nn.MaxPool2d(2)
    layers["flatten"] = nn.Flatten()
    for number, (inputs, outputs) in enumerate(((channels * 7 * 7, 4096), (4096, 4096)), start=6):
        layers[f"fc{number}"] = nn.Linear(inputs, outputs)
        layers[f"relu{number}"] = nn.ReLU(inplace=True)
        layers[f"drop{number}"] = nn.Dropout()
    layers["fc8"] = nn.Linear(4096, 1000)
    return nn.Sequential(layers)


_PAPER = "Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, arXiv:1409.1556"

NETWORKS = {
    name: Network(name, f"{_PAPER} (2014), table 1", (3, 224, 224), partial(build, blocks))
    for name, blocks in _BLOCKS.items()
}
