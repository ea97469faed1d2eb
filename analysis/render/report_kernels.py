"""The kernels of a report, over batch sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import pandas as pd

from ...profiling.attribution.kernel_names import read_name, short_name
from ...profiling.attribution.kernel_precision import kernel_precision
from ..causes.context import Recorded
from ..decompose.curve import known_batch, native
from ..decompose.terms import IDLE, layer_label
from .report_document import KernelRow, KernelTable
from .report_experiments import finite

MOST_KERNEL_ROWS = 2000
_KEYS = ["name", "layer", "phase", "op"]
_SHARES = {"occupancy": "achieved_occupancy", "tensor": "tensor_pipe_use"}  # measured
_AMOUNTS = ["exclusive_ms", "calls", "flops", "bytes_compulsory"]


def kernel_table(recorded: Recorded, used: Mapping[int, Sequence[int]]) -> KernelTable:
    """Kernels by name, layer, phase and operator: time, calls, rates and exceeded roofs per step at
    every batch size, from the steps used of each.
    """
    times = recorded.kernel_times
    steps = list(chain.from_iterable(used.values()))
    times = times[times["step"].isin(steps)]
    is_idle = times["name"] == IDLE
    rows, idle = times[~is_idle], times[is_idle]
    idle_ms = idle.groupby("batch")["exclusive_ms"].sum()
    kernels = list(_rows_of_kernels(rows, recorded, used).values())
    kernels.sort(key=_longest_ms, reverse=True)
    rest = kernels[MOST_KERNEL_ROWS:]
    table: KernelTable = {
        "batches": [],
        "rows": kernels[:MOST_KERNEL_ROWS],
        "more": len(rest),
        "more_ms": [],
        "idle_ms": [],
        "calls": round(rows["calls"].sum()),
    }
    for index, (size, steps_of_size) in enumerate(used.items()):
        table["batches"].append(known_batch(size))
        more_ms = math.fsum(row["ms"][index] or 0.0 for row in rest)
        table["more_ms"].append(more_ms)
        whole_ms = float(idle_ms.get(size, 0.0))
        table["idle_ms"].append(whole_ms / len(steps_of_size))
    return table


def _longest_ms(row: KernelRow) -> float:
    """The time of a kernel at the size where it takes longest."""
    return max(ms or 0.0 for ms in row["ms"])


def _rows_of_kernels(
    rows: pd.DataFrame, recorded: Recorded, used: Mapping[int, Sequence[int]]
) -> dict[tuple[str | None, ...], KernelRow]:
    """A row for each kernel by its name, layer, phase and operator."""
    batches, keys = list(used), [*_KEYS, "batch"]
    shares = {}
    for short, column in _SHARES.items():
        if rows[column].notna().any():
            shares[short] = _means(rows, keys, column)
    table = rows.groupby(keys, dropna=False, sort=False)[_AMOUNTS].sum(min_count=1)
    by_key: dict[tuple[str | None, ...], KernelRow] = {}
    sums = zip(table.index, table.itertuples(index=False), strict=True)
    for at, ((*named, batch), amounts) in enumerate(sums):
        key = tuple(None if pd.isna(name) else str(name) for name in named)
        if key not in by_key:
            by_key[key] = _new_row(key, recorded.layer_classes, len(batches), list(shares))
        row = by_key[key]
        size = native(batch)
        index = batches.index(size)
        _fill(row, index, amounts, len(used[size]), recorded)
        for short, values in shares.items():
            row[short][index] = finite(values[at])  # type: ignore[literal-required]
    return by_key


def _new_row(
    key: tuple[str | None, ...], classes: Mapping[str, str], sizes: int, shares: Sequence[str]
) -> KernelRow:
    """The row of a kernel, without its numbers."""
    name, layer, phase, op = key
    label = None
    if layer is not None:
        label = layer_label(layer, classes.get(layer))
    unknown = [None] * sizes
    row: KernelRow = {
        "name": name,
        "short": short_name(name or ""),
        "family": read_name(name or "").family,
        "layer": label,
        "path": layer,
        "op": op,
        "phase": phase,
        "ms": [*unknown],
        "calls": [*unknown],
        "gflops": [*unknown],
        "gbs": [*unknown],
        "exceeded": [*unknown],
    }
    for short in shares:
        row[short] = [*unknown]  # type: ignore[literal-required]
    return row


def _fill(row: KernelRow, index: int, amounts: Any, steps: int, recorded: Recorded) -> None:
    """Enter the time, the calls and the rates of one batch size, from sums over its steps."""
    time_ms, calls, flops, moved_bytes = amounts
    row["ms"][index] = finite(float(time_ms) / steps)
    row["calls"][index] = finite(float(calls) / steps)
    gflops = _giga_per_s(flops, time_ms)
    row["gflops"][index] = gflops
    gbs = _giga_per_s(moved_bytes, time_ms)
    row["gbs"][index] = gbs
    precision = kernel_precision(row["name"] or "")
    by_precision = {precision: (gflops or 0.0) * 1e9}
    bytes_per_s = None if gbs is None else gbs * 1e9
    row["exceeded"][index] = recorded.hardware.exceeded(by_precision, 1.0, bytes_per_s)


def _giga_per_s(amount: float, time_ms: float) -> float | None:
    """A rate in 10⁹ per second; None without an amount or a time."""
    if pd.isna(amount) or time_ms <= 0:
        return None
    return finite(float(amount) / time_ms / 1e6)


def _means(rows: pd.DataFrame, keys: Sequence[str], column: str) -> list[float]:
    """The mean of a column over the time of the kernels that have it, for each group in order; NaN
    for none.
    """
    values = rows[column]
    time_ms = rows["exclusive_ms"].where(values.notna())
    weighed = rows.assign(weight=time_ms, weighed=values * time_ms)
    groups = weighed.groupby([*keys], dropna=False, sort=False)
    sums = groups[["weighed", "weight"]].sum(min_count=1)
    weight = sums["weight"]
    means = sums["weighed"] / weight.where(weight > 0)
    return list(means.astype(float))
