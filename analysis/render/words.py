"""Words and numbers that several views write alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from rich.text import Text

from ...base.counted import counted
from ...base.escaping import escape_controls
from ...base.numbers import number, percent, with_minus_signs
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


def page_text(words: str) -> str:
    """A sentence for HTML, with true minus signs before its negative numbers."""
    return html_text(with_minus_signs(words))


def begin_sentence(text: str) -> str:
    """A text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def join_texts(texts: Iterable[str | None], between: str = ", ") -> str:
    """Texts in a line; the empty ones are left out."""
    return between.join(filter(None, texts))


def list_values(values: Iterable[object]) -> str:
    """Values in a line."""
    return ", ".join(map(str, values))


def dim(lines: Iterable[str]) -> list[Text]:
    """Asides below a table."""
    return [Text(line, "dim") for line in lines]


def number_cell(value: float | None, digits: int = 4) -> str:
    """A number for a table; an unknown one leaves its cell empty."""
    return "" if value is None else number(value, digits)


def show_ms(time_ms: float, digits: int = 4) -> str:
    """A time with its unit."""
    return f"{number(time_ms, digits)} ms"


def show_ends(estimate: Estimate) -> str:
    """Both ends of a share in percent, e.g. 3 to 8 %."""
    return f"{100 * estimate.low:.0f} to {percent(estimate.high)}"


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
    if count <= 0:
        return []
    verb, them = ("is", "it") if count == 1 else ("are", "them")
    return dim([f"{counted(count, singular, many)} {verb} not shown; --all shows {them}."])


def share(value: float, whole: float) -> str:
    """Share of a value in a whole in percent; empty where the whole is 0, or so small that parts
    cancel.
    """
    if not whole or abs(value / whole) > CANCELS:
        return ""
    percent = f"{value / whole:.0%}"
    return "0%" if percent == "-0%" else percent


def shorten(name: str, width: int = 60) -> str:
    """A kernel's name for a sentence."""
    return fit(readable(name), width)
