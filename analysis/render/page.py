"""The answer on one page of a terminal: who and where, the verdict, the curve as bars, where the
time goes, the findings, and what to do next.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from rich.cells import cell_len
from rich.text import Text

from ...base.counted import counted
from ...base.escaping import escape_controls
from ...base.numbers import number, percent
from ...profiling.recording.axis import BATCH
from ...profiling.recording.disturbed import count_visits
from ...profiling.recording.lost import describe_lost
from ...profiling.recording.schema import INPUT
from ...profiling.recording.store import STEP, Recording, is_modelled
from ..decompose.curve import UNKNOWN, Point
from ..decompose.findings import UNDECIDED
from ..decompose.functionals import Condition
from ..decompose.input_time import WAITING_FOR_INPUT
from ..decompose.slow_steps import leading
from ..decompose.statistics import Estimate
from ..decompose.terms import IDLE, KERNELS, Key, Terms, work_label
from ..diagnosis.explanation import Remedy
from ..diagnosis.remedies import Throughput, throughput_of
from ..diagnosis.result import Diagnosis
from ..diagnosis.suggested import Advice
from . import answers
from .answer_words import remedy
from .cells import (
    Column,
    at_left,
    at_right,
    bar,
    both_sides,
    columns,
    cut,
    fit_finding,
    list_after,
    set_title,
    warn,
    wrap_words,
)
from .deviations import cost_line, is_known, off_by
from .facts import facts_of
from .found import CONFIRMED, MEASURED, NOISY, NOT_PROVEN, Found, find_all, say_share
from .notes import list_notes
from .remedies import is_memory_full
from .terminal import PROSE_WIDTH
from .words import UNITS, begin_sentence, dim, join_texts, list_values

LINES = 23  # of a terminal of 24, whose last one is the prompt
_LEAST_WIDTH, _MOST_WIDTH = 60, 120
_MOST_FOUND, _LEAST_FOUND = 5, 3
_LEAST_SIZES = 6  # lines of the curve, where there are more
_GROUPS = 4
_LEAST_PRINTED = 0.005  # of a group, which would be printed as 0 %
_MOST_BAR = 40
_OFF_HEAD = "off neighbours, ms"
_OFF = 14  # cells of a deviation with its error
_MISSED = 0.2  # share of a time, from which a line that misses it says nothing of the curve
_NAMED = 3  # slow sizes in the verdict
_NEARLY = 0.995  # of the most samples a second, which would be printed as 100 %
_NUMBERS = re.compile(r"[\W_]*\d+(?:d\b)?")


def limit_width(width: int) -> int:
    """The width of a page on a terminal of some width."""
    return min(max(width, _LEAST_WIDTH), _MOST_WIDTH)


@dataclass(frozen=True)
class Page:
    """The answer as lines; what does not fit is left to `--all`."""

    diagnosis: Diagnosis
    advice: Advice | None = None  # what the profiled steps suggest
    entries: tuple[Found, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", find_all(self.diagnosis, self.advice))

    @property
    def recording(self) -> Recording | None:
        """None where the diagnosis is of no recording: what only that tells is left out."""
        return self.diagnosis.recording

    def lines(self, width: int, height: int = LINES) -> list[Text]:
        """The lines, no wider than the width but for commands, which are copied whole."""
        width = limit_width(width)
        head = self._head(width)
        time = self._time(width)
        doing = self._do(width)
        following = self._care(width) + self._next(width)
        sizes = len(self._points(_MOST_FOUND))
        rest = len(head) + len(time) + len(doing) + len(following)
        extra = bool(cost_line(self.diagnosis.curve)) + 1  # below and above the curve
        entry_lines = min(len(self.entries), _MOST_FOUND) + 1

        def over() -> int:
            return rest + extra + sizes + entry_lines - height

        if over() > 0:
            rest -= len(time[:-1])
            time = time[-1:]  # of the largest size alone
        while over() > 0 and sizes > _LEAST_SIZES:
            if entry_lines > _LEAST_FOUND + 1 and sizes <= 9:
                entry_lines -= 1
            else:
                sizes -= 1
        spare = max(entry_lines - _LEAST_FOUND - 1, 0)
        entry_lines -= min(max(over(), 0), spare)
        listed = entry_lines - 1
        entries = self._list_entries(width, listed) + doing
        curve = self._curve(width, sizes, listed)
        blocks = [block for block in (head, curve, time, entries, following) if block]
        gaps = _count_gaps(blocks, height)
        entries += self._notes(width, gaps - len(blocks) + 1)
        return _set_apart(blocks, _count_gaps(blocks, height))

    def text(self, width: int) -> str:
        """The lines as one text, without styles."""
        lines = [line.plain.rstrip() for line in self.lines(width)]
        return escape_controls("\n".join(lines))

    def facts(self, width: int) -> str:
        """The recording and its machine, in as many words as there is room for."""
        return "" if self.recording is None else facts_of(self.recording, width)

    def verdict(self, most: int = _NAMED) -> str:
        """The verdict in plain words, the claims first; at most so many slow sizes are named."""
        said = [*self._claims(), self._slow_sizes(most), self._unproven()]
        return " ".join(filter(None, said))

    def _head(self, width: int) -> list[Text]:
        lines = []
        if self.recording is not None:
            right = self.how_quiet()
            left = self.facts(width - cell_len(right.plain) - 1)
            lines.append(both_sides(Text(left, "bold"), right, width))
        return lines + self._verdict_beside_size(width)

    def _verdict_beside_size(self, width: int) -> list[Text]:
        """The verdict, with the size to take at the right; where both have no room in one line, the
        last line of the verdict has it.
        """
        long, short = self.verdict(), self.verdict(most=0)
        take = reasoned = self.size_to_take()
        if take:
            reasoned = f"{take}: {self._why_to_take()}"
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

    def how_quiet(self) -> Text:
        """How long it was measured, and how much of that was disturbed."""
        if self.recording is None:
            return Text()
        if self._is_modelled():
            return Text("MODELLED, not measured", "yellow")
        seconds = self.recording.meta.get("elapsed_s")
        took = f"{seconds:.0f} s" if seconds else ""
        disturbed = self.diagnosis.disturbances
        if disturbed is None:
            visits = count_visits(self.diagnosis.recorded.steps)
            quiet = counted(visits, "quiet measurement") if visits else ""
            return Text(join_texts([took, quiet]))
        share = f"{disturbed.disturbed} of {counted(disturbed.visits, 'measurement')}"
        if disturbed.prevail:
            return Text(join_texts([took, f"DISTURBED: {share}"]), "yellow")
        return Text(join_texts([took, f"{share} disturbed"]))

    def _claims(self) -> list[str]:
        """The slow steps, and what is proven to save."""
        diagnosis = self.diagnosis
        said = []
        slow = leading(diagnosis.slow_steps)
        if slow is not None:
            often = begin_sentence(slow.often)
            if slow.batch is not None:
                often += f" at {diagnosis.axis.name_size(slow.batch)}"
            ratio = number(slow.slow_ms / slow.usual_ms, 2)
            share = say_share(slow.share)
            said.append(f"{often} {slow.verb} {ratio} times as long: {share} of the time.")
        saving = [entry for entry in self.entries if entry.saving and entry.sure == CONFIRMED]
        if saving:
            best = saving[0]
            at, share = best.worth[0]
            said.append(f"{begin_sentence(best.what)}: {share} saved at {at}.")
        return said

    def _unproven(self) -> str:
        """That no change is proven to save, where some were tried."""
        remedies = self.diagnosis.remedies
        if remedies.helping or not remedies.attempts:
            return ""
        where = " on a quiet machine" if remedies.beside_work else ""
        tried = len(remedies.attempts)
        said = "The change tried" if tried == 1 else f"None of {tried} changes tried"
        return f"{said} is {'not ' if tried == 1 else ''}proven to save time{where}."

    def _slow_sizes(self, most: int = _NAMED) -> str:
        """How many sizes are slow beside others, and which, if they are few."""
        diagnosis, axis = self.diagnosis, self.diagnosis.axis
        if diagnosis.difference is not None or UNKNOWN in diagnosis.curve.conditions:
            return "Nothing is tested: each size was measured once."
        if not diagnosis.findings:
            return f"One {axis.value}: there is no curve to compare it with."
        slow = [entry for entry in self.entries if entry.is_slow_size]
        sizes = sorted({entry.at for entry in slow if entry.at is not None})
        if not sizes and not any(entry.at for entry in self.entries):
            sizes = sorted({finding.tested.at for finding in diagnosis.anomalies})
        if not sizes:
            open_ = all(finding.verdict in UNDECIDED for finding in diagnosis.findings)
            how = "shown to be slow" if open_ or diagnosis.is_disturbed else "slow"
            return f"No {axis.value} is {how}."
        placed = _choose_told(slow)
        if len(sizes) == 1 and placed is not None and placed.certain is not None:
            # The step as a whole may be in line.
            return _say_cost(placed, axis.name_size(sizes[0]))
        if len(sizes) == 1:
            said = f"{begin_sentence(axis.name_size(sizes[0]))} is slow"
            if placed is not None:
                said += f": {_place_and_cause(placed)}"
            return f"{said}."
        noun = "sizes" if axis.name == BATCH else "values"
        said = f"{len(sizes)} slow {noun}"
        if len(sizes) <= most:
            said += f": {list_values(sizes)}"
        if placed is None:
            return f"{said}."
        if placed.certain is not None:
            return f"{said}. {_say_cost(placed, str(placed.at))}"
        return f"{said}. At {placed.at}: {_place_and_cause(placed)}."

    def size_to_take(self) -> str:
        """The batch size to take, e.g. `Take batch 32 or more`; empty where rates are unknown."""
        throughput = self._throughput()
        if throughput is None:
            return ""
        take = f"Take {self.diagnosis.axis.name} {throughput.batch}"
        if throughput.grows and not self._memory_is_full():
            return f"{take} or more"
        return take

    def _why_to_take(self) -> str:
        """Why to take that size: it has the most samples a second, or nearly as many."""
        throughput = self._throughput()
        most = f"most {self.diagnosis.axis.unit}/s"
        if throughput is None or throughput.batch == throughput.best:
            return most
        share = throughput.per_s / throughput.best_per_s
        if share >= _NEARLY:
            return f"nearly the {most}"
        return f"{say_share(share)} of the {most}"

    def _throughput(self) -> Throughput | None:
        if self.diagnosis.axis.name != BATCH or not self._has_rates():
            return None
        return throughput_of(self.diagnosis.curve)

    def _has_rates(self) -> bool:
        same = self.recording is not None and self.recording.meta.get("same_shapes")
        return self.diagnosis.curve.unit == STEP and not same

    def _is_modelled(self) -> bool:
        return self.recording is not None and is_modelled(self.recording.meta)

    def _memory_is_full(self) -> bool:
        return self.recording is not None and is_memory_full(self.recording.meta)

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

    def _curve(self, width: int, most: int, listed: int) -> list[Text]:
        """The sizes as bars, with the numbers of the first `listed` findings beside their sizes."""
        curve, axis = self.diagnosis.curve, self.diagnosis.axis
        marks = self._marks(listed)
        points = self._choose_points(most, listed)
        unit = f"ms {UNITS[STEP]}" if curve.unit == STEP else "ms"
        sizes = Column(axis.name, [str(point.condition) for point in points])
        times = Column(f"{unit} ± 95 %", [_time(point) for point in points])
        values = [point.time_ms.value for point in points]
        rates = Column("", [""] * len(points))
        if self._has_rates():
            values = [_rate(point) for point in points]
            rates = Column(f"{axis.unit}/s", [number(rate, 3) for rate in values])
        left = (sizes, times, rates)
        offs = [self._off(point, marks) for point in points]
        last = Column(_OFF_HEAD, [off.plain for off in offs]).width
        taken = sum(column.width for column in left) + last
        room = min(width - taken - 8, _MOST_BAR)
        shown = {point.condition for point in points}
        hidden = len(set(curve.conditions) - shown)
        note = f"{hidden} more sizes: --all" if hidden else ""
        heads = [at_right(column.heading, column.width) for column in left]
        heads += [at_left(note, room), at_right(_OFF_HEAD, last)]
        head = "  ".join(heads)
        lines = [Text(head.rstrip(), "dim")]
        largest = max(values)
        for index, off in enumerate(offs):
            cells = [at_right(column.cells[index], column.width) for column in left]
            drawn = bar(values[index] / largest, room)
            cells += [at_left(drawn, room), ""]
            line = Text("  ".join(cells)).append(off)
            line.rstrip()
            lines.append(line)
        return lines + self._line(width)

    def _off(self, point: Point, marks: dict[object, list[int]]) -> Text:
        """How far a size is off its neighbours, with the numbers of the findings there."""
        numbers = ""
        if point.condition in marks:
            listed = ",".join(map(str, marks[point.condition]))
            numbers = f" [{listed}]"
        off = self._off_neighbours(point)
        if off is None:
            said = self._say_probed(point) or self._beyond(point) or " " * _OFF
            return Text(said).append(numbers, "bold")
        half = (off.high - off.low) / 2
        has_interval = math.isfinite(half)
        digits = _decimals(half if has_interval else abs(off.value))
        text = f"{off.value:+.{digits}f}"
        if has_interval:
            shown = _show_half(half, digits, f"{half:.{digits}f}")
            text += f" ± {shown}"
        is_sure = has_interval and not off.low <= 0 <= off.high
        return Text(at_right(text, _OFF), "" if is_sure else "dim").append(numbers, "bold")

    def _off_neighbours(self, point: Point) -> Estimate | None:
        """How far a size is off its neighbours; of the last one, only where it is slow."""
        curve = self.diagnosis.curve
        if point.condition not in curve.conditions:
            return None
        last = curve.conditions[-1]
        is_slow = any(entry.is_slow_size and entry.at == last for entry in self.entries)
        if not is_slow and point.condition == last:
            return None
        return off_by(curve, point.condition, (last,) if is_slow else ())

    def _beyond(self, point: Point) -> str:
        """What lies beyond the largest size."""
        throughput = self._throughput()
        if throughput is None or point.condition != self.diagnosis.curve.conditions[-1]:
            return ""
        if self._memory_is_full():
            return "the largest that fits"
        if not throughput.grows:
            return ""
        return f"rising: try {2 * point.condition}"

    def _say_probed(self, point: Point) -> str:
        """How often a size was measured that the sweep only probed; empty of other sizes."""
        if point.condition in self.diagnosis.curve.conditions:
            return ""
        return f"probed, {counted(point.n, 'step')}"

    def _marks(self, listed: int) -> dict[object, list[int]]:
        """The listed findings by size; of a size that none is about, the first of the others."""
        marks: dict[object, list[int]] = {}
        for index, entry in enumerate(self.entries, 1):
            if entry.at is not None and (index <= listed or entry.at not in marks):
                there = marks.setdefault(entry.at, [])
                there.append(index)
        return marks

    def _points(self, listed: int) -> list[Point]:
        """The measured sizes, and probed ones that the first findings name."""
        curve, probes = self.diagnosis.curve, self.diagnosis.probe_times
        named = {size for entry in self.entries[:listed] for size in entry.beside}
        added = []
        for size in named.intersection(probes).difference(curve.conditions):
            times_ms = probes[size]
            time = Estimate(fmean(times_ms), -math.inf, math.inf, 1.0)
            added.append(Point(size, time, spread=None, n=len(times_ms), rounds=1))
        if not added:
            return list(curve.points)
        return sorted([*curve.points, *added], key=lambda point: point.condition)

    def _choose_points(self, most: int, listed: int) -> list[Point]:
        """The sizes that are shown: both ends, sizes that the answer names, the neighbours of the
        first finding, other sizes with findings, then sizes that stand alone.
        """
        points, marks = self._points(listed), self._marks(listed)
        named = self._name_sizes(listed) | {points[0].condition, points[-1].condition}
        for first, second in pairwise(point.condition for point in points):
            if 1 in (*marks.get(first, ()), *marks.get(second, ())):
                named |= {first, second}
        while len(points) > most:
            inner = range(1, len(points) - 1)
            unnamed = [place for place in inner if points[place].condition not in named]
            free = [place for place in unnamed if points[place].condition not in marks]
            gaps = {}
            for place in free or unnamed or inner:
                before, after = points[place - 1], points[place + 1]
                gaps[place] = after.condition / before.condition
            del points[min(gaps, key=gaps.__getitem__)]
        return points

    def _name_sizes(self, listed: int) -> set[Condition]:
        """The sizes that the answer names: of its first findings, the remedy's, the one to take."""
        named: set[Condition] = set()
        for entry in self.entries[:listed]:
            named |= {entry.at, *entry.beside}
        told = self._find_remedy()
        if told is not None:
            _, change = told
            named.add(change.batch)
            if change.padding is not None:
                named.add(change.padding.to)
        throughput = self._throughput()
        if throughput is not None:
            named.add(throughput.batch)
        return named

    def _line(self, width: int) -> list[Text]:
        """The straight line that comes nearest to the curve."""
        line, curve = cost_line(self.diagnosis.curve), self.diagnosis.curve
        if line is None:
            return []
        axis = self.diagnosis.axis.name
        if line.off > _MISSED:
            missed = say_share(line.off)
            return [Text(f"No straight line fits these times: the nearest is off by {missed}.")]
        small, large = curve.conditions[0], curve.conditions[-1]
        at_small = percent(line.fixed_share(small))
        at_large = percent(line.fixed_share(large))
        off = f" ± {percent(line.off)}" if line.off > 0.05 else ""
        cost = f"{number(line.fixed_ms, 3)} + {number(line.each_ms, 3)} ms x {axis}{off}"
        said = f"A step costs about {cost}: at {axis} {small} {at_small} is fixed, "
        said += f"at {large} {at_large}."
        if cell_len(said) > width:
            said = f"A step costs {cost}: {at_small} fixed at {small}, {at_large} at {large}."
        if not line.tells_fixed(small):
            said = f"A step costs about {number(line.each_ms, 3)} ms x {axis}{off}."
        return [Text(cut(said, width))]

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
        told = self._find_remedy()
        if told is None:
            return []
        index, change = told
        title = f"DO {index}  "
        said = remedy(change, self.diagnosis.axis).rstrip(".")
        return [set_title(title, cut(said, width - len(title)))]

    def _find_remedy(self) -> tuple[int, Remedy] | None:
        """The first measured remedy, with the number of its finding."""
        for index, entry in enumerate(self.entries[:_LEAST_FOUND], 1):
            for answer in entry.answers[:1]:
                if answer.remedy is not None:
                    return index, answer.remedy
        return None

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
        if not self._is_modelled():
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
        if self._is_modelled():
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


def _choose_told(slow: Sequence[Found]) -> Found | None:
    """The slow place that the verdict tells: the first, or what is confirmed at the same size."""
    placed = next((entry for entry in slow if entry.where), None)
    confirmed = next((entry for entry in slow if entry.sure == CONFIRMED and entry.why), None)
    if placed is None or confirmed is None or placed.sure == CONFIRMED:
        return placed
    return confirmed if confirmed.at == placed.at else placed


def _say_cost(entry: Found, size: str) -> str:
    """That a layer costs more, from which size on, and why."""
    when = f"from {size} on" if entry.is_lasting else f"at {size}"
    comma = "," if entry.certain is not None and entry.certain.line else ""
    return f"{entry.where}{comma} costs more {when}: {entry.why} ({entry.sure})."


def _place_and_cause(entry: Found) -> str:
    """Where a size is slow, why, and how sure the cause is."""
    of_what = "" if entry.sure == MEASURED else "cause "
    return f"{join_texts([entry.where, entry.why])} ({of_what}{entry.sure})"


def _rate(point: Point) -> float:
    return 1e3 * float(point.condition) / point.time_ms.value


def _time(point: Point) -> str:
    time = point.time_ms
    value = number(time.value)
    if not math.isfinite(time.high):
        return value
    if not is_known(time.low, time.high):
        return f"{value} unstable"
    decimals = len(value.partition(".")[2])
    half = (time.high - time.low) / 2
    return f"{value} ± {_show_half(half, decimals, number(half, 2)):<4}"


def _show_half(half: float, decimals: int, shown: str) -> str:
    """Half an interval beside a number of some decimals; none is 0, nor finer than the number."""
    least = 10.0**-decimals
    return shown if half >= least / 2 else f"<{least:.{decimals}f}"


def _decimals(value: float) -> int:
    if value >= 10:
        return 0
    return 1 if value >= 1 else 2


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
