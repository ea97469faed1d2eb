"""Where the time of a step goes: exclusive time per layer, kernel, phase or operator, with achieved rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..profiling.errors import CurvescopeError
from .curve import Curve, cost_curve
from .terms import IDLE, OBSERVER, central_steps, step_parts

KEYS = {"layer": ["layer", "phase"], "kernel": ["name"], "phase": ["phase"], "op": ["op"]}


@dataclass(frozen=True)
class Row:
    """One group of a breakdown.

    Attributes:
        label: the group; idle and observer effect are groups of their own.
        time_ms: its share of the step.
        spread_ms: half the interquartile range of its time over the profiled steps used; of the whole profiled step
            for the observer effect.
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
        time_ms: T(b) of the steps no profiler watched, else the mean of the profiled steps used.
        rows: largest first, then idle and, where it is known, the observer effect.
        observer_ms: the observer effect; null where no step ran unwatched.
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


def break_down(
    steps: pd.DataFrame, kernels: pd.DataFrame, by: str, batch: int | None = None, statistic: str = "median"
) -> Breakdown:
    """Split the step at one batch size.

    Args:
        steps: the `steps` table.
        kernels: the `kernels` table.
        by: layer, kernel, phase or op.
        batch: a measured batch size; the largest if not given.
        statistic: of T(b): median or mean.

    Raises:
        CurvescopeError: no such batch size, or nothing was profiled there.
    """
    batch, curve = pick_batch(steps, batch, statistic)
    parts = step_parts(kernels, steps if batch is None else steps[steps["batch"] == batch])
    if parts.empty:
        raise CurvescopeError(f"No step of batch {batch} was profiled: there is nothing to break down.")
    used = central_steps(parts)
    groups = parts[parts["name"] != IDLE]
    rows = [_row(label, group, used) for label, group in _grouped(groups, KEYS[by])]
    rows.sort(key=lambda row: -row.time_ms)
    idle = _row(IDLE, parts[parts["name"] == IDLE], used)
    rows.append(Row(IDLE, idle.time_ms, idle.spread_ms, None, None, None, None))
    walls = parts.groupby("step")["exclusive_ms"].sum().loc[used].to_numpy(np.float64)
    return observed(rows, walls, curve, batch, parts["step"].nunique())


def pick_batch(steps: pd.DataFrame, batch: int | None, statistic: str) -> tuple[int | None, Curve | None]:
    """The batch size to break down, the largest if not given, and the curve; null where no step ran unwatched.

    Raises:
        CurvescopeError: there is no step, or none of that batch size.
    """
    if steps.empty:
        raise CurvescopeError("This recording has no step: there is nothing to break down.")
    curve = None if steps["profiled"].all() else cost_curve(steps, statistic)
    batches = curve.batches if curve else tuple(sorted(int(b) for b in steps["batch"].dropna().unique()))
    if batch is None and batches:
        batch = batches[-1]
    if batch is not None and batch not in batches:
        measured = ", ".join(map(str, batches)) or "steps of unknown batch; give it with --batch when importing"
        raise CurvescopeError(f"Batch {batch} was not measured; this recording has {measured}.")
    return batch, curve


def observed(
    rows: list[Row], walls_ms: npt.NDArray[np.float64], curve: Curve | None, batch: int | None, n_profiled: int
) -> Breakdown:
    """The breakdown of these rows, with the observer effect where the curve is known.

    Args:
        rows: of the groups and idle time.
        walls_ms: wall times of the profiled steps used, shape (used,).
        curve: of the steps no profiler watched.
        batch: the batch size.
        n_profiled: how many profiled steps there are.
    """
    seen_ms, n_used = sum(row.time_ms for row in rows), len(walls_ms)
    if curve is None:
        return Breakdown(batch, seen_ms, tuple(rows), None, 0, n_profiled, n_used)
    point = next(p for p in curve.points if p.batch == batch)
    observer_ms = point.time_ms.value - seen_ms
    low, high = np.percentile(walls_ms, [25, 75])
    rows.append(Row(OBSERVER, observer_ms, float(high - low) / 2, None, None, None, None))
    return Breakdown(batch, point.time_ms.value, tuple(rows), observer_ms, point.n, n_profiled, n_used)


def _grouped(kernels: pd.DataFrame, keys: list[str]) -> list[tuple[str, pd.DataFrame]]:
    groups = kernels.groupby(keys, dropna=False, sort=False)
    return [(" ".join("-" if pd.isna(k) else str(k) for k in key), group) for key, group in groups]


def _row(label: str, group: pd.DataFrame, used: list[int]) -> Row:
    per_step = group.groupby("step")["exclusive_ms"].sum().reindex(used, fill_value=0.0)
    inside = group[group["step"].isin(used)]
    low, high = np.percentile(per_step, [25, 75])
    flops, gflop_per_s = _rate(inside, "flops", len(used), 1e6)
    _, gb_per_s = _rate(inside, "bytes_compulsory", len(used), 1e6)
    return Row(
        label,
        float(per_step.mean()),
        float(high - low) / 2,
        len(inside) / len(used),
        flops,
        gflop_per_s,
        gb_per_s,
    )


def _rate(rows: pd.DataFrame, column: str, steps: int, per_ms: float) -> tuple[float | None, float | None]:
    """Amount per step, and amount over the group's whole time in 10⁹ per second; null where nothing is known."""
    known = rows[column].dropna()
    time_ms = float(rows["exclusive_ms"].sum())
    if known.empty:
        return None, None
    amount = float(known.sum())
    return amount / steps, amount / time_ms / per_ms if time_ms > 0 else None
