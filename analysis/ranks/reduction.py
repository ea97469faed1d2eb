"""Reduce the recording of one rank to tables that add up over ranks.

Collectives of different ranks are matched by step, *channel* and order of start in the channel. A
channel is the communicator if the recording names it, else the position of the stream among those
that run collectives in that step: ranks of one program create their streams in one order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...base.errors import CurvescopeError
from ...profiling.attribution.collectives import between_two, collective, is_communication
from ...profiling.recording.schema import KERNELS as KERNELS_TABLE
from ..decompose.kernel_times import Work, group_times, of_steps, select_profiled_steps
from ..decompose.terms import COMMUNICATION, IDLE, KERNELS
from .tables import TABLES, Reduction, combine, identify, name_table, shortest

_KEY = ["layer", "phase", "name"]
_CALL_COLUMNS = ("step", "start_ns", "duration_ns", "name", "collective", "communicator", "stream")
CHANNEL, OPERATION = "channel", "operation"  # kinds of names


@dataclass(frozen=True)
class RankId:
    """The rank of a recording, and where known the number of its node and its rank on the node."""

    rank: int
    node: int | None = None
    local_rank: int | None = None


_Names = list[tuple[int, int, str | None, str | None, str, str | None]]


def reduce_rank(rank_id: RankId, steps: pd.DataFrame, work: Work) -> Reduction:
    """Reduce one recording; CurvescopeError if no step was profiled."""
    profiled = select_profiled_steps(steps)
    if profiled.empty:
        raise CurvescopeError("no step of it was profiled, so that no kernel belongs to one")
    number, window = (profiled[c].to_numpy(np.int64) for c in ("step", "duration_ns"))
    groups, idle_rows = group_times(work, profiled, _KEY)
    idle = idle_rows["exclusive_ns"].to_numpy(np.int64)
    code = groups.groupby(_KEY, dropna=False, sort=False).ngroup().to_numpy(np.int64)
    named = _names(groups[_KEY].iloc[np.unique(code, return_index=True)[1]])
    ids, term_ids = (np.array([n[i] for n in named], np.int64) for i in (0, 1))
    kinds = np.array([n[4] for n in named])
    # Idle is the last key; every step has it.
    step = np.concatenate([groups["step"].to_numpy(np.int64), np.arange(len(number))])
    key = np.concatenate([code, np.full(len(number), len(named) - 1)])
    time = np.concatenate([groups["exclusive_ns"].to_numpy(np.int64), idle])
    communication = np.bincount(
        step, np.where(kinds[key] == COMMUNICATION, time, 0), minlength=len(number)
    )
    between, operations = [], {}
    for name in groups["name"].unique():
        if between_two(name):
            between.append(name)
        elif is_communication(name):
            operations[name] = collective(name)
    sends = round(groups["calls"][groups["name"].isin(between)].sum())
    calls, call_names = _collectives(work, profiled, operations)
    rank = rank_id.rank
    ones = np.ones(len(calls), np.int64)
    identity: list[tuple[int | None]] = [(rank,), (rank_id.node,), (rank_id.local_rank,)]
    columns: dict[str, list[object]] = {
        "ranks": [*identity, [round(groups["calls"].sum())], [len(number)], [sends]],
        "steps": [np.full(len(number), rank), number, window, communication.astype(np.int64), idle],
        "terms": [np.full(len(time), rank), term_ids[key], time],
        "kernel_times": [number[step], ids[key], time],
        "calls": [
            rank * ones,
            *(calls[c] for c in ("step", "channel")),
            ones,
            calls["duration_ns"],
        ],
        "collectives": [
            *(calls[c] for c in ("step", "channel", "occurrence", "operation")),
            *(ones, calls["duration_ns"], shortest(calls["duration_ns"].to_numpy(np.int64), rank)),
        ],
    }
    whole: _Names = [(t, t, *n[2:5], None) for n, t in zip(named, term_ids.tolist(), strict=True)]
    tables = {name: _table(name, arrays) for name, arrays in columns.items()}
    return combine([Reduction(tables, name_table([*named, *whole, *call_names]))])


def _table(name: str, arrays: list[object]) -> pa.Table:
    sums = TABLES[name]
    return pa.table(
        [pa.array(array, pa.int64()) for array in arrays],
        names=[*sums.keys, *sums.added, *sums.least],
    )


def _names(keys: pd.DataFrame) -> _Names:
    """Rows of `names` for every layer, phase and kernel; the last row is idle."""
    rows: _Names = []
    for layer, phase, name in keys.astype(object).where(keys.notna(), None).itertuples(index=False):
        kind = COMMUNICATION if is_communication(name) else KERNELS
        rows.append(
            (
                identify(layer, phase, kind, name),
                identify(layer, phase, kind),
                layer,
                phase,
                kind,
                name,
            )
        )
    rows.append(
        (identify(None, None, IDLE, None), identify(None, None, IDLE), None, None, IDLE, None)
    )
    return rows


def _collectives(
    work: Work, profiled: pd.DataFrame, operations: dict[str, str | None]
) -> tuple[pd.DataFrame, _Names]:
    """Find every collective of the steps with its channel and order, and the names of channels and
    operations.

    `operations` has the operation by name, for communication only; None where only the profiler may
    tell it, as of RCCL's generic kernel. The table has columns step, channel, occurrence, operation
    and duration_ns (numbers, ids, nanoseconds).
    """
    number = profiled["step"].to_numpy(np.int64)
    names = pa.array([*operations], pa.string())
    pieces = [
        pa.schema([(c, KERNELS_TABLE.arrow.field(c).type) for c in _CALL_COLUMNS]).empty_table()
    ]
    for piece in work(_CALL_COLUMNS) if operations else ():
        few, _ = of_steps(piece.filter(pc.is_in(piece["name"].cast(pa.string()), names)), number)
        pieces.append(few.select(_CALL_COLUMNS).cast(pieces[0].schema))
    calls = pa.concat_tables(pieces).to_pandas()
    by_name = calls["name"].astype(object).map(operations)
    calls["operation"] = by_name.where(by_name.notna(), calls["collective"].astype(object))
    calls = calls[calls["operation"].notna() & (calls["operation"] != "SendRecv")]
    # A collective that began in the step before does not count in the order of this step.
    begins = profiled.set_index("step")["start_ns"].astype(np.int64)
    calls = calls[
        calls["start_ns"].to_numpy() >= begins.reindex(calls["step"]).to_numpy()
    ].sort_values(["step", "start_ns"], kind="stable", ignore_index=True)
    stream = calls["stream"].fillna(-1).where(calls["communicator"].isna())
    position = stream.groupby(calls["step"]).rank("dense").fillna(0).astype(int)
    channel = (
        calls["communicator"]
        .astype(object)
        .where(calls["communicator"].notna(), "stream " + position.astype(str))
    )
    operation = calls["operation"]
    texts = [
        (kind, text)
        for kind, column in ((CHANNEL, channel), (OPERATION, operation))
        for text in column.unique()
    ]
    ids = {(kind, text): identify(kind, text) for kind, text in texts}
    table = calls[["step", "duration_ns"]].assign(
        channel=[ids[CHANNEL, text] for text in channel],
        operation=[ids[OPERATION, text] for text in operation],
    )
    table["occurrence"] = table.groupby(["step", "channel"]).cumcount()
    return table, [(i, i, None, None, kind, text) for (kind, text), i in ids.items()]
