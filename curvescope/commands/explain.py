"""Explain a recording: its cost curve, its anomalies, and the terms that make each of them.

`--pair 4,8` splits the excess from batch 4 to 8, `--at 8` the curvature at 8, whatever the verdict on them is.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("recording", type=Path, help="folder of a recording")
    parser.add_argument("--pair", metavar="B,KB", help="split the excess between these two batch sizes")
    parser.add_argument("--at", type=int, metavar="B", help="split the curvature at this batch size")
    parser.add_argument(
        "--axis",
        choices=("log2", "linear"),
        default="log2",
        help="axis of curvatures: log2, of time per sample (default), or linear, of the step time",
    )
    parser.add_argument("--all", action="store_true", help="every anomaly and every term")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print the explanation."""
    from ..profiling.store import open_recording
    from ..show import show_diagnosis

    show_diagnosis(
        open_recording(args.recording),
        axis=args.axis,
        pair=args.pair,
        at=args.at,
        everything=args.all,
        as_json=args.json,
    )
    return 0
