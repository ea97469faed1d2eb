"""Everything that was found, as the blocks of a terminal."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.text import Text

from ...profiling.recording.axis import Axis
from ...profiling.recording.lost import describe_lost
from ...profiling.recording.store import STEP, Recording
from ..decompose.terms import NOT_RECORDED
from ..diagnosis.explanation import Explanation
from ..diagnosis.library_choice import candidates_command
from . import answers, causes, remedies, text, words
from .advice import suggestion_lines
from .blocks import EMPTY, Block
from .facts import recording_line
from .headline import headline, largest_sentence
from .notes import list_notes
from .shown import Shown
from .tables import Indented

_MODELLED = (
    "Modelled, not measured: intervals show the model's error on GPUs that it was not fitted to."
)


def _name_recording(shown: Shown) -> Block | None:
    return Block.lines([recording_line(shown.recording)], "bold")


def _caution_of_model(shown: Shown) -> Block | None:
    if not shown.is_modelled:
        return None
    return Block.lines([_MODELLED], "yellow")


def _draw_headline(shown: Shown) -> Block | None:
    return Block.lines([headline(shown.recording.meta, shown.diagnosis)], "bold", below=True)


def _advise_size(shown: Shown) -> Block | None:
    """Which batch size has the most throughput, and where the time of the largest one goes."""
    diagnosis = shown.diagnosis
    if shown.is_modelled or diagnosis.curve.unit != STEP:
        return None
    advice = remedies.size_advice(diagnosis)
    goes = largest_sentence(diagnosis, diagnosis.recorded.layer_classes)
    return Block.lines(filter(None, (advice, goes)))


def _draw_remedies(shown: Shown) -> Block | None:
    if not shown.diagnosis.remedies.attempts:
        return None
    rows = remedies.remedy_table(shown.diagnosis.remedies, shown.axis)
    return Block((remedies.render_remedies(rows, shown.axis, shown.everything),), below=True)


def _list_answers(shown: Shown) -> Block | None:
    if not shown.diagnosis.answers:
        return None
    rows = remedies.remedy_table(shown.diagnosis.remedies, shown.axis).rows
    listed = answers.render_answers(shown.diagnosis.answers, [row.how for row in rows])
    return Block((listed,), below=True)


def _say_how_to_test(shown: Shown) -> Block | None:
    how = answers.how_to_test(shown.recording, shown.diagnosis)
    if how is None:
        return None
    sentence, command = how
    return Block((Text(sentence),), (command,) if command else (), below=True)


def _list_suggestions(shown: Shown) -> Block | None:
    if shown.advice is None:
        return None
    return Block.lines(suggestion_lines(shown.advice, shown.axis))


def _leave_line(_: Shown) -> Block:
    return EMPTY


def _list_warnings(shown: Shown) -> Block | None:
    return Block.lines(shown.recording.meta.get("warnings", []), "yellow")


def _list_notes(shown: Shown) -> Block | None:
    return Block.lines(list_notes(shown.diagnosis), "dim")


def _draw_curve(shown: Shown) -> Block:
    has_rates = not shown.recording.meta.get("same_shapes")
    return Block((text.render_curve(shown.diagnosis.curve, shown.axis, has_rates=has_rates),))


def _warn_of_spread(shown: Shown) -> Block | None:
    warning = text.spread_note(shown.diagnosis.curve, shown.diagnosis.findings)
    return Block.lines([warning], "yellow") if warning and not shown.is_modelled else None


def _draw_findings(shown: Shown) -> Block | None:
    if shown.diagnosis.curve.unit != STEP:
        return None
    return Block((text.render_findings(shown.diagnosis.findings, shown.axis),), below=True)


def _list_split(shown: Shown) -> list[Explanation]:
    """The anomalies and the fixed cost, or the choice of the user."""
    fixed = shown.diagnosis.fixed_cost
    has_fixed = fixed is not None and not shown.is_asked
    return [*shown.explanations, *([fixed] if fixed and has_fixed else [])]


def _draw_explanations(shown: Shown) -> Block | None:
    parts: list[RenderableType] = []
    for explanation in _list_split(shown):
        parts += [Text(), *draw_explanation(explanation, shown.axis, shown.everything)]
    return Block(tuple(parts)) if parts else None


def draw_explanation(
    explanation: Explanation, axis: Axis, everything: bool
) -> list[RenderableType]:
    """The terms of one anomaly, its causes, and the experiments on them."""
    label = explanation.functional.label
    parts = [text.render_explanation(explanation, everything)]
    parts += [Text(), Text(f"Causes of {label}", "bold")]
    if explanation.evidence is None:
        parts.append(Indented(Text(causes.verdict_sentence(explanation))))
    parts.append(causes.render_causes(explanation, everything))
    if explanation.evidence:
        parts += [Text(), Text(f"Experiments on {label}", "bold")]
        parts.append(answers.render_evidence(explanation, axis, everything))
    return parts


def _explain_marks(shown: Shown) -> Block | None:
    split = _list_split(shown)
    return Block((text.render_legend(split),), below=True) if split else None


def _list_gaps(shown: Shown) -> Block:
    lines = gap_lines(shown.recording, shown.axis)
    return Block(tuple(Text(line, "yellow") for line in lines), below=True)


def _list_next(shown: Shown) -> Block:
    """What to look at next."""
    diagnosis, path = shown.diagnosis, shown.recording.named
    sizes = [part.batch for part in diagnosis.certain]
    sizes += [explanation.functional.at for explanation in shown.explanations]
    example = sizes[0] if sizes else diagnosis.curve.conditions[-1]
    commands = []
    if by := _choose_grouping(shown):
        commands.append(f"curvescope breakdown {path} --by {by} --at {example}")
    if not shown.is_modelled and (command := candidates_command(shown.recording, diagnosis)):
        commands.append(command)
    if not shown.everything:
        commands.append(f"curvescope explain {path} --all")
    return Block((Text(f"Recorded in {path}. Next:"),), tuple(commands))


def _choose_grouping(shown: Shown) -> str | None:
    """The grouping of a breakdown: layers, else operators, else kernels; None if nothing was
    recorded of a step.
    """
    terms = shown.diagnosis.terms
    if terms is None or all(key.kind == NOT_RECORDED for key in terms.keys):
        return None
    if any(key.layer is not None for key in terms.keys):
        return "layer"
    pieces = shown.recording.pieces("kernels", ["op"])
    has_operators = any(part["op"].null_count < part.num_rows for part in pieces)
    return "op" if has_operators else "kernel"


# The answers, the curve, its tests, and each anomaly with terms, causes and experiments; what was
# asked for alone is said with its terms.
EVERYTHING = (
    _name_recording,
    _caution_of_model,
    _draw_headline,
    _advise_size,
    _draw_remedies,
    _list_answers,
    _say_how_to_test,
    _list_suggestions,
    _leave_line,
    _list_notes,
    _draw_curve,
    _warn_of_spread,
    _draw_findings,
    _draw_explanations,
    _explain_marks,
    _list_gaps,
    _list_warnings,
    _list_next,
)


def gap_lines(recording: Recording, axis: Axis | None) -> list[str]:
    """The lost data of a recording, the sizes of an axis that could not be measured, and whether it
    is incomplete.
    """
    lines = [*describe_lost(recording.meta.get("lost", {}), on_host=recording.on_host)]
    if axis is not None:
        lines += words.list_unmeasured(recording.meta, axis)
    if not recording.complete:
        lines.append(f"This recording is not complete (status: {recording.meta['status']}).")
    return lines


def show_gaps(console: Console, recording: Recording, axis: Axis | None) -> None:
    """Print `gap_lines`."""
    for line in gap_lines(recording, axis):
        console.print(Text(line, "yellow"))
