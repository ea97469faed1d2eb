"""Our timings of problems against triton.testing.do_bench's, in the same process, in turn; a row
each.

Arguments: number of problems, the most telling first; file of the rows. Not run on any GPU yet. The
goal: within 2 % where do_bench takes over 0.3 ms. Shorter kernels are not judged: do_bench zeroes a
buffer before each run, and leaves up to an L2 of changed lines, which the kernel pays for; our
flush ends with a pass that reads.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

import scripts

from curvescope.kernels.backends import open_backend
from curvescope.kernels.conv import Conv
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import BenchMeasurement, Method
from curvescope.kernels.problem import Problem

_ROUNDS = 5
_GOAL = 0.02

_JUDGED_MS = 0.3  # the least duration at which changed lines of an L2 of 50 MB are a few per cent

PROBLEMS: tuple[Problem, ...] = (
    Gemm(4096, 4096, 4096),
    Conv(128, 512, 14, 14, 512, 3, 3, padding=(1, 1)),
    Gemm(4096, 16, 4096),  # waits for memory, and reads 67 MB
    *(Gemm(n, n, n) for n in (8192, 2048, 1024, 512)),
    Conv(32, 64, 56, 56, 64, 3, 3, padding=(1, 1)),
    Conv(64, 256, 28, 28, 512, 1, 1),
    Conv(16, 3, 224, 224, 64, 7, 7, stride=(2, 2), padding=(3, 3)),
)


def main() -> int:
    from triton.testing import do_bench  # pyright: ignore[reportMissingImports]

    count, path = sys.argv[1:]
    backend = open_backend("torch", "cuda:0")
    method = Method(cache="cold", visits=(_ROUNDS, _ROUNDS), verify=not scripts.on_virtual_card())
    for problem in PROBLEMS[: int(count)]:
        measurement = BenchMeasurement(problem)
        prepared = measurement.prepare(backend, method)
        if prepared is None:
            assert measurement.verification is not None
            scripts.add_row(
                path, {"problem": problem.label, "outcome": measurement.verification.outcome}
            )
            continue
        pairs = []
        for _ in range(_ROUNDS):
            ours_ms = (
                statistics.median(s.duration_ns for s in measurement.take(backend, method)) / 1e6
            )
            pairs.append(
                (ours_ms, float(do_bench(prepared.run, return_mode="median")) / prepared.inner)
            )
        scripts.add_row(path, row(problem.label, pairs))
    return 0


def row(label: str, pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The figures of a problem, from our milliseconds and do_bench's of each round."""
    ratios = [ours / theirs for ours, theirs in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    ours_ms, theirs_ms = (statistics.median(column) for column in zip(*pairs, strict=True))
    judged = theirs_ms >= _JUDGED_MS
    return {
        "problem": label,
        "outcome": ("within 2 %" if abs(middle - 1) <= _GOAL else "beyond 2 %")
        if judged
        else "too short to judge",
        "ours_ms": ours_ms,
        "do_bench_ms": theirs_ms,
        "ratio": middle,
        "low_ratio": low,
        "high_ratio": high,
        "n": len(ratios),
    }


if __name__ == "__main__":
    scripts.run(main)
