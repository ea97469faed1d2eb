"""The breakdown of a recording of any size: the same answer as `breakdown`, from columns and codes instead of a frame.

Ten million kernels as a pandas frame take many gigabytes, most of it the same few names again and again. Here a row is
a step, a start, a duration and the code of its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..profiling.errors import CurvescopeError
from ..profiling.schema import TABLES
from .breakdown import KEYS, Breakdown, Row, observed, pick_batch
from .exclusive import exclusive_ns
from .terms import IDLE, central_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Rows of the `kernels` table; `device_columns` makes such rows of copies and sets.
COLUMNS = ("step", "start_ns", "duration_ns", "layer", "phase", "op", "name", "flops", "bytes_compulsory")


@dataclass
class _Work:
    """Rows of the profiled steps, arrays of shape (rows,); work is NaN where it is not known."""

    step: Ints  # position in the profiled steps
    start_ns: Ints
    duration_ns: Ints
    group: Ints
    flops: Floats
    size_bytes: Floats


@dataclass
class Groups:
    """Codes of groups, by the values of their key, numbered as they come."""

    _code: dict[tuple[str | None, ...], int] = field(default_factory=dict)

    @property
    def keys(self) -> list[tuple[str | None, ...]]:
        """The key of every code."""
        return list(self._code)

    @property
    def labels(self) -> list[str]:
        """The key of every code as text."""
        return [" ".join("-" if part is None else part for part in key) for key in self._code]

    def code(self, key: tuple[str | None, ...]) -> int:
        """The number of a key."""
        return self._code.setdefault(key, len(self._code))


def break_down_columns(
    steps: pd.DataFrame, tables: Iterable[pa.Table], by: str, batch: int | None = None, statistic: str = "median"
) -> Breakdown:
    """Split the step at one batch size.

    Args:
        steps: the `steps` table.
        tables: device work, as `COLUMNS`, in pieces of any size.
        by: layer, kernel, phase or op.
        batch: a measured batch size; the largest if not given.
        statistic: of T(b): median or mean.

    Raises:
        CurvescopeError: no such batch size, or nothing was profiled there.
    """
    batch, curve = pick_batch(steps, batch, statistic)
    profiled = steps[steps["profiled"].astype(bool)]
    profiled = profiled if batch is None else profiled[profiled["batch"] == batch]
    if profiled.empty:
        raise CurvescopeError(f"No step of batch {batch} was profiled: there is nothing to break down.")
    profiled = profiled.sort_values("step")
    groups = Groups()
    work = _collect(tables, profiled["step"].to_numpy(np.int64), KEYS[by], groups)
    start, window = (profiled[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    exclusive_ms, idle_ms = _exclusive(work, start, window)
    used = central_of(window / 1e6)
    rows = _rows(work, exclusive_ms, used, groups.labels, len(window))
    rows.sort(key=lambda row: -row.time_ms)
    low, high = np.percentile(idle_ms[used], [25, 75])
    rows.append(Row(IDLE, float(idle_ms[used].mean()), float(high - low) / 2, None, None, None, None))
    return observed(rows, window[used] / 1e6, curve, batch, len(window))


def device_columns(memory: pa.Table, columns: Sequence[str] = COLUMNS) -> pa.Table:
    """Copies and sets of the device as kernels of those names, as `terms.device_work` has them."""
    moved = memory.filter(
        pc.and_(pc.is_in(memory["kind"], pa.array(["copy", "set"])), memory["duration_ns"].is_valid())
    )
    kind, how = moved["kind"].cast(pa.string()), moved["copy_kind"].cast(pa.string())
    name = pc.coalesce(pc.binary_join_element_wise(kind, how, " "), kind)
    known = {c: moved[c] for c in columns if c in moved.column_names}
    schema = TABLES["kernels"].arrow
    absent = {c: pa.nulls(moved.num_rows, schema.field(c).type) for c in columns if c not in known}
    return pa.table({c: name if c == "name" else {**known, **absent}[c] for c in columns})


def _collect(tables: Iterable[pa.Table], profiled: Ints, keys: list[str], groups: Groups) -> _Work:
    pieces = []
    for whole in tables:
        table, place = of_steps(whole, profiled)
        start, duration = (table[name].to_numpy().astype(np.int64) for name in ("start_ns", "duration_ns"))
        flops, size = (_numbers(table[name]) for name in ("flops", "bytes_compulsory"))
        pieces.append(_Work(place, start, duration, group_codes(table, keys, groups), flops, size))
    if not pieces:
        none, nothing = np.zeros(0, np.int64), np.zeros(0)
        return _Work(none, none, none, none, nothing, nothing)
    return _Work(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in _Work.__dataclass_fields__))


def of_steps(table: pa.Table, profiled: Ints) -> tuple[pa.Table, Ints]:
    """The rows of profiled steps that have a duration, and the position of each one's step.

    Args:
        table: with columns step and duration_ns.
        profiled: numbers of the profiled steps, rising.
    """
    if table["step"].null_count or table["duration_ns"].null_count:
        table = table.filter(pc.and_(table["step"].is_valid(), table["duration_ns"].is_valid()))
    step = table["step"].to_numpy().astype(np.int64)
    place = np.minimum(np.searchsorted(profiled, step), len(profiled) - 1)
    inside = profiled[place] == step
    return (table, place) if inside.all() else (table.filter(pa.array(inside)), place[inside])


def _numbers(column: pa.ChunkedArray) -> Floats:
    if column.null_count == len(column):
        return np.full(len(column), np.nan)
    return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)


def group_codes(table: pa.Table, keys: list[str], groups: Groups) -> Ints:
    """The group of each row by the values of these columns; a row whose key is null has a group too."""
    code = np.zeros(table.num_rows, np.int64)
    values: list[list[str | None]] = []
    for key in keys:
        column = table[key]
        column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        column = column.unify_dictionaries().combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        values.append([None, *column.dictionary.to_pylist()])
        own = pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        code = code * len(values[-1]) + own
    distinct, which = _distinct(code, int(np.prod([len(v) for v in values])))
    known = []
    for number in distinct.tolist():
        parts: list[str | None] = []
        for texts in reversed(values):
            number, place = divmod(number, len(texts))
            parts.append(texts[place])
        known.append(groups.code(tuple(reversed(parts))))
    return np.array(known, np.int64)[which]


def _distinct(code: Ints, most: int) -> tuple[Ints, Ints]:
    """The codes that occur, and which of them each row has; without a sort where the codes are few."""
    if most > 1 << 20:
        distinct, which = np.unique(code, return_inverse=True)
        return distinct, which
    distinct = np.flatnonzero(np.bincount(code, minlength=most))
    place = np.zeros(most, np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[code]


def _exclusive(work: _Work, window_start: Ints, window_ns: Ints) -> tuple[Floats, Floats]:
    """Exclusive time of every row, and idle time of every step, in ms."""
    if (np.diff(work.step) < 0).any():
        order = np.argsort(work.step, kind="stable")
        for name in _Work.__dataclass_fields__:
            setattr(work, name, getattr(work, name)[order])
    shares, idle = share_out(work.step, work.start_ns, work.duration_ns, window_start, window_ns)
    return shares / 1e6, idle / 1e6


def share_out(
    step: Ints, start_ns: Ints, duration_ns: Ints, window_start_ns: Ints, window_ns: Ints
) -> tuple[Floats, Floats]:
    """`exclusive_ns` of many steps at once.

    Args:
        step: position of each row's step, rising, shape (rows,).
        start_ns: starts of the rows.
        duration_ns: their durations.
        window_start_ns: start of each step, shape (steps,).
        window_ns: wall time of each step.

    Returns:
        Exclusive time of every row and idle time of every step, in ns.
    """
    low, room = window_start_ns[step], window_ns[step]
    start = np.clip(start_ns - low, 0, room)
    end = np.maximum(np.clip(start_ns + duration_ns - low, 0, room), start)
    shares = (end - start).astype(np.float64)
    # Where nothing runs beside anything else, a row's exclusive time is its own; only the other steps are shared out.
    beside = (step[1:] == step[:-1]) & (start[1:] < end[:-1])
    for one in np.unique(step[1:][beside]).tolist():
        first, last = np.searchsorted(step, [one, one + 1])
        shares[first:last], _ = exclusive_ns(start[first:last], (end - start)[first:last], 0, int(window_ns[one]))
    busy = np.bincount(step, weights=shares, minlength=len(window_ns))
    return shares, np.maximum(window_ns - busy, 0.0)


def _rows(work: _Work, exclusive_ms: Floats, used: Ints, labels: list[str], steps: int) -> list[Row]:
    """One row per group, over the steps used."""
    position = np.full(steps, -1, np.int64)
    position[used] = np.arange(len(used))
    inside = np.flatnonzero(position[work.step] >= 0)
    group, time = work.group[inside], exclusive_ms[inside]
    pairs = group * len(used) + position[work.step[inside]]
    distinct, which = _distinct(pairs, len(labels) * len(used))
    per_pair = np.bincount(which, weights=time, minlength=len(distinct))
    calls = np.bincount(group, minlength=len(labels))
    total = np.bincount(group, weights=time, minlength=len(labels))
    amounts = [_sums(column[inside], group, len(labels)) for column in (work.flops, work.size_bytes)]
    rows = []
    edges = np.searchsorted(distinct, np.arange(len(labels) + 1) * len(used))
    for code, label in enumerate(labels):
        per_step = np.zeros(len(used))
        of_group = slice(edges[code], edges[code + 1])
        per_step[distinct[of_group] % len(used)] = per_pair[of_group]
        low, high = np.percentile(per_step, [25, 75])
        flops, size = (float(sums[code]) if known[code] else None for sums, known in amounts)
        rate = None if total[code] <= 0 else 1e6 * float(total[code])
        rows.append(
            Row(
                label,
                float(per_step.mean()),
                float(high - low) / 2,
                float(calls[code]) / len(used),
                None if flops is None else flops / len(used),
                None if flops is None or rate is None else flops / rate,
                None if size is None or rate is None else size / rate,
            )
        )
    return rows


def _sums(values: Floats, group: Ints, count: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The known values of each group added up, and whether any is known."""
    known = ~np.isnan(values)
    sums = np.bincount(group[known], weights=values[known], minlength=count)
    return sums.astype(np.float64), np.bincount(group[known], minlength=count) > 0
