"""Output of `diagnose` and `explain`: a diagnosis as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from ...base.errors import CurvescopeError
from ...profiling.recording.axis import Axis, axis_of
from ...profiling.recording.experiments import FactorFacts
from ...profiling.recording.lost import describe_lost
from ...profiling.recording.store import KERNEL, STEP, Recording, is_modelled
from .. import time_tables
from ..causes.host import LOAD_FASTER, LOAD_HOW
from ..curve_shapes import claimed
from ..decompose import functionals
from ..decompose.terms import NOT_RECORDED
from ..diagnosis import split
from ..diagnosis.explain import explain
from ..diagnosis.explanation import Explanation
from ..diagnosis.library_choice import candidates_command
from ..diagnosis.result import Diagnosis
from ..diagnosis.suggested import Advice, suggested_beside
from . import answers, causes, remedies, series, terminal, text, words
from .advice import render_suggestion, suggested_lines
from .documents import print_document
from .explained import ExplainDocument
from .facts import recording_line
from .found import SURE, find_all
from .headline import certain_sentence, headline, largest_sentence
from .page import Page
from .tables import Indented


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
    asked = explanations is not diagnosis.explanations
    advice = None if facts is None else suggested_beside(recording, diagnosis, facts)
    if finding is not None:
        show_finding(console, recording, diagnosis, finding, advice)
    elif everything or asked or axis != "log2":
        _show_everything(console, recording, diagnosis, explanations, everything, advice)
    else:
        for line in Page(diagnosis, advice).lines(console.width):
            console.print(line, soft_wrap=True)


def _show_everything(
    console: Console,
    recording: Recording,
    diagnosis: Diagnosis,
    explanations: Sequence[Explanation],
    everything: bool,
    advice: Advice | None,
) -> None:
    """Print the answers, the curve, its tests, and each anomaly with terms, causes and experiments;
    those asked for alone are said with their terms.
    """
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
        listed = answers.render_answers(diagnosis.answers, [row.how for row in shown.rows])
        terminal.print_below(console, listed)
    if how := answers.how_to_test(recording, diagnosis):
        terminal.print_below(console, Text(how[0]))
        terminal.print_commands(console, *filter(None, how[1:]))
    if advice is not None:
        for line in suggested_lines(advice, diagnosis.axis):
            console.print(Text(line))
    console.print()
    for line in recording.meta.get("warnings", []):
        console.print(Text(line, "yellow"))
    for line in diagnosis.notes:
        console.print(Text(line, "dim"))
    has_rates = not recording.meta.get("same_shapes")
    console.print(text.render_curve(diagnosis.curve, diagnosis.axis, has_rates=has_rates))
    if (warning := text.spread_note(diagnosis.curve, diagnosis.findings)) and not modelled:
        console.print(Text(warning, "yellow"))
    if diagnosis.curve.unit == STEP:
        terminal.print_below(console, text.render_findings(diagnosis.findings, diagnosis.axis))
    asked = explanations is not diagnosis.explanations
    fixed = [diagnosis.fixed_cost] if diagnosis.fixed_cost and not asked else []
    for explanation in [*explanations, *fixed]:
        _show_explanation(console, explanation, diagnosis.axis, everything)
    if explanations or fixed:
        terminal.print_below(console, text.render_legend([*explanations, *fixed]))
    console.print()
    show_gaps(console, recording, None)  # sizes without data stand above
    console.print(Text(f"Recorded in {recording.path}. Next:"))
    sizes = [*(part.batch for part in diagnosis.certain), *(e.functional.at for e in explanations)]
    example = sizes[0] if sizes else diagnosis.curve.conditions[-1]
    if by := _grouping(recording, diagnosis):
        terminal.print_commands(
            console, f"curvescope breakdown {recording.path} --by {by} --batch {example}"
        )
    if not modelled and (command := candidates_command(recording, diagnosis)):
        terminal.print_commands(console, command)
    if not everything:
        terminal.print_commands(console, f"curvescope explain {recording.path} --all")


def show_finding(
    console: Console,
    recording: Recording,
    diagnosis: Diagnosis,
    place: int,
    advice: Advice | None = None,
) -> None:
    """Print one finding of the page in full: what, why, how sure that is, and how to change it."""
    found = find_all(diagnosis, advice)
    if not 1 <= place <= len(found):
        has = f"findings 1 to {len(found)}" if found else "no finding"
        raise CurvescopeError(f"Finding {place}: {recording.path} has {has}.")
    chosen, axis = found[place - 1], diagnosis.axis
    worth = ", ".join(f"{share} at {axis.name} {size}" for size, share in chosen.worth)
    console.print(Text(f"{place}  {chosen.what}", "bold"))
    console.print(
        Text(f"Of a step: {worth or 'unknown'}. How sure: {chosen.sure}. {SURE[chosen.sure]}")
    )
    if chosen.certain is not None:
        said = certain_sentence(chosen.certain, axis)
        terminal.print_below(console, Text(said[0].upper() + said[1:]))
        pair = ",".join(map(str, chosen.certain.functional.conditions[-2:]))
        terminal.print_commands(console, f"curvescope explain {recording.path} --pair {pair}")
    if chosen.slow is not None:
        terminal.print_below(console, Text(chosen.slow.sentence))
        if chosen.slow.waits_for_input:
            console.print(Indented(Text(f"{LOAD_FASTER}: {LOAD_HOW}."), label="Do:  "))
    if chosen.advised is not None and advice is not None:
        terminal.print_below(console, render_suggestion(place, chosen.advised, advice))
    if chosen.saving is not None:
        row = remedies.remedy_row(chosen.saving)
        terminal.print_below(console, *remedies.render_row(row, axis))
    if chosen.answers:
        terminal.print_below(console, answers.render_answers(chosen.answers))
    for explanation in chosen.answers:
        _show_explanation(console, explanation, axis, everything=False)
    if chosen.answers:
        terminal.print_below(console, text.render_legend(chosen.answers))
        if command := candidates_command(
            recording, replace(diagnosis, explanations=chosen.answers)
        ):
            terminal.print_below(console, Text("What the library could do better:"))
            terminal.print_commands(console, command)


def _show_sizes(console: Console, recording: Recording, diagnosis: Diagnosis) -> None:
    """Print which batch size has the most throughput, and where the time of the largest
    one goes.
    """
    if advice := remedies.size_advice(diagnosis.curve, diagnosis.axis, recording.meta):
        console.print(Text(advice))
    classes = diagnosis.recorded.layer_classes if diagnosis.recorded else {}
    if goes := largest_sentence(diagnosis, classes):
        console.print(Text(goes))


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
        example = next((one for one in listed if claimed(one.events)), listed[0])
        terminal.print_commands(
            console, f'curvescope explain {path} --problem "{series.name_of(example)}"'
        )


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
