"""Run training steps of a network in NVTX ranges, for profiling with an external profiler.

Ranges mark every step, phase and layer for Nsight Systems, Nsight Compute and `curvescope record`,
e.g.

    curvescope record -- curvescope step vgg_a --batch 64
    nsys profile -t cuda,nvtx curvescope step vgg_a --batch 64

The printed times include the cost of the ranges and of the profiler.
"""

from __future__ import annotations

import argparse

from .. import options
from ..base.errors import CurvescopeError
from ..base.torch_runtime import pick_device
from ..parsers import group
from ..profiling.measure.axes import Axes
from ..profiling.measure.protocol import parse_batches
from ..profiling.recording.axis import BATCH


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, *options.NETWORK)
    options.add(
        parser, "--batch", default="32", help="batch sizes, one after the other (default: 32)"
    )
    how = group(parser, options.HOW)
    how.add_argument(
        "--steps", type=int, default=3, help="number of steps of each size in ranges (default: 3)"
    )
    how.add_argument(
        "--warm-up",
        type=int,
        default=3,
        metavar="N",
        help="number of steps before them, outside ranges (default: 3)",
    )


def run(args: argparse.Namespace) -> int:
    if args.steps < 1 or args.warm_up < 0:
        raise CurvescopeError("--steps must be at least 1, --warm-up at least 0.")
    axes = Axes(BATCH, parse_batches(args.batch))
    configuration = options.configuration_of(args, axes, pick_device(args.device))
    workload = configuration.build(find_device=args.device is None)
    for batch in axes.values:
        workload.try_step(batch)
        for _ in range(args.warm_up):
            workload.time_step()
        for number, duration_ns in enumerate(workload.run_annotated(args.steps), 1):
            print(f"batch {batch}, step {number}: {duration_ns / 1e6:.3f} ms, including ranges")
    return 0
