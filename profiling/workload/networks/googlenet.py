"""GoogLeNet (Inception v1) and Inception-BN (batch-normalised, 5×5 replaced by two 3×3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import Network

if TYPE_CHECKING:
    from torch import nn

# 1×1, 3×3 reduce, 3×3, 5×5 reduce, 5×5, pool projection
_GOOGLENET = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}

# 1×1, 3×3 reduce, 3×3, double 3×3 reduce, double 3×3, pool, pool projection; 0 means none, and stride 2
_INCEPTION_BN = {
    "3a": (64, 64, 64, 64, 96, "avg", 32),
    "3b": (64, 64, 96, 64, 96, "avg", 64),
    "3c": (0, 128, 160, 64, 96, "max", 0),
    "4a": (224, 64, 96, 96, 128, "avg", 128),
    "4b": (192, 96, 128, 96, 128, "avg", 128),
    "4c": (160, 128, 160, 128, 160, "avg", 128),
    "4d": (96, 128, 192, 160, 192, "avg", 128),
    "4e": (0, 128, 192, 192, 256, "max", 0),
    "5a": (352, 192, 320, 160, 224, "avg", 128),
    "5b": (352, 192, 320, 192, 224, "max", 128),
}


def build_googlenet() -> nn.Module:
    """6,998,552 parameters, without the two auxiliary classifiers."""
    from torch import nn

    from .blocks import Branches, ConvolutionUnit, chain, units

    def inception(channels: int, row: tuple[int, ...]) -> nn.Module:
        one, three_reduce, three, five_reduce, five, projection = row
        return Branches(
            {
                "1x1": ConvolutionUnit(channels, one, 1),
                "3x3": units(channels, [("reduce", three_reduce, 1), ("3x3", three, 3, 1, 1)]),
                "5x5": units(channels, [("reduce", five_reduce, 1), ("5x5", five, 5, 1, 2)]),
                "pool": chain(
                    [("pool", nn.MaxPool2d(3, 1, padding=1)), ("proj", ConvolutionUnit(channels, projection, 1))]
                ),
            }
        )

    parts: list[tuple[str, nn.Module]] = [
        ("conv1", ConvolutionUnit(3, 64, 7, 2, 3)),
        ("pool1", nn.MaxPool2d(3, 2, ceil_mode=True)),
        ("norm1", nn.LocalResponseNorm(5)),
        ("conv2_reduce", ConvolutionUnit(64, 64, 1)),
        ("conv2", ConvolutionUnit(64, 192, 3, padding=1)),
        ("norm2", nn.LocalResponseNorm(5)),
        ("pool2", nn.MaxPool2d(3, 2, ceil_mode=True)),
    ]
    channels = 192
    for name, row in _GOOGLENET.items():
        parts.append((f"inception_{name}", inception(channels, row)))
        channels = row[0] + row[2] + row[4] + row[5]
        if name in ("3b", "4e"):
            parts.append((f"pool{name[0]}", nn.MaxPool2d(3, 2, ceil_mode=True)))
    parts += _classifier(channels, 0.4)
    return chain(parts)


def build_inception_bn() -> nn.Module:
    """Inception-BN like its reference implementations; parameters include scale and shift of batch normalisation."""
    from torch import nn

    from .blocks import Branches, ConvolutionUnit, chain, units

    epsilon = 1e-5

    def unit(channels: int, width: int, size: int, stride: int = 1, padding: int = 0) -> nn.Module:
        return ConvolutionUnit(channels, width, size, stride, padding, epsilon=epsilon)

    def inception(channels: int, row: tuple[Any, ...]) -> nn.Module:
        one, three_reduce, three, double_reduce, double, pool, projection = row
        stride = 1 if projection else 2
        branches: dict[str, nn.Module] = {}
        if one:
            branches["1x1"] = unit(channels, one, 1)
        branches["3x3"] = units(channels, [("reduce", three_reduce, 1), ("3x3", three, 3, stride, 1)], epsilon)
        rows = [("reduce", double_reduce, 1), ("3x3_1", double, 3, 1, 1), ("3x3_2", double, 3, stride, 1)]
        branches["double_3x3"] = units(channels, rows, epsilon)
        pooling = nn.AvgPool2d if pool == "avg" else nn.MaxPool2d
        parts: list[tuple[str, nn.Module]] = [("pool", pooling(3, stride, padding=1))]
        if projection:
            parts.append(("proj", unit(channels, projection, 1)))
        branches["pool"] = chain(parts)
        return Branches(branches)

    parts: list[tuple[str, nn.Module]] = [
        ("conv1", unit(3, 64, 7, 2, 3)),
        ("pool1", nn.MaxPool2d(3, 2, padding=1)),
        ("conv2_reduce", unit(64, 64, 1)),
        ("conv2", unit(64, 192, 3, padding=1)),
        ("pool2", nn.MaxPool2d(3, 2, padding=1)),
    ]
    channels = 192
    for name, row in _INCEPTION_BN.items():
        parts.append((f"inception_{name}", inception(channels, row)))
        one, _, three, _, double, _, projection = row
        channels = one + three + double + (projection or channels)
    parts += _classifier(channels, None)
    return chain(parts)


def _classifier(channels: int, dropout: float | None) -> list[tuple[str, nn.Module]]:
    from torch import nn

    parts: list[tuple[str, nn.Module]] = [("pool5", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten())]
    if dropout is not None:
        parts.append(("dropout", nn.Dropout(dropout)))
    parts.append(("fc", nn.Linear(channels, 1000)))
    return parts


NETWORKS = {
    "googlenet": Network(
        "googlenet",
        "Szegedy et al., Going Deeper with Convolutions, arXiv:1409.4842 (2014), table 1, no auxiliary classifiers",
        (3, 224, 224),
        build_googlenet,
    ),
    "inception_bn": Network(
        "inception_bn",
        "Ioffe and Szegedy, Batch Normalization, arXiv:1502.03167 (2015), appendix; pool projections of 4c and 4d are "
        "128 wide, as in the benchmarked implementations",
        (3, 224, 224),
        build_inception_bn,
    ),
}
