"""Operators over the rows of a matrix: normalisation, softmax, elementwise work and embedding.

Axes: rows, columns, kind (layer_norm, rms_norm, softmax, add, mul, relu, silu, embedding). `--axis kind=softmax --axis
rows=256..65536` is a cost curve over the rows. They move memory: read GB/s, which counts each operand once.
"""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measuring.add_axes(parser, "fp32", "fp64, fp32, fp16 or bf16")
    measuring.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ...kernels.row_operators import KINDS, RowOperator
    from ...kernels.sweeps import span

    axes = measuring.with_all(args.axis, "kind", KINDS)
    return measuring.measure(args, "operators", span(RowOperator(8192, 1024), axes, args.precision, "rows"))
