"""Output of `sizes`: the size to run, the list of sizes that costs least, and the options that set
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.numbers import number
from ...profiling.recording.axis import Axis
from ..decompose.statistics import Estimate
from ..draft_depth import Drafting, weigh_depths
from ..size_lists import SizeCosts, cheapest_lists, costs_of
from ..time_tables import TimedCurve
from . import terminal
from .series import name_of, noise_sentence
from .tables import table
from .words import show_ms

_SHOWN = (1, 2, 4, 8, 16, 32, 64)
_DEPTHS = (1, 2, 3, 4, 5, 7, 15, 31, 63)
_HARDLY = 0.0005  # a share that prints as 0.0 %
_FULL = 0.9


@dataclass(frozen=True, kw_only=True)
class SizeList:
    """The cheapest list of some length."""

    count: int  # number of its sizes
    sizes: Sequence[int]  # the sizes, increasing
    mean_ms: float  # mean time of a step that is padded to it
    padding: float  # share of that time that padding takes; negative where it passes slow sizes


@dataclass(frozen=True, kw_only=True)
class SizesDocument:
    """The sizes to run, capture or pad to: `sizes`."""

    recording: str  # the recording or file with the curve
    curve: str  # name of the curve; empty if it is the only one
    axis: str  # what a size counts
    noise: float  # relative standard error of a time
    noise_origin: str  # repeats, published, stated, estimated or assumed
    run: int | None  # size with the largest rate, under a stated limit; null if none is under it
    run_ms: float | None  # its time
    enough: int | None  # smallest size whose rate is within 10 % of that
    limit_ms: float | None  # the stated limit of a step's time; null without one
    exact_ms: float  # mean time of a step if every size had a graph of its own
    lists: Sequence[SizeList]  # the cheapest lists of one size, of two, …, of as many as asked for
    present: Sequence[int]  # the present list; empty if none is given
    present_ms: float | None  # mean time of a step that is padded to it; null without one
    # what the longest list saves against the present one, as a share of its time; null without one
    saving: Estimate | None
    options: Mapping[str, str]  # lines that set the longest list, by tool
    drafting: Drafting | None  # how many tokens to draft; null without an acceptance rate


def show_sizes(document: SizesDocument, curve: TimedCurve, axis: Axis, *, uniform: bool) -> None:
    """Print the sizes for a curve as text; `uniform`: every size was taken as equally frequent."""
    console = terminal.console()
    if document.drafting is not None:
        _show_drafting(console, document.drafting, curve)
        return
    for line in _lines(document, axis, uniform=uniform):
        style = "bold" if line.startswith(("Run", "Capture")) else ""
        console.print(Text(line, style))
    rows = table("sizes", "mean ms", "padding", "list", first="right", words=("list",))
    for listed in document.lists:
        if listed.count in _SHOWN or listed is document.lists[-1]:
            mean = number(listed.mean_ms)
            sizes = Text(_join(listed.sizes))
            padding = round(listed.padding, 3) + 0.0  # -0.0 becomes 0.0
            rows.add_row(str(listed.count), mean, f"{padding:.1%}", sizes)
    terminal.print_below(console, rows)
    console.print(Text(noise_sentence(curve), "dim"))
    terminal.print_below(console, Text("Options that set the last list:"))
    terminal.print_commands(console, *document.options.values())


def _join(sizes: Sequence[int]) -> str:
    return " ".join(map(str, sizes))


def _show_drafting(console: Console, drafting: Drafting, curve: TimedCurve) -> None:
    """Print how many tokens to draft, and what each number of them gives."""
    console.print(Text(_say_depth(drafting), "bold"))
    if drafting.loses_from is not None:
        console.print(f"From {counted(drafting.loses_from, 'token')} on drafting loses.")
    console.print("Drafts are taken as free: the time of a drafter comes on top.")
    rows = table("drafted", "pass ms", "tokens", "speed", "95 % interval", first="right")
    for depth in drafting.depths:
        if depth.drafted in (*_DEPTHS, drafting.best, drafting.loses_from):
            speed = depth.speedup
            rows.add_row(
                str(depth.drafted),
                number(depth.ms),
                f"{depth.tokens:.2f}",
                f"{speed.value:.2f}×",
                f"{speed.low:.2f} … {speed.high:.2f}",
            )
    terminal.print_below(console, rows)
    console.print(Text(noise_sentence(curve), "dim"))


def _say_depth(drafting: Drafting) -> str:
    rate = f"{drafting.acceptance:.0%} of drafted tokens accepted"
    if not drafting.best:
        return f"Draft nothing: with {rate} no depth is faster than one token a pass."
    best = next(depth for depth in drafting.depths if depth.drafted == drafting.best)
    speed = best.speedup
    gain = f"{speed.value:.2f} times the tokens a second ({speed.low:.2f} to {speed.high:.2f})"
    maybe = "" if speed.low > 1 else ", which this curve does not tell from none"
    return f"Draft {counted(best.drafted, 'token')} for each pass: with {rate} {gain}{maybe}."


def plan_sizes(
    curve: TimedCurve,
    axis: Axis,
    path: object,
    *,
    count: int,
    histogram: Mapping[int, float] | None,
    present: Sequence[int],
    limit_ms: float | None,
    acceptance: float | None = None,
) -> SizesDocument:
    """The sizes for a curve; `path` is what the user named."""
    if count < 1:
        raise CurvescopeError(f"--count {count}: ask for one size or more.")
    costs = costs_of(curve.fit, histogram)
    exact_ms = costs.exact_ms()
    lists = [_size_list(costs, sizes, exact_ms) for sizes in cheapest_lists(costs, count)]
    best = lists[-1].sizes
    run, enough = _sizes_to_run(curve, limit_ms)
    return SizesDocument(
        recording=str(path),
        curve=name_of(curve) if curve.problem or curve.device_name else "",
        axis=axis.name,
        noise=curve.noise,
        noise_origin=curve.noise_origin,
        run=run,
        run_ms=None if run is None else curve.curve.times_ms[run],
        enough=enough,
        limit_ms=limit_ms,
        exact_ms=exact_ms,
        lists=lists,
        present=present,
        present_ms=costs.padded_ms(present) if present else None,
        saving=costs.saving(best, present) if present else None,
        options=option_lines(best),
        drafting=None if acceptance is None else weigh_depths(curve.fit, acceptance),
    )


def _size_list(costs: SizeCosts, sizes: Sequence[int], exact_ms: float) -> SizeList:
    mean_ms = costs.padded_ms(sizes)
    padding = 1 - exact_ms / mean_ms
    return SizeList(count=len(sizes), sizes=sizes, mean_ms=mean_ms, padding=padding)


def _sizes_to_run(curve: TimedCurve, limit_ms: float | None) -> tuple[int | None, int | None]:
    """The measured size with the largest rate under a limit, and the smallest with 90 % of it."""
    rates = {}
    for size, time_ms in curve.curve.times_ms.items():
        if limit_ms is None or time_ms <= limit_ms:
            rates[size] = size / time_ms
    if not rates:
        return None, None
    run = max(rates, key=rates.__getitem__)
    least = _FULL * rates[run]
    enough = next(size for size, rate in rates.items() if rate >= least)
    return run, enough


def option_lines(sizes: Sequence[int]) -> dict[str, str]:
    """Lines that set a list of sizes, by tool; in TensorRT's each profile ends at a size."""
    tensorrt, low = ["trtexec"], 1
    for place, high in enumerate(sizes):
        most = f"--optShapes=INPUT:{high} --maxShapes=INPUT:{high}"
        tensorrt.append(f"--profile={place} --minShapes=INPUT:{low} {most}")
        low = high + 1
    capture = json.dumps({"cudagraph_capture_sizes": list(sizes)})
    spaced = _join(sizes)
    return {
        "vllm": f"vllm serve MODEL --cuda-graph-sizes {spaced}",
        "vllm_compilation_config": f"vllm serve MODEL --compilation-config '{capture}'",
        "sglang": f"python -m sglang.launch_server --cuda-graph-bs {spaced}",
        "tensorrt": " ".join(tensorrt),
    }


def _lines(document: SizesDocument, axis: Axis, *, uniform: bool) -> list[str]:
    lines = []
    if document.curve:
        lines.append(f"{document.curve}.")
    run, enough = document.run, ""
    if run is None:
        lines.append(f"No measured size takes {show_ms(document.limit_ms or 0)} or less.")
    else:
        if document.enough not in (None, run):
            enough = f"; {document.enough} has 90 % of its rate"
        most = f"the most {axis.unit} a second{enough}"
        time = show_ms(document.run_ms or 0)
        lines.append(f"Run {axis.name_size(run)}: {time}, {most}.")
    best = document.lists[-1]
    sizes = counted(best.count, "size")
    lines.append(f"Capture {sizes}, {_join(best.sizes)}: {_describe_padding(best.padding)}.")
    if document.saving is not None:
        saving = _describe_saving(document.saving)
        lines.append(f"Against {_join(document.present)} that {saving}.")
    if uniform:
        lines.append("Every size is taken as frequent as every other: --histogram tells others.")
    return lines


def _describe_padding(padding: float) -> str:
    """The share of a step's time that padding takes, or saves where it passes over slow sizes."""
    if padding < -_HARDLY:
        return f"padding past slow sizes saves {-padding:.1%} of the time of a step"
    return f"padding takes {max(padding, 0.0):.1%} of the time of a step"


def _describe_saving(saved: Estimate) -> str:
    """The saving of a list in the time of a step, with its interval."""
    interval = f"({saved.low:.1%} to {saved.high:.1%})"
    if saved.low <= 0 <= saved.high:
        return f"takes as long as far as the curve tells {interval}"
    return f"saves {saved.value:.1%} {interval} of the time of a step"
