"""Matrix products alone: C (m x n) = op(A) (m x k) · op(B) (k x n), column-major as in BLAS.

`curvescope bench gemm --axis n=1,2,4..256 --axis m=4096 --axis k=4096` is a cost curve over n, which `curvescope
explain` reads: n is the batch of a fully connected layer. Axes: m, n, k, transpose (NN, NT, TN, TT).
"""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's arguments."""
    measuring.add_axes(parser)
    measuring.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, record and print."""
    from ...kernels.gemm import Gemm
    from ...kernels.sweeps import span

    return measuring.measure(args, "gemm", span(Gemm(2048, 2048, 2048), args.axis, args.precision))
