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
        is_profiled = rank.steps["profiled"].astype(bool)
        chosen = rank.steps[is_profiled == profiled].set_index(_STEP_KEY)
        table = chosen[["duration_ns", "start_ns", "step"]].astype(np.int64)
        tables.append(table.add_suffix(f"_{i}"))
    common = tables[0].join(tables[1:], how="inner")
    return common.sort_index().reset_index()


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
        kernels = rank.kernels.dropna(subset=["step", "duration_ns"])
        kernels = kernels.sort_values("step", kind="stable")
        self.kernels = kernels
        self._step = kernels["step"].to_numpy(np.int64)
        self._start = kernels["start_ns"].to_numpy(np.int64)
        self._end = self._start + kernels["duration_ns"].to_numpy(np.int64)
        self._code = _codes(kernels)
        is_input = rank.ranges["name"] == PHASE_RANGE + INPUT_PHASE
        in_step = rank.ranges["step"].notna()
        inputs = rank.ranges[is_input & in_step]
        self._inputs = inputs[["step", "start_ns", "duration_ns"]].to_numpy(np.int64)

    def rows(self, step: int, start_ns: int) -> _Rows:
        """Kernels and inputs of a step, collectives by start."""
        low, high = np.searchsorted(self._step, [step, step + 1])
        index = low + np.argsort(self._start[low:high], kind="stable")
        begin = self._start[index]
        code = self._code[index].copy()
        # A collective of the step before that still runs: its waiting was in that step.
        code[(code == _MOVING) & (begin < start_ns)] = _AROUND
        kernels = _Rows(index, code, begin, self._end[index])
        in_step = self._inputs[:, 0] == step
        _, start, length = self._inputs[in_step].T
        no_index = np.full(len(start), -1)
        input_code = np.full(len(start), _INPUT)
        inputs = _Rows(no_index, input_code, start, start + length)
        return _join(kernels, inputs)

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
        table["batch"] = np.repeat([piece.batch for piece in pieces], counts)
        table["step"] = np.repeat([piece.number for piece in pieces], counts)
        table["rank"] = self.rank.rank
        table["kind"] = kind
        table["exclusive_ms"] = exclusive_ns / 1e6
        return table


def _codes(kernels: pd.DataFrame) -> Ints:
    """The code of each kernel."""
    around = kernels["op"].fillna("").str.startswith(DISTRIBUTED)
    fetches = (kernels["phase"] == INPUT_PHASE).fillna(False)
    conditions = [around.to_numpy(bool), fetches.to_numpy(bool)]
    codes = np.select(conditions, [_AROUND, _INPUT], _KERNEL)
    names = kernels["name"]
    is_shared = {name: collective(str(name)) is not None for name in names.unique()}
    codes[names.map(is_shared).to_numpy(bool)] = _MOVING
    return codes


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
    steps = find_common_steps(ranks, profiled=True)
    for number, step in enumerate(steps.to_dict("records")):
        of_ranks = []
        for i, timeline in enumerate(timelines):
            of_ranks.append(timeline.rows(step[f"step_{i}"], step[f"start_ns_{i}"]))
        shortest = _shortest(of_ranks)
        unmatched += shortest is None
        for i, rows in enumerate(of_ranks):
            if shortest is not None:
                rows = _cut_waiting(rows, shortest)
            shared, exclusive = _share(rows, step[f"start_ns_{i}"], step[f"duration_ns_{i}"])
            pieces[i].append(_Piece(step["batch"], number, shared, exclusive))
    tables = []
    for timeline, of_rank in zip(timelines, pieces, strict=True):
        if of_rank:
            tables.append(timeline.parts(of_rank))
    if not tables:
        return pd.DataFrame(columns=_PART_COLUMNS), unmatched
    return pd.concat(tables, ignore_index=True), unmatched


def _share(rows: _Rows, start_ns: int, duration_ns: int) -> tuple[_Rows, Floats]:
    """Share a step among its rows; a row of the idle time comes last."""
    length = rows.end_ns - rows.start_ns
    levels = _LEVEL_OF_CODE[rows.code]
    shares, idle = share_by_layer_ns(rows.start_ns, length, levels, start_ns, duration_ns)
    place, code = np.array([start_ns]), np.array([_IDLE])
    idle_row = _Rows(np.array([-1]), code, place, place)
    return _join(rows, idle_row), np.append(shares, idle)


def _shortest(of_ranks: Sequence[_Rows]) -> Ints | None:
    """Shortest duration of each collective on any rank, which all run in one order, ns; None if
    collectives differ.
    """
    durations = []
    for rows in of_ranks:
        length = rows.end_ns - rows.start_ns
        durations.append(length[rows.code == _MOVING])
    counts = {len(of_rank) for of_rank in durations}
    if len(counts) != 1:
        return None
    return np.asarray(np.min(durations, axis=0), dtype=np.int64)


def _cut_waiting(rows: _Rows, shortest_ns: Ints) -> _Rows:
    moving = rows.code == _MOVING
    cut = rows.end_ns[moving] - shortest_ns
    code = np.full(len(cut), _WAITING)
    waiting = _Rows(rows.index[moving], code, rows.start_ns[moving], cut)
    start = rows.start_ns.copy()
    start[moving] = cut
    return _join(replace(rows, start_ns=start), waiting)


def _join(first: _Rows, second: _Rows) -> _Rows:
    return _Rows(
        np.append(first.index, second.index),
        np.append(first.code, second.code),
        np.append(first.start_ns, second.start_ns),
        np.append(first.end_ns, second.end_ns),
    )
