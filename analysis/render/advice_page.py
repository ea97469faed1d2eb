"""The answer of one profile on one page of a terminal: the cost of a step, the largest reasons with
their bounds and places, and the commands that test them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from ...base.counted import counted
from ...base.escaping import escape_controls
from ...base.numbers import number
from ...profiling.recording.axis import axis_of
from ...profiling.recording.lost import describe_lost
from ...profiling.recording.store import STEP, Recording
from ..decompose.idle import FOLLOWS, WAITS
from ..diagnosis.suggested import Advice, Advised, is_tried
from ..measured_bounds import MeasuredBound
from .advice import say_do, say_nothing, say_test, say_waits
from .breakdown import breakdown_verdict
from .cells import at_left, at_right, both_sides, columns, cut, list_after, warn, wrap_words
from .facts import facts_of
from .names import fit
from .page import LINES, limit_width
from .words import share, shorten

_MOST_REASONS = 3
_MOST_VERDICT = 3  # lines
_PARTS = 4  # kinds of kernels, and reasons of idle time
_LEAST_PART = 0.005  # share of the time of a part that is named
_MOST_NAME = 50  # cells of a part
_LEAST_PLACE = 30  # cells
_INDENT = 3  # cells, of what stands below a reason
_NOTE = "At most: bounds of this profile, which do not add up. Nothing was tried."


@dataclass(frozen=True)
class AdvicePage:
    """The answer as lines; what does not fit is left to `--all`."""

    recording: Recording
    path: object  # as the user named the recording or profile
    advice: Advice

    def lines(self, width: int, height: int = LINES) -> list[Text]:
        """The lines, no wider than the width but for commands, which are copied whole."""
        width = limit_width(width)
        head, where = self._head(width), self._where_time_goes(width)
        commands = [*self._care(width), *self._next()]
        room = height - len(head) - len(where) - len(commands)
        blocks = [head, where, self._reasons(width, room), commands]
        blocks = [block for block in blocks if block]
        gaps = height - sum(map(len, blocks))
        made: list[Text] = []
        for index, block in enumerate(blocks):
            made += [Text()] if index and len(blocks) - index <= gaps else []
            made += block
        return made

    def text(self, width: int) -> str:
        """The lines as one text, without styles."""
        return escape_controls("\n".join(line.plain.rstrip() for line in self.lines(width)))

    def _head(self, width: int) -> list[Text]:
        """The recording and the verdict."""
        advice = self.advice
        steps = counted(advice.step.steps, "profiled step") if advice.step.knows_steps else ""
        left = facts_of(self.recording, width - cell_len(steps) - 1)
        axis = axis_of(self.recording.meta)
        verdict = wrap_words(breakdown_verdict(advice.breakdown, axis, advice.step.idle), width)
        if len(verdict) > _MOST_VERDICT:
            last = cut(" ".join(verdict[_MOST_VERDICT - 1 :]), width)
            verdict = [*verdict[: _MOST_VERDICT - 1], last]
        lines = [both_sides(Text(left, "bold"), Text(steps), width)]
        return [*lines, *(Text(line, "bold") for line in verdict)]

    def _care(self, width: int) -> list[Text]:
        """Steps set aside, and lost data, in one line."""
        apart = self.advice.breakdown.set_aside
        on_host = self.advice.step.on_host
        said = [] if apart is None else [apart]
        said += describe_lost(self.recording.meta.get("lost", {}), on_host=on_host)
        return warn(said, width)

    def _where_time_goes(self, width: int) -> list[Text]:
        """The largest kinds of work, and what the host does while nothing runs."""
        advice, step = self.advice, self.advice.step
        kinds = [(name, time_ms) for name, time_ms, _ in advice.families]
        lines = []
        if len(kinds) > 1:
            busy_ms = sum(time_ms for _, time_ms in kinds)
            lines += [_list_parts("BUSY  ", kinds, busy_ms, width)]
        idle = [
            (time.reason or "unknown", time.time_ms)
            for time in step.idle
            if time.reason not in (WAITS, FOLLOWS) and step.enough(time.time_ms)
        ]
        if idle:
            lines += [_list_parts("IDLE  ", idle, step.time_ms, width)]
        return lines

    def _reasons(self, width: int, room: int) -> list[Text]:
        """Each with its bound, its place and how to change it, as far as there is room."""
        advice = self.advice
        if not advice.advised and advice.bounds:
            return _list_bounds(advice.bounds, width, room)
        if not advice.advised:
            return [Text(line) for line in wrap_words(say_nothing(advice), width)]
        listed = advice.advised[:_MOST_REASONS]
        rest = len(advice.advised) - len(listed)
        title = "WHAT TO DO" + (f", and {rest} more: --all" if rest else "")
        bounds = [self._bound(advised) for advised in listed]
        heads = ("at most", "of it" if advice.breakdown.unit != STEP else "of a step")
        widths = [max(map(cell_len, cells)) for cells in zip(heads, *bounds, strict=True)]
        left = width - sum(widths) - 4
        lines = [Text.assemble((at_left(title, left), "bold"), _right(heads, widths))]
        details = [self._details(advised, width - _INDENT) for advised in listed]
        most = max((room - 2 - len(listed)) // len(listed), 0)
        for at, (advised, bound, more) in enumerate(zip(listed, bounds, details, strict=True), 1):
            line = Text(f"{at}", "bold").append("  ")
            line.append(at_left(cut(say_do(advised), left - _INDENT), left - _INDENT))
            lines.append(line.append(_right(bound, widths)))
            lines += [Text(f"{'':{_INDENT}}{text}", "dim") for text in more[:most]]
        return [*lines, Text(_NOTE, "dim")]

    def _bound(self, advised: Advised) -> tuple[str, str]:
        most_ms = advised.suggestion.at_most_ms
        return f"{number(most_ms)} ms", share(most_ms, self.advice.step.time_ms)

    def _details(self, advised: Advised, width: int) -> list[str]:
        """Why, where, and how to change it, a line each; what says most comes first."""
        suggestion = advised.suggestion
        why = suggestion.what
        place = " > ".join((*filter(None, [suggestion.where]), *suggestion.stack))
        room = width - cell_len(why) - len(", in ")
        if place and room >= min(cell_len(place), _LEAST_PLACE):
            why += f", in {fit(place, room)}"
        elif place:
            why = f"in {fit(place, width // 2)}: {why}"
        return [cut(text, width) for text in (why, advised.how) if text]

    def _next(self) -> list[Text]:
        """Commands, each after its purpose."""
        commands = self._commands()
        wide = max(cell_len(what) for what, _ in commands)
        titles = ["NEXT", *[""] * (len(commands) - 1)]
        return [
            Text(f"{title:4}  ", "bold").append(f"{what:{wide}}  ", "dim").append(command)
            for title, (what, command) in zip(titles, commands, strict=True)
        ]

    def _commands(self) -> list[tuple[str, str]]:
        """What each tells, and the command."""
        advice = self.advice
        listed = advice.advised[:_MOST_REASONS]
        tried: list[int] = []
        others: list[int] = []
        for at, advised in enumerate(listed, 1):
            (tried if is_tried(advised.suggestion, advice.step) else others).append(at)
        commands = []
        if tried:
            commands.append((f"test {_join(tried)}", say_test(advice)[1]))
        if others:
            commands.append((f"test {_join(others)}", f"curvescope compare {self.path} NEW"))
        if listed or advice.bounds:
            commands.append(("1 in full", f"curvescope explain {self.path} 1"))
        return [*commands, ("everything", f"curvescope explain {self.path} --all")]


def _list_parts(
    title: str, parts: Sequence[tuple[str, float]], whole_ms: float, width: int
) -> Text:
    """The largest parts with their shares, as many as there is room for."""
    named = [
        f"{shorten(name, _MOST_NAME)} {share(time_ms, whole_ms)}"
        for name, time_ms in sorted(parts, key=lambda part: -part[1])[:_PARTS]
        if time_ms >= _LEAST_PART * whole_ms
    ]
    return list_after(title, named, width)


def _list_bounds(bounds: Sequence[MeasuredBound], width: int, room: int) -> list[Text]:
    """The kernels with most time: what bounds each, and what to try."""
    listed = bounds[: max((room - 2) // 2, 1)]
    rest = len(bounds) - len(listed)
    title = "KERNELS" + (f", and {rest} more: --all" if rest else "")
    heads = ("ms", "SM", "memory", "DRAM", "bound by")
    cells = [
        (
            number(bound.time_ms, 3),
            *(
                "" if use is None else share(use, 1)
                for use in (bound.sm_use, bound.memory_use, bound.dram_use)
            ),
            bound.bound,
        )
        for bound in listed
    ]
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    left = width - sum(widths) - 2 * len(widths)
    lines = [Text.assemble((at_left(title, left), "bold"), _right(heads, widths))]
    for at, (bound, row) in enumerate(zip(listed, cells, strict=True), 1):
        name = at_left(shorten(bound.kernel, left - _INDENT), left - _INDENT)
        lines.append(Text(f"{at}", "bold").append(f"  {name}").append(_right(row, widths)))
        waits = say_waits(bound)
        more = f"{waits}: try {bound.do}" if waits else f"try {bound.do}"
        lines.append(Text(f"{'':{_INDENT}}{cut(more, width - _INDENT)}", "dim"))
    return lines


def _right(cells: Sequence[str], widths: Sequence[int]) -> Text:
    return columns(
        [at_right(cell, width) for cell, width in zip(cells, widths, strict=True)], widths
    )


def _join(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last
