"""ResNet-50, 101 and 152 with bottleneck blocks, v1 and v1.5.

They differ in the position of the stride in a down-sampling block: on the first 1×1 convolution (v1, the paper) or on
the 3×3 (v1.5, common in benchmarks). Layer names follow the authors' models.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from . import Network

if TYPE_CHECKING:
    import torch

# Number of blocks in the stages 2 to 5.
_STAGES = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_WIDTHS = (64, 128, 256, 512)
_EXPANSION = 4


def _block_name(depth: int, stage: int, index: int) -> str:
    """a, b, c, … for ResNet-50; in the long stages of deeper networks a, b1, b2, …."""
    if depth > 50 and stage in (3, 4) and index:
        return f"res{stage}b{index}"
    return f"res{stage}{chr(ord('a') + index)}"


def build(depth: int, stride_on_3x3: bool) -> torch.nn.Module:
    """Build a ResNet of this depth."""
    from torch import Tensor, nn

    from .blocks import chain

    class Bottleneck(nn.Module):
        def __init__(self, name: str, channels: int, width: int, stride: int) -> None:
            super().__init__()
            first, second = (1, stride) if stride_on_3x3 else (stride, 1)
            outputs = width * _EXPANSION
            self.residual = chain(
                [
                    (f"{name}_branch2a", nn.Conv2d(channels, width, 1, first, bias=False)),
                    (f"bn{name[3:]}_branch2a", nn.BatchNorm2d(width)),
                    (f"{name}_branch2a_relu", nn.ReLU(inplace=True)),
                    (f"{name}_branch2b", nn.Conv2d(width, width, 3, second, 1, bias=False)),
                    (f"bn{name[3:]}_branch2b", nn.BatchNorm2d(width)),
                    (f"{name}_branch2b_relu", nn.ReLU(inplace=True)),
                    (f"{name}_branch2c", nn.Conv2d(width, outputs, 1, bias=False)),
                    (f"bn{name[3:]}_branch2c", nn.BatchNorm2d(outputs)),
                ]
            )
            self.shortcut: nn.Module | None = None
            if channels != outputs:
                self.shortcut = chain(
                    [
                        (f"{name}_branch1", nn.Conv2d(channels, outputs, 1, stride, bias=False)),
                        (f"bn{name[3:]}_branch1", nn.BatchNorm2d(outputs)),
                    ]
                )
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            straight = x if self.shortcut is None else self.shortcut(x)
            added: Tensor = self.relu(self.residual(x) + straight)
            return added

    parts: list[tuple[str, nn.Module]] = [
        ("conv1", nn.Conv2d(3, 64, 7, 2, 3, bias=False)),
        ("bn_conv1", nn.BatchNorm2d(64)),
        ("conv1_relu", nn.ReLU(inplace=True)),
        ("pool1", nn.MaxPool2d(3, 2, padding=1)),
    ]
    channels = 64
    for stage, (count, width) in enumerate(zip(_STAGES[depth], _WIDTHS, strict=True), start=2):
        for index in range(count):
            stride = 2 if index == 0 and stage > 2 else 1
            name = _block_name(depth, stage, index)
            parts.append((name, Bottleneck(name, channels, width, stride)))
            channels = width * _EXPANSION
    parts += [("pool5", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()), ("fc1000", nn.Linear(channels, 1000))]
    return chain(parts)


_PAPER = "He et al., Deep Residual Learning for Image Recognition, arXiv:1512.03385 (2015), table 1"

NETWORKS = {
    f"resnet{depth}{suffix}": Network(
        f"resnet{depth}{suffix}", f"{_PAPER}; {note}", (3, 224, 224), partial(build, depth, stride_on_3x3)
    )
    for depth in _STAGES
    for suffix, stride_on_3x3, note in (
        ("", False, "v1: stride on the first 1×1 of a down-sampling block"),
        ("_v1.5", True, "v1.5: stride on its 3×3"),
    )
}
