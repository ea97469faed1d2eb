"""Test by experiment why the anomalies of a recording are there, and what takes them away.

Runs the operators of the anomalies' terms alone, and complete steps, with one factor changed at a
time, and adds the results to the recording. It needs the machine of the recording. `diagnose` does
the same at its end; each call continues where the last one ended, also after a kill. After Ctrl-C
the finished experiments are kept.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .. import options
from ..analysis.render import terminal
from ..base.arguments import (
    CUDA_EXPERIMENTS_S,
    DEFAULT_EXPERIMENTS_S,
    default_experiments_s,
    device_kind,
    duration_text,
)
from ..base.endings import answer_if_interrupted
from ..base.errors import CurvescopeError

if TYPE_CHECKING:
    from ..profiling.recording.store import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    default = (
        f" (default: {DEFAULT_EXPERIMENTS_S:g}s, for a recording of a GPU {CUDA_EXPERIMENTS_S:g}s)"
    )
    options.add(parser, "recording")
    options.add(parser, "--experiments", help=options.EXPERIMENTS + default)
    parser.add_argument(
        "--lock-clocks",
        action="store_true",
        help="let an experiment lock the SM clock of the GPU for its visits, for all who use it "
        "(needs root)",
    )
    options.add(parser, "--run-its-code", "--all", "--json")


def run(args: argparse.Namespace) -> int:
    from ..analysis.render.show import show_diagnosis
    from ..experiments.confirming import confirm_with_bars
    from ..experiments.factors import facts_for
    from ..profiling.hardware.locked_clocks import ON_A_CPU, clocks_may_be_locked
    from ..profiling.recording.store import open_recording

    kind = device_kind(open_recording(args.recording).meta)
    seconds = options.experiments_s_of(args, default_experiments_s(kind))
    if args.lock_clocks and kind == "cpu":
        raise CurvescopeError(ON_A_CPU)
    if not seconds:
        raise CurvescopeError(
            f"--experiments {args.experiments}: no time is left for any; write e.g. 60s or 2m."
        )
    terminal.console(stderr=True).print(
        f"Experiments on {args.recording}: at most about {duration_text(seconds)}."
    )

    def answer(recording: Recording) -> None:
        show_diagnosis(recording, **options.shown(args), facts=facts_for(recording))

    with (
        answer_if_interrupted(lambda: answer(open_recording(args.recording))),
        clocks_may_be_locked(args.lock_clocks),
    ):
        recording = confirm_with_bars(args.recording, seconds, args.run_its_code)
    answer(recording)
    return 0
