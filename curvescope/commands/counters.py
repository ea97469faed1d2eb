"""Measure memory traffic, executed FLOPs, tensor-pipe use and cycles of a recording's kernels, on
its GPU.

Runs steps of each profiled batch size again and counts their kernels: in the process itself by
CUPTI, which repeats the step, or else under Nsight Compute (ncu), which repeats every kernel of one
step. Clocks stay as they are, and no caches are flushed. The counts are joined to the recording's
kernels by order, name and geometry and added to the recording: `breakdown`, `roofline` and
`explain` use them. Each call continues with the batch sizes that have no counters yet.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .. import options
from ..analysis.render import terminal
from ..base.counted import counted
from ..profiling.measure.protocol import parse_batches

if TYPE_CHECKING:
    from ..profiling.measure.counters import Counted

_NAMES = {"cupti": "CUPTI", "ncu": "Nsight Compute"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "recording", "--run-its-code")
    parser.add_argument(
        "--batch", metavar="SIZES", help="batch sizes, e.g. 8,32 (default: all that were profiled)"
    )
    parser.add_argument(
        "--with",
        dest="tool",
        choices=("cupti", "ncu"),
        help="tool that counts: CUPTI (CUDA 12.6 and newer) or Nsight Compute (default: CUPTI, or "
        "ncu if that cannot)",
    )


def run(args: argparse.Namespace) -> int:
    from ..profiling.measure.counters import count_kernels

    batches = None if args.batch is None else parse_batches(args.batch)
    messages = terminal.console(stderr=True)

    def report(line: str) -> None:
        messages.print(line, style="dim")

    for done in count_kernels(args.recording, batches, report, args.tool, args.run_its_code):
        print(_describe_counts(done))
    print(f"Next:\n  curvescope breakdown {args.recording}\n  curvescope roofline {args.recording}")
    return 0


def _describe_counts(done: Counted) -> str:
    """The counted and joined kernels of one batch size, in one line."""
    by = "order and name (the recording has no geometry)"
    if done.by_geometry:
        by = "order, name and geometry"
    unused = ""
    if done.unused:
        joins = counted(done.unused, "counted kernel joins", "counted kernels join")
        unused = f"; {joins} none"
    kernels, steps = counted(done.kernels, "kernel"), counted(done.steps, "step")
    recorded = counted(done.recorded, "recorded kernel")
    return (
        f"Batch {done.batch}: {kernels} of a step counted by {_NAMES[done.tool]}; {done.joined} of "
        f"{recorded} in {steps} joined by {by}{unused}."
    )
