"""Where the time of a step goes: exclusive time per layer, kernel, phase or operator, with achieved rates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ...profiling.errors import CurvescopeError
from .curve import Curve, cost_curve
from .device_columns import Codes, Floats, Groups, Ints, distinct_codes, group_codes, of_steps, share_out
from .terms import IDLE, LEFT_OVER, OVERHEAD, RECORD_DEVICE, Samples, overhead_ms, undisturbed

KEYS = {"layer": ["layer", "phase"], "kernel": ["name"], "phase": ["phase"], "op": ["op"]}


# Of the `kernels` table, what a breakdown reads.
COLUMNS = ("step", "start_ns", "duration_ns", "layer", "phase", "op", "name", "flops", "bytes_compulsory")


@dataclass(frozen=True)
class Row:
    """One group of a breakdown.

    Attributes:
        label: the group; idle, left over and profiling overhead are groups of their own.
        time_ms: its share of the step.
        spread_ms: half the interquartile range of its time over the profiled steps used; of the whole profiled step
            for the last two.
        calls: rows per step.
        flops: per step; null where no row's work is known.
        gflop_per_s: its known FLOPs over its whole time; null where none are known.
        gb_per_s: of compulsory bytes, likewise; GB is 10⁹ bytes.
    """

    label: str
    time_ms: float
    spread_ms: float
    calls: float | None
    flops: float | None
    gflop_per_s: float | None
    gb_per_s: float | None


@dataclass(frozen=True)
class Breakdown:
    """The groups of one batch size; their times add up to `time_ms`.

    Where every step was profiled, as in an imported profile, `time_ms` is the profiled steps' own.

    Attributes:
        batch: samples in a step; null where the profile does not tell.
        time_ms: T(b) of the unprofiled steps, else the mean of the profiled steps used.
        rows: largest first, then idle and, where steps ran unprofiled, what is left over and the profiling overhead.
        observer_ms: the profiling overhead; None where no step ran unprofiled.
        n_timed: timed steps behind `time_ms`.
        n_profiled: profiled steps behind the rows.
        n_used: how many of those the rows average; the rest lay farther from the median.
    """

    batch: int | None
    time_ms: float
    rows: tuple[Row, ...]
    observer_ms: float | None
    n_timed: int
    n_profiled: int
    n_used: int


@dataclass
class _Work:
    """Rows of the profiled steps, arrays of shape (rows,); work is NaN where it is not known, null where none is."""

    step: Codes  # position in the profiled steps
    group: Codes
    start_ns: Ints
    duration_ns: Ints
    flops: Floats | None
    size_bytes: Floats | None


def break_down(
    steps: pd.DataFrame, tables: Iterable[pa.Table], by: str, batch: int | None = None, statistic: str = "median"
) -> Breakdown:
    """Split the step at one batch size.

    Args:
        steps: the `steps` table.
        tables: device work, as `device_columns` gives its `COLUMNS`, in pieces of any size.
        by: layer, kernel, phase or op.
        batch: a measured batch size; the largest if not given.
        statistic: of T(b): median or mean.

    Raises:
        CurvescopeError: no such batch size, nothing was profiled there, or no work of the device was recorded.
    """
    batch, curve = _pick_batch(steps, batch, statistic)
    profiled = steps[steps["profiled"].astype(bool)]
    profiled = profiled if batch is None else profiled[profiled["batch"] == batch]
    if profiled.empty:
        raise CurvescopeError(f"No step of batch {batch} was profiled: there is nothing to break down.")
    profiled = profiled.sort_values("step")
    groups = Groups()
    work = _collect(tables, profiled["step"].to_numpy(np.int64), KEYS[by], groups)
    start, window = (profiled[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    exclusive_ms, idle_ms = _exclusive(work, start, window)
    used = undisturbed(window / 1e6)
    rows = _rows(work, exclusive_ms, used, groups.labels, len(window))
    rows.sort(key=lambda row: -row.time_ms)
    low, high = np.percentile(idle_ms[used], [25, 75])
    rows.append(Row(IDLE, float(idle_ms[used].mean()), float(high - low) / 2, None, None, None, None))
    if curve is None:
        return Breakdown(batch, math.fsum(row.time_ms for row in rows), tuple(rows), None, 0, len(window), len(used))
    timed = steps[~steps["profiled"].astype(bool) & (steps["batch"] == batch)]
    samples = Samples(
        window[:, None] / 1e6,
        profiled["repeat"].to_numpy(np.int64),
        timed["duration_ns"].to_numpy(np.float64) / 1e6,
        timed["repeat"].to_numpy(np.int64),
    )
    point, overhead = curve.at(batch), overhead_ms(samples, used)
    rest = math.fsum([point.time_ms.value, -overhead, *(-row.time_ms for row in rows)])
    low, high = np.percentile(window[used] / 1e6, [25, 75])
    for label, time_ms in ((LEFT_OVER, rest), (OVERHEAD, overhead)):
        rows.append(Row(label, time_ms, float(high - low) / 2, None, None, None, None))
    return Breakdown(batch, point.time_ms.value, tuple(rows), overhead, point.n, len(window), len(used))


def _pick_batch(steps: pd.DataFrame, batch: int | None, statistic: str) -> tuple[int | None, Curve | None]:
    """The batch size to break down, the largest if not given, and the curve; None where no step ran unprofiled.

    Raises:
        CurvescopeError: there is no step, or none of that batch size.
    """
    if steps.empty:
        raise CurvescopeError("This recording has no step: there is nothing to break down.")
    curve = None if steps["profiled"].all() else cost_curve(steps, statistic)
    batches = curve.conditions if curve else tuple(sorted(int(b) for b in steps["batch"].dropna().unique()))
    if batch is None and batches:
        batch = batches[-1]
    if batch is not None and batch not in batches:
        measured = ", ".join(map(str, batches)) or "steps of unknown batch; give it with --batch when importing"
        raise CurvescopeError(f"Batch {batch} was not measured; this recording has {measured}.")
    return batch, curve


def _collect(tables: Iterable[pa.Table], profiled: Ints, keys: list[str], groups: Groups) -> _Work:
    pieces: list[_Work] = []
    seen = 0
    for whole in tables:
        seen += whole.num_rows
        table, place = of_steps(whole, profiled)
        start, duration = (table[name].to_numpy().astype(np.int64) for name in ("start_ns", "duration_ns"))
        flops, size = (_numbers(table[name]) for name in ("flops", "bytes_compulsory"))
        code = group_codes(table, keys, groups).astype(np.int32)
        pieces.append(_Work(place.astype(np.int32), code, start, duration, flops, size))
    if not seen:  # what was not recorded is not idle time
        raise CurvescopeError(
            f"No kernel, copy or set of the device was recorded: there is nothing to break down. {RECORD_DEVICE}"
        )
    step, group, start, duration = (
        np.concatenate([getattr(piece, name) for piece in pieces])
        for name in ("step", "group", "start_ns", "duration_ns")
    )
    amounts = ([piece.flops for piece in pieces], [piece.size_bytes for piece in pieces])
    return _Work(step, group, start, duration, *(_joined(values, pieces) for values in amounts))


def _numbers(column: pa.ChunkedArray) -> Floats | None:
    """Null where no row has one, as in most recordings: so many NaN take memory."""
    if column.null_count == len(column):
        return None
    return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)


def _joined(amounts: list[Floats | None], pieces: list[_Work]) -> Floats | None:
    if all(amount is None for amount in amounts):
        return None
    filled = zip(amounts, pieces, strict=True)
    return np.concatenate([np.full(len(p.step), np.nan) if amount is None else amount for amount, p in filled])


def _exclusive(work: _Work, window_start: Ints, window_ns: Ints) -> tuple[Floats, Floats]:
    """Exclusive time of every row, and idle time of every step, in ms."""
    if (np.diff(work.step) < 0).any():
        order = np.argsort(work.step, kind="stable")
        for name, values in vars(work).items():
            setattr(work, name, None if values is None else values[order])
    shares, idle = share_out(work.step, work.start_ns, work.duration_ns, window_start, window_ns)
    return shares / 1e6, idle / 1e6


def _rows(work: _Work, exclusive_ms: Floats, used: Ints, labels: list[str], steps: int) -> list[Row]:
    """One row per group, over the steps used."""
    position = np.full(steps, -1, np.int64)
    position[used] = np.arange(len(used))
    inside = np.flatnonzero(position[work.step] >= 0)
    group, time = work.group[inside], exclusive_ms[inside]
    pairs = group.astype(np.int64) * len(used) + position[work.step[inside]]
    distinct, which = distinct_codes(pairs, len(labels) * len(used))
    per_pair = np.bincount(which, weights=time, minlength=len(distinct))
    calls = np.bincount(group, minlength=len(labels))
    total = np.bincount(group, weights=time, minlength=len(labels))
    amounts = [
        _sums(None if column is None else column[inside], group, len(labels))
        for column in (work.flops, work.size_bytes)
    ]
    rows = []
    edges = np.searchsorted(distinct, np.arange(len(labels) + 1) * len(used))
    for code, label in enumerate(labels):
        per_step = np.zeros(len(used))
        of_group = slice(edges[code], edges[code + 1])
        per_step[distinct[of_group] % len(used)] = per_pair[of_group]
        low, high = np.percentile(per_step, [25, 75])
        flops, size = (float(sums[code]) if known[code] else None for sums, known in amounts)
        time_ms = float(total[code])
        rows.append(
            Row(
                label,
                float(per_step.mean()),
                float(high - low) / 2,
                float(calls[code]) / len(used),
                None if flops is None else flops / len(used),
                _giga_per_s(flops, time_ms),
                _giga_per_s(size, time_ms),
            )
        )
    return rows


def _giga_per_s(amount: float | None, time_ms: float) -> float | None:
    return None if amount is None or time_ms <= 0 else amount / time_ms / 1e6


def _sums(values: Floats | None, group: Codes, count: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The known values of each group added up, and whether any is known."""
    if values is None:
        return np.zeros(count), np.zeros(count, np.bool_)
    known = ~np.isnan(values)
    sums = np.bincount(group[known], weights=values[known], minlength=count)
    return sums.astype(np.float64), np.bincount(group[known], minlength=count) > 0
