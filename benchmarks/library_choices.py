"""Products and convolutions of real networks whose neighbouring sizes take another time than their
work says: the map of `bench --around` beside loops of torch alone.

    python -m benchmarks.library_choices

measures the rows of `CHOICES` in this process on one thread, and writes
benchmarks/results/library_choices.jsonl: for each row the ratio of both sizes by the map, with its
interval, and by a plain loop that visits both by turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from curvescope.analysis.choices import read_map
from curvescope.kernels.backends.pytorch import TorchBackend
from curvescope.kernels.conv import Conv
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import Method
from curvescope.kernels.runner import run_sweep
from curvescope.kernels.sweeps import Around, along
from curvescope.profiling.hardware.host import describe_environment

RESULT = Path(__file__).parent / "results" / "library_choices.jsonl"
ROUNDS, LOOP_S = 25, 0.01  # of the plain loop


@dataclasses.dataclass(frozen=True)
class Choice:
    """A problem, and the neighbour that takes another time than its work says."""

    network: str
    layer: str
    problem: Gemm | Conv  # at the size of the step
    axis: str
    neighbour: int


CHOICES = (
    Choice("LeNet-5", "last layer, 10 classes", Gemm(10, 64, 84, "TN"), "m", 16),
    Choice("ResNet-18", "last layer, 10 classes", Gemm(10, 64, 512, "TN"), "m", 16),
    Choice("Deep Speech", "last layer, 29 letters", Gemm(29, 64, 1024, "TN"), "m", 32),
    Choice("BERT", "last layer, 9 classes of a name", Gemm(9, 128, 768, "TN"), "m", 16),
    Choice("FCN", "last layer, 19 classes", Conv(1, 512, 64, 64, 19, 1, 1), "k", 24),
    Choice("U-Net", "last layer, 3 classes", Conv(1, 64, 128, 128, 3, 1, 1), "k", 4),
    Choice("AlexNet", "fc8 to its data", Gemm(4096, 4, 1000, "NN"), "n", 3),
    Choice("ResNet-50", "fc to its data", Gemm(2048, 4, 1000, "NN"), "n", 3),
)


def run_alone(problem: Gemm | Conv) -> Callable[[], object]:
    """The problem as a user writes it in torch, on operands of its own."""
    torch.manual_seed(0)
    if isinstance(problem, Conv):
        image, weights = torch.randn(problem.image_shape), torch.randn(problem.weights_shape)
        geometry = (problem.stride, problem.padding, problem.dilation, problem.groups)
        return lambda: torch.nn.functional.conv2d(image, weights, None, *geometry)
    dtype = torch.bfloat16 if problem.precision == "bf16" else torch.float32
    rows = torch.randn(problem.n, problem.k, dtype=dtype)
    if problem.transpose == "TN":
        weights = torch.randn(problem.m, problem.k, dtype=dtype)
        return lambda: torch.nn.functional.linear(rows, weights)
    if problem.transpose == "NN":
        matrix = torch.randn(problem.k, problem.m, dtype=dtype)
        return lambda: rows @ matrix
    gradient = torch.randn(problem.k, problem.n, dtype=dtype)
    inputs = torch.randn(problem.k, problem.m, dtype=dtype)
    return lambda: gradient.t() @ inputs


def time_by_turns(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Medians of a call of each, ns, from a plain loop that visits both by turns."""
    runs = (first, second)
    calls = []
    for run in runs:
        run()
        began = time.perf_counter()
        run()
        calls.append(max(1, round(LOOP_S / (time.perf_counter() - began))))
    times_ns: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for run, count, listed in zip(runs, calls, times_ns, strict=True):
            began_ns = time.perf_counter_ns()
            for _ in range(count):
                run()
            listed.append((time.perf_counter_ns() - began_ns) / count)
    return statistics.median(times_ns[0]), statistics.median(times_ns[1])


def measure(choice: Choice) -> dict[str, Any]:
    """One row: by the map, and by the plain loop in the same process."""
    size = getattr(choice.problem, choice.axis)
    problems = {
        each: dataclasses.replace(choice.problem, **{choice.axis: each})
        for each in (size, choice.neighbour)
    }
    sweep = dataclasses.replace(along(choice.axis, problems), around=Around(size, 1))
    backend = TorchBackend(torch, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        method = Method(cache="hot", time_limit_s=4.0, visits=(12, 60))
        run_sweep(sweep, backend, method, Path(folder, "r"))
        (mapped,) = read_map([Path(folder, "r")])
    there = mapped.at(choice.neighbour)
    assert there.change is not None
    own_ns, other_ns = time_by_turns(*(run_alone(problems[each]) for each in problems))
    low, high = there.change.bounds_of_growth
    return {
        "network": choice.network,
        "layer": choice.layer,
        "problem": choice.problem.label,
        "axis": choice.axis,
        "size": size,
        "neighbour": choice.neighbour,
        "time_us": 1e3 * mapped.at(size).time_ms,
        "neighbour_us": 1e3 * there.time_ms,
        "n": [mapped.at(size).n, there.n],
        "change": there.change.growth,
        "low": low,
        "high": high,
        "plain_us": [own_ns / 1e3, other_ns / 1e3],
        "plain_change": other_ns / own_ns - 1,
    }


def main() -> None:
    """Measure all rows, and write them."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    environment = describe_environment()
    lines = []
    for choice in CHOICES:
        row = measure(choice)
        print(json.dumps(row))
        lines.append({**row, "threads": 1, "torch": torch.__version__, "host": environment["host"]})
    RESULT.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
