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
from .tables import TABLES, Name, Reduction, combine, identify, name_table, shortest

_KEY = ["layer", "phase", "name"]
_CALL_COLUMNS = ("step", "start_ns", "duration_ns", "name", "collective", "communicator", "stream")
CHANNEL, OPERATION = "channel", "operation"  # kinds of names


@dataclass(frozen=True)
class RankId:
    """The rank of a recording, and where known the number of its node and its rank on the node."""

    rank: int
    node: int | None = None
    local_rank: int | None = None


def reduce_rank(rank_id: RankId, steps: pd.DataFrame, work: Work) -> Reduction:
    """Reduce one recording; CurvescopeError if no step was profiled."""
    profiled = select_profiled_steps(steps)
    if profiled.empty:
        raise CurvescopeError("no step of it was profiled, so that no kernel belongs to one")
    number = profiled["step"].to_numpy(np.int64)
    window = profiled["duration_ns"].to_numpy(np.int64)
    groups, idle_rows = group_times(work, profiled, _KEY)
    idle = idle_rows["exclusive_ns"].to_numpy(np.int64)
    by_key = groups.groupby(_KEY, dropna=False, sort=False)
    code = by_key.ngroup().to_numpy(np.int64)
    _, first = np.unique(code, return_index=True)
    named = _names(groups[_KEY].iloc[first])
    ids = np.array([name.id for name in named], np.int64)
    term_ids = np.array([name.term for name in named], np.int64)
    is_communicating = np.array([name.kind == COMMUNICATION for name in named])
    # Idle is the last key; every step has it.
    busy_step = groups["step"].to_numpy(np.int64)
    step = np.append(busy_step, np.arange(len(number)))
    idle_key = np.full(len(number), len(named) - 1)
    key = np.append(code, idle_key)
    time = np.append(groups["exclusive_ns"].to_numpy(np.int64), idle)
    communicating = np.where(is_communicating[key], time, 0)
    communication = np.bincount(step, communicating, minlength=len(number))
    between, operations = [], {}
    for name in groups["name"].unique():
        if between_two(name):
            between.append(name)
        elif is_communication(name):
            operations[name] = collective(name)
    kernels = round(groups["calls"].sum())
    is_send = groups["name"].isin(between)
    sends = round(groups["calls"][is_send].sum())
    rank = rank_id.rank
    identity = [rank], [rank_id.node], [rank_id.local_rank]
    rank_of_steps = np.full(len(number), rank)
    rank_of_times = np.full(len(time), rank)
    calls, call_names = _collectives(work, profiled, operations)
    tables = {
        "ranks": _table("ranks", *identity, [kernels], [len(number)], [sends]),
        "steps": _table("steps", rank_of_steps, number, window, communication, idle),
        "terms": _table("terms", rank_of_times, term_ids[key], time),
        "kernel_times": _table("kernel_times", number[step], ids[key], time),
        **_call_tables(calls, rank),
    }
    terms = [Name(name.term, *name[1:5], None) for name in named]
    names = name_table([*named, *terms, *call_names])
    return combine([Reduction(tables, names)])


def _call_tables(calls: pd.DataFrame, rank: int) -> dict[str, pa.Table]:
    """Tables `calls` and `collectives` of the collectives of a rank."""
    numbers = calls.astype(np.int64)
    columns = {name: numbers[name].to_numpy() for name in numbers}
    place = columns["step"], columns["channel"]
    call = *place, columns["occurrence"], columns["operation"]
    duration = columns["duration_ns"]
    ones = np.ones(len(calls), np.int64)
    packed = shortest(duration, rank)
    return {
        "calls": _table("calls", rank * ones, *place, ones, duration),
        "collectives": _table("collectives", *call, ones, duration, packed),
    }


def _table(name: str, *columns: Sequence[int | None] | npt.NDArray[Any]) -> pa.Table:
    sums = TABLES[name]
    arrays = []
    for column in columns:
        if isinstance(column, np.ndarray):
            column = column.astype(np.int64)
        arrays.append(pa.array(column, pa.int64()))
    return pa.table(arrays, names=sums.columns)


def _names(keys: pd.DataFrame) -> list[Name]:
    """Names of every layer, phase and kernel; the last is idle."""
    names = []
    texts = keys.astype(object).where(keys.notna(), None)
    for layer, phase, kernel in texts.itertuples(index=False):
        kind = COMMUNICATION if is_communication(kernel) else KERNELS
        names.append(_name(layer, phase, kind, kernel))
    names.append(_name(None, None, IDLE, None))
    return names


def _name(layer: str | None, phase: str | None, kind: str, kernel: str | None) -> Name:
    number = identify(layer, phase, kind, kernel)
    term = identify(layer, phase, kind)
    return Name(number, term, layer, phase, kind, kernel)


def _collectives(
    work: Work, profiled: pd.DataFrame, operations: dict[str, str | None]
) -> tuple[pd.DataFrame, list[Name]]:
    """Find every collective of the steps with its channel and order, and the names of channels and
    operations.

    `operations` has the operation by name, for communication only; None where only the profiler may
    tell it, as of RCCL's generic kernel. The table has columns step, channel, occurrence, operation
    and duration_ns (numbers, ids, nanoseconds).
    """
    calls = _read_calls(work, profiled, operations)
    by_name = calls["name"].astype(object).map(operations)
    by_profiler = calls["collective"].astype(object)
    calls["operation"] = by_name.where(by_name.notna(), by_profiler)
    is_collective = calls["operation"].notna() & (calls["operation"] != "SendRecv")
    calls = calls[is_collective]
    # A collective that began in the step before does not count in the order of this step.
    step_begins = profiled.set_index("step")["start_ns"].astype(np.int64)
    begins = step_begins.reindex(calls["step"]).to_numpy()
    calls = calls[calls["start_ns"].to_numpy() >= begins]
    calls = calls.sort_values(["step", "start_ns"], kind="stable", ignore_index=True)
    table = calls[["step", "duration_ns"]].copy()
    table["channel"], channel_names = _identify_texts(CHANNEL, _channels(calls))
    table["operation"], operation_names = _identify_texts(OPERATION, calls["operation"])
    table["occurrence"] = table.groupby(["step", "channel"]).cumcount()
    return table, [*channel_names, *operation_names]


def _read_calls(
    work: Work, profiled: pd.DataFrame, operations: dict[str, str | None]
) -> pd.DataFrame:
    """The device work of the operations in profiled steps, with `_CALL_COLUMNS`."""
    number = profiled["step"].to_numpy(np.int64)
    names = pa.array([*operations], pa.string())
    recorded = KERNELS_TABLE.arrow
    schema = pa.schema({name: recorded.field(name).type for name in _CALL_COLUMNS})
    calls = [schema.empty_table()]
    for piece in work(_CALL_COLUMNS) if operations else ():
        is_call = pc.is_in(piece["name"].cast(pa.string()), names)
        inside, _ = of_steps(piece.filter(is_call), number)
        calls.append(inside.select(_CALL_COLUMNS).cast(schema))
    return pa.concat_tables(calls).to_pandas()


def _channels(calls: pd.DataFrame) -> pd.Series:
    """The communicator of each call, else the position of its stream in the step."""
    communicator = calls["communicator"]
    stream = calls["stream"].fillna(-1).where(communicator.isna())
    position = stream.groupby(calls["step"]).rank("dense").fillna(0)
    by_stream = "stream " + position.astype(int).astype(str)
    return communicator.astype(object).where(communicator.notna(), by_stream)


def _identify_texts(kind: str, texts: pd.Series) -> tuple[list[int], list[Name]]:
    """The id of each text of a kind, and the names of the different ones."""
    ids, names = {}, []
    for text in texts.unique():
        number = identify(kind, text)
        ids[text] = number
        names.append(Name(number, number, None, None, kind, text))
    return [ids[text] for text in texts], names
