"""ResNet-50, 101 and 152 with bottleneck blocks, v1 and v1.5.

They differ in the position of the stride in a down-sampling block: on the first 1×1 convolution
(v1, the paper) or on the 3×3 (v1.5, common in benchmarks). Layer names follow the authors' models.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from . import Network

if TYPE_CHECKING:
    import torch

# Number of blocks in the stages 2 to 5.
_STAGES = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_EXPANSION = 4


def _build(depth: int, stride_on_3x3: bool) -> torch.nn.Module:
    from torch import Tensor, nn

    from .blocks import chain

    def convolution(
        name: str, channels: int, width: int, size: int, stride: int = 1, padding: int = 0
    ) -> list[tuple[str, nn.Module]]:
        unit = nn.Conv2d(channels, width, size, stride, padding, bias=False)
        return [(name, unit), (f"bn{name[3:]}", nn.BatchNorm2d(width))]

    def relu(name: str) -> tuple[str, nn.Module]:
        return f"{name}_relu", nn.ReLU(inplace=True)

    class Bottleneck(nn.Module):
        def __init__(self, name: str, channels: int, width: int, stride: int) -> None:
            super().__init__()
            first, second = (1, stride) if stride_on_3x3 else (stride, 1)
            outputs = width * _EXPANSION
            branch = f"{name}_branch2"
            residual = convolution(f"{branch}a", channels, width, 1, first)
            residual.append(relu(f"{branch}a"))
            residual += convolution(f"{branch}b", width, width, 3, second, 1)
            residual.append(relu(f"{branch}b"))
            residual += convolution(f"{branch}c", width, outputs, 1)
            self.residual = chain(residual)
            self.shortcut: nn.Module | None = None
            if channels != outputs:
                projection = convolution(f"{name}_branch1", channels, outputs, 1, stride)
                self.shortcut = chain(projection)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            straight = x if self.shortcut is None else self.shortcut(x)
            added: Tensor = self.relu(self.residual(x) + straight)
            return added

    parts: list[tuple[str, nn.Module]] = []
    parts.append(("conv1", nn.Conv2d(3, 64, 7, 2, 3, bias=False)))
    parts.append(("bn_conv1", nn.BatchNorm2d(64)))
    parts.append(relu("conv1"))
    parts.append(("pool1", nn.MaxPool2d(3, 2, padding=1)))
    channels = 64
    for stage, count in enumerate(_STAGES[depth], start=2):
        width = 16 << stage
        for index in range(count):
            # a, b, c, …; in the long stages of deeper networks a, b1, b2, …
            letter = chr(ord("a") + index)
            if depth > 50 and stage in (3, 4) and index:
                letter = f"b{index}"
            name = f"res{stage}{letter}"
            stride = 2 if index == 0 and stage > 2 else 1
            parts.append((name, Bottleneck(name, channels, width, stride)))
            channels = width * _EXPANSION
    parts.append(("pool5", nn.AdaptiveAvgPool2d(1)))
    parts.append(("flatten", nn.Flatten()))
    parts.append(("fc1000", nn.Linear(channels, 1000)))
    return chain(parts)


_PAPER = "He et al., Deep Residual Learning for Image Recognition, arXiv:1512.03385 (2015), table 1"
_V1 = f"{_PAPER}; v1: stride on the first 1×1 of a down-sampling block"
_V1_5 = f"{_PAPER}; v1.5: stride on its 3×3"

NETWORKS: dict[str, Network] = {}
for _depth in _STAGES:
    for _name, _source, _on_3x3 in (
        (f"resnet{_depth}", _V1, False),
        (f"resnet{_depth}_v1.5", _V1_5, True),
    ):
        _make = partial(_build, _depth, _on_3x3)
        NETWORKS[_name] = Network(_name, _source, (3, 224, 224), _make)
