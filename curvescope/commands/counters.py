"""Measure memory traffic, executed FLOPs, tensor-pipe use and cycles of a recording's kernels, on its GPU.

Runs steps of each profiled batch size again and counts their kernels: in the process itself by CUPTI, which repeats the
step, or else under Nsight Compute (ncu), which repeats every kernel of one step. Clocks stay as they are, and no caches
are flushed. The counts are joined to the recording's kernels by order, name and geometry and added to the recording:
`breakdown`, `roofline` and `explain` use them. Each call continues with the batch sizes that have no counters yet.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..base.counted import counted
from ..profiling.recording.remote_store import AnyPath, as_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..profiling.measure.counters import Counted

_NAMES = {"cupti": "CUPTI", "ncu": "Nsight Compute"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=as_path, help="folder or URL of a recording")
    parser.add_argument("--batch", metavar="SIZES", help="batch sizes, e.g. 8,32 (default: all that were profiled)")
    parser.add_argument(
        "--with",
        dest="tool",
        choices=("cupti", "ncu"),
        help="tool that counts: CUPTI (CUDA 12.6 and newer) or Nsight Compute (default: CUPTI, or ncu if that cannot)",
    )


def run(args: argparse.Namespace) -> int:
    from ..profiling.measure.protocol import parse_batches

    count_and_print(args.recording, None if args.batch is None else parse_batches(args.batch), args.tool)
    print(f"Next:\n  curvescope breakdown {args.recording}\n  curvescope roofline {args.recording}")
    return 0


def count_and_print(path: AnyPath, batches: Sequence[int] | None = None, tool: str | None = None) -> None:
    """Count kernels, with a line per batch size on standard error before and on standard output after it.

    Raises:
        CurvescopeError: see `count_kernels`.
    """
    from ..analysis.render import terminal
    from ..profiling.measure.counters import count_kernels

    messages = terminal.console(stderr=True)
    done = count_kernels(path, batches, lambda line: messages.print(line, style="dim", markup=False), tool)
    for one in done:
        print(describe(one))


def describe(done: Counted) -> str:
    """What was counted and joined at one batch size, in one line."""
    by = "order, name and geometry" if done.by_geometry else "order and name (the recording has no geometry)"
    unused = f"; {counted(done.unused, 'counted kernel joins', 'counted kernels join')} none" if done.unused else ""
    return (
        f"Batch {done.batch}: {counted(done.kernels, 'kernel')} of a step counted by {_NAMES[done.tool]}; "
        f"{done.joined} of {counted(done.recorded, 'recorded kernel')} in {counted(done.steps, 'step')} joined by "
        f"{by}{unused}."
    )
