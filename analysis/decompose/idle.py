"""What the host did while no device work ran: the reason for each gap in a step.

A gap has the first of these reasons: the API call that took at least half of it; the shortest range
(of NVTX, or of the profiler's own annotations) around at least half of it; no API call, if others
were recorded. Of a gap before work that was launched long before it began, only the time up to its
launch is the host's: after it the device waits by itself, for an event or for work that is not
recorded, or goes from one kernel to the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ...profiling.attribution.range_names import RangeNames
from ...profiling.recording.schema import INPUT
from ...profiling.recording.store import Recording
from .breakdown import Breakdown
from .input_time import WAITING_FOR_INPUT
from .kernel_times import KERNEL_IDENTITY, Work, of_steps, profiled_steps
from .marked import step_times
from .repeated_layers import classes_with
from .statistics import Ints
from .terms import IDLE, Key, work_label

HOST_COLUMNS = ("name", "start_ns", "duration_ns", "process")  # of `api_calls` and `ranges`
_CALL_COLUMNS = (*HOST_COLUMNS, "correlation_id")
OUTSIDE_CALLS = "host outside API calls"
WAITS = "device: launched work waits"
FOLLOWS = "device: from one launched kernel to the next"
_WAITING = "waiting for input"
LEAST_SHARE = 0.05  # of a step; a smaller idle time is not explained
_GAPS_AT_ONCE = 1 << 17  # about: gaps that are held before they are summed up
# of gaps with one code before one layer: their length, and their number
_SUMMED = (
    "code",
    "after",
    "ns",
    "gaps",
)
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
    gaps: float | None  # number of gaps per step; None if marked steps tell the idle time
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

    def __init__(self, table: pd.DataFrame) -> None:
        """Take the spans of a table with `HOST_COLUMNS`; rows without start or duration are left
        out.
        """
        complete = table["start_ns"].notna() & table["duration_ns"].notna()
        timed = table if complete.all() else table[complete]
        if not timed["start_ns"].is_monotonic_increasing:
            timed = timed.sort_values("start_ns", kind="stable")
        self.start_ns = timed["start_ns"].to_numpy(np.int64)
        self.end_ns = self.start_ns + timed["duration_ns"].to_numpy(np.int64)
        codes, self.names = pd.factorize(timed["name"])
        self.codes: Ints = codes.astype(np.int64)
        self.processes = timed["process"].to_numpy(np.float64, na_value=np.nan)
        self._correlation = timed.get("correlation_id")
        self._every_process = set(np.unique(self.processes[~np.isnan(self.processes)]).tolist())
        self._ended_ns = np.maximum.accumulate(self.end_ns) if len(timed) else self.end_ns

    def during(self, begin_ns: int, end_ns: int, processes: Sequence[float]) -> Ints:
        """Positions of the spans that overlap a time: of some processes (by default all), and of
        unknown ones.
        """
        first = np.searchsorted(self._ended_ns, begin_ns, side="right")
        near = np.arange(first, np.searchsorted(self.start_ns, end_ns, side="left"))
        near = np.asarray(near[self.end_ns[near] > begin_ns], np.int64)
        if not len(processes) or self._every_process.issubset(processes):
            return near
        of_near = self.processes[near]
        return np.asarray(near[np.isin(of_near, processes) | np.isnan(of_near)])

    def ends_of(self, work: pd.DataFrame) -> Ints:
        """When the calls that launched some work returned; far in the future where they are
        unknown. Shape (work,).
        """
        if self._correlation is None or "correlation_id" not in work:
            return np.full(len(work), _NO_LAUNCH)
        launches = pd.DataFrame(
            {
                "correlation_id": self._correlation.to_numpy(),
                "process": self.processes,
                "end_ns": self.end_ns,
            }
        ).dropna(subset="correlation_id")
        keys = ["process", "correlation_id"]
        last = launches.astype({"end_ns": "Int64"}).groupby(keys, dropna=False)["end_ns"].max()
        numbers = work[keys].astype({"process": np.float64})
        ends = numbers.merge(last.reset_index(), on=keys, how="left")["end_ns"]
        return np.asarray(ends.fillna(_NO_LAUNCH).to_numpy(np.int64))


def find_gaps(begin_ns: Ints, end_ns: Ints, first_ns: int, last_ns: int) -> Gaps:
    """The time of a step in which no device work runs, whose starts increase."""
    # faster than np.clip
    begin, end = (np.minimum(np.maximum(ns, first_ns), last_ns) for ns in (begin_ns, end_ns))
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
    inside = ~before & (gaps.end_ns - np.minimum(ready_ns, gaps.end_ns) > _LATENCY_NS)
    first = Gaps(gaps.begin_ns, np.where(inside, ready_ns, gaps.end_ns), gaps.following)
    rest = Gaps(ready_ns[inside], gaps.end_ns[inside], gaps.following[inside])
    begin, end, following = (np.concatenate(pair) for pair in zip(first, rest, strict=True))
    order = np.argsort(begin, kind="stable")
    launched = np.append(before, np.ones(len(rest.begin_ns), np.bool_))
    return Gaps(begin[order], end[order], following[order]), launched[order]


def reasons(
    gaps: Gaps,
    processes: Sequence[float],
    calls: StepHostSpans,
    read_ranges: Callable[[], StepHostSpans] | None,
) -> list[str | None]:
    """The reason for each gap of a step; None if unknown.

    Ranges are read only if calls leave a gap without one.
    """
    return [
        _text(code, calls, read_ranges)
        for code in _reason_codes(gaps, processes, calls, read_ranges).tolist()
    ]


def _reason_codes(
    gaps: Gaps,
    processes: Sequence[float],
    calls: StepHostSpans,
    read_ranges: Callable[[], StepHostSpans] | None,
) -> Ints:
    """The reason for each gap as `_text` reads it: a call by its code, a range by its code after
    the calls'.
    """
    codes = np.full(len(gaps.begin_ns), _UNTOLD, np.int64)
    if not len(codes):
        return codes
    inside = int(gaps.begin_ns[0]), int(gaps.end_ns[-1])
    near = calls.during(*inside, processes)
    gap, code = _mostly(gaps, calls, near)
    codes[gap] = code
    if read_ranges is not None and (codes == _UNTOLD).any():
        ranges = read_ranges()
        gap, code = _innermost(gaps, ranges, ranges.during(*inside, processes))
        untold = codes[gap] == _UNTOLD
        codes[gap[untold]] = len(calls.names) + code[untold]
    if len(near):
        codes[codes == _UNTOLD] = _OUTSIDE
    return codes


def _text(
    code: int, calls: StepHostSpans, read_ranges: Callable[[], StepHostSpans] | None
) -> str | None:
    if code < 0:
        return _WITHOUT_CALL.get(code)
    if code < len(calls.names) or read_ranges is None:
        return f"host in {calls.names[code]}"
    return f"host in range {_range_name(str(read_ranges().names[code - len(calls.names)]))}"


def _host_in(key: Key, classes: Mapping[str, str]) -> str:
    if (key.layer, key.phase) == (None, INPUT):
        return _WAITING
    if (key.layer, key.phase) == (None, None):
        return "host in other layers"
    return f"host in {work_label(key.layer, key.phase, classes.get(key.layer or ''))}"


def explain_idle(recording: Recording, work: Work, breakdown: Breakdown) -> tuple[IdleTime, ...]:
    """The idle time of a breakdown by reason, see `idle_times`, with the wait for input; empty if
    both are below `LEAST_SHARE` of the step.

    Marked steps tell the layer and phase whose code the host ran.
    """
    idle_ms = sum(row.time_ms for row in breakdown.rows if row.label in (IDLE, WAITING_FOR_INPUT))
    if not breakdown.n_profiled or idle_ms < LEAST_SHARE * breakdown.time_ms:
        return ()
    profiled = profiled_steps(recording.frame("steps"), breakdown.batch)
    gaps = (
        step_times(recording, recording.frame("steps"), KERNEL_IDENTITY, ())
        if recording.count_rows("marks")
        else None
    )
    if gaps is not None and gaps.sampled is not None:
        times = gaps.table
        of_step = times[(times["step"] == profiled["step"].iloc[0]) & (times["kind"] == IDLE)]
        classes = classes_with(recording.meta.get("layer_classes") or {}, gaps.groups)
        rows = [
            (Key.of(row.layer, row.phase, IDLE), row.exclusive_ms) for row in of_step.itertuples()
        ]
        rows.sort(key=lambda row: -row[1])
        return tuple(IdleTime(_host_in(key, classes), time_ms, None, None) for key, time_ms in rows)
    used = profiled["step"].isin(breakdown.used)
    times = idle_times(work, profiled[used], *host_spans(recording))
    scale = breakdown.scale  # of rows of profiled steps that took longer than the others
    return tuple(replace(time, time_ms=scale * time.time_ms) for time in times)


def host_spans(recording: Recording) -> tuple[StepHostSpans, Callable[[], StepHostSpans]]:
    """The calls of a recording, and what reads its ranges once."""
    return _host(recording, "api_calls", _CALL_COLUMNS), cache(
        lambda: _host(recording, "ranges", HOST_COLUMNS)
    )


def _host(recording: Recording, table: str, columns: Sequence[str]) -> StepHostSpans:
    """The calls or ranges of a recording, with each name once in memory."""
    spans = pa.concat_tables(
        list(recording.pieces(table, columns)) or [recording.arrow(table, columns)]
    )
    return StepHostSpans(spans.to_pandas(split_blocks=True, self_destruct=True))


class _StepGaps(NamedTuple):
    """The gaps of one step, divided at launches, with the code of each one's reason."""

    step: int  # number of the step
    gaps: Gaps
    codes: Ints
    after: Ints  # code of the layer of the work after each; -1 without one
    layers: pd.Index


def _step_gaps(
    work: Work,
    steps: pd.DataFrame,
    calls: StepHostSpans,
    read_ranges: Callable[[], StepHostSpans] | None,
) -> Iterator[_StepGaps]:
    rows = _rows(work, steps)
    layer, layers = pd.factorize(rows["layer"])
    start_ns, process = (
        rows["start_ns"].to_numpy(np.int64),
        rows["process"].to_numpy(np.float64, na_value=np.nan),
    )
    end_ns = start_ns + rows["duration_ns"].to_numpy(np.int64)
    launched_ns = calls.ends_of(rows)
    edges = np.searchsorted(rows["step"].to_numpy(np.int64), np.arange(len(steps) + 1)).tolist()
    windows = zip(
        *(steps[name].tolist() for name in ("step", "start_ns", "duration_ns")),
        edges,
        edges[1:],
        strict=False,
    )
    for step, first_ns, length_ns, low, high in windows:
        gaps = find_gaps(
            start_ns[low:high], end_ns[low:high], int(first_ns), int(first_ns + length_ns)
        )
        gaps, launched = split_at_launch(gaps, np.append(launched_ns[low:high], _NO_LAUNCH))
        own_processes = np.unique(process[low:high])
        codes = _reason_codes(
            gaps, own_processes[~np.isnan(own_processes)].tolist(), calls, read_ranges
        )
        codes[launched] = np.where(gaps.end_ns - gaps.begin_ns > _FOLLOWS_NS, _WAITS, _FOLLOWS)[
            launched
        ]
        yield _StepGaps(
            int(step), gaps, codes, np.append(layer[low:high], -1)[gaps.following], layers
        )


def idle_times(
    work: Work,
    steps: pd.DataFrame,
    calls: StepHostSpans,
    read_ranges: Callable[[], StepHostSpans] | None,
) -> tuple[IdleTime, ...]:
    """The idle time of a mean step by reason, the longest first; their times add up to
    all of it.
    """
    collected: list[tuple[Ints, ...]] = []
    count, layers = 0, pd.Index([])
    for gap in _step_gaps(work, steps, calls, read_ranges):
        length_ns, layers = gap.gaps.end_ns - gap.gaps.begin_ns, gap.layers
        collected.append((gap.codes, gap.after, length_ns, np.ones_like(gap.codes)))
        count += len(gap.codes)
        if count > _GAPS_AT_ONCE:
            collected, count = [_sum_up(collected)], 0
    if not collected:
        return ()
    table = pd.DataFrame(dict(zip(_SUMMED, _sum_up(collected), strict=True)))
    reason = {code: _text(code, calls, read_ranges) for code in table["code"].unique().tolist()}
    times = []
    for text, of_text in table.groupby(table["code"].map(lambda code: reason[code] or "")):
        of_layers = of_text.groupby("after")["ns"].sum()
        before = int(of_layers.idxmax())
        time_ms, gaps_per_step = (
            int(of_layers.sum()) / len(steps) / 1e6,
            int(of_text["gaps"].sum()) / len(steps),
        )
        times.append(
            IdleTime(
                text or None, time_ms, gaps_per_step, None if before < 0 else str(layers[before])
            )
        )
    return tuple(sorted(times, key=lambda idle: -idle.time_ms))


def long_gaps(
    work: Work,
    steps: pd.DataFrame,
    calls: StepHostSpans,
    read_ranges: Callable[[], StepHostSpans] | None,
    least_ns: int,
) -> pd.DataFrame:
    """The gaps of at least that length: step, begin_ns, end_ns, reason (None if unknown), and layer
    of what follows.
    """
    frames = [pd.DataFrame({"step": [], "begin_ns": [], "end_ns": [], "reason": [], "before": []})]
    for gap in _step_gaps(work, steps, calls, read_ranges):
        rows = np.flatnonzero(gap.gaps.end_ns - gap.gaps.begin_ns >= least_ns)
        reason = [_text(code, calls, read_ranges) for code in gap.codes[rows].tolist()]
        before = [None if code < 0 else str(gap.layers[code]) for code in gap.after[rows].tolist()]
        facts = {
            "step": gap.step,
            "begin_ns": gap.gaps.begin_ns[rows],
            "end_ns": gap.gaps.end_ns[rows],
        }
        frames.append(pd.DataFrame({**facts, "reason": reason, "before": before}))
    return pd.concat([piece for piece in frames if len(piece)] or frames, ignore_index=True)


def _sum_up(gaps: list[tuple[Ints, ...]]) -> tuple[Ints, ...]:
    """Gaps as arrays of `_SUMMED`, with those of one code and layer as one."""
    columns = map(np.concatenate, zip(*gaps, strict=True))
    table = (
        pd.DataFrame(dict(zip(_SUMMED, columns, strict=True)))
        .groupby([*_SUMMED[:2]], as_index=False)
        .sum()
    )
    return tuple(table[name].to_numpy() for name in _SUMMED)


def _range_name(name: str) -> str:
    """What a range is, without what differs from call to call: the number of a step, the shapes of
    an operator.
    """
    parsed = _NAMES.read(name)
    plain = _STEP_NUMBER.split(name)[0] if parsed.step else parsed.op or parsed.layer
    return (plain or name)[:_LONGEST_NAME]


def _rows(work: Work, steps: pd.DataFrame) -> pd.DataFrame:
    """The device work of steps by step and start, with the position of its step in the column
    `step`.
    """
    pieces, positions = [], []
    for piece in work(_COLUMNS):
        inside, position = of_steps(piece, steps["step"].to_numpy(np.int64))
        layer = inside["layer"]
        if not pa.types.is_dictionary(layer.type):
            inside = inside.set_column(
                inside.column_names.index("layer"), "layer", layer.dictionary_encode()
            )
        pieces.append(inside)
        positions.append(position)
    if not pieces:
        return pd.DataFrame(columns=_COLUMNS)
    table = pa.concat_tables(pieces, promote_options="permissive")
    pieces.clear()  # so that both forms never exist in full
    rows = table.to_pandas(split_blocks=True, self_destruct=True).assign(
        step=np.concatenate(positions)
    )
    step, start_ns = rows["step"].to_numpy(), rows["start_ns"].to_numpy()
    if ((step[1:] > step[:-1]) | ((step[1:] == step[:-1]) & (start_ns[1:] >= start_ns[:-1]))).all():
        return rows
    return rows.sort_values(["step", "start_ns"], kind="stable", ignore_index=True)


def _overlaps(gaps: Gaps, spans: StepHostSpans, near: Ints) -> tuple[Ints, Ints, Ints]:
    """Gap, span and length in ns of every overlap of a gap with one of some spans."""
    start, end = spans.start_ns[near], spans.end_ns[near]
    first = np.searchsorted(gaps.end_ns, start, side="right")
    count = np.maximum(np.searchsorted(gaps.begin_ns, end, side="left") - first, 0)
    span = np.repeat(np.arange(len(near)), count)
    gap = (
        np.arange(len(span)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    )
    length = np.minimum(end[span], gaps.end_ns[gap]) - np.maximum(start[span], gaps.begin_ns[gap])
    return gap, near[span], length


def _mostly(gaps: Gaps, calls: StepHostSpans, near: Ints) -> tuple[Ints, Ints]:
    """The gaps of which calls of one name took at least half, with the code of the name that took
    most.
    """
    gap, span, length = _overlaps(gaps, calls, near)
    names = len(calls.names)
    key, which = np.unique(gap * names + calls.codes[span], return_inverse=True)
    taken = np.bincount(which, length, len(key)).astype(np.int64)
    of_gap, code = np.divmod(key, names) if names else (key, key)
    return _first(of_gap, -taken, code, taken >= _HALF * (gaps.end_ns - gaps.begin_ns)[of_gap])


def _innermost(gaps: Gaps, ranges: StepHostSpans, near: Ints) -> tuple[Ints, Ints]:
    """The gaps with a range around at least half of them, with the code of the shortest
    one's name.
    """
    gap, span, length = _overlaps(gaps, ranges, near)
    lasting = ranges.end_ns[span] - ranges.start_ns[span]
    return _first(
        gap, lasting, ranges.codes[span], length >= _HALF * (gaps.end_ns - gaps.begin_ns)[gap]
    )


def _first(gap: Ints, rank: Ints, code: Ints, chosen: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """For each gap the code of the lowest rank among the chosen ones."""
    gap, rank, code = gap[chosen], rank[chosen], code[chosen]
    order = np.lexsort((rank, gap))
    gap, code = gap[order], code[order]
    first = np.flatnonzero(np.diff(gap, prepend=-1))
    return gap[first], code[first]
