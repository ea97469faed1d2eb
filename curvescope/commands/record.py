"""Run a command and record the NVTX push/pop ranges and marks of all its processes, with no change to its code.

Needs no GPU. The command's exit code is passed on; interrupted with Ctrl-C, what was recorded is kept.

    curvescope record -o runs/annotated -- python train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to record (default: runs/DATE_PROGRAM)")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to run")


def run(args: argparse.Namespace) -> int:
    """Run, record and say where."""
    import sys

    from ..profiling.errors import CurvescopeError
    from ..profiling.recorders.nvtx import record_command
    from ..profiling.store import new_recording_path, open_recording

    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command:
        raise CurvescopeError("Say what to run after --, as in `curvescope record -- python train.py`.")
    path = args.output or new_recording_path(Path(command[0]).name)
    code = record_command(command, path)
    recording = open_recording(path)
    print(f"curvescope: {recording.arrow('ranges').num_rows} ranges in {path}", file=sys.stderr)
    for entry in recording.meta["lost"].values():
        print(f"curvescope: lost {entry['count']}: {entry['sentence']}", file=sys.stderr)
    return code
