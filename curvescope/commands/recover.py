"""Complete a recording whose `record` was killed, or had no room on the disk.

`record` keeps what its processes record in the recording's folder, in files that it makes tables of
at the end. This makes them now, and deletes the files. `explain` and the other commands that read
show such a recording too, without it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .record import describe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path, help="folder of the recording")
    parser.add_argument(
        "--range-pattern",
        metavar="REGEX",
        help="pattern for range names, as of `record` (default: the one that `record` was given)",
    )


def run(args: argparse.Namespace) -> int:
    from ..profiling.collect.kept_chunks import recover

    describe(recover(args.recording, args.range_pattern))
    return 0
