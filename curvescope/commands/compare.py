"""Compare recordings of one network with the first: devices, versions or settings.

Rows are layers that the recordings have in common. Work without such a layer is aligned by operator and shapes, else by
its position among the operators; so is all work of recordings without a common layer, e.g. of two frameworks, or of
eager and compiled code.

`--fail-over 5%` makes it a check: exit code 1 if a step time grew by more than that and significantly (its interval
excludes zero change, after Holm correction over all step times).
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from ..base.arguments import parse_share
from ..profiling.recording.remote_store import as_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=as_path, help="folder or URL of the reference recording, or a profile")
    parser.add_argument(
        "others", type=as_path, nargs="+", metavar="other", help="recordings or profiles to compare with it"
    )
    parser.add_argument(
        "--by",
        choices=("layer", "operator", "family", "kernel"),
        help="rows (default: layer if all have one in common, else operator if all name operators, else family)",
    )
    parser.add_argument(
        "--batch", type=int, help="batch size of the rows (default: the largest that is profiled in all)"
    )
    parser.add_argument(
        "--fail-over",
        metavar="SHARE",
        help="largest growth that passes, e.g. 5%%: the exit code is 1 if a step time grew significantly and by more",
    )
    parser.add_argument("--all", action="store_true", help="show every row, not only the 25 largest")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    from ..analysis.compare import compare, recorded_side
    from ..profile_files import open_any

    over = None if args.fail_over is None else parse_share("--fail-over", args.fail_over)
    with ExitStack() as opened:
        recordings = [(str(path), opened.enter_context(open_any(path))) for path in (args.base, *args.others)]
        sides = [recorded_side(name, recording, recording.frame("steps")) for name, recording in recordings]
        comparison = compare(sides, args.by, args.batch)
    grown = [] if over is None else comparison.regressions(over)
    if args.json:
        from ..analysis.render.documents import CompareDocument, print_document

        print_document(CompareDocument.of(comparison, over, bool(grown)))
        return int(bool(grown))

    from rich.text import Text

    from ..analysis.render import terminal
    from ..analysis.render.compare import render_comparison

    console = terminal.console()
    for name, grown_at, change in grown:
        growth = f"+{change.growth:.1%} (at least {1 / change.high - 1:+.1%})"
        console.print(Text(f"Failed: {name} at batch {grown_at} takes {growth}, over {over:.1%}.", "bold red"))
    if over is not None and not grown:
        console.print(Text(f"No step time grew significantly and by more than {over:.1%}."))
    console.print(render_comparison(comparison, None if args.all else 25))
    return int(bool(grown))
