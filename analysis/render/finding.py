"""One finding of the page in full: what, why, how sure that is, and how to change it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from ...base.errors import CurvescopeError
from ..causes.host import LOAD_FASTER, LOAD_HOW
from ..diagnosis.library_choice import candidates_command
from . import answers, remedies, terminal, text
from .advice import render_suggestion
from .blocks import Block, print_view
from .everything import draw_explanation
from .found import SURE, Found, find_all
from .headline import certain_sentence
from .shown import Shown
from .tables import Indented


def show_finding(shown: Shown, place: int) -> None:
    """Print the finding with a number on the page."""
    found = find_all(shown.diagnosis, shown.advice)
    if not 1 <= place <= len(found):
        has = f"findings 1 to {len(found)}" if found else "no finding"
        raise CurvescopeError(f"Finding {place}: {shown.recording.named} has {has}.")
    print_view(terminal.console(), FINDING, _Asked(shown, place, found[place - 1]))


class _Asked(NamedTuple):
    """One finding of a diagnosis."""

    shown: Shown
    place: int  # its number on the page
    found: Found


def _name_finding(asked: _Asked) -> Block | None:
    return Block.lines([f"{asked.place}  {asked.found.what}"], "bold")


def _say_worth(asked: _Asked) -> Block | None:
    found, shown = asked.found, asked.shown
    worth = ", ".join(f"{share} at {shown.axis.name} {size}" for size, share in found.worth)
    return Block.lines(
        [f"Of a step: {worth or 'unknown'}. How sure: {found.sure}. {SURE[found.sure]}"]
    )


def _describe_certain(asked: _Asked) -> Block | None:
    found, shown = asked.found, asked.shown
    if found.certain is None:
        return None
    said = certain_sentence(found.certain, shown.axis)
    pair = ",".join(map(str, found.certain.functional.conditions[-2:]))
    command = f"curvescope explain {shown.recording.named} --pair {pair}"
    return Block((Text(said[0].upper() + said[1:]),), (command,), below=True)


def _describe_slow_steps(asked: _Asked) -> Block | None:
    slow = asked.found.slow
    if slow is None:
        return None
    parts: list[RenderableType] = [Text(slow.sentence)]
    if slow.waits_for_input:
        parts.append(Indented(Text(f"{LOAD_FASTER}: {LOAD_HOW}."), label="Do:  "))
    return Block(tuple(parts), below=True)


def _describe_suggestion(asked: _Asked) -> Block | None:
    found, shown = asked.found, asked.shown
    if found.advised is None or shown.advice is None:
        return None
    return Block((render_suggestion(asked.place, found.advised, shown.advice),), below=True)


def _describe_saving(asked: _Asked) -> Block | None:
    found, shown = asked.found, asked.shown
    if found.saving is None:
        return None
    row = remedies.remedy_row(found.saving)
    return Block(tuple(remedies.render_row(row, shown.axis)), below=True)


def _describe_answers(asked: _Asked) -> Block | None:
    found, shown = asked.found, asked.shown
    if not found.answers:
        return None
    parts = [answers.render_answers(found.answers)]
    for explanation in found.answers:
        parts += [Text(), *draw_explanation(explanation, shown.axis, everything=False)]
    parts += [Text(), text.render_legend(found.answers)]
    return Block(tuple(parts), below=True)


def _name_candidates(asked: _Asked) -> Block | None:
    found, shown = asked.found, asked.shown
    if not found.answers:
        return None
    answered = replace(shown.diagnosis, explanations=found.answers)
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
