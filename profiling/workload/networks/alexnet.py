"""AlexNet in one tower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Network

if TYPE_CHECKING:
    import torch

# Rows for blocks.convolutions; the pools are 3×3 with stride 2.
_CONVOLUTIONS = (
    ("1", 64, 11, 4, 2, True),
    ("2", 192, 5, 1, 2, True),
    ("3", 384, 3, 1, 1, False),
    ("4", 256, 3, 1, 1, False),
    ("5", 256, 3, 1, 1, True),
)


def build() -> torch.nn.Module:
    """61,100,840 parameters, like the published single-tower variant."""
    from torch import nn

    from .blocks import chain, convolutions

    parts, channels = convolutions(_CONVOLUTIONS, pool=(3, 2))
    parts += [
        ("flatten", nn.Flatten()),
        ("drop6", nn.Dropout()),
        ("fc6", nn.Linear(channels * 6 * 6, 4096)),
        ("relu6", nn.ReLU(inplace=True)),
        ("drop7", nn.Dropout()),
        ("fc7", nn.Linear(4096, 4096)),
        ("relu7", nn.ReLU(inplace=True)),
        ("fc8", nn.Linear(4096, 1000)),
    ]
    return chain(parts)


NETWORKS = {
    "alexnet": Network(
        "alexnet",
        "Krizhevsky, One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997 (2014): "
        "one tower, no local response normalisation",
        (3, 224, 224),
        build,
    )
}
