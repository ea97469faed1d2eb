"""The reasons of the gaps in a step: the host's work while no device work ran.

API calls have the time of a gap that they cover, of several at once the one that began first. The
rest has one reason: the shortest range (of NVTX, or of the profiler's own annotations) or sampled
function around at least half of the gap; no API call, if others were recorded. A gap as a whole has
the reason of its rest, where that is half of it, else the API call that took most. Of a gap before
work that was launched long before it began, only the time up to its launch is the host's: after it
the device waits by itself, for an event or for work that is not recorded, or goes from one kernel
to the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...profiling.attribution.range_names import RangeNames, find_step_names
from ...profiling.recording.schema import INPUT, SAMPLED
from ...profiling.recording.store import Recording
from .breakdown import Breakdown
from .input_time import WAITING_FOR_INPUT
from .kernel_times import (
    KERNEL_IDENTITY,
    Work,
    is_in_order,
    of_steps,
    replace_column,
    select_profiled_steps,
)
from .marked import StepTimes, step_times
from .repeated_layers import classes_with
from .statistics import Ints
from .terms import IDLE, Key, work_label

HOST_COLUMNS = ("name", "start_ns", "duration_ns", "process")  # of `api_calls` and `ranges`
_CALL_COLUMNS = (*HOST_COLUMNS, "correlation_id")
OUTSIDE_CALLS = "host outside API calls"
IN_RANGE, IN_FUNCTION = ("host in range ", "host in function ")  # how reasons with places begin
WAITS = "device: launched work waits"
FOLLOWS = "device: from one launched kernel to the next"
_WAITING = "waiting for input"
_LEAST_IDLE = 0.05  # of a step; a smaller idle time is not explained
_GAPS_AT_ONCE = 1 << 17  # about: gaps that are held before they are summed up
# Codes of reasons: none, none of the calls that were recorded; and where the work after a gap had
# been launched, that it waits, or that it follows as fast as a device starts a kernel.
_UNTOLD, _OUTSIDE, _WAITS, _FOLLOWS = -1, -2, -3, -4
_WITHOUT_CALL = {_OUTSIDE: OUTSIDE_CALLS, _WAITS: WAITS, _FOLLOWS: FOLLOWS}
# Time from a launch to the begin of its work on an idle device that counts as the host's: tens of
# µs are usual.
_LATENCY_NS = 100_000
_FOLLOWS_NS = 20_000  # between two launched kernels of a stream, or of a graph, a few µs are usual
_HALF = 0.5
_LONGEST_NAME = 120  # characters of a range's name that are kept
_COLUMNS = ("step", "start_ns", "duration_ns", "process", "layer", "correlation_id")
_NO_LAUNCH = np.iinfo(np.int64).max
_STEP_NUMBER = re.compile(r"[\[(]|[ _#:=.-]*\d")  # in `ProfilerStep#7`, `step[DECODE bs=8]`
_NAMES = RangeNames()


@dataclass(frozen=True)
class IdleTime:
    """The idle time with one reason, in a mean step."""

    reason: str | None  # what the host did; None if unknown
    time_ms: float  # idle time per step
    # number of gaps per step that have it as a whole; None if marked steps tell the idle time
    gaps: float | None
    # layer of the device work that follows most of this time; None if that has no layer
    before: str | None


class Gaps(NamedTuple):
    """The gaps in the device work of one step, in order of time."""

    begin_ns: Ints  # starts; begin_ns, end_ns and following have the shape (gaps,)
    end_ns: Ints
    # position of the device work after the gap; the number of all work for a gap at the step's end
    following: Ints


class StepHostSpans:
    """The calls or ranges of the host, in order of their starts."""

    def __init__(self, table: pd.DataFrame, functions: Collection[str] = ()) -> None:
        """Take the spans of a table with `HOST_COLUMNS`; rows without start or duration are left
        out. `functions` are the names of those that are functions.
        """
        self.functions = functions
        complete = table["start_ns"].notna() & table["duration_ns"].notna()
        timed = table if complete.all() else table[complete]
        if not timed["start_ns"].is_monotonic_increasing:
            timed = timed.sort_values("start_ns", kind="stable")
        self.start_ns = timed["start_ns"].to_numpy(np.int64)
        self.end_ns = self.start_ns + timed["duration_ns"].to_numpy(np.int64)
        codes, self.names = pd.factorize(timed["name"])
        self.codes: Ints = codes.astype(np.int64)
        self.processes = timed["process"].to_numpy(np.float64, na_value=np.nan)
        self._thread = timed.get("thread")
        self._correlation = timed.get("correlation_id")
        self._every_process = set(_numbers_of(self.processes))
        self._ended_ns = np.maximum.accumulate(self.end_ns) if len(timed) else self.end_ns

    def table(self) -> pd.DataFrame:
        """Name, start_ns, end_ns and thread (null if unknown) of each."""
        names = pd.Categorical.from_codes(self.codes, list(self.names))
        table = pd.DataFrame({"name": names, "start_ns": self.start_ns, "end_ns": self.end_ns})
        return table.assign(thread=None if self._thread is None else self._thread.to_numpy())

    def during(self, begin_ns: int, end_ns: int, processes: Sequence[float]) -> Ints:
        """Positions of the spans that overlap a time: of some processes (by default all), and of
        unknown ones.
        """
        first = np.searchsorted(self._ended_ns, begin_ns, side="right")
        last = np.searchsorted(self.start_ns, end_ns, side="left")
        place = np.arange(first, last, dtype=np.int64)
        near: Ints = place[self.end_ns[place] > begin_ns]
        if not len(processes) or self._every_process.issubset(processes):
            return near
        own = self.processes[near]
        wanted: Ints = near[np.isin(own, processes) | np.isnan(own)]
        return wanted

    def launches_of(self, work: pd.DataFrame) -> tuple[Ints, Ints]:
        """When the calls that launched some work returned, far in the future where they are
        unknown; and the codes of their names, or -1. Both have the shape (work,).
        """
        if self._correlation is None or "correlation_id" not in work:
            unknown = np.full(len(work), -1)
            return np.full(len(work), _NO_LAUNCH), unknown
        launches = pd.DataFrame({"correlation_id": self._correlation.to_numpy()})
        launches["process"] = self.processes
        launches["end_ns"] = pd.array(self.end_ns, "Int64")
        launches["code"] = pd.array(self.codes, "Int64")
        keys = ["process", "correlation_id"]
        last = launches.dropna(subset="correlation_id").sort_values("end_ns", kind="stable")
        last = last.drop_duplicates(keys, keep="last")
        numbers = work[keys].astype({"process": np.float64})
        joined = numbers.merge(last, on=keys, how="left")
        end_ns: Ints = joined["end_ns"].fillna(_NO_LAUNCH).to_numpy(np.int64)
        code: Ints = joined["code"].fillna(-1).to_numpy(np.int64)
        return end_ns, code


def _numbers_of(processes: npt.NDArray[np.float64]) -> list[float]:
    """Every process once, increasing, without NaN."""
    different = np.unique(processes)
    numbers: list[float] = different[~np.isnan(different)].tolist()
    return numbers


def find_gaps(begin_ns: Ints, end_ns: Ints, first_ns: int, last_ns: int) -> Gaps:
    """The time of a step in which no device work runs, whose starts increase."""
    # faster than np.clip
    begin = np.minimum(np.maximum(begin_ns, first_ns), last_ns)
    end = np.minimum(np.maximum(end_ns, first_ns), last_ns)
    until = np.append(first_ns, np.maximum.accumulate(end))
    following = np.append(begin, last_ns)
    gaps = np.flatnonzero(following > until)
    return Gaps(until[gaps], following[gaps], gaps)


def split_at_launch(gaps: Gaps, launched_ns: Ints) -> tuple[Gaps, npt.NDArray[np.bool_]]:
    """The gaps, divided where the work after them had been launched, and which of them lie after
    that launch.

    `launched_ns` has the end of the launch of each piece of work, and of none. Shape (work + 1,).
    """
    ready_ns = launched_ns[gaps.following]
    before = ready_ns <= gaps.begin_ns
    waited_ns = gaps.end_ns - np.minimum(ready_ns, gaps.end_ns)
    inside = ~before & (waited_ns > _LATENCY_NS)
    begin = np.append(gaps.begin_ns, ready_ns[inside])
    end = np.where(inside, ready_ns, gaps.end_ns)
    end = np.append(end, gaps.end_ns[inside])
    following = np.append(gaps.following, gaps.following[inside])
    launched = np.append(before, np.ones(inside.sum(), np.bool_))
    order = np.argsort(begin, kind="stable")
    return Gaps(begin[order], end[order], following[order]), launched[order]


def reasons(
    gaps: Gaps,
    processes: Sequence[float],
    calls: StepHostSpans,
    read_ranges: Callable[[], StepHostSpans] | None,
) -> list[str | None]:
    """The reason for each gap of a step as a whole; None if unknown."""
    codes = _divide(gaps, processes, calls, read_ranges).of_gaps
    return [_text(code, calls, read_ranges) for code in codes.tolist()]


class _Parts(NamedTuple):
    """The parts of gaps with one reason each, gap by gap; every gap has at least one."""

    gap: Ints  # position of the gap; gap, code and ns have the shape (parts,)
    code: Ints  # of the reason, as `_text` reads it: codes of calls, then codes of ranges
    ns: Ints  # length
    main: npt.NDArray[np.bool_]  # whether it is the reason of the gap as a whole

    @property
    def of_gaps(self) -> Ints:
        """The code of each gap as a whole."""
        return self.code[self.main]


def _divide(
    gaps: Gaps,
    processes: Sequence[float],
    calls: StepHostSpans,
    read_ranges: Callable[[], StepHostSpans] | None,
) -> _Parts:
    """The gaps by the calls that cover them, and the ranges around the rest."""
    length = gaps.end_ns - gaps.begin_ns
    if not len(length):
        none = np.zeros(0, np.int64)
        return _Parts(none, none, none, np.zeros(0, np.bool_))
    inside = int(gaps.begin_ns[0]), int(gaps.end_ns[-1])
    near = calls.during(*inside, processes)
    covered = cover_gaps(gaps, calls.start_ns[near], calls.end_ns[near])
    names = max(len(calls.names), 1)
    call = calls.codes[near[covered.span]]
    key, which = np.unique(covered.gap * names + call, return_inverse=True)
    of_gap, code = np.divmod(key, names)
    taken = np.bincount(which, covered.ns, len(key)).astype(np.int64)
    taken_of_gap = np.bincount(of_gap, taken, len(length))
    left = length - taken_of_gap.astype(np.int64)
    around = np.full(len(length), _OUTSIDE if len(near) else _UNTOLD)
    if read_ranges is not None and left.any():
        ranges = read_ranges()
        at, range_code = _innermost(gaps, ranges, ranges.during(*inside, processes))
        around[at] = len(calls.names) + range_code
    rest = np.flatnonzero(left)
    gap = np.append(of_gap, rest)
    code = np.append(code, around[rest])
    ns = np.append(taken, left[rest])
    prevails = np.where(left >= _HALF * length, left, -1)
    weight = np.append(taken, prevails[rest])
    order = np.lexsort((-weight, gap))
    gap = gap[order]
    is_main = np.diff(gap, prepend=-1) > 0
    return _Parts(gap, code[order], ns[order], is_main)


def _text(
    code: int, calls: StepHostSpans, read_ranges: Callable[[], StepHostSpans] | None
) -> str | None:
    if code < 0:
        return _WITHOUT_CALL.get(code)
    if code < len(calls.names) or read_ranges is None:
        return f"host in {calls.names[code]}"
    ranges = read_ranges()
    name = str(ranges.names[code - len(calls.names)])
    if name in ranges.functions:
        return f"{IN_FUNCTION}{name}"
    return f"{IN_RANGE}{range_name(name)}"


def place_of(reason: object) -> str | None:
    """The range or function that a reason names; None where it names none."""
    for words in (IN_RANGE, IN_FUNCTION):
        if isinstance(reason, str) and reason.startswith(words):
            return reason.removeprefix(words)
    return None


def _host_in(key: Key, classes: Mapping[str, str]) -> str:
    if (key.layer, key.phase) == (None, INPUT):
        return _WAITING
    if (key.layer, key.phase) == (None, None):
        return "host in other layers"
    label = work_label(key.layer, key.phase, classes.get(key.layer or ""))
    return f"host in {label}"


def explain_idle(recording: Recording, work: Work, breakdown: Breakdown) -> tuple[IdleTime, ...]:
    """The idle time of a breakdown by reason, see `idle_times`, with the wait for input; empty if
    both are below `_LEAST_IDLE` of the step.

    Marked steps tell the layer and phase whose code the host ran.
    """
    idle_ms = sum(row.time_ms for row in breakdown.rows if row.label in (IDLE, WAITING_FOR_INPUT))
    if not breakdown.n_profiled or idle_ms < _LEAST_IDLE * breakdown.time_ms:
        return ()
    steps = recording.frame("steps")
    profiled = select_profiled_steps(steps, breakdown.batch)
    if recording.count_rows("marks"):
        marked = step_times(recording, steps, KERNEL_IDENTITY, ())
        if marked.sampled is not None:
            return _explain_marked(recording, marked, profiled["step"].iloc[0])
    used = choose_sampled(recording, profiled[profiled["step"].isin(breakdown.used)])
    times = idle_times(work, used, *host_spans(recording))
    scale = breakdown.scale  # of rows of profiled steps that took longer than the others
    return tuple(replace(time, time_ms=scale * time.time_ms) for time in times)


def choose_sampled(recording: Recording, steps: pd.DataFrame) -> pd.DataFrame:
    """The steps during which functions were sampled; all where none was."""
    functions = _read_sampled(recording)
    ends_ns = steps["start_ns"] + steps["duration_ns"]
    last_ns = (functions["start_ns"] + functions["duration_ns"]).max()
    inside = steps[(steps["start_ns"] >= functions["start_ns"].min()) & (ends_ns <= last_ns)]
    return inside if len(inside) else steps


def _explain_marked(recording: Recording, marked: StepTimes, step: int) -> tuple[IdleTime, ...]:
    classes = classes_with(recording.meta.get("layer_classes") or {}, marked.groups)
    of_step = marked.table[marked.table["step"] == step]
    times = []
    for row in of_step[of_step["kind"] == IDLE].itertuples():
        reason = _host_in(Key.of(row.layer, row.phase, IDLE), classes)
        times.append(IdleTime(reason, row.exclusive_ms, None, None))
    return _by_time(times)


def _by_time(times: list[IdleTime]) -> tuple[IdleTime, ...]:
    return tuple(sorted(times, key=lambda idle: -idle.time_ms))


def host_spans(recording: Recording) -> tuple[StepHostSpans, Callable[[], StepHostSpans]]:
    """The calls of a recording, and a function that reads its ranges and sampled functions once."""
    calls = _read_spans(recording, "api_calls", _CALL_COLUMNS)
    return StepHostSpans(calls), cache(lambda: _read_ranges(recording))


def _read_ranges(recording: Recording) -> StepHostSpans:
    """The ranges and sampled functions.

    Of a device without calls the range of a step is left out: a device may have written it.
    """
    ranges = _read_spans(recording, "ranges", (*HOST_COLUMNS, "thread"))
    if not recording.on_host and not recording.count_rows("api_calls"):
        steps = find_step_names(ranges["name"].unique())
        ranges = ranges[~ranges["name"].isin(steps)]
    sampled = _read_sampled(recording)
    if sampled.empty:
        return StepHostSpans(ranges)
    spans = pd.concat([*([] if ranges.empty else [ranges]), sampled])
    return StepHostSpans(spans.reset_index(drop=True), set(sampled["name"]))


def _read_sampled(recording: Recording) -> pd.DataFrame:
    functions = recording.arrow("functions", [*HOST_COLUMNS, "source"])
    sampled = functions.filter(pc.equal(functions["source"], SAMPLED))
    return sampled.select(HOST_COLUMNS).to_pandas()


def _read_spans(recording: Recording, table: str, columns: Sequence[str]) -> pd.DataFrame:
    """The calls or ranges of a recording, with each name once in memory."""
    pieces = list(recording.pieces(table, columns))
    read = pa.concat_tables(pieces or [recording.arrow(table, columns)])
    spans: pd.DataFrame = read.to_pandas(split_blocks=True, self_destruct=True)
    return spans


class _StepGaps(NamedTuple):
    """The gaps of one step, divided at launches, and their parts by reason."""

    step: int  # number of the step
    gaps: Gaps
    parts: _Parts
    after: Ints  # code of the layer of the work after each; -1 without one
    layers: pd.Index
    launch: Ints  # code of the call that launched the work after each; -1 if unknown
    processes: Sequence[float]


def _step_gaps(
    work: Work,
    steps: pd.DataFrame,
    calls: StepHostSpans,
    read_ranges: Callable[[], StepHostSpans] | None,
) -> Iterator[_StepGaps]:
    rows = _rows(work, steps)
    layer, layers = pd.factorize(rows["layer"])
    start_ns = rows["start_ns"].to_numpy(np.int64)
    end_ns = start_ns + rows["duration_ns"].to_numpy(np.int64)
    process = rows["process"].to_numpy(np.float64, na_value=np.nan)
    launched_ns, launch = calls.launches_of(rows)
    position = rows["step"].to_numpy(np.int64)
    edges = np.searchsorted(position, np.arange(len(steps) + 1)).tolist()
    for step, low, high in zip(steps.itertuples(), edges, edges[1:], strict=False):
        own = slice(low, high)
        first_ns = int(step.start_ns)
        last_ns = int(step.start_ns + step.duration_ns)
        gaps = find_gaps(start_ns[own], end_ns[own], first_ns, last_ns)
        gaps, launched = split_at_launch(gaps, np.append(launched_ns[own], _NO_LAUNCH))
        processes = _numbers_of(process[own])
        of_host = _choose(gaps, np.flatnonzero(~launched))
        parts = _divide(of_host, processes, calls, read_ranges)
        layer_after = np.append(layer[own], -1)
        launch_after = np.append(launch[own], -1)
        yield _StepGaps(
            step=int(step.step),
            gaps=gaps,
            parts=_add_launched(gaps, launched, parts),
            after=layer_after[gaps.following],
            layers=layers,
            launch=launch_after[gaps.following],
            processes=processes,
        )


def _choose(gaps: Gaps, rows: Ints) -> Gaps:
    return Gaps(gaps.begin_ns[rows], gaps.end_ns[rows], gaps.following[rows])


def _add_launched(gaps: Gaps, launched: npt.NDArray[np.bool_], parts: _Parts) -> _Parts:
    """The parts of all gaps: `parts` before a launch; the device has the other gaps."""
    host, device = np.flatnonzero(~launched), np.flatnonzero(launched)
    length = (gaps.end_ns - gaps.begin_ns)[device]
    gap = np.append(host[parts.gap], device)
    code = np.append(parts.code, np.where(length > _FOLLOWS_NS, _WAITS, _FOLLOWS))
    ns = np.append(parts.ns, length)
    is_main = np.append(parts.main, np.ones(len(device), np.bool_))
    order = np.argsort(gap, kind="stable")
    return _Parts(gap[order], code[order], ns[order], is_main[order])


def idle_times(
    work: Work,
    steps: pd.DataFrame,
    calls: StepHostSpans,
    read_ranges: Callable[[], StepHostSpans] | None,
) -> tuple[IdleTime, ...]:
    """The idle time of a mean step by reason, the longest first; their times add up to
    all of it.
    """
    collected: list[Ints] = []
    count, layers = 0, pd.Index([])
    for step in _step_gaps(work, steps, calls, read_ranges):
        parts, layers = step.parts, step.layers
        collected.append(np.stack([parts.code, step.after[parts.gap], parts.ns, parts.main]))
        count += len(parts.code)
        if count > _GAPS_AT_ONCE:
            collected, count = [_sum_up(collected).to_numpy().T], 0
    if not collected:
        return ()
    table = _sum_up(collected)
    text_of = {}
    for code in table["code"].unique():
        text_of[code] = _text(code, calls, read_ranges) or ""
    times = []
    for text, of_text in table.groupby(table["code"].map(text_of)):
        of_layers = of_text.groupby("after")["ns"].sum()
        time_ms = int(of_layers.sum()) / len(steps) / 1e6
        gaps_per_step = int(of_text["gaps"].sum()) / len(steps)
        before = _name_at(int(of_layers.idxmax()), layers)
        times.append(IdleTime(text or None, time_ms, gaps_per_step, before))
    return _by_time(times)


def _name_at(code: int, names: pd.Index) -> str | None:
    if code < 0:
        return None
    return str(names[code])


def long_gaps(
    work: Work,
    steps: pd.DataFrame,
    calls: StepHostSpans,
    read_ranges: Callable[[], StepHostSpans] | None,
    least_ns: int,
) -> tuple[pd.DataFrame, Gaps]:
    """The gaps of at least that length: step, begin_ns, end_ns, reason (None if unknown), and layer
    of the work that follows; where launched work waits the launch, and the host's reason meanwhile.

    And all gaps of the host, of any length, in order.
    """
    none = np.zeros(0, np.int64)
    of_host = [Gaps(none, none, none)]
    names = ("step", "begin_ns", "end_ns", "reason", "before", "launch", "meanwhile")
    columns: dict[str, list[object]] = {name: [] for name in names}
    for step in _step_gaps(work, steps, calls, read_ranges):
        codes = step.parts.of_gaps
        of_host.append(_choose(step.gaps, np.flatnonzero(codes > _WAITS)))
        length = step.gaps.end_ns - step.gaps.begin_ns
        rows = np.flatnonzero(length >= least_ns)
        own = _choose(step.gaps, rows)
        why = [_text(code, calls, read_ranges) for code in codes[rows].tolist()]
        launch: list[str | None] = [None] * len(rows)
        meanwhile: list[str | None] = [None] * len(rows)
        waits = [row for row, reason in enumerate(why) if reason == WAITS]
        if waits:
            waiting = _choose(own, np.array(waits))
            meant = reasons(waiting, step.processes, calls, read_ranges)
            for row, reason in zip(waits, meant, strict=True):
                launch[row] = _name_at(int(step.launch[rows[row]]), calls.names)
                meanwhile[row] = reason
        columns["step"] += [step.step] * len(rows)
        columns["begin_ns"] += own.begin_ns.tolist()
        columns["end_ns"] += own.end_ns.tolist()
        columns["reason"] += why
        columns["before"] += [_name_at(code, step.layers) for code in step.after[rows].tolist()]
        columns["launch"] += launch
        columns["meanwhile"] += meanwhile
    every = Gaps(*map(np.concatenate, zip(*of_host, strict=True)))
    in_order = _choose(every, np.argsort(every.begin_ns, kind="stable"))
    return pd.DataFrame(columns), in_order


def _sum_up(parts: list[Ints]) -> pd.DataFrame:
    """The parts of some gaps, each of shape (4, parts): those that share a code and a layer are one
    row.
    """
    table = pd.DataFrame(np.concatenate(parts, axis=1).T, columns=["code", "after", "ns", "gaps"])
    return table.groupby(["code", "after"], as_index=False).sum()


def range_name(name: str) -> str:
    """The name of a range without its parts that differ from call to call: the number of a step,
    the shapes of an operator.
    """
    parsed = _NAMES.read(name)
    plain = parsed.op or parsed.layer
    if parsed.step:
        plain = _STEP_NUMBER.split(name)[0]
    return (plain or name)[:_LONGEST_NAME]


def _rows(work: Work, steps: pd.DataFrame) -> pd.DataFrame:
    """The device work of steps by step and start, with the position of its step in the column
    `step`.
    """
    number = steps["step"].to_numpy(np.int64)
    pieces = []
    for piece in work(_COLUMNS):
        inside, position = of_steps(piece, number)
        layer = inside["layer"]
        if not pa.types.is_dictionary(layer.type):
            inside = replace_column(inside, "layer", layer.dictionary_encode())
        pieces.append(replace_column(inside, "step", pa.array(position)))
    if not pieces:
        return pd.DataFrame(columns=_COLUMNS)
    table = pa.concat_tables(pieces, promote_options="permissive")
    pieces.clear()  # so that both forms never exist in full
    rows = table.to_pandas(split_blocks=True, self_destruct=True)
    if is_in_order(rows["step"].to_numpy(), rows["start_ns"].to_numpy()):
        return rows
    return rows.sort_values(["step", "start_ns"], kind="stable", ignore_index=True)


class Covered(NamedTuple):
    """The parts of gaps that some spans cover; shape (parts,)."""

    gap: Ints  # position of the gap
    span: Ints  # position of the span
    ns: Ints  # length


def cover_gaps(gaps: Gaps, start_ns: Ints, end_ns: Ints) -> Covered:
    """Every part of a gap that a span covers, of several at once the span that began first; spans
    are in order of their starts.
    """
    reached = np.maximum.accumulate(end_ns) if len(end_ns) else end_ns
    reached_before = np.append(start_ns[:1], reached[:-1])
    begin = np.maximum(start_ns, reached_before)
    apart = np.flatnonzero(end_ns > begin)
    covered = _overlaps(gaps, begin[apart], end_ns[apart])
    return covered._replace(span=apart[covered.span])


def _overlaps(gaps: Gaps, start_ns: Ints, end_ns: Ints) -> Covered:
    """Every overlap of a gap with a span."""
    first = np.searchsorted(gaps.end_ns, start_ns, side="right")
    last = np.searchsorted(gaps.begin_ns, end_ns, side="left")
    count = np.maximum(last - first, 0)
    span = np.repeat(np.arange(len(start_ns)), count)
    before = np.cumsum(count) - count
    offset = np.repeat(first - before, count)
    gap = np.arange(len(span)) + offset
    begin = np.maximum(start_ns[span], gaps.begin_ns[gap])
    end = np.minimum(end_ns[span], gaps.end_ns[gap])
    return Covered(gap, span, end - begin)


def _innermost(gaps: Gaps, ranges: StepHostSpans, near: Ints) -> tuple[Ints, Ints]:
    """The gaps with a range around at least half of them, with the code of the shortest
    one's name.
    """
    gap, span, length = _overlaps(gaps, ranges.start_ns[near], ranges.end_ns[near])
    gap_ns = gaps.end_ns - gaps.begin_ns
    around = length >= _HALF * gap_ns[gap]
    gap, span = gap[around], near[span[around]]
    span_ns = ranges.end_ns[span] - ranges.start_ns[span]
    order = np.lexsort((span_ns, gap))
    gap, code = gap[order], ranges.codes[span[order]]
    first = np.flatnonzero(np.diff(gap, prepend=-1))
    return gap[first], code[first]
