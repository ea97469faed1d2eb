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
    at = [f"{file}:{line}" for file, line in zip(rows["file"], rows["line"], strict=True)]
    kind = [IDLE if pd.isna(op) else KERNELS for op in rows["op"]]
    layer = [(names or {}).get(layer, layer) for layer in rows["layer"]]
    return rows.assign(at=at, kind=kind, layer=layer)


def main_lines(lines: pd.DataFrame) -> Lines:
    """The line with the most time in each term, by batch size; idle time is sampled, and rests on
    all sizes.
    """
    term = ["layer", "phase", "kind", "at"]
    total = _sum_times(lines, ["batch", *term])
    busy = total[total["kind"] != IDLE]
    idle = total[total["kind"] == IDLE].groupby(term, dropna=False)["duration_ns"].sum()
    by_batch: dict[Any, dict[Key, str]] = {batch: {} for batch in lines["batch"].unique()}
    for row in _longest_last(idle.reset_index()):
        for of_batch in by_batch.values():
            of_batch[Key.of(row.layer, row.phase, row.kind)] = row.at
    for row in _longest_last(busy):
        by_batch[row.batch][Key.of(row.layer, row.phase, row.kind)] = row.at
    return by_batch


def _sum_times(lines: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return lines.groupby(keys, dropna=False, sort=False)["duration_ns"].sum().reset_index()


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
    sums_ns = durations_ns.groupby([total[key] for key in keys], dropna=False).transform("sum")
    total["part"] = (durations_ns / sums_ns.where(sums_ns > 0)).fillna(1.0)
    operator = times["op"].where(times["name"] != IDLE, None)
    parts = total[[*keys, "at", "part"]]
    spread = times.assign(op=operator).merge(parts, on=keys, how="left")
    part, at = spread.pop("part").fillna(1.0), spread.pop("at").fillna(NO_LINE)
    amounts = spread.select_dtypes("number").columns.difference(["step", "batch"], sort=False)
    spread[amounts] = spread[amounts].mul(part, axis=0)
    return spread.assign(line=at.where(spread["name"] != IDLE, f"{IDLE} at " + at))
