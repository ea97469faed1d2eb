"""Export a recording: a trace for Perfetto and chrome://tracing, CSV, or Parquet.

curvescope export runs/alexnet --perfetto -o alexnet.json.gz
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .. import options
from ..base.counted import counted
from ..base.errors import CurvescopeError
from ..profiling.recording.remote_store import AnyPath, as_path


@dataclass(frozen=True)
class ExportDocument:
    """A finished export: `export`."""

    path: str  # file or folder
    format: str  # perfetto, csv or parquet
    rows_without_time: int  # rows without a start time, which viewers do not show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "recording", help=options.RECORDING_OR_PROFILE)
    parser.add_argument(
        "others",
        type=as_path,
        nargs="*",
        metavar="other",
        help="further recordings in the same trace, e.g. other ranks",
    )
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument(
        "--perfetto",
        action="store_true",
        help="write one Chrome trace, which `curvescope import` can read",
    )
    kind.add_argument(
        "--csv",
        action="store_true",
        help="write a folder with one CSV per table, and of microbenchmarks with their results",
    )
    kind.add_argument(
        "--parquet", action="store_true", help="write a folder with one Parquet file per table"
    )
    named = "file or folder to create (default: named after the recording)"
    options.add(parser, "--output", type=Path, metavar="PATH", help=named)
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    from ..profile_files import open_any, progress
    from ..profiling.recording import export

    kind = "perfetto" if args.perfetto else "csv" if args.csv else "parquet"
    name = args.recording.name or args.recording.resolve().name
    target = args.output or Path(f"{name}.perfetto.json.gz" if args.perfetto else f"{name}-{kind}")
    if args.others and not args.perfetto:
        raise CurvescopeError(
            "Several recordings go into one trace only: add --perfetto, or export one at a time."
        )
    unplaced = 0
    inside = _list_benches(args.recording) if args.csv else []
    with ExitStack() as opened:
        if inside:
            benches = [opened.enter_context(open_any(path)) for path in inside]
            export.export_results(benches, target)
            return _say_written(args, target, kind, unplaced)
        recordings = [
            opened.enter_context(open_any(path)) for path in (args.recording, *args.others)
        ]
        recording = recordings[0]
        if args.perfetto:
            from ..analysis.render.trace_tracks import title_of, tracks

            titles = (
                [title_of(recording, i) for i, recording in enumerate(recordings, start=1)]
                if args.others
                else [""]
            )
            others = list(zip(titles, recordings, strict=True))[1:]
            with progress() as report:
                unplaced = export.export_trace(recording, target, report, tracks, others, titles[0])
        elif args.csv:
            export.export_csv(recording, target)
        else:
            export.export_parquet(recording, target)
    return _say_written(args, target, kind, unplaced)


def _list_benches(folder: AnyPath) -> list[Path]:
    """The recordings of a benchmark with several sweeps, which are folders in one."""
    from ..profiling.recording.store import META_FILE, open_recording

    if not isinstance(folder, Path) or not folder.is_dir() or (folder / META_FILE).exists():
        return []
    inside = sorted(path.parent for path in folder.glob(f"*/{META_FILE}"))
    types = {open_recording(path).meta.get("recording_type") for path in inside}
    return inside if types == {"bench"} else []


def _say_written(args: argparse.Namespace, target: Path, kind: str, unplaced: int) -> int:
    if args.json:
        from ..analysis.render.documents import print_document

        print_document(ExportDocument(str(target), kind, unplaced))
        return 0
    if unplaced:
        without = counted(unplaced, "row")
        print(
            f"{without} without a start time: in the file, but not shown by viewers.",
            file=sys.stderr,
        )
    print(
        f"Written to {target}." + (" Open it at https://ui.perfetto.dev." if args.perfetto else "")
    )
    return 0
