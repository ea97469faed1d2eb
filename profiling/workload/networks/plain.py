"""Convolutions with ReLU, some of them pooled, then fully connected layers: AlexNet, OverFeat and
VGG.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from . import Network

if TYPE_CHECKING:
    from torch import nn

# name, width, size, stride, padding, whether a max pool follows
_Row = tuple[str, int, int, int, int, bool]
_ALEXNET = (
    ("1", 64, 11, 4, 2, True),
    ("2", 192, 5, 1, 2, True),
    ("3", 384, 3, 1, 1, False),
    ("4", 256, 3, 1, 1, False),
    ("5", 256, 3, 1, 1, True),
)
_OVERFEAT = (
    ("1", 96, 11, 4, 0, True),
    ("2", 256, 5, 1, 0, True),
    ("3", 512, 3, 1, 1, False),
    ("4", 1024, 3, 1, 1, False),
    ("5", 1024, 3, 1, 1, True),
)
_VGG_WIDTHS = (64, 128, 256, 512, 512)
# convolutions of each width
_VGG = {
    "vgg_a": (1, 1, 2, 2, 2),
    "vgg16": (2, 2, 3, 3, 3),
    "vgg19": (2, 2, 4, 4, 4),
}


def _vgg(counts: Sequence[int]) -> list[_Row]:
    rows = []
    for block, (count, width) in enumerate(zip(counts, _VGG_WIDTHS, strict=True), start=1):
        for index in range(1, count + 1):
            rows.append((f"{block}_{index}", width, 3, 1, 1, index == count))
    return rows


def _build(
    rows: Sequence[_Row], pool: tuple[int, int], pixels: int, hidden: str, widths: Sequence[int]
) -> nn.Module:
    """Build a network: `pixels` by `pixels` are left for the hidden layers, each of the modules
    that `hidden` names.
    """
    from torch import nn

    from .blocks import chain

    parts: list[tuple[str, nn.Module]] = []
    channels = 3
    for name, width, size, stride, padding, pooled in rows:
        parts.append((f"conv{name}", nn.Conv2d(channels, width, size, stride, padding)))
        parts.append((f"relu{name}", nn.ReLU(inplace=True)))
        if pooled:
            parts.append((f"pool{name[0]}", nn.MaxPool2d(*pool)))
        channels = width
    parts.append(("flatten", nn.Flatten()))
    inputs = channels * pixels * pixels
    for number, width in enumerate(widths, start=6):
        linear = nn.Linear(inputs, width)
        made = {"fc": linear, "relu": nn.ReLU(inplace=True), "drop": nn.Dropout()}
        for kind in hidden.split():
            parts.append((f"{kind}{number}", made[kind]))
        inputs = width
    parts.append(("fc8", nn.Linear(inputs, 1000)))
    return chain(parts)


NETWORKS = {
    "alexnet": Network(
        "alexnet",
        "Krizhevsky, One weird trick for parallelizing convolutional neural networks, "
        "arXiv:1404.5997 (2014): one tower, no local response normalisation",
        (3, 224, 224),
        partial(_build, _ALEXNET, (3, 2), 6, "drop fc relu", (4096, 4096)),
    ),
    "overfeat": Network(
        "overfeat",
        "Sermanet et al., OverFeat, arXiv:1312.6229 (2013), table 1 (fast model), without dropout, "
        "as in the published convolution benchmarks",
        (3, 231, 231),
        partial(_build, _OVERFEAT, (2, 2), 6, "fc relu", (3072, 4096)),
    ),
}
for _name, _counts in _VGG.items():
    NETWORKS[_name] = Network(
        _name,
        "Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image "
        "Recognition, arXiv:1409.1556 (2014), table 1",
        (3, 224, 224),
        partial(_build, _vgg(_counts), (2, 2), 7, "fc relu drop", (4096, 4096)),
    )
