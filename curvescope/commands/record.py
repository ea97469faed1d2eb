"""Run a command and record the GPU work and NVTX ranges of all its processes, without changes to
its code.

Kernels, memcpy, memset, allocations, CUDA API calls, clocks and power come from CUPTI, which is
loaded in each process that starts CUDA. CURVESCOPE_CUPTI=PATH selects another libcupti,
CURVESCOPE_CUPTI=off disables it. Without a GPU the recording holds the ranges and torch's CPU
kernels. Modules and optimizers of torch are layers and ends of steps (CURVESCOPE_TORCH=off disables
this). The exit code of the command is passed on, and so are signals; whatever ends it, the recorded
data is kept: the first command that reads the recording completes it.

`--with nsys` runs the command under Nsight Systems instead; `--with ncu` and
`--with nvprof --metrics` replay each kernel to measure its bytes, FLOPs and occupancy;
`--with nvprof` records a timeline on Kepler to Turing.

    curvescope record -o runs/annotated -- python train.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import options
from ..analysis.render.terminal import print_prose
from ..base.errors import CurvescopeError
from ..base.escaping import escape_controls

if TYPE_CHECKING:
    from ..profiling.readers import Options
    from ..profiling.recording.remote_store import AnyPath
    from ..profiling.recording.store import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--output", help="folder to create (default: runs/DATE_PROGRAM)")
    parser.add_argument(
        "--with",
        dest="tool",
        default="cupti",
        choices=("cupti", "nsys", "ncu", "nvprof"),
        help="recorder: cupti (default), nsys, ncu or nvprof",
    )
    parser.add_argument(
        "--metrics",
        action="store_true",
        help="for --with nvprof: measure metrics of every kernel instead of a timeline",
    )
    options.add(parser, "--at", help="batch size of its steps (default: from range names)")
    parser.add_argument(
        "--range-pattern",
        metavar="REGEX",
        help="pattern for range names with groups layer, phase, step, op, batch (default: known "
        "naming schemes)",
    )
    options.add(parser, "program")


def run(args: argparse.Namespace) -> int:
    from ..profile_files import recorded_lines
    from ..profiling.collect.inject import record_command
    from ..profiling.readers import Options
    from ..profiling.recording.store import new_recording_path, open_recording

    command = options.program_of(args)
    if not command:
        raise CurvescopeError(
            "Write the command to run after --, e.g. `curvescope record -- python train.py`."
        )
    path = args.output or new_recording_path(Path(command[0]).name)
    if args.metrics and args.tool != "nvprof":
        raise CurvescopeError(
            "--metrics is for `--with nvprof`; `--with ncu` always measures them."
        )
    if args.at is not None and args.at < 1:
        raise CurvescopeError(f"--at {args.at}: a step needs at least one sample.")
    reading = Options(batch=args.at, range_pattern=args.range_pattern)
    reading.names  # noqa: B018 - raises for an invalid pattern before anything runs
    if args.tool != "cupti":
        return _record_with(args, command, path, reading)
    code, not_merged = record_command(command, path, reading)
    if not_merged is not None:
        said = f"curvescope: {not_merged} The command ended with exit code {code}."
        print(escape_controls(said), file=sys.stderr)  # whole lines: paths in them are copied
        return code
    recording = open_recording(path)
    _say(recording, recorded_lines(recording))
    return code


def _say(recording: Recording, lines: Sequence[str]) -> None:
    """Say where the time went, and what that suggests, then these lines."""
    from ..profile_files import list_advice

    for line in (*list_advice(recording.path), *lines):
        print_prose(f"curvescope: {line}", stderr=True)


def _record_with(
    args: argparse.Namespace, command: list[str], path: AnyPath, options: Options
) -> int:
    from ..profile_files import describe_imported, notes
    from ..profiling.collect.nvidia_tools import Request, record_with
    from ..profiling.recording.store import open_recording

    code, done = record_with(args.tool, command, path, options, Request(with_metrics=args.metrics))
    _say(open_recording(done.path), [f"{describe_imported(done)} in {done.path}", *notes(done)])
    return code
