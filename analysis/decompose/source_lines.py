"""Lines of the program that time of layers comes from; seen in one slow step per batch size: only
shares are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ...profiling.recording.store import Recording
from .terms import IDLE, KERNELS, Key

COLUMNS = ["batch", "layer", "phase", "op", "file", "line", "duration_ns"]
NO_LINE = "no line"
Lines = Mapping[Any, Mapping[Key, str]]  # by batch size and term


def lines_of(recording: Recording, names: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The table `lines` by groups of layers, with columns `at` (`file:line`) and `kind`, of kernels
    or idle time.
    """
    rows = recording.frame("lines", COLUMNS)
    names = names or {}
    places = zip(rows["file"], rows["line"], strict=True)
    at = [f"{file}:{line}" for file, line in places]
    kind = [IDLE if pd.isna(op) else KERNELS for op in rows["op"]]
    layer = [names.get(layer, layer) for layer in rows["layer"]]
    return rows.assign(at=at, kind=kind, layer=layer)


def main_lines(lines: pd.DataFrame) -> Lines:
    """The line with the most time in each term, by batch size; idle time is sampled, and rests on
    all sizes.
    """
    term = ["layer", "phase", "kind", "at"]
    total = _sum_times(lines, ["batch", *term])
    is_idle = total["kind"] == IDLE
    idle = total[is_idle].groupby(term, dropna=False)["duration_ns"].sum()
    main: dict[Key, str] = {}
    for row in _longest_last(idle.reset_index()):
        main[Key.of(row.layer, row.phase, row.kind)] = row.at
    by_batch = {batch: dict(main) for batch in lines["batch"].unique()}
    for row in _longest_last(total[~is_idle]):
        key = Key.of(row.layer, row.phase, row.kind)
        by_batch[row.batch][key] = row.at
    return by_batch


def _sum_times(lines: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    groups = lines.groupby(keys, dropna=False, sort=False)
    return groups["duration_ns"].sum().reset_index()


def _longest_last(rows: pd.DataFrame) -> Iterable[Any]:
    ordered: Iterable[Any] = rows.sort_values("duration_ns", kind="stable").itertuples()
    return ordered


def by_line(times: pd.DataFrame, lines: pd.DataFrame) -> pd.DataFrame:
    """Kernel times of one batch size by line, in the column `line`; amounts are shared as the times
    of the lines.
    """
    keys = ["layer", "phase", "op"]
    total = _sum_times(lines, [*keys, "at"])
    # plain floats: the recorded ones are nullable, and would make the amounts so
    durations_ns = total["duration_ns"].astype(np.float64)
    by_operator = durations_ns.groupby([total[key] for key in keys], dropna=False)
    sums_ns = by_operator.transform("sum")
    part = durations_ns / sums_ns.where(sums_ns > 0)
    total["part"] = part.fillna(1.0)
    operator = times["op"].where(times["name"] != IDLE, None)
    parts = total[[*keys, "at", "part"]]
    spread = times.assign(op=operator).merge(parts, on=keys, how="left")
    part = spread.pop("part").fillna(1.0)
    at = spread.pop("at").fillna(NO_LINE)
    numbers = spread.select_dtypes("number").columns
    amounts = numbers.difference(["step", "batch"], sort=False)
    spread[amounts] = spread[amounts].mul(part, axis=0)
    is_work = spread["name"] != IDLE
    spread["line"] = at.where(is_work, f"{IDLE} at " + at)
    return spread
