"""The recording of one rank reduced to tables that add up, where it lies.

Per step the exclusive times of all kernels and idle add up to the step's wall time, in whole nanoseconds. Collectives
get a place that is the same on every rank: the *channel* they ran in and their order in it, by start, inside the step.
A channel is the communicator where the recording names it, else the place of the stream among those that run
collectives in that step, by number: ranks of one program make their streams in one order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from ...profiling.attribution.collectives import between_two, collective
from ...profiling.attribution.kernel_names import COMMUNICATION as COMMUNICATION_FAMILY
from ...profiling.attribution.kernel_names import family
from ...profiling.errors import CurvescopeError
from ..decompose.device_columns import Floats, Groups, group_codes, of_steps, share_out
from .tables import COMMUNICATION, IDLE, KERNELS, TABLES, Ints, Reduction, combine, identify, name_table, shortest

_KEY = ["layer", "phase", "name"]
_CALL_KEY = ["communicator", "stream"]
# Columns of the `kernels` table that a reduction reads; `device_columns` gives them.
COLUMNS = ("step", "start_ns", "duration_ns", *_KEY, *_CALL_KEY)
# Of a CPU's recording: the calls that start collectives, and DDP's around them.
_STARTING = ("c10d::", "torch::distributed::", "torch.distributed.")
CHANNEL, OPERATION = "channel", "operation"  # kinds of names


@dataclass(frozen=True)
class Who:
    """Whose recording it is: rank, and where known the number of its node and its rank there."""

    rank: int
    node: int | None = None
    local_rank: int | None = None


@dataclass(frozen=True)
class _Rows:
    """Device work of the profiled steps, by step: arrays of shape (rows,)."""

    step: Ints  # position in the profiled steps
    start_ns: Ints
    duration_ns: Ints
    part: Ints  # code of layer, phase and name
    call: Ints  # code of communicator and stream


def reduce_rank(who: Who, steps: pd.DataFrame, tables: Iterable[pa.Table]) -> Reduction:
    """Reduce one recording.

    Args:
        who: whose it is.
        steps: its `steps` table.
        tables: its device work, as `COLUMNS`, in pieces of any size.

    Raises:
        CurvescopeError: no step of it was profiled.
    """
    profiled = steps[steps["profiled"].astype(bool) & steps["start_ns"].notna()].sort_values("step")
    if profiled.empty:
        raise CurvescopeError("no step of it was profiled, so that no kernel belongs to one")
    number, start, window = (profiled[c].to_numpy(np.int64) for c in ("step", "start_ns", "duration_ns"))
    parts, calls = Groups(), Groups()
    rows = _collect(tables, number, parts, calls)
    shares, _ = share_out(rows.step, rows.start_ns, rows.duration_ns, start, window)
    named = _names(parts)
    ids, term_ids = (np.array([n[place] for n in named], np.int64) for place in (0, 1))
    step, part, time = _times(rows, shares, window, ids)
    kinds = np.array([n[4] for n in named])
    communication = np.bincount(step, weights=np.where(kinds[part] == COMMUNICATION, time, 0), minlength=len(number))
    idle = np.bincount(step, weights=np.where(kinds[part] == IDLE, time, 0), minlength=len(number))
    rank = np.full(len(number), who.rank)
    matched, sends, call_names = _collectives(rows, number, start, parts, calls, who.rank)
    terms, which = np.unique(term_ids, return_inverse=True)
    own: list[tuple[int | None]] = [(who.rank,), (who.node,), (who.local_rank,)]
    columns = {
        "ranks": [*own, [len(rows.step)], [len(number)], [sends]],
        "steps": [rank, number, window, communication.astype(np.int64), idle.astype(np.int64)],
        "terms": [np.full(len(terms), who.rank), terms, np.bincount(which[part], weights=time).astype(np.int64)],
        "parts": [number[step], ids[part], time],
        **matched,
    }
    tables_of = {name: _table(name, arrays) for name, arrays in columns.items()}
    whole = [(t, t, *n[2:5], None) for n, t in zip(named, term_ids.tolist(), strict=True)]
    return combine([Reduction(tables_of, name_table([*named, *whole, *call_names]))])


def _table(name: str, arrays: list[object]) -> pa.Table:
    sums = TABLES[name]
    return pa.table([pa.array(array, pa.int64()) for array in arrays], names=[*sums.keys, *sums.added, *sums.least])


def _collect(tables: Iterable[pa.Table], profiled: Ints, parts: Groups, calls: Groups) -> _Rows:
    pieces = []
    shared: list[bool] = []  # by part, whether it is a collective
    for whole in tables:
        table, place = of_steps(whole, profiled)
        start, duration = (table[c].to_numpy().astype(np.int64) for c in ("start_ns", "duration_ns"))
        part = group_codes(table, _KEY, parts)
        shared += [collective(str(name)) is not None for _, _, name in parts.keys[len(shared) :]]
        call = np.full(len(part), -1, np.int64)
        if any(shared):
            here = np.flatnonzero(np.array(shared)[part])
            few = table.select(_CALL_KEY).take(pa.array(here))
            call[here] = group_codes(few.set_column(1, "stream", few["stream"].cast(pa.string())), _CALL_KEY, calls)
        pieces.append((place, start, duration, part, call))
    if not pieces:
        return _Rows(*[np.zeros(0, np.int64)] * 5)
    step, start, *rest = (np.concatenate(column) for column in zip(*pieces, strict=True))
    # By start inside a step: the order of collectives in it, and what makes the test for overlap a look at neighbours.
    order = np.lexsort((start, step))
    return _Rows(step[order], start[order], *(column[order] for column in rest))


def _names(parts: Groups) -> list[tuple[int, int, str | None, str | None, str, str | None]]:
    """Rows of `names` for every part, idle last."""
    rows = []
    for layer, phase, name in parts.keys:
        kind = COMMUNICATION if _communicates(str(name)) else KERNELS
        rows.append((identify(layer, phase, kind, name), identify(layer, phase, kind), layer, phase, kind, name))
    rows.append((identify(None, None, IDLE, None), identify(None, None, IDLE), None, None, IDLE, None))
    return rows


def _communicates(name: str) -> bool:
    if collective(name) is not None or between_two(name) or name.startswith(_STARTING):
        return True
    return family(name) == COMMUNICATION_FAMILY


def _times(rows: _Rows, shares: Floats, window_ns: Ints, ids: Ints) -> tuple[Ints, Ints, Ints]:
    """Step, part and whole nanoseconds of every part of every step; of each step they add up to its wall time."""
    parts = len(ids)
    by_id = np.argsort(ids[:-1])  # an order that does not depend on what other steps hold
    place = np.empty(parts, np.int64)
    place[by_id] = np.arange(parts - 1)
    distinct, which = np.unique(rows.step * parts + place[rows.part], return_inverse=True)
    exact = np.bincount(which, weights=shares, minlength=len(distinct))
    step, whole = distinct // parts, np.zeros(len(distinct), np.int64)
    edges = np.searchsorted(step, np.arange(len(window_ns) + 1))
    for low, high, window in zip(edges[:-1], edges[1:], window_ns, strict=True):
        # The running sum of a step is rounded, not its terms: each is within a nanosecond, and what is left is idle.
        running = np.minimum(np.rint(np.cumsum(exact[low:high])).astype(np.int64), window)
        whole[low:high] = np.diff(running, prepend=0)
    busy = np.bincount(step, weights=whole, minlength=len(window_ns)).astype(np.int64)
    every = np.arange(len(window_ns))
    return (
        np.concatenate([step, every]),
        np.concatenate([by_id[distinct % parts], np.full(len(every), parts - 1)]),
        np.concatenate([whole, window_ns - busy]),
    )


def _collectives(
    rows: _Rows, number: Ints, window_start_ns: Ints, parts: Groups, calls: Groups, rank: int
) -> tuple[dict[str, list[object]], int, list[tuple[int, int, None, None, str, str]]]:
    """Columns of `calls` and `collectives`, how many sends and receives there are, and names of both."""
    operations = [collective(str(name)) for _, _, name in parts.keys]
    is_collective = np.array([operation is not None for operation in operations], bool)
    of_two = np.array([between_two(str(name)) for _, _, name in parts.keys], bool)
    here = np.zeros(0, np.int64)
    if len(rows.part):
        # What is left of a collective of the step before has no place in the order of this one.
        here = np.flatnonzero(is_collective[rows.part] & (rows.start_ns >= window_start_ns[rows.step]))
    sends = int(of_two[rows.part].sum()) if len(rows.part) else 0
    step, code = rows.step[here], rows.call[here]
    channel, channel_names = _channels(step, code, calls)
    order = np.lexsort((rows.start_ns[here], channel, step))
    step, channel, here = step[order], channel[order], here[order]
    fresh = np.ones(len(here), bool)
    fresh[1:] = (step[1:] != step[:-1]) | (channel[1:] != channel[:-1])
    began = np.flatnonzero(fresh)
    counts = np.diff([*began, len(here)])
    occurrence = np.arange(len(here)) - np.repeat(began, counts)
    duration = rows.duration_ns[here]
    ids = np.array([0 if operation is None else identify(OPERATION, operation) for operation in operations], np.int64)
    columns: dict[str, list[object]] = {
        "calls": [
            np.full(len(began), rank),
            number[step[began]],
            channel[began],
            counts,
            np.add.reduceat(duration, began) if len(began) else np.zeros(0, np.int64),
        ],
        "collectives": [
            number[step],
            channel,
            occurrence,
            ids[rows.part[here]] if len(here) else np.zeros(0, np.int64),
            np.ones(len(here), np.int64),
            duration,
            shortest(duration, rank),
        ],
    }
    named = {(i, OPERATION, o) for i, o in zip(ids.tolist(), operations, strict=True) if o is not None}
    named |= {(i, CHANNEL, text) for i, text in channel_names}
    return columns, sends, [(i, i, None, None, kind, text) for i, kind, text in sorted(named)]


def _channels(step: Ints, code: Ints, calls: Groups) -> tuple[Ints, set[tuple[int, str]]]:
    """The id of each row's channel, and what the ids stand for."""
    keys = calls.keys
    pairs, which = np.unique(step * max(len(keys), 1) + code, return_inverse=True)
    found: list[str | None] = []
    streams: dict[int, list[tuple[int, int]]] = {}
    for place, pair in enumerate(pairs.tolist()):
        at, key = divmod(pair, max(len(keys), 1))
        communicator, stream = keys[key]
        found.append(communicator)
        if communicator is None:
            streams.setdefault(at, []).append((-1 if stream is None else int(stream), place))
    for of_step in streams.values():
        for position, (_, place) in enumerate(sorted(of_step), start=1):
            found[place] = f"stream {position}"
    ids = np.array([identify(CHANNEL, text) for text in found], np.int64)
    return ids[which], {(int(i), str(text)) for i, text in zip(ids, found, strict=True)}
