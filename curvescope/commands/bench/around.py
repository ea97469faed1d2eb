"""`bench gemm --around` and `bench conv --around`: a recorded step's problems among their
neighbouring sizes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analysis.render import terminal
from ...base.arguments import parse_share
from ...base.errors import CurvescopeError
from ...parsers import refuse_given
from . import candidates, measuring

if TYPE_CHECKING:
    from ...experiments.around import StepProblems
    from ...kernels.backends import Backend

_SHARE = "95%"


def run(args: argparse.Namespace, what: str, backend: Backend) -> int:
    """Measure, and print the map, or the candidates of each problem; returns the exit code."""
    listed = _list_problems(args, what)
    left_out = listed.describe_rest()
    sweeps = [problem.sweep() for problem in listed.kept]
    if not sweeps:
        reasons = "; ".join(left_out) or f"its step has no problem of `bench {what}`."
        raise CurvescopeError(f"{args.around} gives nothing to measure: {reasons}")
    if getattr(args, "candidates", False):
        return candidates.run(args, sweeps)

    def show(args: argparse.Namespace, measured: Sequence[measuring.MeasuredSweep]) -> int:
        _show(args, measured, left_out)
        return measuring.exit_code(measured)

    return measuring.measure_and_show(args, what, [(backend, sweep) for sweep in sweeps], show)


def _list_problems(args: argparse.Namespace, what: str) -> StepProblems:
    from ...experiments.around import list_problems
    from ...kernels.conv import Conv
    from ...kernels.gemm import Gemm
    from ...profiling.measure.protocol import parse_batches
    from ...profiling.recording.store import open_recording

    refuse_given(args, "--around takes the precision of the recording", "--precision")
    batch = None
    if args.batch is not None:
        (batch, *others) = parse_batches(args.batch)
        if others:
            raise CurvescopeError("--around takes one batch size: --batch 64.")
    share = parse_share("--share", args.share or _SHARE, "a share of the time, e.g. 95% or 0.95")
    kind = Gemm if what == "gemm" else Conv
    return list_problems(open_recording(args.around), kind, batch, args.extent, share)


def _show(
    args: argparse.Namespace,
    measured: Sequence[measuring.MeasuredSweep],
    left_out: Sequence[str],
) -> None:
    from ...analysis.choices import read_map
    from ...analysis.render.choices import make_document, render_map

    folder = measuring.path_of(measured)
    problems = read_map([sweep_result.path for sweep_result in measured])
    document = make_document(str(folder), problems, left_out)
    if args.json:
        from ...analysis.render.documents import print_document

        print_document(document)
        return
    console = terminal.console()
    for line in render_map(document):
        console.print(line)
    measuring.print_notes(measured)
    console.print(f"* in the step. {args.cache.capitalize()} caches. Recorded in {folder}.")
