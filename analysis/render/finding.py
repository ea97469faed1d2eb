"""One finding of the page in full: what, why, how sure that is, and how to change it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from ...base.errors import CurvescopeError
from ...base.numbers import with_sign
from ..causes.host import LOAD_FASTER, LOAD_HOW
from ..diagnosis.library_choice import candidates_command
from . import answers, remedies, terminal, text
from .advice import render_suggestion
from .blocks import Block, print_view
from .deviations import off_by
from .everything import draw_explanation
from .found import SURE, Found, find_all, say_share
from .headline import certain_sentence
from .shown import Shown
from .tables import Indented
from .words import begin_sentence


def show_finding(shown: Shown, place: int) -> None:
    """Print the finding with a number on the page."""
    entries = find_all(shown.diagnosis, shown.advice)
    if not 1 <= place <= len(entries):
        has = f"findings 1 to {len(entries)}" if entries else "no finding"
        raise CurvescopeError(f"Finding {place}: {shown.recording.named} has {has}.")
    print_view(terminal.console(), FINDING, _Asked(shown, place, entries[place - 1]))


class _Asked(NamedTuple):
    """One finding of a diagnosis."""

    shown: Shown
    place: int  # its number on the page
    entry: Found


def _name_finding(asked: _Asked) -> Block | None:
    return Block.lines([f"{asked.place}  {asked.entry.what}"], "bold")


def _say_worth(asked: _Asked) -> Block | None:
    entry, shown = asked.entry, asked.shown
    worth = ", ".join(f"{share} at {shown.axis.name} {size}" for size, share in entry.worth)
    sure = f"How sure: {entry.sure}. {SURE[entry.sure]}"
    lines = [f"Of a step: {worth or 'unknown'}. {sure}"]
    if entry.is_slow_size and entry.where:
        lines.append(_say_whole_step(entry, shown))
    return Block.lines([line for line in lines if line])


def _say_whole_step(entry: Found, shown: Shown) -> str:
    """How far the whole step is off its neighbours, which a part need not be; empty where that is
    unknown.
    """
    curve = shown.diagnosis.curve
    off = off_by(curve, entry.at) if entry.at in curve.conditions else None
    if off is None:
        return ""
    share = say_share(off.value / curve.times_ms[entry.at])
    whole = f"{with_sign(off.value, 3)} ms ({share})"
    return (
        f"That is this part by itself. The whole step is {whole} off its neighbours, by all its "
        "parts."
    )


def _describe_certain(asked: _Asked) -> Block | None:
    entry, shown = asked.entry, asked.shown
    if entry.certain is None:
        return None
    said = certain_sentence(entry.certain, shown.axis)
    pair = ",".join(map(str, entry.certain.functional.conditions[-2:]))
    command = f"curvescope explain {shown.recording.named} --pair {pair}"
    sentence = Text(begin_sentence(said))
    return Block((sentence,), (command,), below=True)


def _describe_slow_steps(asked: _Asked) -> Block | None:
    slow = asked.entry.slow
    if slow is None:
        return None
    parts: list[RenderableType] = [Text(slow.sentence)]
    if slow.waits_for_input:
        parts.append(Indented(Text(f"{LOAD_FASTER}: {LOAD_HOW}."), label="Do:  "))
    return Block(tuple(parts), below=True)


def _describe_suggestion(asked: _Asked) -> Block | None:
    entry, shown = asked.entry, asked.shown
    if entry.advised is None or shown.advice is None:
        return None
    return Block((render_suggestion(asked.place, entry.advised, shown.advice),), below=True)


def _describe_saving(asked: _Asked) -> Block | None:
    entry, shown = asked.entry, asked.shown
    if entry.saving is None:
        return None
    row = remedies.remedy_row(entry.saving)
    return Block(tuple(remedies.render_row(row, shown.axis)), below=True)


def _describe_answers(asked: _Asked) -> Block | None:
    entry, shown = asked.entry, asked.shown
    if not entry.answers:
        return None
    parts = [answers.render_answers(entry.answers)]
    for explanation in entry.answers:
        parts += [Text(), *draw_explanation(explanation, shown.axis, everything=False)]
    parts += [Text(), text.render_legend(entry.answers)]
    return Block(tuple(parts), below=True)


def _name_candidates(asked: _Asked) -> Block | None:
    entry, shown = asked.entry, asked.shown
    if not entry.answers:
        return None
    answered = replace(shown.diagnosis, explanations=entry.answers)
    command = candidates_command(shown.recording, answered)
    if command is None:
        return None
    return Block((Text("What the library could do better:"),), (command,), below=True)


FINDING = (
    _name_finding,
    _say_worth,
    _describe_certain,
    _describe_slow_steps,
    _describe_suggestion,
    _describe_saving,
    _describe_answers,
    _name_candidates,
)
