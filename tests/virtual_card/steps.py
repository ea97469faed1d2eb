"""Steps of the tests on the virtual card, by `--step FILE:NAME`.

Only their kernels count: no result is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def train(net: nn.Module, inputs: Any, *, momentum: float = 0.0) -> Callable[[], None]:
    """A training step of a network on fixed inputs, with its module."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=momentum)

    def step() -> None:
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()

    step.module = net  # type: ignore[attr-defined]
    return step


def linear(batch: int) -> Callable[[], None]:
    """Two products and what is between them."""
    net = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
    return train(net, torch.randn(batch, 2048, device="cuda"))


def small(batch: int) -> Callable[[], None]:
    """Many small kernels: the card waits for the host."""
    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(20)]).cuda()
    return train(net, torch.randn(batch, 64, device="cuda"))


def forward(batch: int) -> Callable[[], object]:
    """Products one after the other, without a backward pass."""
    net = nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)]).cuda()
    x = torch.randn(256 * batch, 256, device="cuda")
    return lambda: net(x)


def convolutions(batch: int) -> Callable[[], None]:
    """Convolutions, batch normalisation and a product: something for each factor to change."""
    net = nn.Sequential(
        *(
            nn.Conv2d(3, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1),
        ),
        *(nn.MaxPool2d(4), nn.Flatten(), nn.Linear(64 * 16 * 16, 256)),
    ).cuda()
    return train(net, torch.randn(batch, 3, 64, 64, device="cuda"), momentum=0.9)
