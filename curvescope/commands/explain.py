"""Explain a recording: its cost curve, its anomalies, and the terms of each anomaly.

The answer is one page; a number after the recording shows that finding in full, with how to change
it, and `--all` shows everything. `--pair 4,8` splits the excess from batch 4 to 8, and `--at 8` the
curvature at 8, whether significant or not. For a scaling run it prints the efficiency on more
devices, and where the lost time goes. For a single profile, or one batch size, the page says what
the step costs, what to do, and what that saves at most: suggested, as nothing was tried.

Of a table of times, or one pasted for `-`, it names the edges, slow sizes and shape of each curve.

`env $(curvescope explain RUN --as-env) python train.py` runs a program with the changes that
measurably help, as far as variables can set them. `--diff train.py` prints changes of one line of
that file as a patch, which you apply: `curvescope explain RUN --diff train.py | git apply`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .. import options
from ..as_environment import print_variables
from ..base.arguments import parse_duration, parse_share
from ..base.errors import CurvescopeError
from ..parsers import group, refuse_given
from ..quantities import MEMORY, QUANTITIES, TIME, show_quantity

if TYPE_CHECKING:
    from ..profiling.recording.store import Recording

_SHOWN_OTHERWISE = (
    *("finding", "--of", "--mode", "--limit", "--pair", "--at", "--curvature", "--problem"),
    *("--noise", "--by-instance", "--memory-limit", "--all", "--json", "--svg"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "recording", help=options.RECORDING_OR_PROFILE)
    parser.add_argument(
        "finding",
        nargs="?",
        type=int,
        help="number of a finding of the answer, to show it in full and how to change it",
    )
    what, tables = group(parser, "what to explain"), group(parser, "tables of times")
    what.add_argument(
        "--of",
        choices=QUANTITIES,
        default=TIME,
        help="quantity of the curve: time; energy, in joules per step and sample; or the peak "
        "memory (default: time)",
    )
    what.add_argument(
        "--mode",
        choices=("decode", "prefill", "mixed"),
        help="steps of an inference server to explain (default: the mode with most sizes, decode "
        "first)",
    )
    what.add_argument(
        "--limit",
        metavar="TIME",
        help="of a server's log: longest time of a step, e.g. 30ms; says the best batch size under "
        "it",
    )
    what.add_argument(
        "--pair", metavar="B,KB", help="two batch sizes whose excess to split, e.g. 4,8"
    )
    options.add(parser, "--at", help="batch size whose curvature to split")
    options.add(parser, "--curvature")
    tables.add_argument(
        "--problem",
        metavar="WORDS",
        help="for a table of times: words in the names of the curves to show",
    )
    tables.add_argument(
        "--noise",
        metavar="SHARE",
        help="for a table of times: standard error of times without repeats, e.g. 2%% (default: "
        "estimated)",
    )
    options.add(parser, "--by-instance", "--memory-limit", "--all", "--json", "--svg")
    parser.add_argument(
        "--as-env",
        action="store_true",
        help="print the variables NAME=VALUE of the changes that were measured to help; what only "
        "the program can do is told on standard error",
    )
    parser.add_argument(
        "--diff",
        type=Path,
        metavar="FILE",
        help="print a patch of this file of your program, for changes of one line whose place in "
        "it is known; nothing is written",
    )


def run(args: argparse.Namespace) -> int:
    from ..profile_files import open_any
    from ..profiling.measure.scaling_plan import PLAN_FILE

    if args.as_env:
        refuse_given(args, "--as-env prints variables alone", "--diff", *_SHOWN_OTHERWISE)
    elif args.diff is not None:
        refuse_given(args, "--diff prints a patch alone", *_SHOWN_OTHERWISE)
    elif (args.recording / PLAN_FILE.name).is_file():
        from ..analysis.render.show_scaling import show_scaling

        show_scaling(args.recording, args.all, args.json)
        return 0
    with open_any(args.recording) as recording:
        if args.as_env:
            print_variables(recording, args.recording)
        elif args.diff is not None:
            _print_patch(recording, args)
        else:
            _explain(recording, args)
    return 0


def _print_patch(recording: Recording, args: argparse.Namespace) -> None:
    from ..analysis.server_log import refuse_log
    from ..experiments.factors import facts_for
    from ..patching import print_patch

    refuse_log(recording, args.recording, "measured change")
    print_patch(recording, args.diff, facts_for(recording))


def _explain(recording: Recording, args: argparse.Namespace) -> None:
    from ..analysis.decompose.breakdown import has_memory_only
    from ..analysis.diagnosis.suggested import has_no_curve
    from ..analysis.render.show import show_diagnosis, show_table
    from ..analysis.render.show_advice import show_advice
    from ..experiments.factors import facts_for

    if args.of == TIME and has_memory_only(recording):
        args.of = MEMORY
    shown = {**options.shown(args), "axis": args.curvature}
    listed = recording.meta.get("recording_type") in ("table", "server log")
    of_curve = not listed and {args.pair, args.at, args.mode} != {None}
    curveless = not (listed or of_curve) and has_no_curve(recording)
    if args.finding is not None and (args.of != TIME or listed):
        raise CurvescopeError(
            f"Finding {args.finding}: only the answer on the times of a curve or a profile numbers "
            f"what it found; omit the {args.finding}."
        )
    if args.svg is not None and (args.of != TIME or listed or curveless):
        raise CurvescopeError("--svg draws the times of one recorded curve: omit it here.")
    if recording.meta.get("recording_type") == "table":
        noise = None if args.noise is None else parse_share("--noise", args.noise)
        shown = {"everything": args.all, "as_json": args.json}
        show_table(recording, args.recording, problem=args.problem, noise=noise, **shown)
        return
    if recording.meta.get("recording_type") == "server log":
        _explain_log(recording, args)
        return
    if args.limit is not None:
        raise CurvescopeError(
            f"--limit is for logs of servers; {args.recording} is not one: omit it."
        )
    if args.problem is not None or args.noise is not None:
        raise CurvescopeError(
            f"--problem and --noise are for tables of times; {args.recording} is not one: omit "
            "them."
        )
    if args.of != TIME and (args.pair is not None or args.at is not None):
        raise CurvescopeError(
            f"--pair and --at split times; for all splits of {args.of} use --all."
        )
    if args.of != TIME:
        show_quantity(recording, args, args.curvature)
        return
    facts = facts_for(recording)
    if args.svg is not None:
        from ..analysis.diagnosis.explain import explain
        from ..analysis.render.summary import summarize
        from ..analysis.render.svg import curve_svg

        diagnosis = explain(recording, mode=args.mode, by_instance=args.by_instance)
        options.write_picture(args.svg, curve_svg(summarize(diagnosis)))
    elif curveless:
        which = {"finding": args.finding, "everything": args.all, "as_json": args.json}
        show_advice(recording, args.recording, facts, **which)
    else:
        which = {
            name: getattr(args, name) for name in ("by_instance", "pair", "at", "mode", "finding")
        }
        show_diagnosis(recording, **which, **shown, facts=facts)


def _explain_log(recording: Recording, args: argparse.Namespace) -> None:
    from ..analysis.render.server_log import show_server_log

    names = ("problem", "noise", "pair", "at", "mode")
    if args.of != TIME or any(getattr(args, name) is not None for name in names):
        raise CurvescopeError(
            "A server's log has times only: of the options to choose, give --limit and --all alone."
        )
    limit_ms = None if args.limit is None else 1e3 * parse_duration("--limit", args.limit)
    show_server_log(recording, args.recording, limit_ms=limit_ms, **options.shown(args))
