"""Where steps begin and end in a profile: by marks, else by the repetition of the kernel sequence, else one in all.

- Marks: ranges whose names say step. The host runs ahead of the device, so a step's window reaches from its mark, or
  the end of the step before it, to the end of the device work launched in it: windows do not overlap.
- Repetition: the shortest period of kernel names, on the stream with most time, that explains the longest stretch of
  the sequence, at least three times over. Where in the period a step begins cannot be seen; it is put at the longest
  idle time that comes back in every period.
- Else the whole profile is one step, from its first device work to its last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from .nesting import NONE, Codes, Ints, last_at
from .placement import HostSpans

MARKS = "marks"
REPETITION = "repetition of the kernel sequence"
WHOLE = "the whole profile as one step"
NOTHING = "nothing: no kernel has a time"

_LEAST_PERIODS = 3
_LEAST_SHARE = 0.25  # of the sequence that the periods must cover: less is a loop inside of something else
_CANDIDATE_NAMES = 12  # the rarest repeated kernels; the step's own period shows between the calls of each of them
_CANDIDATE_HOPS = 16  # a name may occur this many times in a step
_PREFERRED = re.compile(r"(?:profilerstep#|curvescope\.step).*", re.IGNORECASE)

Windows = list[tuple[int, int]]


@dataclass(frozen=True)
class Marks:
    """Step marks of one process, in order of time, not overlapping.

    Attributes:
        process: number of the process.
        start_ns: starts, shape (steps,).
        end_ns: ends.
        batch: samples per step as their names tell, 0 where they don't.
        crossing: how many begin before the one before them ends, and end after it: they were cut to begin at its end.
    """

    process: int
    start_ns: Ints
    end_ns: Ints
    batch: Ints
    crossing: int = 0

    def step_of(self, moment_ns: Ints) -> Ints:
        """Position of the mark around each moment; `NONE` outside."""
        at = last_at(self.start_ns, moment_ns)
        inside = (at >= 0) & (moment_ns < self.end_ns[np.maximum(at, 0)])
        return np.where(inside, at, NONE)


def find_marks(ranges: HostSpans, names: Sequence[str]) -> list[Marks]:
    """The step marks of every process: of several habits the one that covers most time, on one thread.

    Args:
        ranges: nested, start/end and instantaneous ranges alike.
        names: of the ranges, one per entry of `ranges.meanings`.
    """
    said = np.array([s.step for s in ranges.meanings], dtype=bool)
    rows = np.flatnonzero(said[ranges.name]) if len(said) else np.zeros(0, np.int64)
    families: dict[tuple[int, str, int], list[int]] = {}
    family_of = {int(n): re.sub(r"\d+", "", names[n][:64]) for n in np.unique(ranges.name[rows])}
    for row in rows.tolist():
        key = int(ranges.process[row]), family_of[int(ranges.name[row])], int(ranges.thread[row])
        families.setdefault(key, []).append(row)
    found = []
    for process in sorted({process for process, *_ in families}):
        best = max(
            (key for key in families if key[0] == process),
            key=lambda key: (
                _PREFERRED.fullmatch(key[1]) is not None,
                int((ranges.end_ns[families[key]] - ranges.start_ns[families[key]]).sum()),
                len(families[key]),
            ),
        )
        found.append(_marks(process, ranges, np.array(families[best])))
    return found


def _marks(process: int, ranges: HostSpans, rows: Ints) -> Marks:
    rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
    start, end = ranges.start_ns[rows], ranges.end_ns[rows].copy()
    if (start == end).all():  # instants: each step reaches to the next one
        end = np.append(start[1:], np.iinfo(np.int64).max)
    reached = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end[:-1]))
    apart = (start >= reached) | (end > reached)  # a step inside a step is no step of its own
    crossing = int(np.count_nonzero(apart & (start < reached)))
    start = np.maximum(start, reached)
    batch = np.array([said.batch or 0 for said in ranges.meanings], np.int64)[ranges.name[rows]]
    return Marks(process, start[apart], end[apart], batch[apart], crossing)


class MarkedSteps:
    """The marked steps of all processes, numbered one process after the other."""

    def __init__(self, marks: Sequence[Marks]) -> None:
        self._marks = marks
        self._first = [0, *accumulate(len(one.start_ns) for one in marks)]
        ends = [one.end_ns for one in marks]
        for place, one in enumerate(marks):
            if len(one.end_ns) and one.end_ns[-1] == np.iinfo(np.int64).max:  # until its last work ends, then
                ends[place] = np.append(one.end_ns[:-1], one.start_ns[-1])
        self._ends_ns: Ints = np.concatenate([*ends, np.zeros(0, np.int64)])

    def __bool__(self) -> bool:
        return bool(self._marks)

    @property
    def processes(self) -> int:
        """How many processes have any."""
        return len(self._marks)

    def step_of(self, process: Ints | Codes, moment_ns: Ints) -> Codes:
        """Number of the step around each moment on the host; `NONE` outside. Shape (moments,)."""
        found = np.full(len(moment_ns), NONE, np.int32)
        for marks, first in zip(self._marks, self._first, strict=False):
            at = marks.step_of(moment_ns)
            inside = (at != NONE) & (process == marks.process)
            found[inside] = at[inside] + first
        return found

    def reach(self, step: Codes, work_end_ns: Ints) -> None:
        """Take in work: a step ends where the last work that was launched in it does.

        Args:
            step: number of the step that each piece was launched in, or `NONE`.
            work_end_ns: its ends.
        """
        if not len(step):
            return
        # Work of one step lies in a row, mostly: one number for each stretch.
        edges = np.append(0, np.flatnonzero(np.diff(step)) + 1)
        inside = step[edges] != NONE
        np.maximum.at(self._ends_ns, step[edges][inside], np.maximum.reduceat(work_end_ns, edges)[inside])

    def windows(self) -> list[tuple[int, int, int, int]]:
        """Process, batch (0 where none is told), start and end of each step."""
        windows = []
        for marks, first in zip(self._marks, self._first, strict=False):
            before = np.iinfo(np.int64).min
            ends = self._ends_ns[first : first + len(marks.start_ns)]
            for batch, start, end in zip(marks.batch.tolist(), marks.start_ns.tolist(), ends.tolist(), strict=True):
                start = max(start, int(before))
                before = end = max(start, end)
                windows.append((marks.process, batch, start, end))
        return windows


def repeated_windows(name: Ints, start_ns: Ints, end_ns: Ints, stream: Ints) -> Windows:
    """Windows of the steps that the kernel sequence shows by repeating; empty where it does not.

    Args:
        name: code of each kernel's name.
        start_ns: starts.
        end_ns: ends.
        stream: number of the stream; the one with most time is read.
    """
    if not len(name):
        return []
    keys, which = np.unique(stream, return_inverse=True)
    main = int(np.argmax(np.bincount(which, weights=(end_ns - start_ns).astype(np.float64), minlength=len(keys))))
    rows = np.flatnonzero(which == main)
    rows = rows[np.argsort(start_ns[rows], kind="stable")]
    found = find_period(name[rows])
    if found is None:
        return []
    first, covered, period = found
    starts, ends = start_ns[rows], end_ns[rows]
    free_since = np.maximum.accumulate(np.append(starts[0], ends[:-1]))
    gap = starts - free_since
    whole = covered // period
    idle = np.median(gap[first : first + whole * period].reshape(whole, period), axis=0)
    offset = int(np.argmax(idle))
    begins = np.arange(first + offset, first + covered, period)
    begins = begins[begins + period <= first + covered]
    windows = [(int(starts[a]), int(starts[b])) for a, b in pairwise(begins)]
    last = slice(int(begins[-1]), int(begins[-1]) + period)
    windows.append((int(starts[begins[-1]]), int(ends[last].max())))
    return windows


def find_period(sequence: npt.NDArray[np.int64]) -> tuple[int, int, int] | None:
    """The shortest period that explains the longest stretch of a sequence.

    Returns:
        First element of the stretch, its length, and the period; null where no period comes three times over or the
        stretch is under a quarter of the sequence.
    """
    names, count = np.unique(sequence, return_counts=True)
    repeated = np.flatnonzero(count >= _LEAST_PERIODS)
    candidates: set[int] = set()
    for at in repeated[np.argsort(count[repeated], kind="stable")][:_CANDIDATE_NAMES]:
        positions = np.flatnonzero(sequence == names[at])
        for hops in range(1, min(_CANDIDATE_HOPS, len(positions) - 1) + 1):
            distances, times = np.unique(positions[hops:] - positions[:-hops], return_counts=True)
            candidates.add(int(distances[np.argmax(times)]))
    best: tuple[int, int, int] | None = None
    for period in sorted(candidates):
        same = np.concatenate([[False], sequence[period:] == sequence[:-period], [False]])
        edges = np.flatnonzero(np.diff(same.astype(np.int8)))
        runs = edges[1::2] - edges[::2]
        if not len(runs):
            continue
        longest = int(np.argmax(runs))
        covered = int(runs[longest]) + period
        enough = covered >= _LEAST_PERIODS * period and covered >= _LEAST_SHARE * len(sequence)
        # A multiple of the period covers as much: the shortest of what covers nearly as much is the period.
        if enough and (best is None or covered > 1.02 * best[1]):
            best = int(edges[::2][longest]), covered, period
    return best
