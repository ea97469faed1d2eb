"""What recording costs a ResNet-50 training step on a GPU: plain, under the collector, under torch.profiler, in turn.

Needs a CUDA device; has not been run on one yet. The goal is under 2 % for the collector.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

import curvescope
from curvescope.profiling.networks import get_network

_BATCH = 32
_STEPS = 20
_ROUNDS = 10


def main() -> None:
    """Print median step times and the ratio of each round to the plain one beside it."""
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing measured")
        return
    model = get_network("resnet50").build().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(_BATCH, 3, 224, 224, device="cuda")
    y = torch.randint(1000, (_BATCH,), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    def step_ms(watch: AbstractContextManager[object]) -> float:
        with watch:
            step()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(_STEPS):
                step()
            torch.cuda.synchronize()
            return (time.perf_counter() - began) / _STEPS * 1e3

    with tempfile.TemporaryDirectory() as folder:
        number = iter(range(_ROUNDS + 1))
        ways: dict[str, Callable[[], AbstractContextManager[object]]] = {
            "plain": nullcontext,
            "curvescope.record": lambda: curvescope.record(f"{folder}/{next(number)}"),
            "torch.profiler": lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]),
        }
        for _ in range(5):
            step()
        rounds = [{name: step_ms(way()) for name, way in ways.items()} for _ in range(_ROUNDS)]
    for name in ways:
        times = [times[name] for times in rounds]
        ratios = [times[name] / times["plain"] for times in rounds]
        print(f"{name:<18} {statistics.median(times):8.2f} ms  ratio {statistics.median(ratios):.3f}, n {_ROUNDS}")


if __name__ == "__main__":
    main()
