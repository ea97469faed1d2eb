"""Where the time of a step goes on each of the ranks that step together: their timelines, cut exactly.

Each instant of a rank's step belongs to the first of these that it holds (what runs hidden behind another gets
nothing for it); kernels of one kind at once share it:

1. kernels: the layers' own work;
2. communication: copies into buckets and back, and starting collectives;
3. a collective: *waiting* until the last rank has begun it, *communication* from then on;
4. input: fetching the batch;
5. idle: none of these.

Ranks begin a collective at moments that are held against each other on one axis, so clocks of several nodes have to be
aligned (`profiling.clock_alignment`); their error moves time between waiting and communication, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...profiling.attribution.collectives import collective
from ...profiling.attribution.range_names import DISTRIBUTED, INPUT_PHASE, PHASE_RANGE
from ...profiling.measure.clock_alignment import ClockAlignment
from ..decompose.exclusive import layered_exclusive_ns
from ..decompose.terms import IDLE

KERNELS = "kernels"
COMMUNICATION = "communication"
WAITING = "waiting"
INPUT = "input"
KINDS = (KERNELS, COMMUNICATION, WAITING, INPUT, IDLE)

# Codes of what a row is: a kind, but for the work around collectives, which goes before them.
_KERNEL, _AROUND, _WAITING, _MOVING, _INPUT, _IDLE = range(6)
_KIND_OF_CODE = np.array([KERNELS, COMMUNICATION, WAITING, COMMUNICATION, INPUT, IDLE], dtype=object)
_LEVEL_OF_CODE = np.array([0, 1, 2, 2, 3, 4])
_STEP_KEY = ["batch", "round", "index"]
KERNEL_COLUMNS = ("name", "start_ns", "duration_ns", "step", "phase", "layer", "op")
_NAMES = ["layer", "phase", "name", "op"]
_PART_COLUMNS = [*_NAMES, "batch", "step", "rank", "kind", "exclusive_ms"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RankTables:
    """What one rank recorded.

    Attributes:
        rank: its number.
        node: of its node; null if not known.
        steps: its `steps` table.
        kernels: its `kernels` table, `KERNEL_COLUMNS` of it.
        ranges: its `ranges` table.
        clock: puts its times on the axis of rank 0.
    """

    rank: int
    node: int | None
    steps: pd.DataFrame
    kernels: pd.DataFrame
    ranges: pd.DataFrame
    clock: ClockAlignment = field(default_factory=ClockAlignment)


def shared_steps(ranks: Sequence[RankTables], profiled: bool) -> pd.DataFrame:
    """The steps that every rank has, with a column of durations, `rank0`, `rank1`, …, each, in nanoseconds.

    Steps that some rank did not finish are left out: the others' were cut off with it.
    """
    tables = []
    for place, rank in enumerate(ranks):
        of_kind = rank.steps[rank.steps["profiled"].astype(bool) == profiled]
        table = of_kind.set_index(_STEP_KEY)[["duration_ns", "start_ns", "step"]].astype(np.int64)
        tables.append(table.add_suffix(f"_{place}"))
    return tables[0].join(tables[1:], how="inner").sort_index().reset_index()


@dataclass
class _Rows:
    """Intervals of one rank's step: place in its kernels (-1: of none), code, start and end."""

    place: Integers
    code: Integers
    start_ns: Integers
    end_ns: Integers


class _Timeline:
    """The kernels and inputs of one rank, by step."""

    def __init__(self, rank: RankTables) -> None:
        self.rank = rank
        kernels = rank.kernels[rank.kernels["step"].notna() & rank.kernels["duration_ns"].notna()]
        self.kernels = kernels.sort_values("step", kind="stable")
        self._step = self.kernels["step"].to_numpy(np.int64)
        self._start = self.kernels["start_ns"].to_numpy(np.int64)
        self._end = self._start + self.kernels["duration_ns"].to_numpy(np.int64)
        around = self.kernels["op"].fillna("").str.startswith(DISTRIBUTED).to_numpy(bool)
        fetches = (self.kernels["phase"] == INPUT_PHASE).fillna(False).to_numpy(bool)
        self._code = np.select([around, fetches], [_AROUND, _INPUT], _KERNEL)
        names = self.kernels["name"]
        shared = names.map({name: collective(str(name)) is not None for name in names.unique()})
        self._code[shared.to_numpy(bool)] = _MOVING
        inputs = rank.ranges[(rank.ranges["name"] == PHASE_RANGE + INPUT_PHASE) & rank.ranges["step"].notna()]
        self._inputs = inputs[["step", "start_ns", "duration_ns"]].to_numpy(np.int64)

    def rows(self, step: int, start_ns: int) -> _Rows:
        """What runs in a step, collectives in the order they begin."""
        low, high = np.searchsorted(self._step, [step, step + 1])
        place = low + np.argsort(self._start[low:high], kind="stable")
        code = self._code[place].copy()
        # What is left of a collective of the step before: whom it waited for is not in this step.
        code[(code == _MOVING) & (self._start[place] < start_ns)] = _AROUND
        of_input = self._inputs[self._inputs[:, 0] == step]
        none = np.full(len(of_input), -1)
        return _Rows(
            np.concatenate([place, none]),
            np.concatenate([code, np.full(len(of_input), _INPUT)]),
            np.concatenate([self._start[place], of_input[:, 1]]),
            np.concatenate([self._end[place], of_input[:, 1] + of_input[:, 2]]),
        )

    def parts(self, pieces: Sequence[tuple[int, int, _Rows, npt.NDArray[np.float64]]]) -> pd.DataFrame:
        """The cut steps as a table; each piece is batch, number of the step, rows, and their exclusive time in ns."""
        place = np.concatenate([rows.place for _, _, rows, _ in pieces])
        code = np.concatenate([rows.code for _, _, rows, _ in pieces])
        counts = [len(rows.place) for _, _, rows, _ in pieces]
        names = self.kernels[_NAMES].astype(object).reset_index(drop=True)
        names.loc[-1] = [None, None, None, None]
        table = names.loc[place].reset_index(drop=True)
        table["name"] = table["name"].where(place >= 0, _KIND_OF_CODE[code])
        return table.assign(
            batch=np.repeat([batch for batch, *_ in pieces], counts),
            step=np.repeat([number for _, number, *_ in pieces], counts),
            rank=self.rank.rank,
            kind=_KIND_OF_CODE[code],
            exclusive_ms=np.concatenate([exclusive for *_, exclusive in pieces]) / 1e6,
        )


def rank_parts(ranks: Sequence[RankTables]) -> tuple[pd.DataFrame, int]:
    """Every profiled step of the ranks, cut into its parts.

    Args:
        ranks: all that step together.

    Returns:
        Columns layer, phase, name, op, batch, step (alike for the ranks that step together), rank, kind (one of
        `KINDS`) and exclusive_ms, which adds up to the wall time of each rank's step; and how many steps had
        collectives that the ranks do not share: all of their time is communication.
    """
    timelines = [_Timeline(rank) for rank in ranks]
    pieces: list[list[tuple[int, int, _Rows, npt.NDArray[np.float64]]]] = [[] for _ in ranks]
    unmatched = 0
    for number, step in enumerate(shared_steps(ranks, profiled=True).to_dict("records")):
        windows = [(step[f"start_ns_{place}"], step[f"duration_ns_{place}"]) for place in range(len(ranks))]
        of_ranks = [timeline.rows(step[f"step_{i}"], windows[i][0]) for i, timeline in enumerate(timelines)]
        offsets = [rank.clock.offset_ns(start) for rank, (start, _) in zip(ranks, windows, strict=True)]
        arrived = _last_arrivals(of_ranks, offsets)
        unmatched += arrived is None
        for place, (rows, (start, duration)) in enumerate(zip(of_ranks, windows, strict=True)):
            cut = rows if arrived is None else _cut_waiting(rows, arrived - offsets[place])
            length = cut.end_ns - cut.start_ns
            shares, idle = layered_exclusive_ns(cut.start_ns, length, _LEVEL_OF_CODE[cut.code], start, duration)
            rest = np.array([start])
            idle_row = _Rows(np.array([-1]), np.array([_IDLE]), rest, rest)
            pieces[place].append((step["batch"], number, _joined(cut, idle_row), np.append(shares, idle)))
    tables = [timeline.parts(of_rank) for timeline, of_rank in zip(timelines, pieces, strict=True) if of_rank]
    return (pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=_PART_COLUMNS)), unmatched


def _last_arrivals(of_ranks: Sequence[_Rows], offsets_ns: Sequence[int]) -> Integers | None:
    """When the last rank began each collective, on the axis of rank 0; null where the ranks do not share them.

    Collectives of one group run in the same order on every rank.
    """
    starts = [rows.start_ns[rows.code == _MOVING] for rows in of_ranks]
    if len({len(of_rank) for of_rank in starts}) != 1:
        return None
    on_one_axis = [start + offset for start, offset in zip(starts, offsets_ns, strict=True)]
    return np.asarray(np.max(on_one_axis, axis=0), dtype=np.int64)


def _cut_waiting(rows: _Rows, arrived_ns: Integers) -> _Rows:
    """The rows with each collective cut where the last rank began it, on this rank's clock."""
    moving = rows.code == _MOVING
    begun = rows.start_ns[moving]
    cut = np.clip(arrived_ns, begun, rows.end_ns[moving])
    after = rows.start_ns.copy()
    after[moving] = cut
    waiting = _Rows(rows.place[moving], np.full(len(cut), _WAITING), begun, cut)
    return _joined(_Rows(rows.place, rows.code, after, rows.end_ns), waiting)


def _joined(first: _Rows, second: _Rows) -> _Rows:
    return _Rows(
        np.concatenate([first.place, second.place]),
        np.concatenate([first.code, second.code]),
        np.concatenate([first.start_ns, second.start_ns]),
        np.concatenate([first.end_ns, second.end_ns]),
    )
