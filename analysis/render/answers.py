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
from ...base.numbers import signed
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
from .words import interval, note_hidden

VERDICT_STYLES = {Verdict.CONFIRMED: "bold green", Verdict.REFUTED: "", Verdict.UNDECIDED: "yellow"}
_SHOWN_FACTORS = 6
_USUAL_REST_S, _REST_MARGIN = 240.0, 1.2
_NAMED_REST = 4  # of what is left to test
_MARKS = "¹²³⁴⁵⁶⁷⁸⁹"  # of reasons, in the order of the table


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
            first = shown.setdefault(answer.remedy.how, number)
            how = answer.remedy.how if first == number else f"as in {first}."
            lines.append(
                Indented(
                    Text("as above." if answer.remedy.how in already_said else how), label="How: "
                )
            )
        blocks.append(Indented(*lines, label=Text(f"{number}. ", "bold")))
    return Group(*blocks)


def how_to_test(recording: Recording, diagnosis: Diagnosis) -> tuple[str, str | None] | None:
    """How to test the untested causes, or why nobody can: a sentence, and a command that it
    announces.

    None if nothing is left to test, or if all is decided that the time for experiments was enough
    for.
    """
    if is_modelled(recording.meta):
        return None
    left = recording.meta.get("experiments_rest")
    if diagnosis.outcomes or left:
        if not left and not recording.meta.get("experiments_wait_for_time"):
            return None
        seconds, what = (left["seconds"], left["what"]) if left else (_USUAL_REST_S, [])
        minutes = max(1, math.ceil(_REST_MARGIN * seconds / 60))
        named = (
            f" ({', '.join(what[:_NAMED_REST])}{', …' if len(what) > _NAMED_REST else ''})"
            if what
            else ""
        )
        why, rest = "The time for experiments was up.", "the rest"
        if not recording.meta.get("experiments"):
            why, rest = "No experiment was made: none fits the time.", "what there is to try"
        takes = (
            f"{why} On the same machine, {rest}{named} takes about {minutes} "
            f"min{_still_open(left or {})}:"
        )
        return takes, f"curvescope confirm {recording.named} --experiments {minutes}m"
    against = why_not_replayed(recording)
    if (not diagnosis.answers and against) or diagnosis.difference is not None:
        return None
    if against:
        return f"No cause can be tested by experiment: the recording {against}.", None
    return (
        "No cause is tested and no remedy is tried yet. On the same machine, this runs the "
        "experiments:",
        f"curvescope confirm {recording.named}",
    )


def _still_open(left: Mapping[str, Any]) -> str:
    """What the rest of the experiments may decide, as a part of a sentence; empty where a recording
    does not say.
    """
    labels, changes = left.get("of", ()), left.get("changes", 0)
    parts = []
    if labels:
        parts.append(f"the causes of {' and '.join(labels[:_NAMED_REST])}")
    if changes:
        parts.append(f"what {counted(changes, 'change')} save{'s' if changes == 1 else ''}")
    return f" and may decide {', and '.join(parts)}" if parts else ""


def remedy_text(remedy: Remedy | None) -> str | None:
    """How to set a remedy; None without one, or if its sentence says it."""
    return f"How: {remedy.how}" if remedy is not None and remedy.how else None


def render_evidence(answer: Explanation, axis: Axis, everything: bool = False) -> RenderableType:
    """The experiments behind an answer: each term alone, then each factor that was changed."""
    blocks: list[RenderableType] = []
    for index, evidence in enumerate(answer.evidence or ()):
        blocks += [Text()] if index else []
        blocks += [Text(reproduction_sentence(evidence, answer.functional.unit))]
        if evidence.shape is not None:
            blocks.append(Text(shape_sentence(evidence.shape)))
        blocks += _factors(evidence, axis, everything)
        blocks += [Text(note, "dim") for note in notes(evidence)]
    return Indented(*blocks)


def reproduction_sentence(evidence: TermEvidence, unit: str) -> str:
    """Whether a term shows its share of the anomaly alone, with both values."""
    alone = evidence.alone.value if evidence.alone is not None else None
    if evidence.share is None:
        return (
            f"The complete step, unprofiled: {_value(alone, unit)}."
            if alone
            else "The complete step was not run."
        )
    in_step = f"in the step it is {_value(evidence.share, unit)}"
    if alone is None:
        reason = evidence.alone.reason if evidence.alone is not None else None
        return (
            f"{evidence.label} was not run in isolation{f': {reason}' if reason else ''}; "
            f"{in_step}."
        )
    lead = {
        Reproduction.REPRODUCES: f"{evidence.label} shows its share in isolation",
        Reproduction.PARTLY: f"{evidence.label} shows part of its share in isolation",
        Reproduction.NOT: f"{evidence.label} does not show its share in isolation",
    }.get(
        evidence.reproduction or Reproduction.UNDECIDED,
        f"{evidence.label} in isolation, not yet distinguished from its share",
    )
    text = f"{lead}: {_value(alone, unit)}; {in_step}."
    if evidence.reproduction == Reproduction.NOT:
        text += " The rest of the step makes it: caches, the allocator, overlap or neighbours."
    return text


def shape_sentence(shape: Shape) -> str:
    """The shape of the curve on the finer grid."""
    sentence = shape.sentence.rstrip(".")
    return f"On a finer grid: {sentence[0].lower()}{sentence[1:]}."


def notes(evidence: TermEvidence) -> list[str]:
    """Observations of the runners on these experiments, each once."""
    ran = [factor for factor in (evidence.alone, *evidence.factors) if factor is not None]
    return list(dict.fromkeys(note for outcome in ran for note in outcome.experiment.notes))


def factor_text(outcome: Outcome) -> str:
    """The change that a factor makes, as a clause."""
    return outcome.facts.what if outcome.facts is not None else str(outcome.factor)


def _factors(evidence: TermEvidence, axis: Axis, everything: bool) -> Iterable[RenderableType]:
    ran = [factor for factor in evidence.factors if factor.verdict != Verdict.UNTESTED]
    listed = ran[: None if everything else _SHOWN_FACTORS]
    if listed:
        heads = ("with this change", "removes", time_heading(listed[0], axis), "verdict", "factor")
        rows = table(*heads, left=heads[3:], words=heads[:1], optional=("factor",))
        marks = _marks(listed)
        for outcome in listed:
            mark = (
                marks.get(outcome.reason or "", "") if outcome.verdict == Verdict.UNDECIDED else ""
            )
            verdict = Text(f"{outcome.verdict}{mark}", VERDICT_STYLES.get(outcome.verdict, "dim"))
            rows.add_row(factor_text(outcome), *factor_cells(outcome), verdict, str(outcome.factor))
        yield Indented(rows)
        yield from (
            Text(f"{mark.strip()} {reason[0].upper()}{reason[1:]}.", "dim")
            for reason, mark in marks.items()
        )
    yield from note_hidden(len(ran) - len(listed), "further change")
    untested = [factor for factor in evidence.factors if factor.verdict == Verdict.UNTESTED]
    if everything:
        yield from (
            Text(f"Untested ({factor_text(outcome)}): {outcome.reason}.", "dim")
            for outcome in untested
        )
    elif untested:
        yield Text(
            f"Untested: {', '.join(str(outcome.factor) for outcome in untested)}; --all says why.",
            "dim",
        )


def _marks(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """A mark for each reason why changes are undecided, by reason."""
    reasons = dict.fromkeys(
        outcome.reason
        for outcome in outcomes
        if outcome.verdict == Verdict.UNDECIDED and outcome.reason
    )
    return {reason: f" {mark}" for reason, mark in zip(reasons, _MARKS, strict=False)}


def time_heading(outcome: Outcome, axis: Axis) -> str:
    """Heading of the column of times."""
    return (
        f"time at {axis.name} {(outcome.batches or outcome.experiment.batches)[outcome.gain_index]}"
    )


def factor_cells(outcome: Outcome) -> tuple[str, str]:
    """The share that a change removes, with its interval, and its effect on the time."""
    taken, gain, removes = outcome.taken, outcome.gain, ""
    if taken is not None:
        bounded = math.isfinite(taken.low) and math.isfinite(taken.high)
        ends = f"{taken.low * 100:.0f} … {taken.high:.0%}" if bounded else "unknown"
        removes = f"{_plain_zero(f'{taken.value:.0%}')} ({ends})"
    return removes, "" if gain is None else _plain_zero(f"{-gain.value:+.0%}")


def _plain_zero(text: str) -> str:
    return "0%" if text in ("-0%", "+0%") else text


def _value(value: Estimate, unit: str) -> str:
    return f"{signed(value.value)} {unit} ({interval(value)})"
