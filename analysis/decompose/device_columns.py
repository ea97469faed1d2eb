"""Device work of a recording of any size: columns and codes of groups, in pieces, instead of a frame.

Ten million kernels as a pandas frame take many gigabytes, most of it the same few names again and again. Here a row is
a step, a start, a duration and the code of its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...profiling.recording.schema import TABLES
from ...profiling.recording.store import Recording
from .exclusive import exclusive_ns

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

_BLOCK_ROWS = 1 << 17  # about: what is worked out of so many stays in the processor's caches


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


def device_columns(recording: Recording, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The kernels, part by part, then memcpy and memset as kernels, as `kernel_times.device_work` has them.

    Args:
        recording: whose device work it is.
        columns: of the `kernels` table, `name` among them; text comes dictionary-encoded or plain.

    Raises:
        CurvescopeError: a part is damaged.
    """
    yield from recording.pieces("kernels", columns)
    for piece in recording.pieces("memory"):
        yield _moves(piece, columns)


def _moves(memory: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Copies and sets of the device as kernels of those names."""
    moved = memory.filter(
        pc.and_(pc.is_in(memory["kind"], pa.array(["copy", "set"])), memory["duration_ns"].is_valid())
    )
    kind, how = moved["kind"].cast(pa.string()), moved["copy_kind"].cast(pa.string())
    name = pc.coalesce(pc.binary_join_element_wise(kind, how, " "), kind)
    known = {c: moved[c] for c in columns if c in moved.column_names}
    schema = TABLES["kernels"].arrow
    absent = {c: pa.nulls(moved.num_rows, schema.field(c).type) for c in columns if c not in known}
    return pa.table({c: name if c == "name" else {**known, **absent}[c] for c in columns})


def of_steps(table: pa.Table, profiled: Ints) -> tuple[pa.Table, Ints]:
    """The rows of profiled steps that have a duration, and the position of each one's step.

    Args:
        table: with columns step and duration_ns.
        profiled: numbers of the profiled steps, rising.
    """
    if table["step"].null_count or table["duration_ns"].null_count:
        table = table.filter(pc.and_(table["step"].is_valid(), table["duration_ns"].is_valid()))
    step = table["step"].to_numpy().astype(np.int64)
    if profiled[-1] - profiled[0] == len(profiled) - 1:  # all steps, mostly: no search
        place = np.clip(step - profiled[0], 0, len(profiled) - 1)
    else:
        place = np.minimum(np.searchsorted(profiled, step), len(profiled) - 1)
    inside = profiled[place] == step
    return (table, place) if inside.all() else (table.filter(pa.array(inside)), place[inside])


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
    distinct, which = distinct_codes(code, int(np.prod([len(v) for v in values])))
    known = []
    for number in distinct.tolist():
        parts: list[str | None] = []
        for texts in reversed(values):
            number, place = divmod(number, len(texts))
            parts.append(texts[place])
        known.append(groups.code(tuple(reversed(parts))))
    return np.array(known, np.int64)[which]


def distinct_codes(code: Ints, most: int) -> tuple[Ints, Ints]:
    """The codes that occur, and which of them each row has; without a sort where the codes are few."""
    if most > max(1 << 20, 4 * len(code)):
        distinct, which = np.unique(code, return_inverse=True)
        return distinct, which
    distinct = np.flatnonzero(np.bincount(code, minlength=most))
    place = np.zeros(most, np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[code]


def share_out(
    step: Ints | Codes, start_ns: Ints, duration_ns: Ints, window_start_ns: Ints, window_ns: Ints
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
    shares = np.empty(len(step))
    edges = np.unique(np.append(np.searchsorted(step, step[::_BLOCK_ROWS]), len(step)))  # blocks of whole steps
    for first, last in pairwise(edges.tolist()):
        rows = slice(first, last)
        shares[rows] = _exclusive(step[rows], start_ns[rows], duration_ns[rows], window_start_ns, window_ns)
    busy = np.bincount(step, weights=shares, minlength=len(window_ns))
    return shares, np.maximum(window_ns - busy, 0.0)


def _exclusive(step: Ints | Codes, start_ns: Ints, duration_ns: Ints, window_start_ns: Ints, window_ns: Ints) -> Floats:
    low, room = window_start_ns[step], window_ns[step]
    start = np.clip(start_ns - low, 0, room)
    end = np.maximum(np.clip(start_ns + duration_ns - low, 0, room), start)
    shares: Floats = (end - start).astype(np.float64)
    # Where nothing runs beside anything else, a row's exclusive time is its own; only the other steps are shared out.
    beside = (step[1:] == step[:-1]) & (start[1:] < end[:-1])
    for one in np.unique(step[1:][beside]).tolist():
        first, last = np.searchsorted(step, [one, one + 1])
        shares[first:last], _ = exclusive_ns(start[first:last], (end - start)[first:last], 0, int(window_ns[one]))
    return shares
