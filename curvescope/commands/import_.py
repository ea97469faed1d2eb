"""Convert a profile of another profiler to a recording; the format is detected from the content,
plain or gzip.

Reads SQLite exports of Nsight Systems, SQLite files and printed output of nvprof, CSV of Nsight
Compute, JSON of PyTorch's profilers, TensorFlow 1 timelines, trace.json and .xplane.pb of
TensorFlow 2 and JAX, tables of times, and archives of `curvescope export`, which are unpacked.

A recording of `record` that was cut is completed where it is: the first command that reads it does
the same, but with the pattern for range names that `record` was given.

`--as sweep` makes one sweep of several profiles, each of one batch size, so that `explain` works on
them.

All steps of a profile are profiled, so the profiling overhead is unknown. Names of hosts, users and
files are not copied.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import options as shared
from ..analysis.render.terminal import print_prose
from ..base.errors import CurvescopeError
from ..base.escaping import escape_controls
from ..base.sizes import parse_sizes
from ..parsers import group, refuse_given

if TYPE_CHECKING:
    from ..profiling.readers import ImportDocument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, nargs="+", help="profile; several with --as sweep")
    shared.add(parser, "--output", help="folder to create (default: under runs)")
    reading = group(parser, "what to read")
    reading.add_argument(
        "--as",
        dest="kind",
        choices=("profile", "sweep"),
        default="profile",
        help="what the files are: one profile, or a sweep with a profile per batch size (default: "
        "profile)",
    )
    reading.add_argument(
        "--batch",
        metavar="N[,N]",
        help="samples per step, one value per file (default: from ranges or shapes)",
    )
    reading.add_argument(
        "--range-pattern",
        metavar="REGEX",
        help="pattern for range names with groups layer, phase, step, op, batch, e.g. "
        "'L_(?P<layer>.+)'",
    )
    reading.add_argument(
        "--steps",
        default="auto",
        metavar="HOW",
        help="how to find steps: auto, whole (the profile is one step), repetition (of kernels), "
        "or marks:REGEX "
        "(ranges whose names match mark steps)",
    )
    reading.add_argument("--gpu", type=int, metavar="N", help=shared.ONE_GPU)
    reading.add_argument(
        "--process",
        type=int,
        metavar="N",
        help="number of the only process that is read, from 0, of a PyTorch trace that merges "
        "several ranks "
        "(default: 0)",
    )
    reading.add_argument(
        "--capture",
        type=Path,
        metavar="FILE",
        help="PyTorch trace of the capture of the CUDA graphs that the profile replays; gives "
        "their kernels layers",
    )
    shared.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    from ..base.arrow_alone import start_without_pandas

    start_without_pandas()
    from ..profile_files import describe_imported, list_advice, notes
    from ..profiling.recording.archive import is_archive
    from ..profiling.recording.store import has_chunks

    if len(args.file) == 1 and has_chunks(args.file[0]):
        _complete(args)
        return 0
    done = _unpack(args) if is_archive(args.file[0]) else _import(args)
    if args.json:
        from ..analysis.render.documents import print_document

        print_document(done)
        return 0
    print_prose(f"{done.format}: {describe_imported(done)}")
    for line in notes(done):
        print_prose(line)
    print(escape_controls(f"Recorded in {done.path}."))
    for line in list_advice(done.path):
        print_prose(line)
    has_work = done.rows["kernels"] or done.rows["memory"] or not done.missing
    if args.kind == "sweep" or (done.rows["steps"] and has_work):
        print(escape_controls(f"Next:\n  curvescope explain {done.path}"))
    return 0


def _complete(args: argparse.Namespace) -> None:
    """Complete a recording of a command that was cut, where it is."""
    from ..profile_files import recorded_lines
    from ..profiling.collect.kept_chunks import recover

    others = args.given - {"file", "--range-pattern"}
    refuse_given(args, "A recording that was cut is completed where it is", *sorted(others))
    for line in recorded_lines(recover(args.file[0], args.range_pattern)):
        print_prose(line)


def _unpack(args: argparse.Namespace) -> ImportDocument:
    """Unpack an archive of `export` into a folder."""
    from ..profiling.readers import describe_import
    from ..profiling.recording.archive import SUFFIX, unpack_archive
    from ..profiling.recording.store import new_recording_path

    others = args.given - {"file", "--output", "--json"}
    refuse_given(args, "An archive is unpacked as it is", *sorted(others))
    (archive, *more) = args.file
    if more:
        raise CurvescopeError("Unpack one archive at a time.")
    target = args.output or new_recording_path(archive.name.removesuffix(SUFFIX))
    unpack_archive(archive, target)
    return describe_import(target)


def _import(args: argparse.Namespace) -> ImportDocument:
    from ..profile_files import progress
    from ..profiling.readers import Options, import_profile

    batches = _batches(args.batch)
    of_profiles = ("range_pattern", "steps", "process", "capture")
    options = Options(device=args.gpu, **{name: getattr(args, name) for name in of_profiles})
    if args.kind == "sweep":
        from ..profiling.readers.sweep_import import import_sweep

        if batches and len(batches) != len(args.file):
            raise CurvescopeError(
                f"--batch {args.batch}: write one batch size for each file, {len(args.file)} in "
                "all."
            )
        with progress() as report:
            return import_sweep(args.file, args.output, batches, replace(options, report=report))
    if len(args.file) > 1:
        from ..profiling.readers.sweep_import import are_results, import_results

        if are_results(args.file):
            return import_results(args.file, args.output)
    if len(args.file) > 1 or len(batches) > 1:
        raise CurvescopeError(
            "One profile makes one recording: add `--as sweep` for one profile per batch size."
        )
    with progress() as report:
        options = replace(options, batch=batches[0] if batches else None, report=report)
        return import_profile(args.file[0], args.output, options)


def _batches(text: str | None) -> list[int]:
    return [] if text is None else list(parse_sizes("--batch", text))
