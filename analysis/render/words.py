"""Words and numbers that several views write alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from rich.text import Text

from ...base.counted import counted
from ...base.escaping import escape_controls
from ...base.numbers import number
from ...profiling.recording.axis import Axis
from ...profiling.recording.store import RECORDING, STEP
from ..decompose.functionals import CANCELS
from ..decompose.statistics import Estimate
from .names import fit, readable

SAMPLES = Axis()
# what the times of a recording are of, in words
UNITS = {
    STEP: "a step",
    RECORDING: "the whole recording",
}


def html_text(text: str) -> str:
    """A text for HTML: names are never markup, and control characters are escaped."""
    return escape(escape_controls(text))


def interval(estimate: Estimate, digits: int = 3) -> str:
    """Both ends of an interval."""
    if not math.isfinite(estimate.low):
        return "unknown"
    return f"{number(estimate.low, digits)} … {number(estimate.high, digits)}"


def list_unmeasured(meta: Mapping[str, Any], axis: Axis) -> list[str]:
    """The sizes of a recording that could not be measured, and why."""
    return [
        f"{axis.name.capitalize()} {cell['batch']} has no data: {cell['why']} ({cell['detail']})."
        for cell in meta.get("unmeasured", ())
    ]


def note_hidden(count: int, singular: str, many: str | None = None) -> list[Text]:
    """A note on rows that are not shown, see `counted`; none if all are shown."""
    note = (
        f"{counted(count, singular, many)} {'is' if count == 1 else 'are'} not shown; --all shows "
    )
    return [Text(f"{note}{'it' if count == 1 else 'them'}.", "dim")] if count > 0 else []


def share(value: float, whole: float) -> str:
    """Share of a value in a whole in percent; empty where the whole is 0, or so much smaller that
    parts cancel.
    """
    percent = f"{value / whole:.0%}" if whole and abs(value / whole) <= CANCELS else ""
    return "0%" if percent == "-0%" else percent


def shorten(name: str, width: int = 60) -> str:
    """A kernel's name for a sentence."""
    return fit(readable(name), width)
