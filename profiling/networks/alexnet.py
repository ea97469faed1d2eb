"""AlexNet in one tower."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from . import Network

if TYPE_CHECKING:
    import torch

# name, output channels, kernel, stride, padding, whether a 3×3 stride-2 max pool follows
_CONVOLUTIONS = (
    ("1", 64, 11, 4, 2, True),
    ("2", 192, 5, 1, 2, True),
    ("3", 384, 3, 1, 1, False),
    ("4", 256, 3, 1, 1, False),
    ("5", 256, 3, 1, 1, True),
)


def build() -> torch.nn.Module:
    """61,100,840 parameters, as the single-tower variant is published."""
    from torch import nn

    layers: OrderedDict[str, nn.Module] = OrderedDict()
    channels = 3
    for name, width, kernel, stride, padding, pooled in _CONVOLUTIONS:
        layers[f"conv{name}"] = nn.Conv2d(channels, width, kernel, stride, padding)
        layers[f"relu{name}"] = nn.ReLU(inplace=True)
        if pooled:
            layers[f"pool{name}"] = nn.MaxPool2d(3, 2)
        channels = width
    layers["flatten"] = nn.Flatten()
    layers["drop6"] = nn.Dropout()
    layers["fc6"] = nn.Linear(channels * 6 * 6, 4096)
    layers["relu6"] = nn.ReLU(inplace=True)
    layers["drop7"] = nn.Dropout()
    layers["fc7"] = nn.Linear(4096, 4096)
    layers["relu7"] = nn.ReLU(inplace=True)
    layers["fc8"] = nn.Linear(4096, 1000)
    return nn.Sequential(layers)


NETWORKS = {
    "alexnet": Network(
        "alexnet",
        "Krizhevsky, One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997 (2014): "
        "one tower, no local response normalisation",
        (3, 224, 224),
        build,
    )
}
