"""Output of `explain` for a recording without a curve: advice as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.text import Text

from ...base.errors import CurvescopeError
from ...profiling.recording.axis import axis_of
from ...profiling.recording.experiments import FactorFacts
from ...profiling.recording.store import Recording
from ..diagnosis.suggested import Advice, advise
from . import terminal
from .advice import (
    AdviceDocument,
    next_commands,
    render_advice,
    render_bound,
    render_suggestion,
)
from .advice_page import AdvicePage
from .documents import print_document
from .everything import show_gaps
from .facts import recording_line


def show_advice(
    recording: Recording,
    path: object,
    facts: Mapping[str, FactorFacts],
    *,
    finding: int | None = None,
    everything: bool = False,
    as_json: bool = False,
) -> None:
    """Print what one profile suggests on one page; or one suggestion of it in full; or everything;
    or JSON. `path` is as the user named it, `facts` are of the factors of complete steps.
    """
    advice = advise(recording, facts)
    if as_json:
        print_document(AdviceDocument.of(path, recording, advice))
        return
    console, axis = terminal.console(), axis_of(recording.meta)
    if finding is not None:
        console.print(_choose_suggestion(advice, finding, path))
        return
    if not everything:
        for line in AdvicePage(recording, path, advice).lines(console.width):
            console.print(line, soft_wrap=True)
        return
    console.print(recording_line(recording), style="bold")
    console.print()
    console.print(render_advice(advice, axis))
    console.print()
    show_gaps(console, recording, axis)
    for sentence, command in next_commands(path, advice):
        console.print(Text(sentence))
        terminal.print_commands(console, command)


def _choose_suggestion(advice: Advice, place: int, path: object) -> RenderableType:
    """The suggestion with a number on the page, or the bound of the kernel with it, in full."""
    listed = advice.advised or advice.bounds
    if not 1 <= place <= len(listed):
        has = f"findings 1 to {len(listed)}" if listed else "no finding"
        raise CurvescopeError(f"Finding {place}: {path} has {has}.")
    if advice.advised:
        return render_suggestion(place, advice.advised[place - 1], advice)
    return render_bound(place, advice.bounds[place - 1])
