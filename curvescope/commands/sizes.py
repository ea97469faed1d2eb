"""Find the sizes to run, and those to capture, compile or pad to, from a curve of times.

The curve comes from a table of times, a recording or a server's log. The list is the one whose
padding costs least for a histogram of sizes, exactly; times between measured sizes follow the
fitted shape. Options of vLLM, SGLang and TensorRT that set it are printed.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from .. import options
from ..base.arguments import parse_duration, parse_share
from ..base.errors import CurvescopeError
from ..base.sizes import parse_sizes

if TYPE_CHECKING:
    import pandas as pd

    from ..analysis.time_tables import TimedCurve
    from ..profiling.recording.store import Recording

_MOST_BYTES = 1 << 26


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(
        parser,
        "recording",
        help="table of times, recording or server's log with the curve; - for standard input",
    )
    parser.add_argument(
        "--count", type=int, default=8, metavar="K", help="number of sizes (default: 8)"
    )
    parser.add_argument(
        "--histogram",
        type=Path,
        metavar="FILE",
        help="sizes that occur: a server's log, or lines of a size, or of a size and its count "
        "(default: those of the log with the curve, else every size alike)",
    )
    parser.add_argument(
        "--present", metavar="SIZES", help="the present list, e.g. 1,2,4,8,16, to compare with"
    )
    parser.add_argument("--limit", metavar="TIME", help="longest time of the size to run")
    parser.add_argument(
        "--problem", metavar="WORDS", help="of a table of several curves: words in the name of one"
    )
    parser.add_argument(
        "--noise",
        metavar="SHARE",
        help="standard error of times without repeats, e.g. 2%% (default: estimated)",
    )
    parser.add_argument(
        "--acceptance",
        metavar="SHARE",
        help="share of drafted tokens that are accepted, e.g. 70%%: how many to draft for each "
        "pass, of a curve over its tokens",
    )
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    from ..analysis.render.documents import print_document
    from ..analysis.render.show_sizes import plan_sizes, show_sizes
    from ..profile_files import open_any
    from ..profiling.recording.axis import axis_of

    noise = None if args.noise is None else parse_share("--noise", args.noise)
    accepted = None if args.acceptance is None else parse_share("--acceptance", args.acceptance)
    limit_ms = None if args.limit is None else 1e3 * parse_duration("--limit", args.limit)
    with open_any(args.recording) as recording:
        curve, histogram = _curve_of(recording, args.recording, args.problem, noise)
        if args.histogram is not None:
            histogram = _histogram_of(args.histogram)
        axis = axis_of(recording.meta)
        document = plan_sizes(
            curve,
            axis,
            args.recording,
            count=args.count,
            histogram=histogram,
            present=_sizes_of(args.present),
            limit_ms=limit_ms,
            acceptance=accepted,
        )
        if args.json:
            print_document(document)
        else:
            show_sizes(document, curve, axis, uniform=histogram is None)
    return 0


def _curve_of(
    recording: Recording, path: object, problem: str | None, noise: float | None
) -> tuple[TimedCurve, dict[int, float] | None]:
    """The curve of a recording, and the histogram of the steps of a server's log."""
    from ..analysis.render.series import choose_curves
    from ..analysis.server_log import decode_steps, is_server_log
    from ..analysis.time_tables import explain_curves

    if is_server_log(recording):
        steps = decode_steps(recording)
        (curve,) = explain_curves(steps.assign(problem=None, device_name=None), noise)
        return curve, _count(steps["batch"].tolist())
    listed = choose_curves(explain_curves(_read_times(recording), noise), problem, path)
    if len(listed) > 1:
        names = [f"{curve.problem or ''} {curve.device_name or ''}".strip() for curve in listed]
        choices = "; ".join(names)
        raise CurvescopeError(
            f"{path} has {len(listed)} curves: choose one by --problem WORDS, of {choices}."
        )
    return listed[0], None


def _read_times(recording: Recording) -> pd.DataFrame:
    """The timed steps of known sizes."""
    steps = recording.frame("steps")
    timed = steps[~steps["profiled"].astype(bool) & steps["batch"].notna()]
    if timed.empty:
        raise CurvescopeError(
            f"{recording.path} has no timed step of a known size, so there is no curve."
        )
    return timed


def _histogram_of(path: Path) -> dict[int, float]:
    """The sizes that occur in a log, or that a file lists."""
    from ..analysis.server_log import decode_steps, is_server_log
    from ..profile_files import open_any

    if not path.is_file():
        raise CurvescopeError(f"--histogram {path}: there is no such file.")
    text = path.read_bytes()[: _MOST_BYTES + 1]
    lines = [line.strip() for line in text.decode("utf-8", errors="replace").splitlines()]
    numbers = [re.fullmatch(r"(\d{1,9})(?:[\s,;:]+(\d{1,12}))?", line) for line in lines if line]
    if sum(match is None for match in numbers) <= 1 and any(numbers):  # one heading
        counts: dict[int, float] = {}
        for match in filter(None, numbers):
            size = int(match[1])
            counts[size] = counts.get(size, 0.0) + float(match[2] or 1)
        counts = {size: count for size, count in counts.items() if size and count}
        if counts:
            return counts
    with open_any(path) as recording:
        if not is_server_log(recording):
            raise CurvescopeError(
                f"--histogram {path}: give a server's log, or lines of a size, or of a size and "
                "its count."
            )
        return _count(decode_steps(recording)["batch"].tolist())


def _count(sizes: list[int]) -> dict[int, float]:
    counts: dict[int, float] = {}
    for size in sizes:
        counts[size] = counts.get(size, 0.0) + 1
    return counts


def _sizes_of(text: str | None) -> list[int]:
    if text is None:
        return []
    return sorted(set(parse_sizes("--present", ",".join(re.split(r"[\s,]+", text.strip(" ,"))))))
