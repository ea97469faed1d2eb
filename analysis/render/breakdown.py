"""A breakdown of a step as text for a terminal, and what the host did in its idle time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number
from ...profiling.hardware.limits import Hardware, OfPeak
from ...profiling.recording.axis import Axis
from ...profiling.recording.store import KERNEL, STEP, STEPS_KNOWN_BY
from ..decompose.breakdown import Breakdown, Row, above_roofs, is_partial, of_peak
from ..decompose.communication import Communication
from ..decompose.idle import WAITS, IdleTime
from ..decompose.input_time import WAITING_FOR_INPUT
from ..decompose.mfu import Mfu
from ..decompose.terms import IDLE, OVERHEAD, SLOW_STEPS
from .of_peak import note_of_peaks, show_of_peak
from .tables import table
from .words import SAMPLES, UNITS, join_texts, number_cell, share, shorten

_NO_OPERATOR = "work outside operators"  # in a sentence
_NAMED_GROUPS = 3  # the largest groups that a sentence names
_LEAST_NAMED = 0.05  # share of the time of a group that a sentence names
_MUCH_IDLE = 0.2  # share of a step
_MUCH_WAITING = 0.1  # share of a step in which launched work waits
_MOST_TENSOR_ROWS = 5
_RULE = (
    "Idle: API calls by the time that they cover, the rest of a gap by the shortest range around "
    "half of it; device, where the work after it had been launched: that waits for an event, or "
    "for work that is not recorded."
)
_MARKED = (
    "Idle: the layer and phase whose code the host ran while no kernel did, from marked steps."
)
_BEFORE = " Before: the layer whose work follows most of it."
_UNTOLD = (
    "The recording has no API calls and no ranges there, so it does not tell what the host did in "
    "the idle time."
)
_OVERLAPS = 1.01  # durations over shared-out time from which a row overlaps others
_DURATIONS = (
    "ms: each instant is shared among what runs in it, so that rows add up; durations: the sum of "
    "the own durations of a row's kernels, each of which may run beside others."
)
ABOVE_ROOF = "†"  # after a rate
ABOVE_ROOF_NOTE = (
    f"{ABOVE_ROOF} above the roof of the device: the algorithm needs fewer FLOPs than the direct "
    "one, operands came from a cache, or another kernel did some of the work."
)


def rate(per_s: float, above: bool) -> str:
    """A rate in 10⁹ per second, marked where it is above the roof."""
    return number(per_s / 1e9, 3) + ABOVE_ROOF * above


def _describe_steps(view: _View) -> str:
    """Which steps the times are of, and how the work of kernels is known."""
    breakdown = view.breakdown
    work = "FLOPs of the direct algorithm and compulsory bytes, both from shapes."
    if all(row.flops is None for row in breakdown.rows):
        work = (
            "No shapes: FLOPs are unknown, and bytes are those of copies. "
            "`curvescope roofline` shows a likely bound."
        )
    if not breakdown.n_profiled:
        return (
            "No steps: sums of the durations of all kernels, memcpys and memsets of the recording. "
            f"{work}"
        )
    if breakdown.unit != STEP:
        return f"No step is known. {STEPS_KNOWN_BY} {work}"
    sentences = [_count_steps(breakdown, view.axis), work]
    if breakdown.n_used > 1:
        sentences.append("± is half the interquartile range.")
    if breakdown.set_aside:
        sentences.append(breakdown.set_aside)
    return " ".join(sentences)


def _count_steps(breakdown: Breakdown, axis: Axis) -> str:
    """How many steps the time, and the terms, are of."""
    size = breakdown.batch or "size unknown"
    profiled = counted(breakdown.n_profiled, "profiled step")
    if breakdown.overhead_ms is None:
        timed = "every step was profiled, so the time includes an unknown profiling overhead"
    else:
        timed = counted(breakdown.n_timed, "timed step")
        if breakdown.n_used < breakdown.n_profiled:
            profiled += " (the faster half)"
    head = f"{axis.name.capitalize()} {size}"
    return f"{head}: {timed}; terms from {breakdown.n_used} of {profiled}."


def mfu_text(share_of_peak: float) -> str:
    """A utilisation in percent, also a small one."""
    return f"{number(100 * share_of_peak, 2)}%"


def mfu_note(mfu: Mfu) -> str:
    """The utilisation, and of which peak."""
    used = mfu_text(mfu.share)
    tera_per_s = mfu.peak_flops_per_s / 1e12
    peak = f"{tera_per_s:.4g} TFLOP/s ({mfu.peak_kind}: {mfu.peak_source})"
    if not is_partial(mfu.known_time_share):
        return f"MFU {used} of {peak}."
    known = share(mfu.known_time_share, 1)
    over = f"FLOPs are known for {known} of the busy time"
    return f"MFU at least {used} of {peak}: {over}."


def breakdown_verdict(
    breakdown: Breakdown, axis: Axis = SAMPLES, idle: Sequence[IdleTime] = ()
) -> str:
    """How long a step takes, and where that goes; of the busy time where much of it is idle.

    The reasons of idle time tell how much of it launched work waits on the device itself.
    """
    whole_ms = breakdown.time_ms
    busy_ms = math.fsum(row.time_ms for row in breakdown.groups)
    idle_ms = _time_of(breakdown, IDLE)
    idles = None
    largest = _largest(breakdown.groups, whole_ms, "it")
    if idle_ms > _MUCH_IDLE * whole_ms:
        idles = f"{share(idle_ms, whole_ms)} is idle: no recorded {breakdown.work} runs"
        largest = _largest(breakdown.groups, busy_ms, "the busy time")
    parts = [
        _say_time(breakdown, axis),
        _say_slow(breakdown),
        _say_waiting_for_input(breakdown),
        idles,
        _say_waiting(idle, whole_ms),
        largest,
    ]
    return f"{join_texts(parts, '; ')}."


def _time_of(breakdown: Breakdown, label: str) -> float:
    """Time of the rows with a label, ms."""
    return math.fsum(row.time_ms for row in breakdown.rows if row.label == label)


def _say_time(breakdown: Breakdown, axis: Axis) -> str:
    """The time that is broken down, in words."""
    time = f"{number(breakdown.time_ms)} ms"
    if not breakdown.n_profiled:
        return f"All recorded work takes {time}"
    what = UNITS[breakdown.unit].capitalize()
    if breakdown.batch is not None:
        what += f" of {axis.name} {breakdown.batch}"
    takes = "takes" if breakdown.unit == STEP else "spans"
    return f"{what} {takes} {time}"


def _say_slow(breakdown: Breakdown) -> str | None:
    """How much of the time is in slow steps."""
    slow = breakdown.slow
    slow_ms = _time_of(breakdown, SLOW_STEPS)
    if slow is None or not slow.matters or slow_ms <= 0:
        return None
    return f"{share(slow_ms, breakdown.time_ms)} of it is in slow steps, {slow.often}"


def _say_waiting_for_input(breakdown: Breakdown) -> str | None:
    input_ms = _time_of(breakdown, WAITING_FOR_INPUT)
    if input_ms <= _MUCH_WAITING * breakdown.time_ms:
        return None
    return f"in {share(input_ms, breakdown.time_ms)} it waits for input"


def _say_waiting(idle: Sequence[IdleTime], whole_ms: float) -> str | None:
    """How long work that was launched waits on the device."""
    waits_ms = math.fsum(time.time_ms for time in idle if time.reason == WAITS)
    if waits_ms <= _MUCH_WAITING * whole_ms:
        return None
    return (
        f"in {share(waits_ms, whole_ms)} launched work waits, for an event or for work that is not "
        "recorded"
    )


# After shares of operators that a compiler fused.
_OF_FUSED = ", most of it modelled parts of fused kernels"


def _largest(rows: Sequence[Row], whole_ms: float, whole: str) -> str | None:
    """The largest rows as a clause, with their share; those whose names look alike are one. A share
    of a fused kernel is modelled.
    """
    times: dict[str, float] = {}
    modelled_ms: dict[str, float] = {}
    for row in rows:
        label = _NO_OPERATOR if row.label == "no op" else shorten(row.label)
        times[label] = times.get(label, 0.0) + row.time_ms
        part_ms = (row.shared_time_share or 0.0) * row.time_ms
        modelled_ms[label] = modelled_ms.get(label, 0.0) + part_ms
    least_ms = _LEAST_NAMED * whole_ms
    largest = sorted(times, key=times.__getitem__, reverse=True)
    named = [label for label in largest[:_NAMED_GROUPS] if times[label] >= least_ms]
    if not named:
        return None
    texts = ", ".join(f"{label} ({share(times[label], whole_ms)})" for label in named)
    sum_ms = math.fsum(times[label] for label in named)
    of_fused_ms = math.fsum(modelled_ms[label] for label in named)
    if of_fused_ms > sum_ms / 2:
        texts += _OF_FUSED
    if sum_ms <= whole_ms / 2:
        return f"the largest parts of {whole} are {texts}"
    where = named[0] if len(named) == 1 else texts
    return f"{share(sum_ms, whole_ms)} of {whole} is in {where}"


def _partial(giga_per_s: float | None, time_share: float | None, above: bool) -> str:
    """A rate, and the share of the time that it is over if that is not all."""
    if giga_per_s is None:
        return ""
    text = rate(giga_per_s * 1e9, above)
    if not is_partial(time_share):
        return text
    return f"{text} of {share(time_share or 0, 1)}"


@dataclass(frozen=True)
class _View:
    """A breakdown as it is shown."""

    breakdown: Breakdown
    by: str
    limit: int | None
    hardware: Hardware | None
    axis: Axis
    mfu: Mfu | None

    @property
    def listed(self) -> Sequence[Row]:
        """The groups that have a row."""
        return self.breakdown.groups[: self.limit]

    @cached_property
    def busy_ms(self) -> float:
        """Time in which something runs."""
        return math.fsum(row.time_ms for row in self.breakdown.groups)

    @property
    def idles(self) -> bool:
        """Whether so much is idle that shares of the step say little of the kernels."""
        has_ends = len(self.breakdown.rows) > len(self.breakdown.groups)
        most_ms = (1 - _MUCH_IDLE) * self.breakdown.time_ms
        return has_ends and self.busy_ms < most_ms

    @property
    def overlaps(self) -> bool:
        """Whether durations of kernels are more than their time; with unprofiled steps the times
        are scaled to them.
        """
        if self.breakdown.overhead_ms is not None:
            return False
        for row in self.breakdown.groups:
            if row.duration_ms is not None and row.duration_ms > _OVERLAPS * row.time_ms:
                return True
        return False

    def above(self, row: Row) -> Sequence[str]:
        """The roofs that a row is above."""
        return () if self.hardware is None else above_roofs(row, self.hardware)

    def of_peak(self, row: Row) -> OfPeak | None:
        """The share of the roof that a row comes nearest to."""
        return None if self.hardware is None else of_peak(row, self.hardware)


def render_breakdown(
    breakdown: Breakdown,
    by: str,
    limit: int | None = 25,
    hardware: Hardware | None = None,
    axis: Axis = SAMPLES,
    mfu: Mfu | None = None,
    idle: Sequence[IdleTime] = (),
) -> RenderableType:
    """The groups of a step, the largest first, adding up to the measured step time; rates above a
    roof are marked.
    """
    view = _View(breakdown, by, limit, hardware, axis, mfu)
    verdict = Text(breakdown_verdict(breakdown, axis, idle), "bold")
    notes = []
    for say in _NOTES:
        note = say(view)
        if note is not None:
            notes.append(Text(note, "dim"))
    return Group(verdict, Text(), _table(view), *notes)


def _table(view: _View) -> RenderableType:
    """A row for each group, then the rest, the idle time, the overhead, and the sum."""
    breakdown = view.breakdown
    heads = (
        "ms",
        "± ms",
        "share",
        "of busy",
        "durations ms",
        "calls",
        "GFLOP/s",
        "GB/s",
        "measured GB/s",
        "of peak",
    )
    blank = [""] * 7
    title = breakdown.work if view.by == KERNEL else view.by
    rows = table(title, *heads, optional=("± ms", "calls"))
    for row in view.listed:
        rows.add_row(*_cells(view, row, busy=view.idles))
    rest = breakdown.groups[len(view.listed) :]
    if rest:
        rest_ms = math.fsum(row.time_ms for row in rest)
        smaller = counted(len(rest), "smaller row")
        part = share(rest_ms, breakdown.time_ms)
        rows.add_row(smaller, number(rest_ms), "", part, *blank)
    for row in breakdown.rows[len(breakdown.groups) :]:
        rows.add_row(*_cells(view, row, busy=False))
    if breakdown.n_profiled and breakdown.overhead_ms is None:
        rows.add_row(OVERHEAD, "unknown", "", "", *blank)
    total_ms = math.fsum(row.time_ms for row in breakdown.rows)
    rows.add_section()
    whole = breakdown.unit if breakdown.n_profiled else "all"
    part = share(total_ms, breakdown.time_ms)
    rows.add_row(whole, number(total_ms), "", part, *blank)
    return rows


def _cells(view: _View, row: Row, *, busy: bool) -> list[str]:
    """The cells of one row; of `busy` rows also the share of the busy time."""
    above = view.above(row)
    of_busy, durations, calls = "", "", ""
    if busy:
        of_busy = share(row.time_ms, view.busy_ms)
    if view.overlaps and row.duration_ms is not None:
        durations = number(row.duration_ms)
    if row.calls is not None:
        calls = f"{row.calls:g}"
    return [
        row.label,
        number(row.time_ms),
        number_cell(row.spread_ms, 2),
        share(row.time_ms, view.breakdown.time_ms),
        of_busy,
        durations,
        calls,
        _partial(row.gflop_per_s, row.flops_time_share, "compute" in above),
        _partial(row.gb_per_s, row.bytes_time_share, "DRAM" in above),
        _partial(row.measured_gb_per_s, row.measured_time_share, False),
        show_of_peak(view.of_peak(row)),
    ]


def _say_mfu(view: _View) -> str | None:
    return None if view.mfu is None else mfu_note(view.mfu)


def _describe_slow_steps(view: _View) -> str | None:
    slow = view.breakdown.slow
    return None if slow is None else slow.sentence


def _describe_scale(view: _View) -> str | None:
    if view.breakdown.scale >= 1:
        return None
    times = number(1 / view.breakdown.scale, 3)
    return (
        f"Profiled steps took {times} times as long as the others: the rows are scaled to the "
        "others."
    )


def _describe_gpus(view: _View) -> str | None:
    """Whose work the rows are of."""
    breakdown = view.breakdown
    if not breakdown.busy_ms:
        return None if breakdown.device is None else f"Of GPU {breakdown.device} alone."
    busy = [f"GPU {gpu} for {number(time_ms)} ms" for gpu, time_ms in breakdown.busy_ms.items()]
    times = ", ".join(busy)
    return (
        f"Of {len(busy)} GPUs together: each instant is shared among the kernels that run on any "
        f"of them, and idle is time in which none runs. Busy are {times}; --gpu shows one."
    )


def _describe_durations(view: _View) -> str | None:
    return _DURATIONS if view.overlaps else None


def _describe_roofs(view: _View) -> str | None:
    ends = view.breakdown.rows[len(view.breakdown.groups) :]
    shown = (*view.listed, *ends)
    return ABOVE_ROOF_NOTE if any(map(view.above, shown)) else None


def _describe_peaks(view: _View) -> str | None:
    return note_of_peaks(map(view.of_peak, view.listed))


def _describe_rates(view: _View) -> str | None:
    """That some rates are over a part of the time of their row."""
    for row in view.listed:
        if is_partial(row.flops_time_share) or is_partial(row.bytes_time_share):
            return (
                "A rate of N% is over that share of the row's time: the work of the rest is "
                "unknown."
            )
    return None


def _describe_fused(view: _View) -> str | None:
    """How much of the time is of kernels that several rows share."""
    if not any(row.shared_time_share for row in view.listed):
        return None
    shared_ms = [row.time_ms * (row.shared_time_share or 0) for row in view.breakdown.groups]
    fused_ms = number(math.fsum(shared_ms))
    return (
        f"{fused_ms} ms of it are kernels that a compiler fused from operators of several rows; "
        "their time is shared by the bytes that each operator would move alone, not measured."
    )


def _describe_measured(view: _View) -> str | None:
    if all(row.measured_gb_per_s is None for row in view.breakdown.rows):
        return None
    return (
        "Measured GB/s: DRAM bytes by hardware counters over the time of the kernels that have "
        "them."
    )


def _describe_tensor_pipes(view: _View) -> str | None:
    """How much the largest rows used the tensor pipes; nothing where no kernel was counted."""
    uses = []
    for row in view.listed:
        if row.tensor_pipe_use is None:
            continue
        label = shorten(row.label) if view.by == KERNEL else row.label
        use = f"{share(row.tensor_pipe_use, 1)} in {label}"
        if is_partial(row.tensor_time_share):
            use += f" (over {share(row.tensor_time_share or 0, 1)} of its time)"
        uses.append(use)
    if not uses:
        return None
    largest = ", ".join(uses[:_MOST_TENSOR_ROWS])
    return f"Share of cycles with active tensor pipes, by hardware counters: {largest}."


_NOTES = (
    _describe_steps,
    _say_mfu,
    _describe_slow_steps,
    _describe_scale,
    _describe_gpus,
    _describe_durations,
    _describe_roofs,
    _describe_peaks,
    _describe_rates,
    _describe_fused,
    _describe_measured,
    _describe_tensor_pipes,
)


def render_idle(
    times: Sequence[IdleTime], step_ms: float, limit: int | None = None
) -> RenderableType:
    """What the host did in the idle time of a mean step, the longest first; not of an
    empty list.
    """
    if all(time.reason is None for time in times):
        return Text(_UNTOLD, "dim")
    has_layers = any(time.before is not None for time in times)
    has_gaps = any(time.gaps is not None for time in times)
    rows = table("idle", "ms", "share", "gaps", "before", left=("before",))

    def add(label: str, together: Sequence[IdleTime], before: str | None = None) -> None:
        time_ms = math.fsum(idle.time_ms for idle in together)
        gaps = ""
        if has_gaps:
            count = math.fsum(idle.gaps or 0 for idle in together)
            gaps = number(count, 3)
        part = share(time_ms, step_ms)
        rows.add_row(label, number(time_ms), part, gaps, before or "")

    listed = times[:limit]
    for time in listed:
        add(time.reason or "unknown", [time], time.before)
    rest = times[len(listed) :]
    if rest:
        add(f"{len(rest)} more", rest)
    rule = _MARKED
    if has_gaps:
        rule = _RULE + _BEFORE if has_layers else _RULE
    return Group(rows, Text(rule, "dim"))


@dataclass(frozen=True, kw_only=True)
class RatedRow(Row):
    """One group of a breakdown."""

    # roofs of the device that the rates are above, so that they cannot be right
    exceeded_roofs: Sequence[str]
    # the roof that the rates come nearest to, and their share of it; null without a rate or a roof
    of_peak: OfPeak | None


@dataclass(frozen=True, kw_only=True)
class BreakdownDocument(Breakdown):
    """The time of a step by layer, kernel, phase or operator: `breakdown`."""

    by: str  # layer, kernel, phase, op or line
    modelled: bool  # whether the cost model predicted the times
    rows: tuple[RatedRow, ...]
    # collectives of the step, and kernels beside them; null without communication
    communication: Communication | None
    # idle time by what the host did meanwhile, the longest first; empty if less than 5 % of the
    # step is idle
    idle: Sequence[IdleTime]
    # model FLOPs utilisation of the step; null if no step, no FLOPs or no peak is known
    mfu: Mfu | None
