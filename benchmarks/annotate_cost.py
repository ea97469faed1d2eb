"""What `curvescope.annotate` costs with no tool listening: a chain of trivial layers, with and
without it, in turn.

The figure with a tool listening is the collector's to give; a range then costs what the tool's push
and pop cost.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

import curvescope

_LAYERS = 200
_PAIRS = 30


def seconds(model: nn.Module, x: torch.Tensor) -> float:
    began = time.perf_counter()
    model(x).sum().backward()
    return time.perf_counter() - began


def main() -> None:
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Hardtanh() for _ in range(_LAYERS)))
    x = torch.zeros(4, requires_grad=True)
    seconds(model, x)
    plain, marked = [], []
    for _ in range(_PAIRS):
        plain.append(seconds(model, x))
        with curvescope.annotate(model):
            seconds(model, x)
            marked.append(seconds(model, x))
    costs_us = [(b - a) / _LAYERS * 1e6 for a, b in zip(plain, marked, strict=True)]
    low, middle, high = statistics.quantiles(costs_us, n=4)
    ratio = statistics.median(b / a for a, b in zip(plain, marked, strict=True))
    print(
        f"per layer, forward and backward range: {middle:.1f} us ({low:.1f} … {high:.1f}), n "
        f"{_PAIRS}"
    )
    print(f"ratio of the passes (layers that do almost nothing): {ratio:.2f}")


if __name__ == "__main__":
    main()
