"""Cut the steps of synchronised ranks exactly into kernels, communication, waiting, input and idle.

Each instant of a rank's step belongs to the first of these that runs in it, in equal shares to
concurrent ones: kernels of the layers; copies into buckets and back, and starting collectives
(communication); a collective, *waiting* at first and *communication* for as long as the rank needs
that waits least; fetching the batch (input); none of these (idle). Clocks need not agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...profiling.attribution.collectives import collective
from ...profiling.attribution.range_names import DISTRIBUTED, INPUT_PHASE, PHASE_RANGE
from ..decompose.exclusive import share_by_layer_ns
from ..decompose.statistics import Floats, Ints
from ..decompose.terms import COMMUNICATION, IDLE, KERNELS

WAITING = "waiting"
INPUT = "input"
KINDS = (KERNELS, COMMUNICATION, WAITING, INPUT, IDLE)

# Codes of rows: kinds, with the work around collectives apart, as it has precedence over them.
_KERNEL, _AROUND, _WAITING, _MOVING, _INPUT, _IDLE = range(6)
_KIND_OF_CODE = np.array(
    [KERNELS, COMMUNICATION, WAITING, COMMUNICATION, INPUT, IDLE], dtype=object
)
_LEVEL_OF_CODE = np.array([0, 1, 2, 2, 3, 4])
_STEP_KEY = ["batch", "round", "index"]
KERNEL_COLUMNS = ("name", "start_ns", "duration_ns", "step", "phase", "layer", "op")
_NAMES = ["layer", "phase", "name", "op"]
_PART_COLUMNS = [*_NAMES, "batch", "step", "rank", "kind", "exclusive_ms"]


@dataclass(frozen=True)
class RankTables:
    """Recorded tables of one rank."""

    rank: int
    node: int | None  # number of its node; None if unknown
    steps: pd.DataFrame  # its `steps` table
    kernels: pd.DataFrame  # its kernels and copies, with `KERNEL_COLUMNS`
    ranges: pd.DataFrame  # its `ranges` table


def find_common_steps(ranks: Sequence[RankTables], profiled: bool) -> pd.DataFrame:
    """The steps that every rank finished, with `duration_ns_0`, `start_ns_0`, `step_0`,
    `duration_ns_1`, … by rank.
    """
    tables = []
    for i, rank in enumerate(ranks):
        chosen = rank.steps[rank.steps["profiled"].astype(bool) == profiled]
        table = chosen.set_index(_STEP_KEY)[["duration_ns", "start_ns", "step"]].astype(np.int64)
        tables.append(table.add_suffix(f"_{i}"))
    return tables[0].join(tables[1:], how="inner").sort_index().reset_index()


@dataclass
class _Rows:
    """Intervals of one rank's step: index of the kernel (-1: none), code, start and end."""

    index: Ints
    code: Ints
    start_ns: Ints
    end_ns: Ints


class _Piece(NamedTuple):
    """One cut step of a rank."""

    batch: int
    number: int  # position among the shared steps
    rows: _Rows
    exclusive_ns: Floats  # of each row


class _Timeline:
    """The kernels and inputs of one rank, by step."""

    def __init__(self, rank: RankTables) -> None:
        self.rank = rank
        complete = rank.kernels["step"].notna() & rank.kernels["duration_ns"].notna()
        self.kernels = rank.kernels[complete].sort_values("step", kind="stable")
        self._step = self.kernels["step"].to_numpy(np.int64)
        self._start = self.kernels["start_ns"].to_numpy(np.int64)
        self._end = self._start + self.kernels["duration_ns"].to_numpy(np.int64)
        around = self.kernels["op"].fillna("").str.startswith(DISTRIBUTED).to_numpy(bool)
        fetches = (self.kernels["phase"] == INPUT_PHASE).fillna(False).to_numpy(bool)
        self._code = np.select([around, fetches], [_AROUND, _INPUT], _KERNEL)
        names = self.kernels["name"]
        is_shared = {name: collective(str(name)) is not None for name in names.unique()}
        self._code[names.map(is_shared).to_numpy(bool)] = _MOVING
        of_input = rank.ranges["name"] == PHASE_RANGE + INPUT_PHASE
        inputs = rank.ranges[of_input & rank.ranges["step"].notna()]
        self._inputs = inputs[["step", "start_ns", "duration_ns"]].to_numpy(np.int64)

    def rows(self, step: int, start_ns: int) -> _Rows:
        """Kernels and inputs of a step, collectives by start."""
        low, high = np.searchsorted(self._step, [step, step + 1])
        index = low + np.argsort(self._start[low:high], kind="stable")
        code = self._code[index].copy()
        # A collective of the step before that still runs: its waiting was in that step.
        code[(code == _MOVING) & (self._start[index] < start_ns)] = _AROUND
        _, begun, length = self._inputs[self._inputs[:, 0] == step].T
        inputs = _Rows(np.full(len(begun), -1), np.full(len(begun), _INPUT), begun, begun + length)
        return _join(_Rows(index, code, self._start[index], self._end[index]), inputs)

    def parts(self, pieces: Sequence[_Piece]) -> pd.DataFrame:
        """The cut steps as a table."""
        index = np.concatenate([piece.rows.index for piece in pieces])
        code = np.concatenate([piece.rows.code for piece in pieces])
        exclusive_ns = np.concatenate([piece.exclusive_ns for piece in pieces])
        counts = [len(piece.exclusive_ns) for piece in pieces]
        names = self.kernels[_NAMES].astype(object).reset_index(drop=True)
        names.loc[-1] = [None, None, None, None]
        table = names.loc[index].reset_index(drop=True)
        kind = _KIND_OF_CODE[code]
        table["name"] = table["name"].where(index >= 0, kind)
        return table.assign(
            batch=np.repeat([piece.batch for piece in pieces], counts),
            step=np.repeat([piece.number for piece in pieces], counts),
            rank=self.rank.rank,
            kind=kind,
            exclusive_ms=exclusive_ns / 1e6,
        )


def rank_parts(ranks: Sequence[RankTables]) -> tuple[pd.DataFrame, int]:
    """Cut every profiled step of synchronised ranks.

    Columns are layer, phase, name, op, batch, step (position among the shared steps), rank, kind
    (one of `KINDS`) and exclusive_ms, which adds up to the wall time of each rank's step. And the
    number of steps whose collectives differ between ranks, so that all of their time counts as
    communication.
    """
    timelines = [_Timeline(rank) for rank in ranks]
    pieces: list[list[_Piece]] = [[] for _ in ranks]
    unmatched = 0
    for number, step in enumerate(find_common_steps(ranks, profiled=True).to_dict("records")):
        of_ranks = []
        for i, timeline in enumerate(timelines):
            of_ranks.append(timeline.rows(step[f"step_{i}"], step[f"start_ns_{i}"]))
        shortest = _shortest(of_ranks)
        unmatched += shortest is None
        for i, rows in enumerate(of_ranks):
            start = step[f"start_ns_{i}"]
            cut = rows if shortest is None else _cut_waiting(rows, shortest)
            length, levels = cut.end_ns - cut.start_ns, _LEVEL_OF_CODE[cut.code]
            window = start, step[f"duration_ns_{i}"]
            shares, idle = share_by_layer_ns(cut.start_ns, length, levels, *window)
            rest = np.array([start])
            idle_row = _Rows(np.array([-1]), np.array([_IDLE]), rest, rest)
            every = _join(cut, idle_row)
            pieces[i].append(_Piece(step["batch"], number, every, np.append(shares, idle)))
    tables = []
    for timeline, of_rank in zip(timelines, pieces, strict=True):
        if of_rank:
            tables.append(timeline.parts(of_rank))
    if not tables:
        return pd.DataFrame(columns=_PART_COLUMNS), unmatched
    return pd.concat(tables, ignore_index=True), unmatched


def _shortest(of_ranks: Sequence[_Rows]) -> Ints | None:
    """Shortest duration of each collective on any rank, which all run in one order, ns; None if
    collectives differ.
    """
    durations = [(rows.end_ns - rows.start_ns)[rows.code == _MOVING] for rows in of_ranks]
    if len({len(of_rank) for of_rank in durations}) != 1:
        return None
    return np.asarray(np.min(durations, axis=0), dtype=np.int64)


def _cut_waiting(rows: _Rows, shortest_ns: Ints) -> _Rows:
    moving = rows.code == _MOVING
    begun = rows.start_ns[moving]
    cut = rows.end_ns[moving] - shortest_ns
    after = rows.start_ns.copy()
    after[moving] = cut
    waiting = _Rows(rows.index[moving], np.full(len(cut), _WAITING), begun, cut)
    return _join(replace(rows, start_ns=after), waiting)


def _join(first: _Rows, second: _Rows) -> _Rows:
    return _Rows(
        np.append(first.index, second.index),
        np.append(first.code, second.code),
        np.append(first.start_ns, second.start_ns),
        np.append(first.end_ns, second.end_ns),
    )
