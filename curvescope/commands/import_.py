"""Turn a profile of another profiler into a recording: its format is told from its content, plain or gzip.

Reads SQLite exports of Nsight Systems, SQLite files and printed output of nvprof, CSV of Nsight Compute, the PyTorch
profiler's JSON, TensorFlow 1 timelines, and trace.json of TensorFlow 2 and JAX.

Every step of it was watched by its profiler, so what that profiler cost is not known. Names of hosts, users and files
are not copied.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..arguments import parse_share


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", type=Path, help="the profile")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder to create (default: under runs)")
    parser.add_argument("--batch", type=int, help="samples per step (default: from the recorded shapes)")
    parser.add_argument(
        "--table", action="store_true", help="the file is a CSV of problem, batch, time_ms[, device, n, spread]"
    )
    parser.add_argument(
        "--noise", default="5%", metavar="SHARE", help="standard error of a table's times (default: 5%%)"
    )
    parser.add_argument(
        "--range-pattern",
        metavar="REGEX",
        help="what range names say: groups layer, phase, step, op, batch, as in 'L_(?P<layer>.+)'",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Import the file."""
    from ..profiling.errors import CurvescopeError
    from ..profiling.readers import Options, import_profile

    if args.batch is not None and args.batch < 1:
        raise CurvescopeError(f"--batch {args.batch}: a step has at least one sample.")
    if args.table:
        from ..profiling.readers.table import import_table

        done = import_table(args.file, args.output, parse_share("--noise", args.noise))
    else:
        done = import_profile(args.file, args.output, Options(args.batch, args.range_pattern))
    if args.json:
        lost = {name: {"count": count, "sentence": sentence} for name, (count, sentence) in done.lost.items()}
        document = {"path": str(done.path), "format": done.format, "rows": done.rows, "lost": lost}
        print(json.dumps({**document, "missing": done.missing, "steps_from": done.steps_from}))
        return 0
    print(f"{done.format}: " + ", ".join(f"{count} {table}" for table, count in done.rows.items() if count))
    for sentence in done.missing.values():
        print(f"Missing: {sentence}.")
    for name, (count, sentence) in done.lost.items():
        print(f"Lost: {count} {name} ({sentence}).")
    if done.steps_from is not None:
        print(f"Steps from {done.steps_from}.")
    print(f"Recorded in {done.path}.")
    if args.table:
        print(f"Next:\n  curvescope explain {done.path}")
    elif done.rows["steps"]:
        print(f"Next:\n  curvescope breakdown {done.path} --by kernel")
    return 0
