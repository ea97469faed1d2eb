"""GEMM at 2048³ by our method against a bare torch loop: in turn, so that what else the machine
does touches both.

The goal is a best time within 5 % of the bare loop's. The bare loop is what one writes in a minute:
the same call, a performance counter on either side, no check.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from curvescope.kernels.backends import open_backend
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import BenchMeasurement, Method

_ROUNDS = 12
_CALLS = 6
_PROBLEM = Gemm(2048, 2048, 2048)


def bare_ns(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[int]:
    torch.mm(a, b, out=c)
    durations = []
    for _ in range(_CALLS):
        start = time.perf_counter_ns()
        torch.mm(a, b, out=c)
        durations.append(time.perf_counter_ns() - start)
    return durations


def main() -> None:
    a, b = (torch.from_numpy(array) for array in _PROBLEM.operands(np.random.default_rng(0)))
    c = torch.empty(_PROBLEM.n, _PROBLEM.m)
    backend = open_backend("torch", "cpu")
    method = Method(
        cache="hot", visits=(_ROUNDS, _ROUNDS), visit_s=0.0, samples_per_visit=(_CALLS, _CALLS)
    )
    ours = BenchMeasurement(_PROBLEM)
    bare: list[int] = []
    for _ in range(_ROUNDS):
        ours.visit(backend, method)
        bare += bare_ns(a, b, c)
    assert ours.timed, ours.verification
    durations = ours.durations_ns()
    for name, values in (("ours", durations), ("bare loop", bare)):
        best_ms, median_ms = min(values) / 1e6, statistics.median(values) / 1e6
        print(f"{name:<10} best {best_ms:8.2f} ms, median {median_ms:8.2f} ms, n {len(values)}")
    best, median = (
        min(durations) / min(bare),
        statistics.median(durations) / statistics.median(bare),
    )
    print(
        f"best over best {best:.3f}, median over median {median:.3f}; {torch.get_num_threads()} "
        "threads"
    )
    for note in ours.notes(backend, method):
        print(f"noticed: {note.sentence}")


if __name__ == "__main__":
    main()
