"""A breakdown of a step as text for a terminal, and what the host did in its idle time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number
from ...profiling.hardware.limits import Hardware
from ...profiling.recording.axis import Axis
from ...profiling.recording.store import KERNEL, STEP, STEPS_KNOWN_BY
from ..decompose.breakdown import Breakdown, Row, above_roofs
from ..decompose.communication import Communication
from ..decompose.idle import WAITS, IdleTime
from ..decompose.input_time import WAITING_FOR_INPUT
from ..decompose.mfu import Mfu
from ..decompose.terms import IDLE, OVERHEAD, SLOW_STEPS
from .tables import table
from .words import SAMPLES, UNITS, share, shortened

_NO_OPERATOR = "work outside operators"  # in a sentence
_NAMED_GROUPS = 3  # the largest groups that a sentence names
_LEAST_NAMED = 0.05  # share of the time of a group that a sentence names
_MUCH_IDLE = 0.2  # share of a step
_MUCH_WAITING = 0.1  # share of a step in which launched work waits
_MOST_TENSOR_ROWS = 5
_WHOLE = 0.9  # a rate over a larger share of a row's time is shown as that of the row
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


def _breakdown_note(breakdown: Breakdown, axis: Axis) -> str:
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
    timed = (
        "every step was profiled, so the time includes an unknown profiling overhead"
        if breakdown.overhead_ms is None
        else counted(breakdown.n_timed, "timed step")
    )
    left_out = "" if breakdown.overhead_ms is None else " (the faster half)"
    return (
        f"{axis.name.capitalize()} {breakdown.batch or 'size unknown'}: {timed}; terms from "
        f"{breakdown.n_used} of "
        f"{counted(breakdown.n_profiled, 'profiled step')}{left_out if breakdown.n_used < breakdown.n_profiled else ''}. "  # noqa: E501
        f"{work}{' ± is half the interquartile range.' if breakdown.n_used > 1 else ''}{f' {breakdown.set_aside}' if breakdown.set_aside else ''}"  # noqa: E501
    )


def mfu_text(share_of_peak: float) -> str:
    """A utilisation in percent, also a small one."""
    return f"{number(100 * share_of_peak, 2)}%"


def mfu_note(mfu: Mfu) -> str:
    """The utilisation, and of which peak."""
    of = f"of {mfu.peak_flops_per_s / 1e12:.4g} TFLOP/s ({mfu.peak_kind}: {mfu.peak_source})"
    if not _is_partial(mfu.known_time_share):
        return f"MFU {mfu_text(mfu.share)} {of}."
    of_known = f"FLOPs are known for {share(mfu.known_time_share, 1)} of the busy time"
    return f"MFU at least {mfu_text(mfu.share)} {of}: {of_known}."


def breakdown_verdict(
    breakdown: Breakdown, axis: Axis = SAMPLES, idle: Sequence[IdleTime] = ()
) -> str:
    """How long a step takes, and where that goes; of the busy time where much of it is idle.

    The reasons of idle time tell how much of it launched work waits on the device itself.
    """
    whole, busy = breakdown.time_ms, math.fsum(row.time_ms for row in breakdown.groups)
    what, takes = (
        "All recorded work",
        "takes" if breakdown.unit == STEP or not breakdown.n_profiled else "spans",
    )
    if breakdown.n_profiled:
        what = UNITS[breakdown.unit].capitalize()
        what += "" if breakdown.batch is None else f" of {axis.name} {breakdown.batch}"
    input_ms = math.fsum(row.time_ms for row in breakdown.rows if row.label == WAITING_FOR_INPUT)
    idle_ms = math.fsum(row.time_ms for row in breakdown.rows if row.label == IDLE)
    idles = idle_ms > _MUCH_IDLE * whole
    parts = [f"{share(idle_ms, whole)} is idle: no recorded {breakdown.work} runs"] if idles else []
    if input_ms > _MUCH_WAITING * whole:
        parts.insert(0, f"in {share(input_ms, whole)} it waits for input")
    waits_ms = math.fsum(time.time_ms for time in idle if time.reason == WAITS)
    if waits_ms > _MUCH_WAITING * whole:
        parts.append(
            f"in {share(waits_ms, whole)} launched work waits, for an event or for work that is "
            "not recorded"
        )
    largest = _largest(
        breakdown.groups, busy if idles else whole, "the busy time" if idles else "it"
    )
    slow = breakdown.slow
    if slow is not None and slow.matters:
        slow_ms = math.fsum(row.time_ms for row in breakdown.rows if row.label == SLOW_STEPS)
        if slow_ms > 0:
            parts.insert(0, f"{share(slow_ms, whole)} of it is in slow steps, {slow.often}")
    return "; ".join([f"{what} {takes} {number(whole)} ms", *parts, *largest]) + "."


# After shares of operators that a compiler fused.
_OF_FUSED = ", most of it modelled parts of fused kernels"


def _largest(rows: Sequence[Row], whole_ms: float, of: str) -> list[str]:
    """The largest rows as a clause, with their share; those whose names look alike are one. A share
    of a fused kernel is modelled.
    """
    times: dict[str, float] = {}
    modelled_ms: dict[str, float] = {}
    for row in rows:
        label = _NO_OPERATOR if row.label == "no op" else shortened(row.label)
        times[label] = times.get(label, 0.0) + row.time_ms
        part_ms = (row.shared_time_share or 0.0) * row.time_ms
        modelled_ms[label] = modelled_ms.get(label, 0.0) + part_ms
    ordered = sorted(times.items(), key=lambda item: -item[1])[:_NAMED_GROUPS]
    named = [(label, time_ms) for label, time_ms in ordered if time_ms >= _LEAST_NAMED * whole_ms]
    if not named:
        return []
    texts = ", ".join(f"{label} ({share(time_ms, whole_ms)})" for label, time_ms in named)
    sum_ms = math.fsum(time_ms for _, time_ms in named)
    if math.fsum(modelled_ms[label] for label, _ in named) > sum_ms / 2:
        texts += _OF_FUSED
    if len(named) == 1 and sum_ms > whole_ms / 2:
        return [f"{share(sum_ms, whole_ms)} of {of} is in {named[0][0]}"]
    if sum_ms > whole_ms / 2:
        return [f"{share(sum_ms, whole_ms)} of {of} is in {texts}"]
    return [f"the largest parts of {of} are {texts}"]


def _partial(giga_per_s: float | None, time_share: float | None, above: bool) -> str:
    """A rate, and the share of the time that it is over if that is not all."""
    if giga_per_s is None:
        return ""
    text = rate(giga_per_s * 1e9, above)
    return f"{text} of {share(time_share or 0, 1)}" if _is_partial(time_share) else text


def _tensor_note(rows: Sequence[Row], by: str) -> list[str]:
    """How much the largest rows used the tensor pipes; nothing where no kernel was counted."""
    uses = []
    for row in [row for row in rows if row.tensor_pipe_use is not None][:_MOST_TENSOR_ROWS]:
        over = f" (over {share(row.tensor_time_share or 0, 1)} of its time)"
        label = shortened(row.label) if by == "kernel" else row.label
        use = f"{share(row.tensor_pipe_use or 0, 1)} in {label}"
        uses.append(use + over * _is_partial(row.tensor_time_share))
    return (
        [f"Share of cycles with active tensor pipes, by hardware counters: {', '.join(uses)}."]
        if uses
        else []
    )


def _is_partial(time_share: float | None) -> bool:
    return time_share is not None and time_share < _WHOLE


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
    groups, ends = breakdown.groups, breakdown.rows[len(breakdown.groups) :]
    busy_ms = math.fsum(row.time_ms for row in groups)
    measured = any(row.measured_gb_per_s is not None for row in breakdown.rows)
    # Where much of a step is idle, shares of the step say little of the kernels.
    idles = bool(ends) and busy_ms < (1 - _MUCH_IDLE) * breakdown.time_ms
    # With unprofiled steps the times are scaled to them.
    overlap = breakdown.overhead_ms is None and any(
        (row.duration_ms or 0.0) > _OVERLAPS * row.time_ms for row in groups
    )
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
    )
    rows = table(breakdown.work if by == KERNEL else by, *heads, optional=("± ms", "calls"))
    blank = [""] * 6
    listed, marked = groups[:limit], False
    for row in [*listed, None, *ends]:
        if row is None:
            if rest := groups[len(listed) :]:
                amount = math.fsum(r.time_ms for r in rest)
                title = counted(len(rest), "smaller row")
                rows.add_row(title, number(amount), "", share(amount, breakdown.time_ms), *blank)
            continue
        above = () if hardware is None else above_roofs(row, hardware)
        marked |= bool(above)
        rows.add_row(
            row.label,
            number(row.time_ms),
            "" if row.spread_ms is None else number(row.spread_ms, 2),
            share(row.time_ms, breakdown.time_ms),
            share(row.time_ms, busy_ms) if idles and row in groups else "",
            number(row.duration_ms) if overlap and row.duration_ms is not None else "",
            "" if row.calls is None else f"{row.calls:g}",
            _partial(row.gflop_per_s, row.flops_time_share, "compute" in above),
            _partial(row.gb_per_s, row.bytes_time_share, "DRAM" in above),
            _partial(row.measured_gb_per_s, row.measured_time_share, False),
        )
    if breakdown.n_profiled and breakdown.overhead_ms is None:
        rows.add_row(OVERHEAD, "unknown", "", "", *blank)
    total = math.fsum(row.time_ms for row in breakdown.rows)
    rows.add_section()
    whole = breakdown.unit if breakdown.n_profiled else "all"
    rows.add_row(whole, number(total), "", share(total, breakdown.time_ms), *blank)
    notes = [_breakdown_note(breakdown, axis), *([] if mfu is None else [mfu_note(mfu)])]
    notes += [] if breakdown.slow is None else [breakdown.slow.sentence]
    if breakdown.scale < 1:
        notes.append(
            f"Profiled steps took {number(1 / breakdown.scale, 3)} times as long as the others: "
            "the rows are scaled to the others."
        )
    if breakdown.busy_ms:
        busy = ", ".join(
            f"GPU {gpu} for {number(time_ms)} ms" for gpu, time_ms in breakdown.busy_ms.items()
        )
        notes.append(
            f"Of {len(breakdown.busy_ms)} GPUs together: each instant is shared among the kernels "
            f"that run on any of them, and idle is time in which none runs. Busy are {busy}; "
            "--device shows one."
        )
    elif breakdown.device is not None:
        notes.append(f"Of GPU {breakdown.device} alone.")
    notes += [_DURATIONS] if overlap else []
    notes += [ABOVE_ROOF_NOTE] if marked else []
    if any(
        _is_partial(known_share)
        for row in listed
        for known_share in (row.flops_time_share, row.bytes_time_share)
    ):
        notes.append(
            "A rate of N% is over that share of the row's time: the work of the rest is unknown."
        )
    if any(row.shared_time_share for row in listed):
        part = math.fsum(row.time_ms * (row.shared_time_share or 0) for row in groups)
        notes.append(
            f"{number(part)} ms of it are kernels that a compiler fused from operators of several "
            "rows; their time is shared by the bytes that each operator would move alone, not "
            "measured."
        )
    if measured:
        notes.append(
            "Measured GB/s: DRAM bytes by hardware counters over the time of the kernels that have "
            "them."
        )
    notes += _tensor_note(listed, by)
    verdict = Text(breakdown_verdict(breakdown, axis, idle), "bold")
    return Group(verdict, Text(), rows, *(Text(note, "dim") for note in notes))


def render_idle(
    times: Sequence[IdleTime], step_ms: float, limit: int | None = None
) -> RenderableType:
    """What the host did in the idle time of a mean step, the longest first; not of an
    empty list.
    """
    if all(time.reason is None for time in times):
        return Text(_UNTOLD, "dim")
    layered, counted = (
        any(getattr(time, name) is not None for time in times) for name in ("before", "gaps")
    )
    rows = table("idle", "ms", "share", "gaps", "before", left=("before",))

    def add(label: str, times: Sequence[IdleTime], before: str | None = None) -> None:
        time_ms, gaps = (
            math.fsum(idle.time_ms for idle in times),
            math.fsum(idle.gaps or 0 for idle in times),
        )
        rows.add_row(
            label,
            number(time_ms),
            share(time_ms, step_ms),
            number(gaps, 3) if counted else "",
            before or "",
        )

    for time in times[:limit]:
        add(time.reason or "unknown", [time], time.before)
    if rest := times[len(times[:limit]) :]:
        add(f"{len(rest)} more", rest)
    return Group(rows, Text(_RULE + _BEFORE * layered if counted else _MARKED, "dim"))


@dataclass(frozen=True, kw_only=True)
class RatedRow(Row):
    """One group of a breakdown."""

    # roofs of the device that the rates are above, so that they cannot be right
    exceeded_roofs: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class BreakdownDocument(Breakdown):
    """The time of a step by layer, kernel, phase or operator: `breakdown`."""

    by: str  # layer, kernel, phase or op
    modelled: bool  # whether the cost model predicted the times
    rows: tuple[RatedRow, ...]
    # collectives of the step, and kernels beside them; null without communication
    communication: Communication | None
    # idle time by what the host did meanwhile, the longest first; empty if less than 5 % of the
    # step is idle
    idle: Sequence[IdleTime]
    # model FLOPs utilisation of the step; null if no step, no FLOPs or no peak is known
    mfu: Mfu | None
