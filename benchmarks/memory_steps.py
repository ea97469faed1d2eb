"""Five steps whose peak memory `memory_peak.py` adds up by layer; what makes the peak differs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Step = Callable[[], object]


def _training(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> Step:
    def step() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.item()

    step.module = model  # type: ignore[attr-defined]
    return step


def alexnet(batch: int) -> Step:
    """AlexNet with plain gradient descent: parameters make most of it."""
    from curvescope.profiling.workload.networks import get_network

    model = get_network("alexnet").build()
    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    return _training(model, optimizer, lambda: nn.functional.cross_entropy(model(images), labels))


def transformer(batch: int) -> Step:
    """An encoder with AdamW."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    model = nn.Sequential(nn.Embedding(5000, 128), nn.TransformerEncoder(layer, 4), nn.Linear(128, 5000))
    tokens = torch.randint(5000, (batch, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    return _training(
        model, optimizer, lambda: nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    )


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 10)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(sequence)[0][:, -1])  # type: ignore[no-any-return]


def lstm(batch: int) -> Step:
    """Two layers of an LSTM over 100 steps: activations make most of it."""
    model = _Recurrent()
    sequence, labels = torch.randn(batch, 100, 64), torch.randint(10, (batch,))
    optimizer = torch.optim.Adam(model.parameters())
    return _training(model, optimizer, lambda: nn.functional.cross_entropy(model(sequence), labels))


class _Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 16)

    def forward(self, nodes: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.second):
            sent = layer(nodes)[source]
            nodes = torch.zeros(len(nodes), sent.shape[1]).index_add(0, target, sent).relu()
        return nodes


def graph(batch: int) -> Step:
    """Two graph convolutions, `batch` graphs of 500 nodes and 4,000 edges: messages are gathered and scattered."""
    model = _Graph()
    nodes, edges = torch.randn(500 * batch, 32), torch.randint(500 * batch, (2, 4000 * batch))
    optimizer = torch.optim.Adam(model.parameters())
    return _training(model, optimizer, lambda: model(nodes, *edges).square().mean())


def inference(batch: int) -> Step:
    """Forward of a residual network without gradients: the peak is of few tensors inside a block."""
    from curvescope.profiling.workload.networks import get_network

    model = get_network("resnet50").build().eval()
    images = torch.randn(batch, 3, 128, 128)

    def step() -> object:
        with torch.inference_mode():
            return model(images)

    step.module = model  # type: ignore[attr-defined]
    return step


STEPS = (alexnet, transformer, lstm, graph, inference)
