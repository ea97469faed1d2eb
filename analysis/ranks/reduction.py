"""Reduce the recording of one rank to tables that add up over ranks.

Collectives of different ranks are matched by step, *channel* and order of start in the channel. A
channel is the communicator if the recording names it, else the position of the stream among those
that run collectives in that step: ranks of one program create their streams in one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
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


# A row of `names`: id, id of the term, layer, phase, kind, name.
_Name = tuple[int, int, str | None, str | None, str, str | None]
_Names = list[_Name]


def reduce_rank(rank_id: RankId, steps: pd.DataFrame, work: Work) -> Reduction:
    """Reduce one recording; CurvescopeError if no step was profiled."""
    profiled = select_profiled_steps(steps)
    if profiled.empty:
        raise CurvescopeError("no step of it was profiled, so that no kernel belongs to one")
    number, window = profiled["step"].to_numpy(np.int64), profiled["duration_ns"].to_numpy(np.int64)
    groups, idle_rows = group_times(work, profiled, _KEY)
    idle = idle_rows["exclusive_ns"].to_numpy(np.int64)
    code = groups.groupby(_KEY, dropna=False, sort=False).ngroup().to_numpy(np.int64)
    _, first = np.unique(code, return_index=True)
    named = _names(groups[_KEY].iloc[first])
    ids = np.array([row[0] for row in named], np.int64)
    term_ids = np.array([row[1] for row in named], np.int64)
    is_communicating = np.array([row[4] == COMMUNICATION for row in named])
    # Idle is the last key; every step has it.
    step = np.concatenate([groups["step"].to_numpy(np.int64), np.arange(len(number))])
    key = np.concatenate([code, np.full(len(number), len(named) - 1)])
    time = np.concatenate([groups["exclusive_ns"].to_numpy(np.int64), idle])
    communicating = np.where(is_communicating[key], time, 0)
    communication = np.bincount(step, communicating, minlength=len(number))
    between, operations = [], {}
    for name in groups["name"].unique():
        if between_two(name):
            between.append(name)
        elif is_communication(name):
            operations[name] = collective(name)
    kernels = round(groups["calls"].sum())
    sends = round(groups["calls"][groups["name"].isin(between)].sum())
    calls, call_names = _collectives(work, profiled, operations)
    rank = rank_id.rank
    call = {name: calls[name].to_numpy(np.int64) for name in calls}
    ones = np.ones(len(calls), np.int64)
    identity = [rank], [rank_id.node], [rank_id.local_rank]
    place, duration = (call["step"], call["channel"]), call["duration_ns"]
    of_call = *place, call["occurrence"], call["operation"]
    tables = {
        "ranks": _table("ranks", *identity, [kernels], [len(number)], [sends]),
        "steps": _table("steps", np.full(len(number), rank), number, window, communication, idle),
        "terms": _table("terms", np.full(len(time), rank), term_ids[key], time),
        "kernel_times": _table("kernel_times", number[step], ids[key], time),
        "calls": _table("calls", rank * ones, *place, ones, duration),
        "collectives": _table("collectives", *of_call, ones, duration, shortest(duration, rank)),
    }
    whole: _Names = [(row[1], *row[1:5], None) for row in named]
    return combine([Reduction(tables, name_table([*named, *whole, *call_names]))])


def _table(name: str, *columns: Sequence[int | None] | npt.NDArray[Any]) -> pa.Table:
    sums = TABLES[name]
    arrays = []
    for column in columns:
        numbers = column.astype(np.int64) if isinstance(column, np.ndarray) else column
        arrays.append(pa.array(numbers, pa.int64()))
    return pa.table(arrays, names=[*sums.keys, *sums.added, *sums.least])


def _names(keys: pd.DataFrame) -> _Names:
    """Rows of `names` for every layer, phase and kernel; the last row is idle."""
    rows: _Names = []
    texts = keys.astype(object).where(keys.notna(), None)
    for layer, phase, name in texts.itertuples(index=False):
        kind = COMMUNICATION if is_communication(name) else KERNELS
        rows.append(_name_row(layer, phase, kind, name))
    return [*rows, _name_row(None, None, IDLE, None)]


def _name_row(layer: str | None, phase: str | None, kind: str, name: str | None) -> _Name:
    term = identify(layer, phase, kind)
    return identify(layer, phase, kind, name), term, layer, phase, kind, name


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
    schema = pa.schema([(name, KERNELS_TABLE.arrow.field(name).type) for name in _CALL_COLUMNS])
    pieces = [schema.empty_table()]
    for piece in work(_CALL_COLUMNS) if operations else ():
        communicating = piece.filter(pc.is_in(piece["name"].cast(pa.string()), names))
        inside, _ = of_steps(communicating, number)
        pieces.append(inside.select(_CALL_COLUMNS).cast(schema))
    calls = pa.concat_tables(pieces).to_pandas()
    by_name = calls["name"].astype(object).map(operations)
    calls["operation"] = by_name.where(by_name.notna(), calls["collective"].astype(object))
    calls = calls[calls["operation"].notna() & (calls["operation"] != "SendRecv")]
    # A collective that began in the step before does not count in the order of this step.
    begins = profiled.set_index("step")["start_ns"].astype(np.int64)
    begun = calls["start_ns"].to_numpy() >= begins.reindex(calls["step"]).to_numpy()
    calls = calls[begun].sort_values(["step", "start_ns"], kind="stable", ignore_index=True)
    communicator = calls["communicator"]
    stream = calls["stream"].fillna(-1).where(communicator.isna())
    position = stream.groupby(calls["step"]).rank("dense").fillna(0).astype(int)
    by_stream = "stream " + position.astype(str)
    channel = communicator.astype(object).where(communicator.notna(), by_stream)
    table = calls[["step", "duration_ns"]].copy()
    table["channel"], channel_names = _identify_texts(CHANNEL, channel)
    table["operation"], operation_names = _identify_texts(OPERATION, calls["operation"])
    table["occurrence"] = table.groupby(["step", "channel"]).cumcount()
    return table, [*channel_names, *operation_names]


def _identify_texts(kind: str, texts: pd.Series) -> tuple[list[int], _Names]:
    """The id of each text of a kind, and the rows of `names` for the different ones."""
    ids = {text: identify(kind, text) for text in texts.unique()}
    rows: _Names = [(number, number, None, None, kind, text) for text, number in ids.items()]
    return [ids[text] for text in texts], rows
