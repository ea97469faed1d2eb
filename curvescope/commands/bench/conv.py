"""Convolutions alone: forward, backward to the data, backward to the weights.

Axes: n (the batch), c, h, w, k (filters), r, s (filter height and width), stride, padding, dilation (one number, or
height and width as 2x1), groups, direction (fwd, bwd_data, bwd_weights), layout (nchw, nhwc). The default is VGG's
conv3_1 at batch 8. `--from vgg_a --batch 1..64` measures the layers of a network, `--set deepbench` DeepBench's
training convolutions.
"""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measuring.add_problems(parser)
    measuring.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ...kernels.conv import Conv

    base = Conv(8, 128, 56, 56, 256, 3, 3, padding=(1, 1))
    return measuring.measure(args, "conv", measuring.problems_of(args, base))
