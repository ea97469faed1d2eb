"""Break a step down into exclusive times per layer, kernel, phase or operator, with
achieved rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...base.errors import CurvescopeError
from ...base.numbers import number
from ...profiling.attribution.kernel_precision import kernel_precision
from ...profiling.attribution.range_names import find_step_names
from ...profiling.hardware.limits import Hardware, OfPeak
from ...profiling.recording.schema import INPUT
from ...profiling.recording.store import KERNEL, RECORDING, STEP, Recording
from .averaged_steps import durations_ms, list_used_steps
from .curve import Curve, cost_curve
from .input_time import WAITING_FOR_INPUT
from .kernel_times import (
    COPIES,
    Work,
    device_work,
    gpus_of,
    kernel_times,
    kernel_totals,
    of_steps,
    select_profiled_steps,
)
from .marked import Marked, choose_averaged, find_marked_steps, group_layers, unprofile
from .repeated_layers import OPERATOR_COLUMNS, classes_with
from .slow_steps import SlowSteps, slow_steps
from .source_lines import NO_LINE, by_line, lines_of
from .statistics import Floats, Ints
from .terms import IDLE, OF_ALL_STEPS, OVERHEAD, RECORD_DEVICE, SLOW_STEPS, Key
from .warm_up import judge_steps, name_set_aside

# columns whose values name a row, by the choice of `--by`
ROW_COLUMNS = {
    "layer": ["layer", "phase"],
    "kernel": ["name"],
    "phase": ["phase"],
    "op": ["op"],
    "line": ["line"],
}
_KERNEL_COLUMNS = ROW_COLUMNS | {"line": ROW_COLUMNS["op"]}  # of `kernels`, which know no lines
NO_LINES = (
    "This recording names no lines of a program: only `diagnose` and `sweep` of a step record "
    "them, and not of a compiled one. Group by layer, op or kernel, or measure the step with "
    "`curvescope diagnose --step`."
)
_MEMORY_ONLY = (
    "{path} has the memory of a step and not its time: `curvescope explain {path}` explains it."
)
_NO_WORK = "No kernel, memcpy or memset of the device was recorded: there is nothing to break down."
_SAMPLE = " `curvescope attach PID` while it is recorded says which functions run."
_MOST_OF_HOST = 4  # ranges or calls of the host that are named
_AROUND = 0.95  # of a step: a longer range is the step
_TENSOR = "tensor_pipe_use"
_AMOUNTS = ("flops", "bytes_compulsory", "dram_bytes", _TENSOR)
_DURATION = "duration_ns"
_ENDS = (WAITING_FOR_INPUT, IDLE, OVERHEAD, SLOW_STEPS)  # rows in which nothing of the step runs
_SCALED = 1.05  # times the pace, above which rows of profiled steps are scaled down to it
_WHOLE = 0.9  # a rate over a larger share of a row's time is the rate of the row


@dataclass(frozen=True)
class Row:
    """One group of a breakdown."""

    label: str  # the group; idle and profiling overhead are groups of their own
    time_ms: float  # its share of the step
    # half the interquartile range of its time over the profiled steps used; that of the complete
    # step for profiling overhead; None if that is a single step
    spread_ms: float | None
    # kernels per step, of a fused one its part; None for idle and what follows it
    calls: float | None = None
    flops: float | None = None  # FLOPs per step; None if no row's work is known
    # known FLOPs over the time of the kernels that have them; None if none are known
    gflop_per_s: float | None = None
    # compulsory bytes over the time of the kernels that have them; GB is 10⁹ bytes. Copies count
    # with their whole durations, as they mostly run beside other work.
    gb_per_s: float | None = None
    # measured DRAM bytes over the time of the kernels that have them
    measured_gb_per_s: float | None = None
    # share of the row's time that `gflop_per_s` is over, 0 to 1; None without a rate
    flops_time_share: float | None = None
    bytes_time_share: float | None = None  # the same for `gb_per_s`
    measured_time_share: float | None = None  # the same for `measured_gb_per_s`
    # measured share of cycles in which the tensor pipes were active, 0 to 1, a mean over the time
    # of the kernels that have it; None if none has
    tensor_pipe_use: float | None = None
    tensor_time_share: float | None = None  # the same for `tensor_pipe_use`
    # share of the row's time that is its part of kernels which a compiler fused from operators of
    # several rows, modelled by bytes; None if there is none
    shared_time_share: float | None = None
    # FLOPs per step by the precision in the kernels' names; `unknown` where they say none
    precisions: Mapping[str, float] = field(default_factory=dict)
    # sum of the own durations of its kernels in a step, more than `time_ms` where they overlap
    # others; None for idle
    duration_ms: float | None = None


def has_memory_only(recording: Recording) -> bool:
    """Whether a recording has the memory of a step, and no time of one."""
    if not recording.count_rows("peaks"):
        return False
    steps = recording.frame("steps")
    return bool(steps["profiled"].all() and select_profiled_steps(steps).empty)


def _describe_host(recording: Recording, steps: pd.DataFrame) -> str:
    """The longest ranges of the host in a profiled step, or else its calls, as a sentence; empty
    where neither is known.
    """
    profiled = select_profiled_steps(steps)
    if profiled.empty:
        return ""
    whole_ns = float(profiled["duration_ns"].sum())
    step_ms = number(whole_ns / 1e6 / len(profiled))
    for table, what in (("ranges", "ranges"), ("api_calls", "calls")):
        rows = recording.frame(table, ["name", "step", "duration_ns"])
        in_step = rows["step"].isin(profiled["step"])
        is_step = rows["name"].isin(find_step_names(rows["name"].unique()))
        inside = rows[in_step & ~is_step & rows["duration_ns"].notna()]
        by_name = inside.groupby("name", observed=True)["duration_ns"]
        sums_ns = by_name.sum().astype(float)
        longest_ns = sums_ns[sums_ns < _AROUND * whole_ns].nlargest(_MOST_OF_HOST)
        parts = []
        for name, time_ns in longest_ns.items():
            time_ms = time_ns / 1e6 / len(profiled)
            parts.append(f"{name} {number(time_ms)} ms")
        if parts:
            named = ", ".join(parts)
            return f" Of a step of {step_ms} ms the longest {what} of the host are {named}."
    return ""


def above_roofs(row: Row, hardware: Hardware) -> tuple[str, ...]:
    """The roofs of the device that the row's rates are above."""
    return hardware.exceeded(*_rates(row, row.gb_per_s))


def of_peak(row: Row, hardware: Hardware) -> OfPeak | None:
    """The share of the roof that the row comes nearest to, by measured bytes where they are known;
    None without one, and for a rate over a part of the row's time.
    """
    flops, time_s, bytes_per_s = _rates(row, row.gb_per_s)
    moving_share = row.bytes_time_share
    if row.measured_gb_per_s is not None:
        bytes_per_s, moving_share = row.measured_gb_per_s * 1e9, row.measured_time_share
    if is_partial(row.flops_time_share):
        flops = {}
    if is_partial(moving_share):
        bytes_per_s = None
    return hardware.of_peak(flops, time_s, bytes_per_s)


def is_partial(time_share: float | None) -> bool:
    """Whether a rate is over so small a share of a row's time that it is not the row's."""
    return time_share is not None and time_share < _WHOLE


def _rates(row: Row, gb_per_s: float | None) -> tuple[Mapping[str, float], float, float | None]:
    """FLOPs by precision, the time that they take, and bytes a second."""
    time_s = math.inf
    if row.gflop_per_s:
        time_s = (row.flops or 0.0) / row.gflop_per_s / 1e9
    bytes_per_s = None if gb_per_s is None else gb_per_s * 1e9
    return row.precisions, time_s, bytes_per_s


@dataclass(frozen=True)
class Breakdown:
    """The groups of one batch size; their times add up to `time_ms`.

    If every step was profiled, e.g. in an imported profile, `time_ms` is the time of the profiled
    steps.
    """

    batch: int | None  # samples in a step; None if the profile does not name it
    time_ms: float  # T(b) of the unprofiled steps, else the mean of the profiled steps used
    # largest first, then, with steps, idle and, if steps ran unprofiled, profiling overhead and
    # slow steps
    rows: tuple[Row, ...]
    overhead_ms: float | None  # the profiling overhead; None if no step ran unprofiled
    n_timed: int  # number of timed steps behind `time_ms`
    # number of profiled steps; 0 for a recording without steps, whose rows are sums over all of it
    n_profiled: int
    # number of profiled steps that the rows average: the faster half, or all where slow steps are
    # part of T
    n_used: int
    used: tuple[int, ...]  # their numbers
    unit: str = STEP  # what takes the time: `step`, or `recording` if no step is known
    # the profiled steps that are not used, with their times, in a sentence; None without one, and
    # where unprofiled steps say which are used
    set_aside: str | None = None
    work: str = KERNEL  # what runs: `kernel`, or `operator` of the host, see `Recording.work`
    # number of the GPU whose work the rows are of; None for all that are recorded
    device: int | None = None
    # of several GPUs together, the busy time of each by its number; empty for one, and for a CPU
    busy_ms: Mapping[int, float] = field(default_factory=dict)
    slow: SlowSteps | None = None  # the slow steps of this batch size; None without any
    # factor of the rows of profiled steps that took longer than the pace; 1 without one
    scale: float = 1.0

    @property
    def groups(self) -> tuple[Row, ...]:
        """The rows in which something runs: without idle and profiling overhead."""
        return tuple(row for row in self.rows if row.label not in _ENDS)


def break_down_recording(
    recording: Recording,
    by: str = "layer",
    batch: int | None = None,
    *,
    by_instance: bool = True,
    device: int | None = None,
) -> Breakdown:
    """Split the step of a recording as `break_down` does; CurvescopeError if no such GPU is
    recorded.
    """
    gpus = gpus_of(recording)
    if device is not None and device not in gpus:
        numbers = ", ".join(map(str, gpus)) or "none"
        raise CurvescopeError(
            f"No work of GPU {device} is recorded; of these there is some: {numbers}."
        )
    steps = judge_steps(recording, recording.frame("steps"))
    marked = None
    if not steps.empty:
        marked = find_marked_steps(recording.frame("marks"), steps, recording.statistic)
    if has_memory_only(recording):
        raise CurvescopeError(_MEMORY_ONLY.format(path=recording.named))
    if not recording.on_host and not any(map(recording.count_rows, ("kernels", "memory"))):
        host = _describe_host(recording, steps)
        if recording.meta.get("recorder") == "cupti":
            host += _SAMPLE
        raise CurvescopeError(f"{_NO_WORK}{host} {RECORD_DEVICE}")
    lines = lines_of(recording) if by == "line" else None
    if lines is not None and (steps.empty or lines.empty):
        raise CurvescopeError(NO_LINES)
    operators = None
    if by == "layer" and not by_instance:
        operators = recording.arrow("operators", OPERATOR_COLUMNS)
    classes = recording.meta.get("layer_classes")
    work = device_work(recording, copied_bytes=True, device=device)
    correct = partial(unprofile, steps=steps, recording=recording)
    breakdown = break_down(
        steps,
        work,
        by,
        batch,
        recording.statistic,
        classes,
        marked,
        operators,
        lines,
        correct,
    )
    if by == "op" and recording.on_host:
        breakdown = _with_own_calls(breakdown, recording)
    busy_ms = {}
    if device is None and len(gpus) > 1:
        for gpu in gpus:
            of_gpu = break_down_recording(recording, "phase", breakdown.batch, device=gpu)
            busy_ms[gpu] = math.fsum(row.time_ms for row in of_gpu.groups)
    slow = {each.batch: each for each in slow_steps(recording, steps)}
    unit = RECORDING if steps.empty else recording.unit
    return replace(
        breakdown,
        unit=unit,
        work=recording.work,
        device=device,
        busy_ms=busy_ms,
        slow=slow.get(breakdown.batch),
    )


def _with_own_calls(breakdown: Breakdown, recording: Recording) -> Breakdown:
    """The rows of outermost operators of the host with their own calls per step; as kernels
    counted the operators inside them.
    """
    table = recording.arrow("kernels", ["step", "op", "name", "part"])
    op = table["op"].cast("string")
    is_outermost = pc.equal(op, table["name"].cast("string"))
    kernels = table.filter(is_outermost).to_pandas()
    in_used_step = kernels["step"].isin(breakdown.used)
    is_first_part = kernels["part"].fillna(0).eq(0)
    operators = kernels.loc[in_used_step & is_first_part, "op"]
    count = operators.astype(str).value_counts()
    steps = max(len(breakdown.used), 1)
    rows = []
    for row in breakdown.rows:
        if row.label in count:
            row = replace(row, calls=float(count[row.label] / steps))
        rows.append(row)
    return replace(breakdown, rows=tuple(rows))


def break_down(
    steps: pd.DataFrame,
    work: Work,
    by: str,
    batch: int | None = None,
    statistic: str = "median",
    layer_classes: Mapping[str, str] | None = None,
    marked: Marked | None = None,
    operators: pa.Table | None = None,
    lines: pd.DataFrame | None = None,
    correct: Callable[[pd.DataFrame], pd.DataFrame] = lambda times: times,
) -> Breakdown:
    """Split the step at one batch size, by default the largest, by layer, kernel, phase, op or
    line.

    `operators` tell which layers are equal, see `find_repeated_layers`; None keeps all apart.
    `correct` is a function of the times of steps without marks, e.g. `marked.unprofile`.
    CurvescopeError if there is nothing to split.
    """
    classes = layer_classes or {}
    if steps.empty:
        return _totals(work, by, classes)
    batch, curve = _pick_batch(steps, batch, statistic)
    profiled = select_profiled_steps(steps, batch)
    if profiled.empty:
        which = "step" if batch is None else f"step of batch {batch}"
        raise CurvescopeError(f"No {which} was profiled: there is nothing to break down.")
    amounts = (*_AMOUNTS, _DURATION)
    times = kernel_times(work, profiled, _columns_for(by), amounts, by_name=by == "kernel")
    # unrecorded work is not idle time
    is_all_idle = (times["name"] == IDLE).all()
    if is_all_idle and not any(piece.num_rows for piece in work(["step"])):
        raise CurvescopeError(f"{_NO_WORK} {RECORD_DEVICE}")
    times = choose_averaged(times, steps, statistic, marked is not None)
    numbers = tuple(list_used_steps(times))
    profiled_numbers = profiled["step"].to_numpy()
    used = np.searchsorted(profiled_numbers, numbers)
    if operators is not None:
        kernels = partial(_count_kernels, work, profiled)
        times, marked, groups = group_layers(times, operators, classes, marked, kernels)
        classes = classes_with(classes, groups)
    if marked is None:
        times = correct(times)
    else:
        times, _ = marked.settle(times)
    busy = (times["name"] != IDLE).to_numpy()
    times["step"] = np.searchsorted(profiled_numbers, times["step"].to_numpy())
    if lines is not None:
        times = by_line(times, lines[lines["batch"] == batch])
        busy = (times["line"] != f"{IDLE} at {NO_LINE}").to_numpy()
    rows = _rows(times[busy], by, classes, used, len(profiled))
    waits = ~busy & (times["phase"] == INPUT).to_numpy()
    if waits.any():
        rows.append(_idle_row(WAITING_FOR_INPUT, times[waits], len(profiled), used))
    idles = ~busy & ~waits
    rows.append(_idle_row(IDLE, times[idles], len(profiled), used))
    whole_ms = math.fsum(row.time_ms for row in rows)
    if curve is None:
        every = steps if batch is None else steps[steps["batch"] == batch]
        return Breakdown(
            batch=batch,
            time_ms=whole_ms,
            rows=tuple(rows),
            overhead_ms=None,
            n_timed=0,
            n_profiled=len(every),
            n_used=len(used),
            used=numbers,
            set_aside=name_set_aside(every),
        )
    point = curve.at(batch)
    of_all_steps = bool(times[OF_ALL_STEPS].any()) or curve.pace is None
    pace = curve if of_all_steps else curve.paces
    pace_ms = pace.at(batch).time_ms.value
    is_longer = marked is None and whole_ms > _SCALED * pace_ms
    scale = pace_ms / whole_ms if is_longer else 1.0
    overhead_ms = pace_ms - scale * whole_ms
    (spread,) = _spreads(durations_ms(profiled)[None, used])
    rows = [_scale_row(row, scale) for row in rows]
    rows.append(Row(OVERHEAD, overhead_ms, spread))
    if not of_all_steps:
        rows.append(Row(SLOW_STEPS, point.time_ms.value - pace_ms, None))
    return Breakdown(
        batch=batch,
        time_ms=point.time_ms.value,
        rows=tuple(rows),
        overhead_ms=overhead_ms,
        n_timed=point.n,
        n_profiled=len(profiled),
        n_used=len(used),
        used=numbers,
        scale=scale,
    )


def _idle_row(label: str, times: pd.DataFrame, steps: int, used: Ints) -> Row:
    """Idle time over the steps used, of all profiled steps."""
    of_steps_ms = np.bincount(times["step"], times["exclusive_ms"], steps)
    idle_ms = np.asarray(of_steps_ms[used], np.float64)
    (spread,) = _spreads(idle_ms[None])
    return Row(label, float(idle_ms.mean()), spread)


def _scale_row(row: Row, scale: float) -> Row:
    """A row of profiled steps in the time that unprofiled ones take; rates stay as measured."""
    spread_ms = None if row.spread_ms is None else scale * row.spread_ms
    return replace(row, time_ms=scale * row.time_ms, spread_ms=spread_ms)


def _pick_batch(
    steps: pd.DataFrame, batch: int | None, statistic: str
) -> tuple[int | None, Curve | None]:
    """Choose the batch size, by default the largest, and its curve, None if no step ran
    unprofiled.
    """
    curve = None if steps["profiled"].all() else cost_curve(steps, statistic)
    if curve:
        batches = curve.conditions
    else:
        recorded = steps["batch"].dropna().unique()
        batches = tuple(sorted(map(int, recorded)))
    if batch is None and batches:
        batch = batches[-1]
    if batch is not None and batch not in batches:
        sizes = ", ".join(map(str, batches))
        measured = sizes or "steps of unknown batch size; give it with --batch when importing"
        raise CurvescopeError(f"Batch {batch} was not measured; this recording has {measured}.")
    return batch, curve


def _totals(work: Work, by: str, classes: Mapping[str, str]) -> Breakdown:
    """Sums over a recording without steps, e.g. of Nsight Compute, whose kernels have durations but
    no start.
    """
    totals = kernel_totals(work, _columns_for(by), (*_AMOUNTS, _DURATION))
    if totals.empty:
        raise CurvescopeError(
            "No kernel, memcpy or memset of this recording has a duration: there is nothing to "
            "break down. `curvescope roofline` shows metrics if the recording has any. "
            f"{RECORD_DEVICE}"
        )
    rows = _rows(totals.assign(step=0), by, classes, np.zeros(1, np.int64), 1)
    time_ms = math.fsum(row.time_ms for row in rows)
    return Breakdown(None, time_ms, tuple(rows), None, 0, 0, 0, ())


def _count_kernels(work: Work, profiled: pd.DataFrame) -> pd.DataFrame:
    """Calls of the kernels of steps of one batch size, by name, layer and phase."""
    number = profiled["step"].to_numpy(np.int64)

    def inside(columns: Sequence[str]) -> Iterator[pa.Table]:
        read = list(dict.fromkeys(["step", *columns]))
        for piece in work(read):
            yield of_steps(piece, number)[0]

    totals = kernel_totals(inside, _columns_for("layer"), ())
    return totals.assign(batch=profiled["batch"].iloc[0])


def _columns_for(by: str) -> list[str]:
    """Columns of `kernels` to group by: also the place, and the names, which tell communication and
    copies.
    """
    columns = [*_KERNEL_COLUMNS[by], *ROW_COLUMNS["layer"], "name"]
    return list(dict.fromkeys(columns))


def _with_layer_labels(groups: pd.DataFrame, classes: Mapping[str, str]) -> pd.DataFrame:
    """The groups with the label of the work, which names layer and phase, in place of the layer."""
    code, different = _number_groups(groups, ["layer", "phase", "kind"])
    labels = []
    for row in different:
        key = Key.of(*row)
        labels.append(key.label_with(classes.get(key.layer or "")))
    return groups.assign(layer=np.array(labels, dtype=object)[code], phase=None)


def _rows(
    groups: pd.DataFrame, by: str, classes: Mapping[str, str], used: Ints, steps: int
) -> list[Row]:
    """One row per group, over the steps used, largest first."""
    if by == "layer":
        groups = _with_layer_labels(groups, classes)
    code, different = _number_groups(groups, ROW_COLUMNS[by])
    count = len(different)
    position = np.full(steps, -1, np.int64)
    position[used] = np.arange(len(used))
    step = position[groups["step"].to_numpy()]
    inside = step >= 0
    groups = groups[inside]
    code = code[inside]
    per_step_ns = np.zeros((count, len(used)))
    np.add.at(per_step_ns, (code, step[inside]), groups["exclusive_ns"].to_numpy())
    spreads = _spreads(per_step_ns / 1e6)
    amounts = _sum_amounts(groups, code, count)
    # the operators of a fused kernel are of one kernel
    shared = groups["shared"] & (by in ("layer", "op"))
    fused_ns = np.bincount(code, groups["exclusive_ns"] * shared, count)
    durations_ns = np.bincount(code, groups[_DURATION].fillna(0.0), count)
    precisions = _precisions(groups, code, len(used))
    rows = []
    first_column = ROW_COLUMNS[by][0]
    for i, key in enumerate(different):
        named = [str(part) for part in key if not pd.isna(part)]
        label = " ".join(named) or f"no {first_column}"
        time_ms = float(per_step_ns[i].sum()) / 1e6
        flops, moved, measured, tensor = (amounts[name].rate(i, time_ms) for name in _AMOUNTS)
        fused_ms = float(fused_ns[i]) / 1e6
        row = Row(
            label=label,
            time_ms=time_ms / len(used),
            spread_ms=spreads[i],
            flops=None if flops.total is None else flops.total / len(used),
            gflop_per_s=flops.giga_per_s,
            gb_per_s=moved.giga_per_s,
            measured_gb_per_s=measured.giga_per_s,
            flops_time_share=flops.time_share,
            bytes_time_share=moved.time_share,
            measured_time_share=measured.time_share,
            tensor_pipe_use=tensor.giga_per_s,
            tensor_time_share=tensor.time_share,
            shared_time_share=fused_ms / time_ms if fused_ms and time_ms else None,
            precisions=precisions.get(i, {}),
        )
        if not label.startswith(IDLE):
            calls = amounts["calls"].totals[i] or 0.0
            duration_ms = float(durations_ns[i]) / 1e6
            row = replace(row, calls=calls / len(used), duration_ms=duration_ms / len(used))
        rows.append(row)
    return sorted(rows, key=lambda row: (-row.time_ms, row.label))


def _number_groups(groups: pd.DataFrame, keys: list[str]) -> tuple[Ints, list[tuple[Any, ...]]]:
    """The number of the group of each row, and the key of each group."""
    code = groups.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()
    _, first = np.unique(code, return_index=True)
    return code, list(groups[keys].iloc[first].itertuples(index=False))


class _Rate(NamedTuple):
    """An amount of one group, over the time of the kernels that have it."""

    total: float | None  # None if no kernel has it
    giga_per_s: float | None
    time_share: float | None  # of the group's time, that the rate is over; None without a rate


class _Amount(NamedTuple):
    """A column summed over the kernels of each group."""

    totals: list[float | None]
    # Exclusive times of the kernels that have it, and the times that its rate is over.
    known_ms: list[float]
    rated_ms: list[float]

    def rate(self, group: int, time_ms: float) -> _Rate:
        """The rate in one group, which takes so long."""
        total = self.totals[group]
        per_s = giga_per_s(total, self.rated_ms[group])
        if per_s is None or not time_ms:
            return _Rate(total, per_s, None)
        share = self.known_ms[group] / time_ms
        return _Rate(total, per_s, min(share, 1.0))


def _sum_amounts(groups: pd.DataFrame, code: Ints, count: int) -> dict[str, _Amount]:
    """The calls and the amounts of work of each group.

    The use of tensor pipes is a mean over time: nanoseconds over milliseconds make it a share, too.
    """
    tensor_ns = groups[_TENSOR] * groups["exclusive_ns"]
    groups = groups.assign(**{_TENSOR: tensor_ns})
    columns = ["calls", *_AMOUNTS]
    by_group = groups[columns].groupby(code)
    sums = by_group.sum(min_count=1).reindex(range(count))
    exclusive_ns = groups["exclusive_ns"].to_numpy(np.float64)
    is_copy = groups["name"].str.startswith(COPIES)
    rated_ns = np.where(is_copy, groups[_DURATION], exclusive_ns)
    amounts = {}
    for name in columns:
        has_amount = groups[name].notna().to_numpy()
        own = code[has_amount]
        known_ms = np.bincount(own, exclusive_ns[has_amount] / 1e6, count)
        rated_ms = np.bincount(own, rated_ns[has_amount] / 1e6, count)
        totals: list[float | None] = []
        for total in sums[name]:
            totals.append(None if pd.isna(total) else float(total))
        amounts[name] = _Amount(totals, known_ms.tolist(), rated_ms.tolist())
    return amounts


def _precisions(groups: pd.DataFrame, code: Ints, steps: int) -> dict[int, dict[str, float]]:
    """FLOPs per step of each row by the precision of its kernels."""
    worked = groups["flops"].gt(0).to_numpy()
    precision_of = {}
    for name in groups["name"].unique():
        precision_of[name] = kernel_precision(str(name))
    precision = groups["name"][worked].map(precision_of)
    flops = groups["flops"][worked]
    sums = flops.groupby([code[worked], precision.to_numpy()]).sum()
    by_row: dict[int, dict[str, float]] = {}
    for (row, name), total in sums.items():
        of_row = by_row.setdefault(int(row), {})
        of_row[str(name)] = float(total) / steps
    return by_row


def _spreads(per_step: Floats) -> list[float | None]:
    """Half the interquartile range of each row over its steps; None for a single step."""
    if per_step.shape[1] < 2:
        return [None] * len(per_step)
    low, high = np.percentile(per_step, [25, 75], axis=1)
    return [float(half) for half in (high - low) / 2]


def giga_per_s(amount: float | None, time_ms: float) -> float | None:
    """A rate in 10⁹ per second; None without an amount or a time."""
    if amount is None or time_ms <= 0:
        return None
    return amount / time_ms / 1e6
