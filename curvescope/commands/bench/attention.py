"""Scaled dot-product attention alone: softmax(Q Kᵀ / √size) V of shape (batch, heads, length, size), and its gradients.

Axes: batch, heads, length, size (of a head), algorithm (flash, efficient, cudnn, math), causal (0, 1), direction (fwd,
bwd: the gradients of all three). Each algorithm is called itself, so that none takes the place of another; a device
that lacks one says so. `--axis length=128..4096` is a cost curve over the length.
"""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measuring.add_axes(parser, "bf16", "fp64, fp32, tf32, fp16 or bf16")
    measuring.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ...kernels.attention import ALGORITHMS, Attention
    from ...kernels.sweeps import span

    axes = measuring.with_all(args.axis, "algorithm", ALGORITHMS)
    return measuring.measure(args, "attention", span(Attention(8, 16, 1024, 64), axes, args.precision, "batch"))
