"""Compare recordings of one network with the first: devices, versions or settings.

Rows are layers that the recordings have in common. Work without such a layer is aligned by operator and shapes, else by
its position among the operators; so is all work of recordings without a common layer, e.g. of two frameworks, or of
eager and compiled code.

`--fail-over 5%` makes it a check: exit code 1 if a step time grew by more than that and significantly (its interval
excludes zero change, after Holm correction over all step times).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base.arguments import parse_share
from ..profiling.recording.remote_store import AnyPath, as_path

if TYPE_CHECKING:
    pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=as_path, help="folder or URL of the reference recording")
    parser.add_argument(
        "others", type=as_path, nargs="+", metavar="other", help="folders or URLs of the recordings to compare with it"
    )
    parser.add_argument(
        "--by",
        choices=("layer", "operator", "family", "kernel"),
        help="rows (default: layer if all have one in common, else operator if all name operators, else family)",
    )
    parser.add_argument(
        "--batch", type=int, help="batch size of the rows (default: the largest that is profiled in all)"
    )
    add_fail_over(parser)
    parser.add_argument("--all", action="store_true", help="show every row, not only the 25 largest")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_fail_over(parser: argparse.ArgumentParser) -> None:
    """Declare --fail-over."""
    parser.add_argument(
        "--fail-over",
        metavar="SHARE",
        help="largest growth that passes, e.g. 5%%: the exit code is 1 if a step time grew significantly and by more",
    )


def run(args: argparse.Namespace) -> int:
    over = None if args.fail_over is None else parse_share("--fail-over", args.fail_over)
    paths = [args.base, *args.others]
    return show_comparison(paths, over, by=args.by, batch=args.batch, everything=args.all, as_json=args.json)


def show_comparison(
    paths: Sequence[AnyPath],
    over: float | None,
    *,
    by: str | None = None,
    batch: int | None = None,
    everything: bool = False,
    as_json: bool = False,
) -> int:
    """Print a comparison of recordings with the first.

    Args:
        paths: folders of recordings; the first is the base.
        over: growth of a step time that fails the check, as a share; None for no check.
        by: rows, see `compare`.
        batch: batch size of the rows, see `compare`.
        everything: True to show every row, not only the 25 largest.
        as_json: True to print one JSON document.

    Returns:
        The exit code: 1 if a step time grew significantly and by more than `over`, else 0.

    Raises:
        CurvescopeError: a recording cannot be read or has no step, or no batch size is common to all.
    """
    from ..analysis.compare import compare, recorded_side
    from ..profiling.recording.store import open_recording

    recordings = [(str(path), open_recording(path)) for path in paths]
    sides = [recorded_side(name, recording, recording.frame("steps")) for name, recording in recordings]
    comparison = compare(sides, by, batch)
    grown = [] if over is None else comparison.regressions(over)
    if as_json:
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
    console.print(render_comparison(comparison, None if everything else 25))
    return int(bool(grown))
