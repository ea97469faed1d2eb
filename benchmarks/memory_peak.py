"""Compares the peak memory that Curvescope adds up by layer with the peak that the allocator itself counts.

Each number is of a process of its own. The allocator's is of a plain program: torch's profiler counts from before the
model is made, and nothing of Curvescope runs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

BATCHES = (2, 8)
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


STEPS = {step.__name__: step for step in (alexnet, transformer, lstm, graph, inference)}  # what makes the peak differs


def allocators_peak(name: str, batch: int) -> int:
    """Bytes at the peak of a step, counted by the allocator from the start of the process."""
    from torch.autograd.profiler import profile, record_function

    with profile(use_device=None, profile_memory=True) as profiler:
        step = STEPS[name](batch)
        step()
        step()
        with record_function("last"):
            step()
    events = list(_events(profiler.kineto_results.experimental_event_tree()))
    (last,) = (event for event in events if event.name == "last")
    totals = [
        event.extra_fields.total_allocated
        for event in events
        if event.tag.name == "Allocation" and last.start_time_ns <= event.start_time_ns <= last.end_time_ns
    ]
    return int(max(totals))


def _events(roots: list[Any]) -> Iterator[Any]:
    for event in roots:
        yield event
        yield from _events(event.children)


def added_up(name: str, batch: int) -> int:
    """Bytes at the peak of a step as the sum of the rows that Curvescope records."""
    from curvescope.profiling.measure.visit import discard_steps, record_step
    from curvescope.profiling.workload.own_step import OwnStep

    workload = OwnStep(STEPS[name], "cpu")
    discard_steps(workload, batch, 2)
    rows = [record_step(workload, watch=True, samples=False, memory=True) for _ in range(2)][-1].peak
    return sum(row["bytes"] for row in rows)


def main() -> None:
    if len(sys.argv) > 1:
        function, name, batch = sys.argv[1:]
        print(globals()[function](name, int(batch)))
        return

    print(f"{'step':12} batch  allocator's MB  added up MB  difference")
    for step in STEPS:
        for batch in BATCHES:
            own, ours = (_in_process(function, step, batch) for function in (allocators_peak, added_up))
            print(f"{step:12} {batch:5} {own / 1e6:15.3f} {ours / 1e6:12.3f} {ours / own - 1:+11.3%}")


def _in_process(function: Any, *arguments: object) -> int:
    command = [sys.executable, str(Path(__file__)), function.__name__, *map(str, arguments)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


if __name__ == "__main__":
    main()
