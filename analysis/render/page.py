"""The answer on one page of a terminal: who and where, the verdict, the curve as bars, where the
time goes, the findings, and what to do next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from ...base.escaping import escape_controls
from ...base.numbers import percent
from ...profiling.recording.lost import describe_lost
from ...profiling.recording.schema import INPUT
from ...profiling.recording.store import Recording
from ..decompose.findings import UNDECIDED
from ..decompose.functionals import Condition
from ..decompose.input_time import WAITING_FOR_INPUT
from ..decompose.terms import IDLE, KERNELS, Key, Terms, work_label
from ..diagnosis.result import Diagnosis
from . import answers
from .answer_words import remedy
from .cells import (
    Column,
    at_left,
    both_sides,
    columns,
    cut,
    fit_finding,
    list_after,
    set_title,
    warn,
    wrap_words,
)
from .curve_bars import CurveBars
from .deviations import cost_line
from .found import CONFIRMED, NOISY, NOT_PROVEN, Found
from .notes import list_notes
from .summary import LEAST_FOUND, Summary
from .terminal import PROSE_WIDTH
from .words import dim

LINES = 23  # of a terminal of 24, whose last one is the prompt
_LEAST_WIDTH, _MOST_WIDTH = 60, 120
_MOST_FOUND = 5
_LEAST_SIZES = 6  # lines of the curve, where there are more
_GROUPS = 4
_LEAST_PRINTED = 0.005  # of a group, which would be printed as 0 %
_NUMBERS = re.compile(r"[\W_]*\d+(?:d\b)?")


def limit_width(width: int) -> int:
    """The width of a page on a terminal of some width."""
    return min(max(width, _LEAST_WIDTH), _MOST_WIDTH)


@dataclass(frozen=True)
class Page:
    """The answer as lines; what does not fit is left to `--all`."""

    summary: Summary

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis on the page."""
        return self.summary.diagnosis

    @property
    def entries(self) -> tuple[Found, ...]:
        """The findings, in the order of the page."""
        return self.summary.entries

    @property
    def recording(self) -> Recording | None:
        """None where the diagnosis is of no recording: what only that tells is left out."""
        return self.summary.recording

    def lines(self, width: int, height: int = LINES) -> list[Text]:
        """The lines, no wider than the width but for commands, which are copied whole."""
        width = limit_width(width)
        bars = CurveBars(self.summary)
        head = self._head(width)
        time = self._time(width)
        doing = self._do(width)
        following = self._care(width) + self._next(width)
        sizes = len(bars.list_points(_MOST_FOUND))
        rest = len(head) + len(time) + len(doing) + len(following)
        extra = bool(cost_line(self.diagnosis.curve)) + 1  # below and above the curve
        entry_lines = min(len(self.entries), _MOST_FOUND) + 1

        def over() -> int:
            return rest + extra + sizes + entry_lines - height

        if over() > 0:
            rest -= len(time[:-1])
            time = time[-1:]  # of the largest size alone
        while over() > 0 and sizes > _LEAST_SIZES:
            if entry_lines > LEAST_FOUND + 1 and sizes <= 9:
                entry_lines -= 1
            else:
                sizes -= 1
        spare = max(entry_lines - LEAST_FOUND - 1, 0)
        entry_lines -= min(max(over(), 0), spare)
        listed = entry_lines - 1
        entries = self._list_entries(width, listed) + doing
        curve = bars.lines(width, sizes, listed)
        blocks = [block for block in (head, curve, time, entries, following) if block]
        gaps = _count_gaps(blocks, height)
        entries += self._notes(width, gaps - len(blocks) + 1)
        return _set_apart(blocks, _count_gaps(blocks, height))

    def text(self, width: int) -> str:
        """The lines as one text, without styles."""
        lines = [line.plain.rstrip() for line in self.lines(width)]
        return escape_controls("\n".join(lines))

    def _head(self, width: int) -> list[Text]:
        lines = []
        if self.recording is not None:
            right = self.summary.how_quiet()
            left = self.summary.facts(width - cell_len(right.plain) - 1)
            lines.append(both_sides(Text(left, "bold"), right, width))
        return lines + self._verdict_beside_size(width)

    def _verdict_beside_size(self, width: int) -> list[Text]:
        """The verdict, with the size to take at the right; where both have no room in one line, the
        last line of the verdict has it.
        """
        long, short = self.summary.say_verdict(), self.summary.say_verdict(most=0)
        take = reasoned = self.summary.size_to_take()
        if take:
            reasoned = f"{take}: {self.summary.why_to_take()}"
        for verdict, size in ((long, reasoned), (long, take), (short, reasoned), (short, take)):
            if cell_len(verdict) + bool(size) + cell_len(size) <= width:
                return [_set_verdict(verdict, size, width)]
        for verdict in (long, short):
            first, *more = wrap_words(verdict, min(width, PROSE_WIDTH))
            rest = " ".join(more)
            room = width - cell_len(rest) - 1
            if cell_len(take) <= room:
                break
        size = reasoned if cell_len(reasoned) <= room else take
        return [Text(first, "bold"), _set_verdict(rest, size, width)]

    def _care(self, width: int) -> list[Text]:
        """Sizes without data, warnings and lost data, in one line below the answer."""
        if self.recording is None:
            return []
        meta = self.recording.meta
        by_why: dict[str, list[str]] = {}
        for cell in meta.get("unmeasured", ()):
            sizes = by_why.setdefault(str(cell["why"]), [])
            sizes.append(str(cell["batch"]))
        said = []
        for why, sizes in by_why.items():
            said.append(f"No data of {', '.join(sizes)}: {why}")
        if meta.get("same_shapes"):
            said.append(f"The {self.diagnosis.axis.values} do not reach the step")
        if not self.recording.complete:
            said.append(f"This recording is not complete (status: {meta['status']})")
        said += describe_lost(meta.get("lost", {}), on_host=self.recording.on_host)
        said += meta.get("warnings", [])
        return warn(said, width)

    def _time(self, width: int) -> list[Text]:
        """Where the time of a step goes: at the first slow size, and at the largest."""
        terms = self.diagnosis.terms
        if terms is None or not len(terms.values_ms):
            return []
        slow = next((entry.at for entry in self.entries if entry.is_slow_size), None)
        lines = []
        for size in terms.conditions:
            if size in (slow, terms.conditions[-1]):
                lines.append(self._time_at(size, terms, width))
        return [line for line in lines if line is not None]

    def _do(self, width: int) -> list[Text]:
        """The first measured remedy, and its gain."""
        told = self.summary.find_remedy()
        if told is None:
            return []
        index, change = told
        title = f"DO {index}  "
        said = remedy(change, self.diagnosis.axis).rstrip(".")
        return [set_title(title, cut(said, width - len(title)))]

    def _time_at(self, size: Condition, terms: Terms, width: int) -> Text | None:
        """The four largest groups of the time of a step, and their shares, from 0.5 % on."""
        groups: dict[str, float] = {}
        times_ms = terms.values_ms[terms.conditions.index(size)].tolist()
        for key, time_ms in zip(terms.keys, times_ms, strict=True):
            name = _group(key, self.diagnosis.recorded.layer_classes.get)
            groups[name] = groups.get(name, 0.0) + time_ms
        whole = sum(groups.values())
        if whole <= 0:
            return None
        largest = sorted(groups, key=groups.__getitem__, reverse=True)
        shares = []
        for name in largest[:_GROUPS]:
            part = groups[name] / whole
            if part >= _LEAST_PRINTED:
                shares.append(f"{name} {100 * part:.0f} %")
        longest = len(str(terms.conditions[-1]))
        return list_after(f"TIME at {size:<{longest}}  ", shares, width)

    def _list_entries(self, width: int, most: int) -> list[Text]:
        """A line for each finding: what, its worth in the step at its size and at the largest, and
        how sure it is.
        """
        if not self.entries:
            return [set_title("FOUND  ", self._say_nothing(width - 7))]
        listed = self.entries[:most]
        largest = self.diagnosis.curve.conditions[-1]
        here, there = [], []
        for entry in listed:
            worth = dict(entry.worth)
            there.append(worth.pop(largest, ""))
            own = [f"{share} at {size}" for size, share in worth.items()]
            here.append(own[0] if own else "")
        head_there = f"at {largest}" if any(there) else ""
        sure = [entry.sure for entry in listed]
        right = (Column("of a step", here), Column(head_there, there), Column("how sure", sure))
        widths = [column.width for column in right]
        room = width - 3 - sum(widths) - 6
        title = at_left(self._title_findings(listed), room + 3)
        heads = columns((column.heading for column in right), widths)
        head = Text.assemble((title, "bold"), heads)
        head.rstrip()
        lines = [head]
        for index, entry in enumerate(listed):
            line = Text()
            line.append(f"{index + 1}", "bold")
            what = at_left(fit_finding(entry.what, room), room)
            line.append(f"  {what}")
            line.append(columns((here[index], there[index]), widths[:2]))
            line.append(f"  {entry.sure}", _STYLES.get(entry.sure, ""))
            lines.append(line)
        return lines

    def _title_findings(self, listed: Sequence[Found]) -> str:
        """The heading of the findings: what their shares are of, and how many are not listed."""
        title = "FOUND"
        if any(entry.is_slow_size and entry.where for entry in listed):
            title += ", each part by itself"
        rest = len(self.entries) - len(listed)
        if rest:
            title += f", and {rest} more: --all"
        return title

    def _notes(self, width: int, room: int) -> list[Text]:
        """Notes of a model beside its curve, as far as the page has room for it."""
        lines: list[Text] = []
        if not self.summary.is_modelled:
            return lines
        for note in list_notes(self.diagnosis):
            shown = wrap_words(note, min(width, PROSE_WIDTH))
            if len(lines) + len(shown) <= room:
                lines += dim(shown)
        return lines

    def _say_nothing(self, width: int) -> str:
        curve = self.diagnosis.curve
        most, size = 0.0, 0
        for finding in self.diagnosis.findings:
            if finding.verdict in UNDECIDED:
                value, at = finding.tested_value, finding.tested.last
                possible_ms = max(value.high, -value.low)
                most, size = max((most, size), (possible_ms / curve.times_ms[at], at))
        if most < 0.1:
            return "nothing that is off a straight line"
        amount = f"{percent(most)} of the step" if most < 1 else "the step's time and more"
        if self.summary.is_modelled:
            return cut(f"nothing beyond the model's error, {amount} at {size}", width)
        if curve.unseen.step:
            return cut(f"nothing; one process may hide {amount} at {size}", width)
        return cut(f"nothing; too noisy to tell at {size}, up to {amount}: --time-limit", width)

    def _next(self, width: int) -> list[Text]:
        """Three commands that exist."""
        if self.recording is None:
            return []
        commands = self._commands(self.recording)[:3]
        longest = max(cell_len(command) for command, _ in commands)
        title, lines = "NEXT", []
        for command, what in commands:
            line = Text()
            line.append(f"{title:6}", "bold")
            line.append(command)
            if 6 + longest + 2 + cell_len(what) <= width:
                gap = " " * (longest + 2 - cell_len(command))
                line.append(gap + what, "dim")
            lines.append(line)
            title = ""
        return lines

    def _commands(self, recording: Recording) -> list[tuple[str, str]]:
        """What to run next, and what that shows."""
        explain = f"curvescope explain {recording.named}"
        commands = []
        if self.entries:
            what = "what to change, and how" if self.entries[0].saving else "finding 1 in full"
            commands.append((f"{explain} 1", what))
        _, test = answers.how_to_test(recording, self.diagnosis) or ("", None)
        if test is not None:
            commands.append((test, "tests what is open"))
        commands.append((f"{explain} --all", "everything that was found"))
        report = f"curvescope report {recording.named}"
        commands.append((report, "curve, layers and experiments as a page"))
        return commands


_STYLES = {CONFIRMED: "bold green", NOT_PROVEN: "yellow", NOISY: "yellow"}


def _count_gaps(blocks: Sequence[Sequence[Text]], height: int) -> int:
    """How many lines of a page its blocks leave."""
    return max(height - sum(map(len, blocks)), 0)


def _set_apart(blocks: Sequence[Sequence[Text]], gaps: int) -> list[Text]:
    """The lines of blocks, with as many blank lines between them as there is room for."""
    # the first blank lines go after the head and before what to do next
    ranks = {1: 0, len(blocks) - 1: 1, 2: 2, 3: 3}
    lines: list[Text] = []
    for index, block in enumerate(blocks):
        if index and ranks.get(index, 4) < gaps:
            lines.append(Text())
        lines += block
    return lines


def _set_verdict(verdict: str, size: str, width: int) -> Text:
    """A line of the verdict, with the size to take at the right."""
    return both_sides(Text(verdict, "bold"), Text(size, "bold"), width)


def _group(key: Key, class_of: Callable[[str], str | None]) -> str:
    """The group of a term: the kind of its layer with its phase, or what else it is."""
    if (key.kind, key.phase) == (IDLE, INPUT):
        return WAITING_FOR_INPUT
    if key.kind == IDLE:
        return "nothing runs"
    if key.kind != KERNELS:
        return key.kind
    if key.layer is None:
        return work_label(None, key.phase)
    layer = class_of(key.layer) or key.layer
    kind, _, _ = layer.partition(",")  # without `4 times`
    unnumbered = _NUMBERS.sub("", kind).lower()
    return work_label(unnumbered or kind, key.phase)
