"""Export a recording: one file to pass on, a trace, a flame graph, or tables.

curvescope export runs/alexnet --archive
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import options
from ..base.counted import counted
from ..base.errors import CurvescopeError
from ..profiling.recording.remote_store import AnyPath, as_path

if TYPE_CHECKING:
    from ..profiling.recording.store import Recording

TRACE = "perfetto"
# By the name of its option: how the default file or folder ends, and what it is.
FORMATS = {
    "archive": (".curvescope", "write one file, which other commands read as the recording"),
    TRACE: (".perfetto.json.gz", "write one Chrome trace, with tracks of everything"),
    "speedscope": (".speedscope.json", "write a flame graph of a step for speedscope.app"),
    "collapsed": (".collapsed.txt", "write the stacks of a step, for other flame graphs"),
    "csv": ("-csv", "write a folder with one CSV per table, and of benchmarks with their results"),
    "parquet": ("-parquet", "write a folder with one Parquet file per table"),
}
_VIEWERS = {TRACE: "https://ui.perfetto.dev", "speedscope": "https://www.speedscope.app"}


@dataclass(frozen=True)
class ExportDocument:
    """A finished export: `export`."""

    path: str  # file or folder
    format: str  # archive, perfetto, speedscope, collapsed, csv or parquet
    rows_without_time: int  # rows without a start time, which a trace cannot have


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
    for name, (_, text) in FORMATS.items():
        words = ["--perfetto", "--chrome-trace"] if name == TRACE else [f"--{name}"]
        kind.add_argument(*words, dest="kind", action="store_const", const=name, help=text)
    named = "file or folder to create (default: named after the recording)"
    options.add(parser, "--output", type=Path, metavar="PATH", help=named)
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    from ..profile_files import open_any

    if args.others and args.kind != TRACE:
        raise CurvescopeError(
            "Several recordings go into one trace only: add --perfetto, or export one at a time."
        )
    name = args.recording.name or args.recording.resolve().name
    ending, _ = FORMATS[args.kind]
    target = args.output or Path(f"{name.removesuffix('.curvescope')}{ending}")
    with ExitStack() as opened:
        paths = (args.recording, *args.others)
        if args.kind == "csv":
            paths = tuple(_list_benches(args.recording)) or paths
        recordings = [opened.enter_context(open_any(path)) for path in paths]
        unplaced = _write(args.kind, recordings, target)
    if args.json:
        from ..analysis.render.documents import print_document

        print_document(ExportDocument(str(target), args.kind, unplaced))
        return 0
    if unplaced:
        print(f"Left out: {counted(unplaced, 'row')} without a start time.", file=sys.stderr)
    viewer = _VIEWERS.get(args.kind)
    print(f"Written to {target}." + (f" Open it at {viewer}." if viewer else ""))
    return 0


def _list_benches(folder: AnyPath) -> list[Path]:
    """The recordings of a benchmark with several sweeps, which are folders in one."""
    from ..profiling.recording.store import META_FILE, open_recording

    if not isinstance(folder, Path) or not folder.is_dir() or (folder / META_FILE).exists():
        return []
    inside = sorted(path.parent for path in folder.glob(f"*/{META_FILE}"))
    types = {open_recording(path).meta.get("recording_type") for path in inside}
    return inside if types == {"bench"} else []


def _write(kind: str, recordings: Sequence[Recording], target: Path) -> int:
    """Write a file or folder of one kind; returns the rows that a trace cannot have."""
    from ..profiling.recording import archive, export

    recording = recordings[0]
    if kind == TRACE:
        return _write_trace(recordings, target)
    if kind == "archive":
        archive.write_archive(recording, target)
    elif kind == "csv" and len(recordings) > 1:
        export.export_results(recordings, target)
    elif kind == "csv":
        export.export_csv(recording, target)
    elif kind == "parquet":
        export.export_parquet(recording, target)
    else:
        _write_stacks(kind, recording, target)
    return 0


def _write_trace(recordings: Sequence[Recording], target: Path) -> int:
    from ..analysis.render.trace_tracks import title_of, tracks
    from ..profile_files import progress
    from ..profiling.recording.export import export_trace

    titles = [""]
    if len(recordings) > 1:
        titles = [title_of(recording, place) for place, recording in enumerate(recordings, start=1)]
    others = list(zip(titles, recordings, strict=True))[1:]
    with progress() as report:
        return export_trace(recordings[0], target, report, tracks, others, titles[0])


def _write_stacks(kind: str, recording: Recording, target: Path) -> None:
    from .. import __version__
    from ..analysis.render.flames import read_stacks, render_collapsed, render_speedscope
    from ..profiling.recording.export import export_text

    stacks = read_stacks(recording)
    if kind == "speedscope":
        export_text(render_speedscope(stacks, f"curvescope {__version__}"), target)
    else:
        export_text(render_collapsed(stacks), target)
