"""OverFeat, the fast model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Network

if TYPE_CHECKING:
    import torch

# Rows for blocks.convolutions; the pools are 2×2 with stride 2.
_CONVOLUTIONS = (
    ("1", 96, 11, 4, 0, True),
    ("2", 256, 5, 1, 0, True),
    ("3", 512, 3, 1, 1, False),
    ("4", 1024, 3, 1, 1, False),
    ("5", 1024, 3, 1, 1, True),
)


def build() -> torch.nn.Module:
    """145,920,872 parameters; the paper says 145 million."""
    from torch import nn

    from .blocks import chain, convolutions

    parts, channels = convolutions(_CONVOLUTIONS, pool=(2, 2))
    parts.append(("flatten", nn.Flatten()))
    for name, inputs, outputs in (("6", channels * 6 * 6, 3072), ("7", 3072, 4096)):
        parts.append((f"fc{name}", nn.Linear(inputs, outputs)))
        parts.append((f"relu{name}", nn.ReLU(inplace=True)))
    parts.append(("fc8", nn.Linear(4096, 1000)))
    return chain(parts)


NETWORKS = {
    "overfeat": Network(
        "overfeat",
        "Sermanet et al., OverFeat, arXiv:1312.6229 (2013), table 1 (fast model), without dropout, as in the published "
        "convolution benchmarks",
        (3, 231, 231),
        build,
    )
}
