"""A user's model with a deliberate slow path: from batch 8 on, `middle` does its work several times
over.
"""

import torch
from torch import nn

_WASTED_PRODUCTS, _EXTENT = 8, 512
WASTED_FLOPS = _WASTED_PRODUCTS * 2 * _EXTENT**3


class _SlowFromEight(torch.autograd.Function):
    """Identity whose backward pass wastes time at batch 8 and above."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if gradient.shape[0] >= 8:
            waste = torch.ones(_EXTENT, _EXTENT)
            for _ in range(_WASTED_PRODUCTS):
                waste = torch.mm(waste, waste).clamp_(max=1.0)
        return gradient


class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        return _SlowFromEight.apply(self.conv(x))


def build():
    layers = {
        "stem": nn.Conv2d(3, 16, 3, padding=1),
        "middle": Middle(),
        "pool": nn.AdaptiveAvgPool2d(4),
        "flatten": nn.Flatten(),
        "head": nn.Linear(256, 10),
    }
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model


def build_plain():
    model = build()
    model.middle = model.middle.conv
    return model
