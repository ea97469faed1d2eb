"""Matrix products alone: C (m x n) = op(A) (m x k) · op(B) (k x n), column-major as in BLAS.

Axes: m, n, k, transpose (NN, NT, TN, TT). `--axis n=1,2,4..256` is a cost curve over n, which `curvescope explain`
reads: n is the batch size of a fully connected layer. `--from vgg_a --batch 1..64` measures the fully connected layers
of a network, `--set deepbench` DeepBench's training products.
"""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measuring.add_problems(parser)
    measuring.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ...kernels.gemm import Gemm

    return measuring.measure(args, "gemm", measuring.problems_of(args, Gemm(2048, 2048, 2048)))
