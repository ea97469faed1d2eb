"""Write recordings as one HTML page that works offline, in light and dark mode, and in print."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from ..base.errors import CurvescopeError
from ..base.numbers import quantity
from ..profiling.recording.remote_store import as_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recordings",
        type=as_path,
        nargs="+",
        metavar="recording",
        help="folders, archives or URLs of recordings, or of sweeps",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), help="file (default: report.html)"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def run(args: argparse.Namespace) -> int:
    from .. import __version__
    from ..analysis.render.html import render_html
    from ..analysis.render.report_data import report_document, report_input
    from ..profile_files import open_any, open_completed
    from ..profiling.measure.sweep_plan import recordings_in
    from ..profiling.recording.atomic_files import atomic_file

    if args.output.exists() and not args.force:
        raise CurvescopeError(
            f"{args.output} exists already. Choose another -o FILE, or replace it with --force."
        )
    with ExitStack() as opened:
        recordings = []
        for path in recordings_in(args.recordings):
            is_file = path.is_file()
            recordings.append(
                opened.enter_context(open_any(path)) if is_file else open_completed(path)
            )
        inputs = [report_input(recording) for recording in recordings]
        page = render_html(report_document(inputs, __version__)).encode()
    with atomic_file(args.output) as file:
        file.write(page)
    print(f"Wrote {args.output} ({quantity(len(page), 'B')}).")
    return 0
