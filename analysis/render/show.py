"""Output of `diagnose` and `explain`: a diagnosis as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from rich.text import Text

from ...base.errors import CurvescopeError
from ...profiling.recording.axis import axis_of
from ...profiling.recording.experiments import FactorFacts
from ...profiling.recording.lost import describe_lost
from ...profiling.recording.store import Recording
from .. import time_tables
from ..curve_shapes import claimed
from ..decompose import functionals
from ..diagnosis.explain import explain, explain_one
from ..diagnosis.suggested import suggest_beside
from . import series, terminal
from .blocks import print_view
from .documents import print_document
from .everything import EVERYTHING
from .explained import ExplainDocument
from .finding import show_finding
from .page import Page
from .shown import Renderer, Shown
from .summary import summarize


def show_diagnosis(
    recording: Recording,
    *,
    axis: str = "log2",
    pair: str | None = None,
    at: int | None = None,
    mode: str | None = None,
    by_instance: bool = False,
    finding: int | None = None,
    everything: bool = False,
    as_json: bool = False,
    facts: Mapping[str, FactorFacts] | None = None,
) -> None:
    """Print the answer on one page; or one finding of it in full; or everything; or JSON.

    Split is the excess of a `pair`, e.g. `4,8`, or the curvature `at` a batch size, in place of the
    anomalies. `mode` chooses the steps of an inference server; default: the one with most sizes.
    With the `facts` of the factors of complete steps, it prints what profiled steps suggest, too.
    """
    diagnosis = explain(recording, axis, mode, by_instance=by_instance)
    shown = Shown(diagnosis, diagnosis.explanations, everything=everything)
    if pair is not None or at is not None:
        if diagnosis.terms is None:
            raise CurvescopeError(
                f"{recording.named} has no profiled step: its anomalies can be tested but not "
                "split."
            )
        functional = _choose_functional(diagnosis.curve.conditions, axis, pair, at)
        shown = replace(shown, explanations=(explain_one(diagnosis, functional),))
    if as_json:
        draw: Renderer[None] = _print_json
    elif finding is not None:
        draw = partial(show_finding, place=finding)
    elif everything or shown.is_asked or axis != "log2":
        draw = _print_everything
    else:
        draw = _print_page
    if facts is not None and not as_json:
        shown = replace(shown, advice=suggest_beside(recording, diagnosis, facts))
    draw(shown)


def _print_json(shown: Shown) -> None:
    print_document(ExplainDocument.of(shown))


def _print_everything(shown: Shown) -> None:
    print_view(terminal.console(), EVERYTHING, shown)


def _print_page(shown: Shown) -> None:
    console = terminal.console()
    for line in Page(summarize(shown.diagnosis, shown.advice)).lines(console.width):
        console.print(line, soft_wrap=True)


def show_table(
    recording: Recording,
    path: object,
    *,
    problem: str | None = None,
    noise: float | None = None,
    everything: bool = False,
    as_json: bool = False,
) -> None:
    """Print the shape of every curve of a table of times; or a single curve in full.

    `path` is the recording, or the table, that the user named. `problem` holds words that the name
    of a curve's problem or device must have; `noise` is a standard error in place of the
    recording's.
    """
    steps = recording.frame("steps")
    stated = recording.meta.get("noise") if noise is None else noise
    axis = axis_of(recording.meta)
    listed = time_tables.explain_curves(steps, stated, recording.statistic)
    listed = series.choose_curves(listed, problem, path)
    if as_json:
        print_document(series.document_of(path, listed, axis))
        return
    console = terminal.console()
    console.print(series.render_series(listed, axis, everything))
    for line in describe_lost(recording.meta.get("lost", {})):
        console.print(Text(line, "dim"))
    if len(listed) > 1:
        console.print(Text("Next: a single curve, by words of its problem and device:"))
        example = next((curve for curve in listed if claimed(curve.events)), listed[0])
        terminal.print_commands(
            console, f'curvescope explain {path} --problem "{series.name_of(example)}"'
        )


def _choose_functional(
    batches: tuple[int, ...], axis: str, pair: str | None, at: int | None
) -> functionals.Functional:
    measured = f"the recording has batch {', '.join(map(str, batches))}"
    if pair is not None:
        try:
            small, large = sorted(int(size) for size in pair.split(","))
        except ValueError:
            raise CurvescopeError(
                f"--pair {pair}: write two batch sizes, e.g. 4,8; {measured}."
            ) from None
        if not {small, large} <= set(batches) or small == large:
            raise CurvescopeError(f"--pair {pair}: {measured}.")
        return functionals.excess(small, large)
    _, inner = functionals.neighbours(batches)
    for points in inner:
        if points[1] == at:
            # A throughput is no sum of terms; the bend behind it is.
            return (
                functionals.bend(*points)
                if axis == "throughput"
                else functionals.curvature(*points, axis)
            )
    raise CurvescopeError(
        f"--at {at}: a curvature needs a measured batch size with a neighbour on each side; "
        f"{measured}."
    )
