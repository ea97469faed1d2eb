"""Answers and experiments as text for a terminal: findings, remedies, and the result of each
experiment.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import with_sign
from ...profiling.recording.axis import Axis
from ...profiling.recording.experiment_entries import why_not_replayed
from ...profiling.recording.store import Recording, is_modelled
from ..decompose.statistics import Estimate
from ..diagnosis.explanation import Explanation, Remedy, TermEvidence
from ..diagnosis.result import Diagnosis
from ..verdicts.outcome import Outcome
from ..verdicts.shape import Shape
from ..verdicts.words import Reproduction, Verdict
from . import answer_words
from .tables import Indented, table
from .words import begin_sentence, dim, interval, list_values, note_hidden

VERDICT_STYLES = {Verdict.CONFIRMED: "bold green", Verdict.REFUTED: "", Verdict.UNDECIDED: "yellow"}
_SHOWN_FACTORS = 6
_USUAL_REST_S, _REST_MARGIN = 240.0, 1.2
_NAMED_REST = 4  # of what is left to test
_MARKS = "¹²³⁴⁵⁶⁷⁸⁹"  # of reasons, in the order of the table
_REPRODUCTIONS: Mapping[Reproduction | None, str] = {
    Reproduction.REPRODUCES: "shows its share in isolation",
    Reproduction.PARTLY: "shows part of its share in isolation",
    Reproduction.NOT: "does not show its share in isolation",
}
_NOT_DISTINGUISHED = "in isolation, not yet distinguished from its share"


def render_answers(
    answers: Sequence[Explanation], already_said: Collection[str | None] = ()
) -> RenderableType:
    """Each answer: what, where, why and how sure, then what to do and how, unless that setting is
    among `already_said`.
    """
    blocks: list[RenderableType] = []
    shown: dict[str, int] = {}
    said: set[str] = set()  # of libraries
    for number, answer in enumerate(answers, 1):
        finding, sure = Text(answer_words.finding(answer)), answer_words.how_sure(answer)
        finding.highlight_words([sure], VERDICT_STYLES.get(answer.verdict, ""))
        lines: list[RenderableType] = [finding]
        better = answer_words.library(answer)
        if better and better not in said:
            said.add(better)
            lines.append(Text(better))
        if answer.remedy is not None:
            lines.append(Indented(Text(answer_words.advice(answer)), label="Do:  "))
        if answer.remedy is not None and answer.remedy.how:
            how = answer.remedy.how
            first = shown.setdefault(how, number)
            if how in already_said:
                how = "as above."
            elif first != number:
                how = f"as in {first}."
            lines.append(Indented(Text(how), label="How: "))
        blocks.append(Indented(*lines, label=Text(f"{number}. ", "bold")))
    return Group(*blocks)


def how_to_test(recording: Recording, diagnosis: Diagnosis) -> tuple[str, str | None] | None:
    """How to test the untested causes, or why nobody can: a sentence, and a command that it
    announces.

    None if nothing is left to test, or if all is decided that the time for experiments was enough
    for.
    """
    meta = recording.meta
    if is_modelled(meta):
        return None
    command = f"curvescope confirm {recording.named}"
    left = meta.get("experiments_rest")
    if diagnosis.outcomes or left:
        if not left and not meta.get("experiments_wait_for_time"):
            return None
        left = left or {"seconds": _USUAL_REST_S, "what": []}
        minutes = max(1, math.ceil(_REST_MARGIN * left["seconds"] / 60))
        why, rest = "The time for experiments was up.", "the rest"
        if not meta.get("experiments"):
            why, rest = "No experiment was made: none fits the time.", "what there is to try"
        what = f"{rest}{_name_rest(left['what'])}"
        takes = f"takes about {minutes} min{_still_open(left)}"
        return f"{why} On the same machine, {what} {takes}:", f"{command} --experiments {minutes}m"
    against = why_not_replayed(recording)
    if (not diagnosis.answers and against) or diagnosis.difference is not None:
        return None
    if against:
        return f"No cause can be tested by experiment: the recording {against}.", None
    untested = "No cause is tested and no remedy is tried yet."
    return f"{untested} On the same machine, this runs the experiments:", command


def _name_rest(what: Sequence[str]) -> str:
    """The first of the experiments that are left, in parentheses."""
    if not what:
        return ""
    more = ", …" if len(what) > _NAMED_REST else ""
    return f" ({', '.join(what[:_NAMED_REST])}{more})"


def _still_open(left: Mapping[str, Any]) -> str:
    """What the rest of the experiments may decide, as a part of a sentence; empty where a recording
    does not say.
    """
    labels, changes = left.get("of", ()), left.get("changes", 0)
    parts = []
    if labels:
        parts.append(f"the causes of {' and '.join(labels[:_NAMED_REST])}")
    if changes:
        verb = "saves" if changes == 1 else "save"
        parts.append(f"what {counted(changes, 'change')} {verb}")
    return f" and may decide {', and '.join(parts)}" if parts else ""


def remedy_text(remedy: Remedy | None) -> str | None:
    """How to set a remedy; None without one, or if its sentence says it."""
    return f"How: {remedy.how}" if remedy is not None and remedy.how else None


def render_evidence(answer: Explanation, axis: Axis, everything: bool = False) -> RenderableType:
    """The experiments behind an answer: each term alone, then each factor that was changed."""
    blocks: list[RenderableType] = []
    for index, evidence in enumerate(answer.evidence or ()):
        if index:
            blocks.append(Text())
        blocks.append(Text(reproduction_sentence(evidence, answer.functional.unit)))
        if evidence.shape is not None:
            blocks.append(Text(shape_sentence(evidence.shape)))
        blocks += _factors(evidence, axis, everything)
        blocks += dim(notes(evidence))
    return Indented(*blocks)


def reproduction_sentence(evidence: TermEvidence, unit: str) -> str:
    """Whether a term shows its share of the anomaly alone, with both values."""
    label, outcome = evidence.label, evidence.alone
    alone = outcome.value if outcome is not None else None
    if evidence.share is None:
        if not alone:
            return "The complete step was not run."
        return f"The complete step, unprofiled: {_value(alone, unit)}."
    in_step = f"in the step it is {_value(evidence.share, unit)}"
    if alone is None:
        reason = f": {outcome.reason}" if outcome is not None and outcome.reason else ""
        return f"{label} was not run in isolation{reason}; {in_step}."
    says = _REPRODUCTIONS.get(evidence.reproduction, _NOT_DISTINGUISHED)
    text = f"{label} {says}: {_value(alone, unit)}; {in_step}."
    if evidence.reproduction == Reproduction.NOT:
        text += " The rest of the step makes it: caches, the allocator, overlap or neighbours."
    return text


def shape_sentence(shape: Shape) -> str:
    """The shape of the curve on the finer grid."""
    sentence = shape.sentence.rstrip(".")
    return f"On a finer grid: {sentence[0].lower()}{sentence[1:]}."


def notes(evidence: TermEvidence) -> list[str]:
    """Observations of the runners on these experiments, each once."""
    said: dict[str, None] = {}
    for outcome in (evidence.alone, *evidence.factors):
        if outcome is not None:
            said |= dict.fromkeys(outcome.experiment.notes)
    return list(said)


def factor_text(outcome: Outcome) -> str:
    """The change that a factor makes, as a clause."""
    return outcome.facts.what if outcome.facts is not None else str(outcome.factor)


def _factors(evidence: TermEvidence, axis: Axis, everything: bool) -> Iterable[RenderableType]:
    ran = [factor for factor in evidence.factors if factor.verdict != Verdict.UNTESTED]
    untested = [factor for factor in evidence.factors if factor.verdict == Verdict.UNTESTED]
    listed = ran if everything else ran[:_SHOWN_FACTORS]
    if listed:
        heads = ("with this change", "removes", time_heading(listed[0], axis), "verdict", "factor")
        rows = table(*heads, left=heads[3:], words=heads[:1], optional=("factor",))
        marks = _marks(listed)
        for outcome in listed:
            mark = ""
            if outcome.verdict == Verdict.UNDECIDED:
                mark = marks.get(outcome.reason or "", "")
            style = VERDICT_STYLES.get(outcome.verdict, "dim")
            verdict = Text(f"{outcome.verdict}{mark}", style)
            cells = factor_cells(outcome)
            rows.add_row(factor_text(outcome), *cells, verdict, str(outcome.factor))
        yield Indented(rows)
        for reason, mark in marks.items():
            said = f"{mark.strip()} {begin_sentence(reason)}."
            yield Text(said, "dim")
    yield from note_hidden(len(ran) - len(listed), "further change")
    if everything:
        yield from dim(f"Untested ({factor_text(left)}): {left.reason}." for left in untested)
    elif untested:
        names = list_values(outcome.factor for outcome in untested)
        yield Text(f"Untested: {names}; --all says why.", "dim")


def _marks(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """A mark for each reason why changes are undecided, by reason."""
    reasons: dict[str, str] = {}
    for outcome in outcomes:
        reason = outcome.reason
        is_new = reason and reason not in reasons and len(reasons) < len(_MARKS)
        if reason and is_new and outcome.verdict == Verdict.UNDECIDED:
            reasons[reason] = f" {_MARKS[len(reasons)]}"
    return reasons


def time_heading(outcome: Outcome, axis: Axis) -> str:
    """Heading of the column of times."""
    batches = outcome.batches or outcome.experiment.batches
    return f"time at {axis.name_size(batches[outcome.gain_index])}"


def factor_cells(outcome: Outcome) -> tuple[str, str]:
    """The share that a change removes, with its interval, and its effect on the time."""
    taken, gain, removes = outcome.taken, outcome.gain, ""
    if taken is not None:
        ends = "unknown"
        if math.isfinite(taken.low) and math.isfinite(taken.high):
            ends = f"{taken.low * 100:.0f} … {taken.high:.0%}"
        share = _plain_zero(f"{taken.value:.0%}")
        removes = f"{share} ({ends})"
    if gain is None:
        return removes, ""
    return removes, _plain_zero(f"{-gain.value:+.0%}")


def _plain_zero(text: str) -> str:
    return "0%" if text in ("-0%", "+0%") else text


def _value(value: Estimate, unit: str) -> str:
    return f"{with_sign(value.value)} {unit} ({interval(value)})"
