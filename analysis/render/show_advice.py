"""Output of `explain` for a recording without a curve: advice as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from ...profiling.recording.axis import axis_of
from ...profiling.recording.experiments import FactorFacts
from ...profiling.recording.store import Recording
from ..diagnosis.suggested import advise
from . import terminal
from .advice import AdviceDocument, next_commands, render_advice
from .documents import print_document
from .everything import show_gaps
from .facts import recording_line


def show_advice(
    recording: Recording,
    path: object,
    facts: Mapping[str, FactorFacts],
    *,
    everything: bool = False,
    as_json: bool = False,
) -> None:
    """Print what one profile suggests; `path` as the user named it, `facts` of the factors of
    complete steps.
    """
    advice = advise(recording, facts)
    if as_json:
        print_document(AdviceDocument.of(path, recording, advice))
        return
    console, axis = terminal.console(), axis_of(recording.meta)
    console.print(recording_line(recording), style="bold")
    console.print()
    console.print(render_advice(advice, axis, everything=everything))
    console.print()
    show_gaps(console, recording, axis)
    for sentence, command in next_commands(path, advice):
        console.print(Text(sentence))
        terminal.print_commands(console, command)
