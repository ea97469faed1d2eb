"""Sample the functions of a Python program that runs already, of any framework, without changes to
it.

Of a program under `curvescope record` they become part of its recording: `explain` names the
functions that run in its gaps. Of any other program they are a recording of their own. Python
3.15 samples by its own `profiling.sampling`, an older one by py-spy
(`pip install 'curvescope[attach]'`).

    curvescope record -o runs/job -- python train.py &
    curvescope attach $(pgrep -f train.py)
"""

from __future__ import annotations

import argparse
import sys

from .. import options
from ..analysis.render.terminal import print_prose
from ..base.errors import CurvescopeError
from ..base.escaping import escape_controls

_SECONDS, _PER_S = 10, 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("process", metavar="PID", help="number of the running process")
    parser.add_argument(
        "--duration",
        type=int,
        default=_SECONDS,
        metavar="SECONDS",
        help=f"time to sample (default: {_SECONDS}); Ctrl-C ends it earlier",
    )
    parser.add_argument(
        "--rate",
        type=int,
        default=_PER_S,
        metavar="PER_SECOND",
        help=f"samples per second (default: {_PER_S})",
    )
    options.add(parser, "--output", help="folder to create for a program that is not recorded")


def run(args: argparse.Namespace) -> int:
    from ..base.counted import counted
    from ..profile_files import list_advice, recorded_lines
    from ..profiling.collect.attach import attach
    from ..profiling.recording.store import open_recording

    if not (args.process.isascii() and args.process.isdigit()):
        raise CurvescopeError(f"{args.process} is no number of a process: `ps` lists them.")
    for name, value in (("--duration", args.duration), ("--rate", args.rate)):
        if value < 1:
            raise CurvescopeError(f"{name} {value}: write a whole number from 1 on.")
    done = attach(int(args.process), args.duration, args.rate, args.output)
    calls = counted(done.calls, "call")
    said = f"curvescope: {calls} of functions of process {args.process} in {done.path}"
    if not done.is_finished:
        said += ", which is complete when its program has ended"
    print(escape_controls(f"{said}."), file=sys.stderr)
    if done.is_finished:
        for line in (*list_advice(done.path), *recorded_lines(open_recording(done.path))):
            print_prose(f"curvescope: {line}", stderr=True)
    return 0
