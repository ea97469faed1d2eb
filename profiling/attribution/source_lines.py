"""Which lines of a program the time of a step comes from: rows of the table `lines`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..recording.operand_numbers import Numbers
from ..recording.schema import FORWARD
from .nesting import NONE, Ints, last_at
from .placement import HostSpans, Placement, name_at

MOST_TEXT = 200  # characters


class SourceLine(NamedTuple):
    """A line of a program."""

    # path, relative to the working directory or, of an installed package, to the packages
    file: str
    number: int  # number of the line, from 1
    # as it was when the step ran, at most `MOST_TEXT` characters; None if it was not readable
    text: str | None = None


class WatchedCall(NamedTuple):
    """One call of an operator below autograd."""

    time_ns: int  # a time in the middle of the call
    faults: int  # page faults of the process during the call
    # the line that the call comes from; None if no file of a program is on the stack
    line: SourceLine | None
    # what the numbers in its operands were like; empty if nobody looked
    operands: tuple[Numbers, ...] = ()
    denormal_results: float = 0.0  # largest share of denormal numbers in a result
    looked_ns: int = 0  # time of looking at them


@dataclass
class Watched:
    """Calls and samples of a step that is watched from inside."""

    calls: list[WatchedCall] = field(default_factory=list)  # calls of operators
    # time, line, ns since the one before
    samples: list[tuple[int, SourceLine, int]] = field(default_factory=list)
    used: set[int] = field(default_factory=set)  # addresses of the storages that operators took


def calls_inside(spans: HostSpans, operators: Ints, watched: Watched) -> list[list[WatchedCall]]:
    """The watched calls inside each operator call, given by start; those outside of all are left
    out.
    """
    inside: list[list[WatchedCall]] = [[] for _ in operators]
    moments = np.array([call.time_ns for call in watched.calls], np.int64)
    at = last_at(spans.start_ns[operators], moments)
    for call, index in zip(watched.calls, at.tolist(), strict=True):
        if index >= 0 and call.time_ns < spans.end_ns[operators[index]]:
            inside[index].append(call)
    return inside


def line_rows(
    spans: HostSpans,
    placement: Placement,
    outer: Ints,
    operators: Ints,
    durations_ns: Sequence[int],
    watched: Watched,
    thread: int,
) -> list[dict[str, Any]]:
    """Rows of the table `lines` of one step, without `batch`: of its outermost `operators`, in
    order, and `thread`.
    """
    times: Counter[tuple[int, int, str | None, SourceLine]] = Counter()
    numbers: Counter[tuple[int, int, str | None, SourceLine]] = Counter()
    inside = calls_inside(spans, operators, watched)
    for span, duration_ns, calls in zip(operators.tolist(), durations_ns, inside, strict=True):
        line = next((call.line for call in calls if call.line), None)
        if line is not None:
            op = spans.operations[int(spans.call[span])].name  # type: ignore[index]
            key = int(placement.layer[span]), int(placement.phase[span]), op, line
            looked_ns = sum(call.looked_ns for call in calls)
            times[key] += max(duration_ns - looked_ns, 0)
            numbers[key] += 1
    moments = np.array([moment for moment, *_ in watched.samples], np.int64)
    around = placement.nest.innermost(np.full(len(moments), thread), moments)
    for span, (_, line, passed_ns) in zip(around.tolist(), watched.samples, strict=True):
        if span != NONE and outer[span] == NONE:  # else the operator's own line is known
            layer = int(placement.layer[span])
            phase = int(placement.phase[span])
            times[layer, phase, None, line] += passed_ns
    rows = []
    for place, duration_ns in times.most_common():
        layer, phase, operator, line = place
        # Time without operators that no range gives a phase is forward, as for marks.
        usual = None if operator else FORWARD
        rows.append(
            {
                "layer": name_at(placement.layers, layer),
                "phase": name_at(placement.phases, phase) or usual,
                "op": operator,
                "file": line.file,
                "line": line.number,
                "text": line.text,
                "calls": numbers.get(place),
                "duration_ns": duration_ns,
            }
        )
    return rows
