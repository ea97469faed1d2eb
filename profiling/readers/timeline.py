"""Device work joined to the host: launch by correlation id, range by thread and time, step by launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from . import steps
from .nesting import NONE, Codes, HostRanges, Ints, Placement, place

_STRETCH_ROWS = 1 << 16

LOST = {
    "device_work_without_launch": "kernels, copies and sets whose launch was not recorded; layer and phase unknown",
    "device_work_without_range": "kernels, copies and sets launched outside every range; layer and phase unknown",
    "device_work_without_operator": "kernels, copies and sets launched outside every operator; operator unknown",
    "device_work_outside_steps": "kernels, copies and sets that belong to no step; no step counts them",
    "device_work_cut_by_steps": "kernels, copies and sets that reach into another step's time; the step cuts them off",
    "ranges_cut": "ranges that outlasted the range around them; their ends were cut to it",
    "steps_cut": "step marks that begin before the step before ends and end after it; they were cut to begin there",
    "backward_without_forward": "backward nodes whose forward operator was not recorded; their layer is unknown",
    "negative_durations": "rows that end before they start; they have no duration",
    "without_time": "kernels, copies and sets that the profiler gave no time; they have none here",
    "ranges_unclosed": "ranges whose end was not recorded; they are left out",
}


@dataclass
class Launches:
    """Host calls, arrays of shape (calls,)."""

    start_ns: Ints
    thread: Ints
    process: Codes
    correlation: Ints


@dataclass
class DeviceWork:
    """Kernels, copies and sets in the order their rows are written, arrays of shape (rows,).

    Rows without time have start and end 0 and `timed` False. Codes are 32 bits: ten million rows have to fit.
    """

    start_ns: Ints
    end_ns: Ints
    timed: np.typing.NDArray[np.bool_]
    process: Codes
    launch: Codes  # index of each row's launch, or NONE
    kernel_name: Codes  # code of a kernel's name, any number where steps are marked; NONE for copies and sets
    stream: Codes  # tells streams apart, over devices; any number where steps are marked


@dataclass
class Timeline:
    """What the joins found.

    Attributes:
        placement: of the ranges.
        range_: index of the innermost range around that launch, or `NONE`.
        step: number of each row's step, or `NONE`.
        step_rows: rows of the `steps` table.
        steps_from: how the steps were found.
        marks: the step marks, if that is how.
        before_launch: how many kernels, copies and sets seem to begin before their launch, and the most nanoseconds:
            what the two clocks are apart at least.
        lost: named counts.
    """

    placement: Placement
    range_: Codes
    step: Codes
    step_rows: list[dict[str, Any]]
    steps_from: str
    marks: list[steps.Marks]
    before_launch: tuple[int, int] = (0, 0)
    lost: Counter[str] = field(default_factory=Counter)

    def columns(self, rows: slice) -> dict[str, pa.Array]:
        """Columns layer, phase, op and step of a stretch of the device work."""
        return {**self.placement.take(self.range_[rows]), "step": code_array(self.step[rows])}

    def step_of_host(self, process: Ints | Codes, moment_ns: Ints) -> pa.Array:
        """Column step of things on the host."""
        found, first = np.full(len(moment_ns), NONE, np.int64), 0
        for marks in self.marks:
            at = np.where(process == marks.process, marks.step_of(moment_ns), NONE)
            found = np.where(at == NONE, found, at + first)
            first += len(marks.start_ns)
        return code_array(found)


def _stretches(count: int) -> Iterator[slice]:
    """Rows some at a time: what is worked out of them stays in the processor's caches."""
    return (slice(first, min(first + _STRETCH_ROWS, count)) for first in range(0, count, _STRETCH_ROWS))


def code_array(code: Ints | Codes) -> pa.Array:
    """Numbers with null for `NONE`."""
    return pa.array(code, mask=code == NONE)


def build(
    nested: HostRanges,
    all_ranges: HostRanges,
    launches: Launches,
    work: DeviceWork,
    marks: list[steps.Marks],
    batch: int | None,
    placement: Placement | None = None,
) -> Timeline:
    """Join everything.

    Args:
        nested: push/pop ranges.
        all_ranges: these, start/end ranges and marks.
        launches: host calls.
        work: device work.
        marks: the step marks among the ranges.
        batch: samples per step, if the user gave it.
        placement: of what launches lie in, where that is more than the push/pop ranges.
    """
    operators = placement is not None
    placement = placement or place(nested)
    around = np.empty(len(launches.start_ns), np.int32)
    for rows in _stretches(len(around)):
        around[rows] = placement.nest.innermost(launches.thread[rows], launches.start_ns[rows])
    joined = work.launch != NONE
    range_ = np.full(len(joined), NONE, np.int32)
    ahead, most_ahead_ns = 0, 0
    if len(around):
        for rows in _stretches(len(range_)):
            launch = work.launch[rows]
            range_[rows] = np.where(launch == NONE, NONE, around[launch])
            ahead_ns = launches.start_ns[launch] - work.start_ns[rows]
            ahead_ns[(launch == NONE) | ~work.timed[rows]] = 0
            ahead += int(np.count_nonzero(ahead_ns > 0))
            most_ahead_ns = max(most_ahead_ns, int(ahead_ns.max()))
    timeline = Timeline(placement, range_, np.full(len(joined), NONE, np.int32), [], steps.NOTHING, marks)
    lost = timeline.lost
    timeline.before_launch = ahead, most_ahead_ns
    if len(launches.start_ns):
        lost["device_work_without_launch"] = int(np.count_nonzero(~joined))
    if operators:
        outside = range_[joined] == NONE if not len(placement.op) else placement.op[range_[joined]] == NONE
        lost["device_work_without_operator"] = int(np.count_nonzero(outside | (range_[joined] == NONE)))
    elif len(nested.start_ns):
        lost["device_work_without_range"] = int(np.count_nonzero(joined & (range_ == NONE)))
    lost["ranges_cut"], lost["backward_without_forward"] = placement.nest.cut, placement.unjoined
    lost["steps_cut"] = sum(of_process.crossing for of_process in marks)
    _find_steps(timeline, all_ranges, launches, work, batch)
    return timeline


class Joiner:
    """Finds the launch of device work by process and correlation id."""

    def __init__(self, launches: Launches) -> None:
        """Index the launches; of two with one id the first counts."""
        process, keys = launches.process, launches.correlation
        self._several = len(process) > 0 and bool((process != process[0]).any())
        self._processes, which = (
            np.unique(process, return_inverse=True) if self._several else (process[:1], np.zeros(len(keys), np.int8))
        )
        self._low, self._high = (int(keys.min()), int(keys.max())) if len(keys) else (0, -1)
        # Ids in a row, as profilers give them: a table beats a search.
        self._dense = not self._several and self._high - self._low < 4 * len(keys) + 1024
        if self._dense:
            self._table = np.full(max(self._high - self._low + 1, 0), NONE, np.int32)
            self._table[keys[::-1] - self._low] = np.arange(len(keys), dtype=np.int32)[::-1]
        else:
            self._order = np.lexsort((keys, which))
            self._keys, self._edges = (
                keys[self._order],
                np.searchsorted(which[self._order], range(len(self._processes) + 1)),
            )

    def find(self, process: Codes, correlation: Ints) -> Codes:
        """Index of the launch of each row; `NONE` where there is none."""
        found = np.full(len(correlation), NONE, np.int32)
        for index, of_launches in enumerate(self._processes.tolist()):
            # One process among the launches, or none told of the work: ids alone tell.
            mine = correlation != NONE
            if self._several or (of_launches != NONE and (process != NONE).any()):
                mine &= process == of_launches
            every = bool(mine.all())
            at = self._at(correlation if every else correlation[mine], index)
            if every:
                return at
            found[mine] = at
        return found

    def _at(self, wanted: Ints, index: int) -> Codes:
        """Index of the launch with each id, of the process with this index; `NONE` where there is none."""
        if self._dense:
            inside = (wanted >= self._low) & (wanted <= self._high)
            if inside.all():
                return self._table[wanted - self._low]
            return np.where(inside, self._table[np.where(inside, wanted - self._low, 0)], np.int32(NONE))
        first, last = self._edges[index], self._edges[index + 1]
        at = np.minimum(first + np.searchsorted(self._keys[first:last], wanted), last - 1)
        return np.where(self._keys[at] == wanted, self._order[at], NONE).astype(np.int32)


def _find_steps(
    timeline: Timeline,
    ranges: HostRanges,
    launches: Launches,
    work: DeviceWork,
    batch: int | None,
) -> None:
    lost, timed = timeline.lost, work.timed
    windows: list[tuple[int, int, int, int]] = []  # process, batch, start, end
    if timeline.marks:
        timeline.steps_from = steps.MARKS
        for marks in timeline.marks:
            ends = steps.MarkedEnds(marks)
            for rows in _stretches(len(timed)):
                # Work is placed by its launch; where that was not recorded, by its own time.
                launch, moment = work.launch[rows], work.start_ns[rows]
                if len(launches.start_ns):
                    moment = np.where(launch == NONE, moment, launches.start_ns[launch])
                mine = (work.process[rows] == marks.process) & timed[rows]
                at = np.where(mine, marks.step_of(moment), NONE)
                timeline.step[rows] = np.where(at == NONE, timeline.step[rows], at + len(windows))
                ends.reach(at, work.end_ns[rows])
            windows += [(marks.process, int(b), *w) for b, w in zip(marks.batch, ends.windows(), strict=True)]
    elif (kernels := timed & (work.kernel_name != NONE)).any():
        columns = (work.kernel_name, work.start_ns, work.end_ns, work.stream)
        found = steps.repeated_windows(*(column[kernels] for column in columns))
        timeline.steps_from = steps.REPETITION if found else steps.WHOLE
        if not found:
            found = [(int(work.start_ns[timed].min()), int(work.end_ns[timed].max()))]
        starts = np.array([start for start, _ in found])
        at = np.searchsorted(starts, work.start_ns, side="right") - 1
        inside = timed & (at >= 0) & (work.start_ns <= found[-1][1])
        timeline.step = np.where(inside, at, NONE).astype(np.int32)
        windows = [(NONE, 0, *window) for window in found]
    if windows:
        lost["device_work_outside_steps"] = int(np.count_nonzero(timed & (timeline.step == NONE)))
        low, high = (np.array([window[place] for window in windows]) for place in (2, 3))
        for rows in _stretches(len(timed)):
            at = timeline.step[rows]
            cut = (work.start_ns[rows] < low[at]) | (work.end_ns[rows] > high[at])
            lost["device_work_cut_by_steps"] += int(np.count_nonzero(cut & (at != NONE)))
    told = _batch_told(timeline, ranges, len(windows))
    several = len(timeline.marks) > 1
    for step, (process, of_mark, start, end) in enumerate(windows):
        timeline.step_rows.append(
            {
                "step": step,
                "batch": batch or of_mark or told[step] or None,
                "repeat": 0,
                "index": step,
                "start_ns": start,
                "duration_ns": end - start,
                "profiled": True,
                "process": process if several else None,
            }
        )


def _batch_told(timeline: Timeline, ranges: HostRanges, count: int) -> list[int]:
    """The batch size that the first range in each step tells by its name or shapes; 0 where none does."""
    told = [0] * count
    of_name = np.array([said.batch or 0 for said in ranges.said], np.int64)
    if not len(of_name) or not of_name.any():
        return told
    rows = np.flatnonzero(of_name[ranges.name])
    rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
    if not timeline.marks:
        values = np.unique(of_name[ranges.name[rows]])
        return [int(values[0])] * count if len(values) == 1 else told
    step = timeline.step_of_host(ranges.process[rows], ranges.start_ns[rows]).to_pylist()
    for row, at in zip(rows.tolist(), step, strict=True):
        if at is not None and at < count and not told[at]:
            told[at] = int(of_name[ranges.name[row]])
    return told
