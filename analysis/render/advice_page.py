"""The answer of one profile on one page of a terminal: the cost of a step, the largest reasons with
their bounds and places, and the commands that test them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from ...base.counted import counted
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
from .words import join_texts, share, shorten

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
        reasons = self._reasons(width, room)
        blocks = [block for block in (head, where, reasons, commands) if block]
        gaps = height - sum(map(len, blocks))
        made: list[Text] = []
        for index, block in enumerate(blocks):
            if index and len(blocks) - index <= gaps:
                made.append(Text())
            made += block
        return made

    def _head(self, width: int) -> list[Text]:
        """The recording and the verdict."""
        advice = self.advice
        steps = ""
        if advice.step.knows_steps:
            steps = counted(advice.step.steps, "profiled step")
        left = facts_of(self.recording, width - cell_len(steps) - 1)
        axis = axis_of(self.recording.meta)
        sentence = breakdown_verdict(advice.breakdown, axis, advice.step.idle)
        verdict = wrap_words(sentence, width)
        rest = " ".join(verdict[_MOST_VERDICT - 1 :])
        if rest:
            verdict[_MOST_VERDICT - 1 :] = [cut(rest, width)]
        lines = [both_sides(Text(left, "bold"), Text(steps), width)]
        for line in verdict:
            lines.append(Text(line, "bold"))
        return lines

    def _care(self, width: int) -> list[Text]:
        """Steps set aside, and lost data, in one line."""
        apart = self.advice.breakdown.set_aside
        said = [] if apart is None else [apart]
        lost = self.recording.meta.get("lost", {})
        said += describe_lost(lost, on_host=self.advice.step.on_host)
        return warn(said, width)

    def _where_time_goes(self, width: int) -> list[Text]:
        """The largest kinds of work, and what the host does while nothing runs."""
        advice, step = self.advice, self.advice.step
        kinds = [(name, time_ms) for name, time_ms, _ in advice.families]
        lines = []
        if len(kinds) > 1:
            busy_ms = sum(time_ms for _, time_ms in kinds)
            lines += [_list_parts("BUSY  ", kinds, busy_ms, width)]
        idle = []
        for time in step.idle:
            if time.reason not in (WAITS, FOLLOWS) and step.enough(time.time_ms):
                idle.append((time.reason or "unknown", time.time_ms))
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
        title = "WHAT TO DO"
        rest = len(advice.advised) - len(listed)
        if rest:
            title += f", and {rest} more: --all"
        whole = "of a step" if advice.breakdown.unit == STEP else "of it"
        bounds = [self._bound(advised) for advised in listed]
        shown = _Ranked(title, ("at most", whole), bounds, width)
        room_for_details = room - 2 - len(listed)
        most = max(room_for_details // len(listed), 0)
        for advised, bound in zip(listed, bounds, strict=True):
            details = self._details(advised, width - _INDENT)
            shown.add(say_do(advised), bound, details[:most])
        return [*shown.lines, Text(_NOTE, "dim")]

    def _bound(self, advised: Advised) -> tuple[str, str]:
        most_ms = advised.suggestion.at_most_ms
        return f"{number(most_ms)} ms", share(most_ms, self.advice.step.time_ms)

    def _details(self, advised: Advised, width: int) -> list[str]:
        """Why, where, and how to change it, a line each; what says most comes first."""
        suggestion = advised.suggestion
        why = suggestion.what
        place = join_texts([suggestion.where, *suggestion.stack], " > ")
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
        title, lines = "NEXT", []
        for what, command in commands:
            line = Text(f"{title:4}  ", "bold")
            line.append(f"{what:{wide}}  ", "dim")
            lines.append(line.append(command))
            title = ""
        return lines

    def _commands(self) -> list[tuple[str, str]]:
        """What each tells, and the command."""
        advice = self.advice
        listed = advice.advised[:_MOST_REASONS]
        tried, others = [], []
        for at, advised in enumerate(listed, 1):
            if is_tried(advised.suggestion, advice.step):
                tried.append(at)
            else:
                others.append(at)
        commands = []
        if tried:
            _, command = say_test(advice)
            commands.append((f"test {_join(tried)}", command))
        if others:
            commands.append((f"test {_join(others)}", f"curvescope compare {self.path} NEW"))
        if listed or advice.bounds:
            commands.append(("1 in full", f"curvescope explain {self.path} 1"))
        return [*commands, ("everything", f"curvescope explain {self.path} --all")]


def _list_parts(
    title: str, parts: Sequence[tuple[str, float]], whole_ms: float, width: int
) -> Text:
    """The largest parts with their shares, as many as there is room for."""
    largest = sorted(parts, key=lambda part: -part[1])
    named = []
    for name, time_ms in largest[:_PARTS]:
        if time_ms >= _LEAST_PART * whole_ms:
            part = share(time_ms, whole_ms)
            named.append(f"{shorten(name, _MOST_NAME)} {part}")
    return list_after(title, named, width)


class _Ranked:
    """Numbered lines with cells at their right, and details below each."""

    def __init__(
        self, title: str, heads: Sequence[str], cells: Sequence[Sequence[str]], width: int
    ) -> None:
        """Begin with the line of the headings; `cells` are all that will be added."""
        self._count = 0
        self._widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
        left = width - sum(self._widths) - 2 * len(heads)
        self.room = left - _INDENT  # of a name
        head = (at_left(title, left), "bold")
        self.lines = [Text.assemble(head, self._at_right(heads))]

    def add(self, name: str, cells: Sequence[str], details: Sequence[str]) -> None:
        """Add the next line and its details."""
        self._count += 1
        line = Text(f"{self._count}", "bold")
        shown = at_left(cut(name, self.room), self.room)
        line.append(f"  {shown}")
        self.lines.append(line.append(self._at_right(cells)))
        for text in details:
            self.lines.append(Text(f"{'':{_INDENT}}{text}", "dim"))

    def _at_right(self, cells: Sequence[str]) -> Text:
        placed = [at_right(cell, width) for cell, width in zip(cells, self._widths, strict=True)]
        return columns(placed, self._widths)


def _list_bounds(bounds: Sequence[MeasuredBound], width: int, room: int) -> list[Text]:
    """The kernels with most time: what bounds each, and what to try."""
    listed = bounds[: max((room - 2) // 2, 1)]
    title = "KERNELS"
    rest = len(bounds) - len(listed)
    if rest:
        title += f", and {rest} more: --all"
    rows = [_cells_of_bound(bound) for bound in listed]
    shown = _Ranked(title, ("ms", "SM", "memory", "DRAM", "bound by"), rows, width)
    for bound, row in zip(listed, rows, strict=True):
        waits = say_waits(bound)
        more = f"{waits}: try {bound.do}" if waits else f"try {bound.do}"
        name = shorten(bound.kernel, shown.room)
        shown.add(name, row, [cut(more, width - _INDENT)])
    return shown.lines


def _cells_of_bound(bound: MeasuredBound) -> list[str]:
    """The time of a kernel, its use of the device, and what bounds it."""
    cells = [number(bound.time_ms, 3)]
    for use in (bound.sm_use, bound.memory_use, bound.dram_use):
        cells.append("" if use is None else share(use, 1))
    return [*cells, bound.bound]


def _join(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    if not first:
        return last
    return f"{', '.join(first)} and {last}"
