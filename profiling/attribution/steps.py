"""Finds the start and end of steps in a profile: by marks, or by the repetition of kernels, or as
one single step.

- Marks: ranges named as a step; without, the ends of the calls of `Optimizer.step`. The host runs
  ahead of the device, so a window reaches from its mark, or the end of the device work launched
  before, to the end of that launched in it.
- Repetition: the shortest period of kernel names, on the stream with most time, that explains the
  longest stretch of at least three periods. It begins after the longest idle time that recurs in
  every period, but not between kernels that one operator, annotation, call of a module or launch of
  a graph started. Layers and loops repeat too: repetition counts only where its periods hold at
  least 80 % of the device time, or half of it with a wait between them as none inside, e.g. the
  tokens that a server decodes after a prefill.
- Otherwise the profile is one step, from its first device work to its last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import count_true
from .nesting import NONE, Codes, Ints, last_at
from .placement import HostSpans
from .served_steps import ServedStep

MARKS = "marks"
OPTIMIZER_ENDS = "the ends of the optimizer's steps"
REPETITION = "repetition of the kernel sequence"
WHOLE = "the whole profile as one step"  # as the user says
NOTHING = "nothing: no kernel has a time"

_NEVER = np.iinfo(np.int64).max
_EARLIEST = np.iinfo(np.int64).min
_NO_BORDER = -(1 << 62)  # instead of the idle time before a kernel with which no step can begin
_LEAST_PERIODS = 3
# of the sequence that the periods must cover: a smaller share is a loop within a step
_LEAST_COVERED = 0.25
# of the device time that the periods must hold, unless the user asks for repetition
_LEAST_TIME_SHARE = 0.8
_LEAST_TIME_SHARE_APART = 0.5  # of periods that stand apart
_APART = 3.0  # the longest idle time of such a period over the next longest
_LEAST_APART = 0.05  # of a period, of that idle time
_MOST_APART = 0.8  # of the periods have one, at least
# the rarest repeated kernels: the distances of their calls contain the period of the step
_CANDIDATE_NAMES = 12
_CANDIDATE_HOPS = 16  # most calls of one name in a step
_OPTIMIZER_STEP = "Optimizer.step#"
_OWN_MARK = "curvescope.step"
_PROFILER_MARK = "ProfilerStep#"

Windows = list[tuple[int, int]]


class Window(NamedTuple):
    """A step's window."""

    process: int  # number of the process; `NONE` for all
    name: int  # index of the meaning of the mark's name; `NONE` without a mark
    batch: int  # samples in the step, 0 if unknown
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class StepMarks:
    """Step marks of one process, in order of time, not overlapping."""

    process: int
    start_ns: Ints
    end_ns: Ints
    name: Ints  # index of the meaning of each mark's name, `NONE` for steps between marks
    batch: Ints  # samples per step from their names, 0 if unknown
    # number of marks that overlapped the one before them; they were cut to begin at its end
    crossing: int = 0

    def step_of(self, moment_ns: Ints) -> Ints:
        """Index of the mark around each moment; `NONE` outside."""
        at = last_at(self.start_ns, moment_ns)
        inside = (at >= 0) & (moment_ns < self.end_ns[np.maximum(at, 0)])
        return np.where(inside, at, NONE)


def find_marks(
    ranges: HostSpans, names: Sequence[str], pattern: re.Pattern[str] | None = None
) -> list[StepMarks]:
    """The step marks of every process: of several families of names one, on one thread.

    Curvescope's own go first, then a server's, which tell the batch size, then torch.profiler's,
    then marks that come again, then the longest: a first step that waits for its kernels may take
    longer than all others.
    """
    if pattern is None:
        rows = np.flatnonzero(ranges.where(lambda meaning: meaning.step))
    else:
        matches = [pattern.search(name) is not None for name in names]
        rows = np.flatnonzero(ranges.of_names(matches) == 1)
    family_of = {}
    for name in np.unique(ranges.name[rows]).tolist():
        family_of[name] = _family(names[name], ranges.meanings[name].served)
    families: dict[int, dict[tuple[int, str, int], list[int]]] = {}
    for row in rows.tolist():
        of_process = families.setdefault(int(ranges.process[row]), {})
        key = *family_of[int(ranges.name[row])], int(ranges.thread[row])
        of_process.setdefault(key, []).append(row)

    def worth(item: tuple[tuple[int, str, int], list[int]]) -> tuple[int, bool, int, int]:
        (rank, *_), rows = item
        time_ns = int((ranges.end_ns[rows] - ranges.start_ns[rows]).sum())
        return rank, len(rows) > 1, time_ns, len(rows)

    windows = []
    for process, alike in sorted(families.items()):
        _, best = max(alike.items(), key=worth)
        windows.append(_marks(process, ranges, np.array(best)))
    return windows


def _family(name: str, served: ServedStep | None) -> tuple[int, str]:
    """Rank of a mark's family, higher is better, and the family's name: the mark's without its
    numbers.
    """
    if served is not None:
        return 2, served.server
    if name.startswith(_OWN_MARK):
        rank = 3
    elif name.startswith(_PROFILER_MARK):
        rank = 1
    else:
        rank = 0
    return rank, re.sub(r"\d+", "", name[:64])


def optimizer_marks(ranges: HostSpans, names: Sequence[str]) -> list[StepMarks]:
    """Steps that end with a call of the optimizer's `step`, of every process that has such calls.

    Several optimizers may step in one training step: a call ends a step only if a backward node ran
    since the last one, where backward nodes are recorded. The first step begins with the first span
    of the process. What follows the last call is in no step.
    """
    calls = ranges.of_names([name.startswith(_OPTIMIZER_STEP) for name in names]) == 1
    backward = ranges.where(lambda meaning: meaning.backward)
    windows = []
    for process in np.unique(ranges.process[calls]).tolist():
        mine = ranges.process == process
        rows = np.flatnonzero(calls & mine)
        rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
        nodes = np.sort(ranges.start_ns[backward & mine])
        if len(nodes):
            before = np.searchsorted(nodes, ranges.start_ns[rows])
            # of several calls after one backward pass the last
            is_last = np.append(np.diff(before) > 0, True)
            rows = rows[is_last]
        ends = ranges.end_ns[rows]
        starts = np.append(ranges.start_ns[mine].min(), ends[:-1])
        inside = ends > starts
        unknown = np.full(count_true(inside), NONE, np.int64)
        batch = np.zeros_like(unknown)
        windows.append(StepMarks(process, starts[inside], ends[inside], unknown, batch))
    return windows


def _marks(process: int, ranges: HostSpans, rows: Ints) -> StepMarks:
    rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
    start = ranges.start_ns[rows]
    end = ranges.end_ns[rows].copy()
    if (start == end).all():  # instants: each step ends at the next one
        end = np.append(start[1:], _NEVER)
    reached = np.maximum.accumulate(np.append(_EARLIEST, end[:-1]))
    overlaps = start < reached
    apart = ~overlaps | (end > reached)  # a mark inside another one is not a step
    crossing = count_true(apart & overlaps)
    start = np.maximum(start, reached)
    rows = rows[apart]
    batch = ranges.of_names([meaning.batch or 0 for meaning in ranges.meanings])[rows]
    return StepMarks(process, start[apart], end[apart], ranges.name[rows], batch, crossing)


class MarkedSteps:
    """The marked steps of all processes, numbered process by process."""

    def __init__(self, marks: Sequence[StepMarks]) -> None:
        self._marks = marks
        self._first = [0, *accumulate(len(mark.start_ns) for mark in marks)]
        ends = [np.zeros(0, np.int64)]
        for mark in marks:
            end_ns = mark.end_ns
            if len(end_ns) and end_ns[-1] == _NEVER:  # ends with its last work
                end_ns = np.append(end_ns[:-1], mark.start_ns[-1])
            ends.append(end_ns)
        self._ends_ns: Ints = np.concatenate(ends)
        # When the first work of each step began, and when work of no step that was launched before
        # it had ended.
        self._first_work_ns: Ints = np.full_like(self._ends_ns, _NEVER)
        self._held_ns: Ints = np.full_like(self._ends_ns, _EARLIEST)

    def __bool__(self) -> bool:
        return bool(self._marks)

    def step_of(self, process: Ints | Codes, moment_ns: Ints) -> Codes:
        """Number of the step around each moment on the host; `NONE` outside. Shape (moments,)."""
        steps_of = np.full(len(moment_ns), NONE, np.int32)
        for marks, first in zip(self._marks, self._first, strict=False):
            at = marks.step_of(moment_ns)
            inside = (at != NONE) & (process == marks.process)
            steps_of[inside] = at[inside] + first
        return steps_of

    def step_without_launch(
        self, process: Codes, start_ns: Ints, launched_start_ns: Ints, launched_step: Codes
    ) -> Codes:
        """The step of work whose launch was not recorded: that around its own start, but none later
        than that of launched work which runs after it, as the host runs ahead.
        """
        step = self.step_of(process, start_ns)
        inside = launched_step != NONE
        if len(self._marks) != 1 or not inside.any():
            return step
        order = np.argsort(launched_start_ns[inside], kind="stable")
        begins = launched_start_ns[inside][order]
        later = np.minimum.accumulate(launched_step[inside][order][::-1])[::-1]
        following = np.searchsorted(begins, start_ns)
        before = (step != NONE) & (following < len(begins))
        step[before] = np.minimum(step[before], later[following[before]])
        return step

    def reach(self, step: Codes, work_start_ns: Ints, work_end_ns: Ints) -> None:
        """Extend the steps to the end of the last work that was launched in each; `step` may be
        `NONE`.
        """
        if not len(step):
            return
        # Consecutive rows mostly belong to one step: one number per stretch of them.
        edges = np.append(0, np.flatnonzero(np.diff(step)) + 1)
        of_stretch = step[edges]
        inside = of_stretch != NONE
        last = np.maximum.reduceat(work_end_ns, edges)
        first = np.minimum.reduceat(work_start_ns, edges)
        np.maximum.at(self._ends_ns, of_stretch[inside], last[inside])
        np.minimum.at(self._first_work_ns, of_stretch[inside], first[inside])

    def hold(self, process: Ints | Codes, moment_ns: Ints, work_end_ns: Ints) -> None:
        """Let the steps begin after work of no step that was launched before them, at these moments
        of the host.

        The device still runs it when the host is in the step: it is no idle time. Shape (work,) of
        all.
        """
        for marks, first in zip(self._marks, self._first, strict=False):
            mine = (process == marks.process) & (moment_ns < marks.start_ns[-1])
            after = first + np.searchsorted(marks.start_ns, moment_ns[mine], side="right")
            np.maximum.at(self._held_ns, after, work_end_ns[mine])

    def windows(self) -> list[Window]:
        """Each step's window."""
        windows = []
        for marks, first in zip(self._marks, self._first, strict=False):
            before = _EARLIEST
            mine = slice(first, first + len(marks.start_ns))
            ends = self._ends_ns[mine]
            # A step does not begin after its own first work, and not after its end without any.
            latest = np.minimum(self._first_work_ns[mine], ends)
            starts = np.maximum(marks.start_ns, np.minimum(self._held_ns[mine], latest))
            facts = (marks.name.tolist(), marks.batch.tolist(), starts.tolist(), ends.tolist())
            for name, batch, start, end in zip(*facts, strict=True):
                start = max(start, int(before))
                before = end = max(start, end)
                windows.append(Window(marks.process, name, batch, start, end))
        return windows


def find_repeated_windows(
    name: Ints, start_ns: Ints, end_ns: Ints, stream: Ints, unit: Ints | None = None
) -> Windows:
    """Windows of the steps by the repetition of kernel names, on the stream with most time; empty
    without one.

    `unit` is the number of what started each kernel and lies in one step as a whole, e.g. a launch
    of a graph, or `NONE`.
    """
    if not len(name):
        return []
    rows = _rows_of_busiest(stream, start_ns, end_ns)
    repeated = find_period(name[rows])
    if repeated is None:
        return []
    first, covered, period = repeated
    starts = start_ns[rows]
    ends = end_ns[rows]
    free_since = np.maximum.accumulate(np.append(starts[0], ends[:-1]))
    gap = starts - free_since
    if unit is not None:
        of_row = unit[rows]
        goes_on = (of_row[1:] == of_row[:-1]) & (of_row[1:] != NONE)
        gap[1:][goes_on] = _NO_BORDER
    periods = covered // period
    in_periods = gap[first : first + periods * period].reshape(periods, period)
    is_whole = (in_periods == _NO_BORDER).any(axis=0)
    idle = np.where(is_whole, -1.0, np.median(in_periods, axis=0))
    offset = int(np.argmax(idle))
    if idle[offset] < 0:
        return []
    end = first + covered
    begins = np.arange(first + offset, end, period)
    begins = begins[begins + period <= end]
    windows = [(int(starts[a]), int(starts[b])) for a, b in pairwise(begins)]
    last = int(begins[-1])
    windows.append((int(starts[last]), int(ends[last : last + period].max())))
    return windows


def _rows_of_busiest(lane: Ints, start_ns: Ints, end_ns: Ints) -> Ints:
    """Rows of the stream or thread with the most time, in the order of their starts."""
    _, which = np.unique(lane, return_inverse=True)
    time_ns = np.bincount(which, weights=(end_ns - start_ns).astype(np.float64))
    rows = np.flatnonzero(which == np.argmax(time_ns))
    return rows[np.argsort(start_ns[rows], kind="stable")]


def are_steps(windows: Windows, start_ns: Ints, end_ns: Ints) -> bool:
    """Whether windows of repeated kernels are steps, and no loop inside one: by the share of all
    device work that they hold.
    """
    low, high = np.array(windows).T
    inside = (start_ns >= low[0]) & (start_ns < high[-1])
    duration = end_ns - start_ns
    share = float(duration[inside].sum() / max(duration.sum(), 1))
    if share >= _LEAST_TIME_SHARE or share < _LEAST_TIME_SHARE_APART:
        return share >= _LEAST_TIME_SHARE
    order = np.argsort(start_ns, kind="stable")
    start_ns = start_ns[order]
    reached = np.maximum.accumulate(end_ns[order])[:-1]
    idle = np.maximum(start_ns[1:] - reached, 0)
    least_ns = _LEAST_APART * np.median(high - low)
    apart = []
    for own in np.split(idle, np.searchsorted(reached, low))[1:-1]:
        next_longest, longest = [0, 0, *np.sort(own)[-2:]][-2:]
        apart.append(len(own) > 0 and longest >= max(_APART * next_longest, least_ns))
    return bool(np.mean(apart) >= _MOST_APART)


def whole_periods(name: Ints, start_ns: Ints, end_ns: Ints, thread: Ints) -> Windows:
    """Windows of a sequence on the busiest thread that consists of its periods alone, from its
    first; else empty.
    """
    if not len(name):
        return []
    rows = _rows_of_busiest(thread, start_ns, end_ns)
    period = find_period(name[rows])
    if period is None or period[0] != 0 or period[1] < len(rows) or period[1] % period[2]:
        return []
    begins = start_ns[rows][:: period[2]].tolist()
    return list(pairwise([*begins, int(end_ns[rows].max())]))


def find_period(sequence: npt.NDArray[np.int64]) -> tuple[int, int, int] | None:
    """The shortest period that explains the longest stretch of a sequence.

    Returns its first element, its length, and the period; None if no period occurs three times in
    sequence or the stretch is shorter than a quarter of the sequence.
    """
    best: tuple[int, int, int] | None = None
    for period in sorted(_candidate_periods(sequence)):
        same = np.concatenate([[False], sequence[period:] == sequence[:-period], [False]])
        edges = np.flatnonzero(np.diff(same.astype(np.int8)))
        begins = edges[::2]
        runs = edges[1::2] - begins
        if not len(runs):
            continue
        longest = int(np.argmax(runs))
        covered = int(runs[longest]) + period
        enough = covered >= _LEAST_PERIODS * period and covered >= _LEAST_COVERED * len(sequence)
        # Multiples of the period cover about as much as the period itself: the shortest candidate
        # wins.
        if enough and (best is None or covered > 1.02 * best[1]):
            best = int(begins[longest]), covered, period
    return best


def _candidate_periods(sequence: npt.NDArray[np.int64]) -> set[int]:
    """The most frequent distances between equal elements, of the rarest that are repeated."""
    names, count = np.unique(sequence, return_counts=True)
    repeated = np.flatnonzero(count >= _LEAST_PERIODS)
    rarest_first = repeated[np.argsort(count[repeated], kind="stable")]
    candidates: set[int] = set()
    for at in rarest_first[:_CANDIDATE_NAMES]:
        positions = np.flatnonzero(sequence == names[at])
        for hops in range(1, min(_CANDIDATE_HOPS, len(positions) - 1) + 1):
            distances, times = np.unique(positions[hops:] - positions[:-hops], return_counts=True)
            candidates.add(int(distances[np.argmax(times)]))
    return candidates


def mode_of(phases: set[str]) -> str | None:
    """The mode of a step, by the phases in it; None if there is none."""
    if "optimizer" in phases:
        return "training"
    if "backward" in phases:
        return "forward+backward"
    return "forward" if "forward" in phases else None
