"""What each instrument costs a step on a CPU: marks, the profiler, MKL's log, and watching (page
faults and lines).

All run in turn in every round. A time is the mean of the faster half, as T; the cost is its ratio
to the unprofiled steps', with the quartiles of the ratios of the rounds. Marks leave out their own
work, so they have two ratios: of the wall time, and of the time that they give to layers and
phases.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from curvescope.profiling.attribution.step_pattern import faster_half
from curvescope.profiling.collect.marks import Marks
from curvescope.profiling.measure.visit import record_step, warm_up_profiler
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network
from curvescope.profiling.workload.own_step import OwnStep

_ROUNDS = 20


class Small(nn.Module):
    """Ten small operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = (x + 1.0) * 0.5
        return x


def own(model: nn.Module, x: torch.Tensor, train: bool) -> OwnStep:
    def step() -> None:
        with torch.inference_mode(not train):
            y = model(x)
        if train:
            y.pow(2).mean().backward()

    step.module = model  # type: ignore[attr-defined]
    return OwnStep(lambda _: step)


def steps() -> dict[str, OwnStep | Workload]:
    blocks = [
        nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0, norm_first=True)
        for _ in range(6)
    ]
    return {
        "300 operators of 5 µs in 30 layers, inference": own(
            nn.Sequential(*(Small() for _ in range(30))), torch.randn(4000), train=False
        ),
        "encoder of 6 blocks, batch 8, training": own(
            nn.Sequential(*blocks), torch.randn(8, 64, 64), train=True
        ),
        "AlexNet, batch 8, training": Workload(get_network("alexnet")),
    }


def wall_ms(run: Callable[[], object]) -> float:
    began_ns = time.monotonic_ns()
    run()
    return (time.monotonic_ns() - began_ns) / 1e6


def measure(workload: OwnStep | Workload) -> dict[str, np.ndarray]:
    """Times of each instrument, ms, shape (rounds,): of three steps in each round the mean."""
    workload.load(8)
    warm_up_profiler(workload)
    times: dict[str, list[float]] = {}

    def note(name: str, value: Callable[[], float]) -> None:
        value()  # the first step after another instrument runs colder
        times.setdefault(name, []).append(float(np.mean([value() for _ in range(3)])))

    for _ in range(_ROUNDS):
        note("unprofiled", lambda: workload.time_step()[1] / 1e6)
        with Marks().installed(workload.layers()) as marks:
            note("marked, wall time", lambda: wall_ms(lambda: marks.run(workload.run)))
            note(
                "marked, time by place",
                lambda: sum(row["duration_ns"] for row in marks.run(workload.run)) / 1e6,
            )
        note("profiled", lambda: record_step(workload).windows[0][1] / 1e6)
        named = workload.first_profiled.pop(8)
        note("profiled, MKL's log on", lambda: record_step(workload).windows[0][1] / 1e6)
        note("profiled and watched", lambda: record_step(workload, watch=True).windows[0][1] / 1e6)
        workload.first_profiled[8] = named
    return {name: np.array(values) for name, values in times.items()}


def main() -> None:
    for name, workload in steps().items():
        times = measure(workload)
        plain = times["unprofiled"]
        print(f"{name}: {faster_half(plain):.3f} ms unprofiled, n {_ROUNDS} rounds of 3 steps each")
        for instrument, values in times.items():
            low, high = np.percentile(values / plain, [25, 75])
            print(
                f"  {instrument:30s} {faster_half(values) / faster_half(plain):6.2f} ({low:.2f} … "
                f"{high:.2f})"
            )


if __name__ == "__main__":
    main()
