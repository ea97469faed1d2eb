"""Output of `diagnose` and `explain`: a diagnosis as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...profiling.recording.axis import Axis
from ...profiling.recording.experiments import FactorFacts
from ...profiling.recording.lost import describe_lost
from ...profiling.recording.store import KERNEL, STEP, Recording, is_modelled
from .. import time_tables
from ..decompose import functionals
from ..decompose.findings import FindingVerdict
from ..decompose.terms import NOT_RECORDED
from ..diagnosis import split
from ..diagnosis.explain import explain
from ..diagnosis.explanation import Explanation
from ..diagnosis.library_choice import candidates_command
from ..diagnosis.result import Diagnosis
from ..diagnosis.suggested import suggested_beside
from ..ran_by import framework_of, step_threads
from . import answers, causes, remedies, series, terminal, text, words
from .advice import suggested_lines
from .documents import print_document
from .explained import ExplainDocument
from .headline import clock_line, headline, largest_clauses
from .tables import Indented

_MOST_ANSWERS = 4  # beside remedies; the page of a terminal is short


def show_diagnosis(
    recording: Recording,
    *,
    axis: str = "log2",
    pair: str | None = None,
    at: int | None = None,
    mode: str | None = None,
    by_instance: bool = False,
    everything: bool = False,
    as_json: bool = False,
    facts: Mapping[str, FactorFacts] | None = None,
) -> None:
    """Print the answers, the curve and the largest terms of the two largest anomalies; or
    everything; or JSON.

    Split is the excess of a `pair`, e.g. `4,8`, or the curvature `at` a batch size, in place of the
    anomalies. `mode` is that of the steps of an inference server; default: the one with most sizes.
    With the `facts` of the factors of complete steps, it prints what profiled steps suggest, too.
    """
    diagnosis = explain(recording, axis, mode, by_instance=by_instance)
    explanations = diagnosis.explanations
    if pair is not None or at is not None:
        if diagnosis.terms is None:
            raise CurvescopeError(
                f"{recording.path} has no profiled step: its anomalies can be tested but not split."
            )
        assert diagnosis.recorded is not None
        functional = _asked_for(diagnosis.curve.conditions, axis, pair, at)
        split_before = diagnosis.curve, diagnosis.terms, diagnosis.kernel_times, diagnosis.recorded
        answered = [answer for answer in diagnosis.answers if answer.functional == functional]
        explanations = (answered[0] if answered else split.explain(functional, *split_before),)
    if as_json:
        print_document(ExplainDocument.of(recording, diagnosis, explanations))
        return
    console = terminal.console()
    console.print(recording_line(recording), style="bold")
    if modelled := is_modelled(recording.meta):
        caution = (
            "Modelled, not measured: intervals show the model's error on GPUs that it was not "
            "fitted to."
        )
        console.print(Text(caution, "yellow"))
    terminal.print_below(console, Text(headline(recording.meta, diagnosis), "bold"))
    for line in words.unmeasured_lines(recording.meta, diagnosis.axis):
        console.print(Text(line, "yellow"))
    if not modelled and diagnosis.curve.unit == STEP:
        _show_sizes(console, recording, diagnosis)
    shown = remedies.remedy_table(diagnosis.remedies, diagnosis.axis)
    if diagnosis.remedies.tried:
        terminal.print_below(console, remedies.render_remedies(shown, diagnosis.axis, everything))
    if diagnosis.answers:
        most = _MOST_ANSWERS if shown.rows and not everything else len(diagnosis.answers)
        hidden = words.hidden_note(len(diagnosis.answers[most:]), "further answer")
        listed = answers.render_answers(diagnosis.answers[:most], [row.how for row in shown.rows])
        terminal.print_below(console, listed, *hidden)
    if how := answers.how_to_test(recording, diagnosis):
        terminal.print_below(console, Text(how[0]))
        terminal.print_commands(console, *filter(None, how[1:]))
    if facts is not None and (advice := suggested_beside(recording, diagnosis, facts)):
        for line in suggested_lines(advice, diagnosis.axis):
            console.print(Text(line))
    console.print()
    for line in recording.meta.get("warnings", []):
        console.print(Text(line, "yellow"))
    for line in diagnosis.notes:
        console.print(Text(line, "dim"))
    asked = explanations is not diagnosis.explanations
    full = everything or asked or axis != "log2"
    has_rates = not recording.meta.get("same_shapes")
    curve = text.render_curve(diagnosis.curve, diagnosis.axis, brief=not full, has_rates=has_rates)
    console.print(curve)
    if (warning := text.spread_note(diagnosis.curve, diagnosis.findings)) and not modelled:
        console.print(Text(warning, "yellow"))
    if (full or not explanations) and diagnosis.curve.unit == STEP:
        terminal.print_below(console, text.render_findings(diagnosis.findings, diagnosis.axis))
    fixed = [diagnosis.fixed_cost] if diagnosis.fixed_cost and not asked else []
    few = 1 if shown.rows else text.SHOWN_EXPLANATIONS
    for explanation in [*explanations, *fixed][: None if full else few]:
        if full:
            _show_explanation(console, explanation, diagnosis.axis, everything)
        else:
            terminal.print_below(console, text.render_largest(explanation))
    if full and (explanations or fixed):
        terminal.print_below(console, text.render_legend([*explanations, *fixed]))
    console.print()
    show_gaps(console, recording, None)  # sizes without data stand above
    console.print(Text(f"Recorded in {recording.path}. Next:"))
    example = explanations[0].functional.at if explanations else diagnosis.curve.conditions[-1]
    if by := _grouping(recording, diagnosis):
        terminal.print_commands(
            console, f"curvescope breakdown {recording.path} --by {by} --batch {example}"
        )
    if not modelled and (command := candidates_command(recording, diagnosis)):
        terminal.print_commands(console, command)
    if not everything:
        terminal.print_commands(console, f"curvescope explain {recording.path} --all")


def _show_sizes(console: Console, recording: Recording, diagnosis: Diagnosis) -> None:
    """Print which batch size has the most throughput, and where the time of the largest
    one goes.
    """
    if advice := remedies.size_advice(diagnosis.curve, diagnosis.axis, recording.meta):
        console.print(Text(advice))
    classes = diagnosis.recorded.layer_classes if diagnosis.recorded else {}
    if goes := largest_clauses(diagnosis, classes):
        largest = f"{diagnosis.axis.name.capitalize()} {diagnosis.curve.conditions[-1]}"
        console.print(Text(f"{largest}: {goes}."))


def _grouping(recording: Recording, diagnosis: Diagnosis) -> str | None:
    """What a breakdown can group by: layers, else operators, else kernels; None if nothing was
    recorded of a step.
    """
    if diagnosis.terms is None or all(key.kind == NOT_RECORDED for key in diagnosis.terms.keys):
        return None
    if any(key.layer is not None for key in diagnosis.terms.keys):
        return "layer"
    has_operators = any(
        part["op"].null_count < part.num_rows for part in recording.pieces("kernels", ["op"])
    )
    return "op" if has_operators else "kernel"


def show_gaps(console: Console, recording: Recording, axis: Axis | None) -> None:
    """Print what a recording lost, the sizes of an axis that could not be measured, and whether it
    is incomplete.
    """
    on_host = recording.work != KERNEL
    for line in describe_lost(recording.meta.get("lost", {}), on_host=on_host):
        console.print(Text(line, "yellow"))
    for line in words.unmeasured_lines(recording.meta, axis) if axis is not None else ():
        console.print(Text(line, "yellow"))
    if not recording.complete:
        console.print(
            Text(f"This recording is not complete (status: {recording.meta['status']}).", "yellow")
        )


def _show_explanation(
    console: Console, explanation: Explanation, axis: Axis, everything: bool
) -> None:
    label = explanation.functional.label
    split_up = text.render_explanation(explanation, everything)
    terminal.print_below(console, split_up, Text(), Text(f"Causes of {label}", "bold"))
    if explanation.evidence is None:
        console.print(Indented(Text(causes.verdict_sentence(explanation))))
    console.print(causes.render_causes(explanation, everything))
    if explanation.evidence:
        evidence = answers.render_evidence(explanation, axis, everything)
        terminal.print_below(console, Text(f"Experiments on {label}", "bold"), evidence)


def show_table(
    recording: Recording,
    path: object,
    *,
    axis: str = "log2",
    problem: str | None = None,
    noise: float | None = None,
    everything: bool = False,
    as_json: bool = False,
) -> None:
    """Print the anomalies of every curve of a table of times; or a single curve in full.

    `path` is the recording, or the table, that the user named. `problem` holds words that the name
    of a curve's problem or device must have; `noise` is a standard error in place of the
    recording's, without which the table gives an estimate.
    """
    steps = recording.frame("steps")
    noise, origin = time_tables.choose_noise(
        steps, recording.meta.get("noise") if noise is None else noise
    )
    listed = time_tables.find_all(steps, noise, axis, recording.statistic)
    if problem is not None:
        words = problem.casefold().split()
        listed = tuple(
            s
            for s in listed
            if all(word in f"{s.problem} {s.device_name}".casefold() for word in words)
        )
        if not listed:
            raise CurvescopeError(
                f"--problem {problem}: no problem or device of {path} matches these words."
            )
    if as_json:
        curves = [
            series.TimedSeries(
                answer.problem, answer.device_name, answer.curve.points, answer.findings
            )
            for answer in listed
        ]
        print_document(
            series.TimesDocument(str(path), noise, origin, curves, time_tables.pool(listed))
        )
        return
    console = terminal.console()
    console.print(series.render_series(listed, everything))
    console.print(Text(series.noise_sentence(noise, origin), "dim"))
    if len(listed) > 1:
        console.print(Text("Next: a single curve, by words of its problem and device:"))
        example = next(
            (s for s in listed if any(f.verdict == FindingVerdict.ANOMALY for f in s.findings)),
            listed[0],
        )
        named = " ".join(filter(None, (example.problem, example.device_name)))
        terminal.print_commands(console, f'curvescope explain {path} --problem "{named}"')


def _asked_for(
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


def recording_line(recording: Recording) -> str:
    """What was recorded, where and how; unknown facts are omitted."""
    meta = recording.meta
    device, protocol = meta.get("device") or {}, meta.get("protocol") or {}
    precision = meta.get("precision") or "fp32"
    threads = step_threads(recording)
    facts = (
        meta.get("network") or recording.path.name,
        f"{meta['mode']} step" if meta.get("mode") else None,
        framework_of(recording) if meta.get("frameworks") else None,
        precision if precision != "fp32" else None,
        "compiled" if meta.get("compiled") else None,
        "replayed as a CUDA graph" if meta.get("graphed") else None,
        device.get("name"),
        f"protocol {protocol['name']}" if protocol.get("name") else None,
        counted(threads, "thread") if threads else None,
        *(f"{name} {value}" for name, value in (meta.get("fixed") or {}).items()),
        clock_line(meta),
    )
    return ", ".join(filter(None, facts))
