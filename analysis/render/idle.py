"""The idle time of a step as text: what the host did meanwhile."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.numbers import number
from ..decompose.idle import IdleTime
from .tables import table
from .words import share

_RULE = "Idle: the API call that took at least half of the gap, else the shortest range around half of it."
_MARKED = "Idle: the layer and phase whose code the host ran while no kernel did, from marked steps."
_BEFORE = " Before: the layer whose work follows most of it."
_UNTOLD = "The recording has no API calls and no ranges there, so it does not tell what the host did in the idle time."


def render_idle(times: Sequence[IdleTime], step_ms: float, limit: int | None = None) -> RenderableType:
    """What the host did in the idle time of a mean step, the longest first; not of an empty list."""
    if all(time.reason is None for time in times):
        return Text(_UNTOLD, "dim")
    layered, counted = (any(getattr(time, name) is not None for time in times) for name in ("before", "gaps"))
    rows = table(
        "idle", "ms", "share", *(["gaps"] if counted else []), *(["before"] if layered else []), left=("before",)
    )
    for time in times[:limit]:
        gaps = [number(time.gaps or 0, 3)] if counted else []
        cells = (number(time.time_ms), share(time.time_ms, step_ms), *gaps)
        rows.add_row(time.reason or "unknown", *cells, *([time.before or ""] if layered else []))
    if rest := times[len(times[:limit]) :]:
        rest_ms = math.fsum(one.time_ms for one in rest)
        gaps = [number(math.fsum(one.gaps or 0 for one in rest), 3)] if counted else []
        rows.add_row(f"{len(rest)} more", number(rest_ms), share(rest_ms, step_ms), *gaps, *([""] if layered else []))
    return Group(rows, Text(_RULE + _BEFORE * layered if counted else _MARKED, "dim"))
