"""Compare recordings of one network with the first: devices, versions or settings; or measure
versions of a step; or print step times side by side.

Rows are layers that the recordings have in common. Work without such a layer is aligned by operator
and shapes, else by its position among the operators; so is all work of recordings without a common
layer, e.g. of two frameworks, or of eager and compiled code.

`--measure base=main head=.` measures versions of a step together: each in processes of its own, in
turn, and as many processes as the answer needs. A version is a folder or a git revision, and may
have its own interpreter and environment variables. Or it is a program as it is, a command in which
{batch} may stand for the batch size: `--measure base='python a.py' head='python b.py'`; each of its
runs is a process. `[tool.curvescope]` in pyproject.toml has defaults of --step, --batch, --device,
--time-limit and --fail-over.

`--framework torch,jax alexnet` measures a named network in frameworks, in the same way: its layers
have the same names in all of them. A framework of another environment is NAME@PYTHON, e.g.
jax@/opt/jax/bin/python.

`--fail-over 5%` makes it a check: exit code 1 if a step time grew by more than that and
significantly (its interval excludes zero change, after Holm correction over all step times), or if
a layer grew certainly by more than that share of the step. Where nobody can tell, the answer says
so, with exit code 0. `--summary` and `--junit` write the answer for a CI.

Two maps of `bench gemm --around` or `conv` are compared by problem and size, for two versions of a
library or two cards.

`--steps` prints the step times of recordings, or of the folder of a sweep, side by side by batch
size, and by network, framework and device; `--published` adds published times of the same networks,
each under its own device and marked as published.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from .. import options
from ..analysis.render import terminal
from ..base.arguments import parse_share
from ..base.errors import CurvescopeError
from ..base.grouping import COMPARE_BY
from ..base.programs import find_program
from ..base.sizes import list_sizes
from ..base.torch_runtime import pick_device
from ..parsers import CommandParser, group, refuse_given
from ..profiling.measure.protocol import parse_batches
from ..profiling.recording.remote_store import AnyPath, as_path
from ..project import defaults_of_versions

if TYPE_CHECKING:
    import pandas as pd

    from ..analysis.compare import Comparison
    from ..profiling.measure.versions import Version
    from ..profiling.recording.store import Recording

_MEASURED, _STEPS = "to measure versions", "to print step times"
_FORMATS = ("text", "csv", "markdown")
_TO_MEASURE = (
    *("--measure", "--framework", "--mode", "--step", "--device", "--batch", "--time-limit"),
    "--output",
)
_OF_ROWS = ("--by", "--fail-over", "--summary", "--junit", "--different", "--all")
_DEFAULT_OVER = 0.02  # growth that decides how long to measure, where none fails


def add_arguments(parser: CommandParser) -> None:
    parser.read_defaults = defaults_of_versions
    parser.add_argument(
        "base",
        type=as_path,
        nargs="?",
        help="folder or URL of the reference recording, or a profile",
    )
    parser.add_argument(
        "others",
        type=as_path,
        nargs="*",
        metavar="other",
        help="recordings or profiles to compare with it",
    )
    measured = group(parser, _MEASURED)
    measured.add_argument(
        "--measure",
        nargs="+",
        metavar="NAME=VERSION",
        help="versions to measure, the base first: a folder or a git revision, e.g. base=main "
        "head=. ; @PYTHON after "
        "it names its interpreter, ,VARIABLE=VALUE sets an environment variable",
    )
    measured.add_argument(
        "--framework",
        metavar="NAMES",
        help="frameworks that run a named network, the base first, e.g. torch,torch-compile,jax",
    )
    options.add(parser, "--mode")
    measured.add_argument(
        "--step",
        metavar="PACKAGE.MODULE:MAKE_STEP",
        help="the step, in every version: make_step(batch) returns a function that runs one; also "
        "FILE.py:MAKE_STEP",
    )
    measured.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda if there is one)")
    measured.add_argument(
        "--batch", metavar="SIZES", help="batch sizes to measure, e.g. 8,32 (default: 1)"
    )
    measured.add_argument(
        "--time-limit",
        type=float,
        metavar="S",
        help="seconds to measure, if the answer needs as many (default: 600, or longer for six "
        "processes of each)",
    )
    measured.add_argument(
        "-o",
        "--output",
        type=as_path,
        metavar="DIR",
        help="folder to create (default: runs/DATE_versions)",
    )
    for name in ("--step-range", "--step-line", "--step-function"):  # of programs, as of `diagnose`
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument(
        "--by",
        choices=COMPARE_BY,
        help="rows (default: layer if all have one in common, else op if all name operators, "
        "else family)",
    )
    options.add(parser, "--at", help="batch size of the rows (default: the largest that all have)")
    parser.add_argument(
        "--fail-over",
        metavar="SHARE",
        help="largest growth that passes, e.g. 5%%: the exit code is 1 if a step time, or a layer "
        "by that share of the step, grew certainly by more; what cannot be told passes",
    )
    parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="append the answer in Markdown, for a CI"
    )
    parser.add_argument(
        "--junit",
        type=Path,
        metavar="FILE",
        help="write a test case for each version and batch size, with --fail-over",
    )
    parser.add_argument(
        "--different",
        action="store_true",
        help="compare recordings of different networks, or profiles of different devices or "
        "programs",
    )
    steps = group(parser, _STEPS)
    steps.add_argument(
        "--steps", action="store_true", help="print step times of recordings and sweeps"
    )
    steps.add_argument(
        "--published", action="store_true", help="add published times of the same networks"
    )
    steps.add_argument(
        "--format",
        choices=_FORMATS,
        default=_FORMATS[0],
        help="text (default), csv (a line per network, device and batch size) or markdown",
    )
    options.add(parser, "--all", help=options.EVERY_ROW)
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    options.print_defaults(args)
    if args.steps:
        _print_steps(args)
        return 0
    refuse_given(args, "--steps prints step times; without it", "--published", "--format")
    maps = _find_maps(args)
    if maps:
        _print_maps(args, maps)
        return 0
    return _compare(args)


def _find_maps(args: argparse.Namespace) -> list[list[Path]]:
    """The recordings of each map of a library's choices; empty where not all paths are maps."""
    from ..analysis.choices import find_maps

    if args.base is None or not args.others:
        return []
    maps = [find_maps(path) for path in (args.base, *args.others)]
    return maps if all(maps) else []


def _print_maps(args: argparse.Namespace, maps: Sequence[Sequence[AnyPath]]) -> None:
    """Print how the times of maps differ."""
    from ..analysis.choices import compare_maps
    from ..analysis.render.choices import MapsDocument, render_compared

    refuse_given(args, "Maps are compared by problem and size", "--by", "--at", "--fail-over")
    names = [str(path) for path in (args.base, *args.others)]
    document = MapsDocument(maps=names, sizes=compare_maps(maps))
    if args.json:
        from ..analysis.render.documents import print_document

        print_document(document)
        return
    console = terminal.console()
    for line in render_compared(document, None if args.all else 25):
        console.print(line)


def _print_steps(args: argparse.Namespace) -> None:
    """Print the step times of recordings side by side."""
    from ..analysis.render.step_table import JSON, show_step_times
    from ..profile_files import open_completed
    from ..profiling.measure.sweep_plan import recordings_in

    refuse_given(args, "--steps prints recorded times", *_OF_ROWS, *_TO_MEASURE)
    if args.base is None:
        raise CurvescopeError(
            "Name recordings or the folder of a sweep, to print their step times."
        )
    recordings = [open_completed(path) for path in recordings_in([args.base, *args.others])]
    form = JSON if args.json else args.format
    show_step_times(recordings, form, published=args.published, batch=args.at)


def _compare(args: argparse.Namespace) -> int:
    """Compare recordings, or versions that are measured now; returns the exit code."""
    from ..analysis.compare import compare, refuse_different
    from ..analysis.conditions import conditions_of
    from ..analysis.side import prepare_sides
    from ..profile_files import open_any
    from ..profiling.recording.export import refuse_existing

    over = None if args.fail_over is None else parse_share("--fail-over", args.fail_over)
    if args.junit is not None:
        if over is None:
            raise CurvescopeError("--junit says what failed: add --fail-over, e.g. 5%.")
        refuse_existing(args.junit)
    paths = (
        _measure_versions(args, over)
        if args.measure or args.framework
        else [(str(path), path) for path in _list_recordings(args)]
    )
    with ExitStack() as opened:
        names = [name for name, _ in paths]
        recordings = [opened.enter_context(open_any(path)) for _, path in paths]
        sides = prepare_sides(names, recordings, _steps(recordings))
        if not args.different:
            refuse_different(sides)
        comparison = compare(sides, args.by, args.at)
    code = 0 if over is None else int(comparison.fails(over))
    _write_for_ci(args, comparison, over)
    if args.json:
        from ..analysis.render.compare import CompareDocument
        from ..analysis.render.documents import print_document

        print_document(CompareDocument.of(comparison, over))
        return code

    from ..analysis.render.compare import render_check, render_comparison

    console = terminal.console()
    if over is not None:
        for line in render_check(comparison, over):
            console.print(line)
    console.print(render_comparison(comparison, None if args.all else 25))
    for condition in conditions_of(recordings):
        console.print(condition, style="dim")
    return code


def _write_for_ci(args: argparse.Namespace, comparison: Comparison, over: float | None) -> None:
    """Write the files of `--summary` and `--junit`."""
    from ..analysis.render.compare_summary import render_junit, render_summary
    from ..profiling.recording.export import export_text

    if args.summary is not None:
        with args.summary.open("a", encoding="utf-8") as file:
            file.write(render_summary(comparison, over))
    if args.junit is not None and over is not None:
        export_text(render_junit(comparison, over), args.junit)


def _steps(recordings: list[Recording]) -> list[pd.DataFrame]:
    """The steps to compare; of logs of servers the decode steps, at equal context."""
    from ..analysis.server_log import collect_decode_blocks, is_server_log

    if any(is_server_log(recording) for recording in recordings):
        return collect_decode_blocks(recordings)
    return [recording.frame("steps") for recording in recordings]


def _list_recordings(args: argparse.Namespace) -> list[AnyPath]:
    if args.base is None or not args.others:
        raise CurvescopeError(
            "Name two recordings or more, or versions to measure: --measure base=main head=. "
            "--step FILE.py:MAKE_STEP."
        )
    refuse_given(args, "Without --measure recordings are compared", *_TO_MEASURE)
    return [args.base, *args.others]


def _measure_versions(args: argparse.Namespace, over: float | None) -> list[tuple[str, AnyPath]]:
    """Measure the versions; returns their names and recordings."""
    with TemporaryDirectory(prefix="curvescope-") as compiled:
        versions = _in_frameworks(args, Path(compiled)) if args.framework else _versions(args)
        return _visit_versions(args, versions, over)


def _visit_versions(
    args: argparse.Namespace, versions: Sequence[Version], over: float | None
) -> list[tuple[str, AnyPath]]:
    """Visit the versions in turn; returns their names and recordings."""
    from ..analysis.compare import is_decided
    from ..analysis.render.live import LiveProgress
    from ..profiling.measure.configuration import Configuration
    from ..profiling.measure.versions import PROGRAMS, PROTOCOL, checked_out, measure_versions
    from ..profiling.recording.store import new_recording_path

    names = [version.name for version in versions]
    programs = any(version.program is not None for version in versions)
    protocol = PROGRAMS if programs else PROTOCOL
    if args.time_limit is not None:
        limit_s = options.check_time_limit(args.time_limit)
        protocol = replace(protocol, rounds=(1, protocol.rounds[1]), time_limit_s=limit_s)
    configuration = (
        None if args.step is None else Configuration.of_step(args.step, pick_device(args.device))
    )
    batches = parse_batches(args.batch or "1")
    messages = terminal.console(stderr=True)
    messages.print(f"Measuring {' and '.join(names)}, batch {list_sizes(batches)}.")
    with checked_out(versions) as folders, LiveProgress() as view:
        folder = args.output or new_recording_path("versions")
        paths = measure_versions(
            folders,
            configuration,
            batches,
            protocol,
            folder,
            decided=lambda rows, rounds: is_decided(rows, names, over or _DEFAULT_OVER, rounds),
            report=view.report,
        )
    messages.print(f"Recorded in {folder}.")
    return list(zip(names, paths, strict=True))


def _versions(args: argparse.Namespace) -> list[Version]:
    """The versions of `--measure`."""
    from ..profiling.measure.versions import Version

    marks = ("step_range", "step_line", "step_function")
    how = {mark: getattr(args, mark) for mark in marks}
    versions = [replace(Version.parse(text), **how) for text in args.measure]
    names = [version.name for version in versions]
    programs = [version for version in versions if version.program is not None]
    wrong = (args.step is None) != bool(programs) or 0 < len(programs) < len(versions)
    if args.base is not None or wrong or len(set(names)) < max(2, len(names)):
        raise CurvescopeError(
            "--measure takes two versions or more with different names, and --step: --measure "
            "base=main head=. --step FILE.py:MAKE_STEP; or commands alone: --measure base='python "
            "a.py' head='python b.py'."
        )
    return versions


def _in_frameworks(args: argparse.Namespace, compiled: Path) -> list[Version]:
    """A named network in each framework of `--framework`, as versions; a folder keeps compiled
    code.
    """
    from ..profiling.measure.configuration import Configuration
    from ..profiling.measure.versions import Version
    from ..profiling.workload.framework_step import list_cache_variables

    named = [text.partition("@") for text in args.framework.split(",")]
    names = [name for name, _, _ in named]
    wrong = args.base is None or args.others or args.measure or args.step
    if wrong or len(set(names)) < max(2, len(names)):
        raise CurvescopeError(
            "--framework takes one named network and two frameworks or more: curvescope compare "
            "--framework torch,jax alexnet --batch 64."
        )
    network = Configuration(str(args.base), device=pick_device(args.device), mode=args.mode)
    versions = []
    for name, _, python in named:
        made = options.in_framework(network, name, elsewhere=bool(python))
        if not python:
            made.check()
            python = sys.executable
        elif (path := find_program(python)) is not None:
            python = path
        else:
            raise CurvescopeError(
                f"--framework {name}@{python}: that is no program that can be run. Name the Python "
                "of an environment with the framework, e.g. jax@/opt/jax/bin/python."
            )
        kept = tuple(list_cache_variables(name, compiled).items())
        versions.append(Version(name, ".", python, kept, configuration=made))
    return versions
