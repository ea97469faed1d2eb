"""Our timings of ten problems against triton.testing.do_bench's, in the same process, in turn; ratios as Markdown.

Not run on any GPU yet. The goal: within 2 %.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import scripts

from curvescope.kernels.backends import open_backend
from curvescope.kernels.conv import Conv
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import BenchMeasurement, Method
from curvescope.kernels.problem import Problem

_ROUNDS = 5

PROBLEMS: tuple[Problem, ...] = (
    *(Gemm(n, n, n) for n in (512, 1024, 2048, 4096, 8192)),
    Gemm(4096, 16, 4096),
    Conv(32, 64, 56, 56, 64, 3, 3, padding=(1, 1)),
    Conv(64, 256, 28, 28, 512, 1, 1),
    Conv(16, 3, 224, 224, 64, 7, 7, stride=(2, 2), padding=(3, 3)),
    Conv(128, 512, 14, 14, 512, 3, 3, padding=(1, 1)),
)


def main() -> int:
    from triton.testing import do_bench  # pyright: ignore[reportMissingImports]

    backend = open_backend("torch", "cuda:0")
    method = Method(cache="cold", visits=(_ROUNDS, _ROUNDS))
    lines = ["| problem | ours ms | do_bench ms | ratio | quartiles of the ratio | n |", "| --- " + "| ---: " * 5 + "|"]
    for problem in PROBLEMS:
        measurement = BenchMeasurement(problem)
        prepared = measurement.prepare(backend, method)
        if prepared is None:
            assert measurement.verification is not None
            lines.append(f"| {problem.label} | {measurement.verification.outcome} | | | | |")
            continue
        pairs = []
        for _ in range(_ROUNDS):
            ours_ms = statistics.median(s.duration_ns for s in measurement.visit(backend, method)) / 1e6
            pairs.append((ours_ms, float(do_bench(prepared.run, return_mode="median")) / prepared.inner))
        ratios = [ours / theirs for ours, theirs in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4)
        ours_ms, theirs_ms = (statistics.median(column) for column in zip(*pairs, strict=True))
        lines.append(
            f"| {problem.label} | {ours_ms:.4f} | {theirs_ms:.4f} | {middle:.3f} | {low:.3f} … {high:.3f} | {_ROUNDS} |"
        )
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    scripts.run(main)
