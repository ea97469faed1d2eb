"""Exclusive time of device work: millions of kernels reduced to a row per step and group.

Memcpy and memset count as kernels. The kernels are read twice, one part file at a time: first their
times, which are shared out over each step, then the columns they are grouped by: memory holds some
forty bytes per kernel, and one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...base.errors import CurvescopeError
from ...profiling.attribution.collectives import is_communication
from ...profiling.attribution.cupti_names import GPU_COPIES
from ...profiling.attribution.fused_kernels import OperatorShare, decode_shares
from ...profiling.attribution.kernel_precision import kernel_precision
from ...profiling.recording.disturbed import select_used_steps
from ...profiling.recording.schema import TABLES, Aggregate
from ...profiling.recording.store import KERNEL, Recording
from .exclusive import exclusive_ns
from .statistics import Ints
from .terms import COMMUNICATION, IDLE, KERNELS

# Yields the device work with the given columns of the `kernels` table, in pieces of any size.
Work = Callable[[Sequence[str]], Iterable[pa.Table]]

# columns in which all calls of one kernel agree
KERNEL_IDENTITY = (
    *("layer", "phase", "op", "name", "source"),
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "registers_per_thread",
    "shared_memory_bytes",
)
AMOUNTS = (
    "flops",
    "bytes_compulsory",
    "dram_bytes",
    "l2_bytes",
    "l1_bytes",
    "flops_executed",
    "sm_cycles",
    *("achieved_occupancy", "tensor_pipe_use"),
)
COPIES = GPU_COPIES
_TIMES = ("step", "start_ns", "duration_ns")
_BLOCK_ROWS = 1 << 17  # about: arrays of so many rows stay in the processor's caches
_SCHEMA = {column.name: column.dtype for column in TABLES["kernels"].columns}
_MEANS = {column.name for column in TABLES["kernels"].columns if column.aggregate is Aggregate.MEAN}
_FUSED, _PART = "fused", "part"
_KNOWN = "known"  # bit i: the row has a value of the i-th amount
_PANDAS_TYPES: dict[pa.DataType, Any] = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}


def device_work(
    recording: Recording, *, copied_bytes: bool = False, device: int | None = None
) -> Work:
    """The kernels of a recording, one part file at a time, then its memcpy and memset as kernels of
    those names.

    With `copied_bytes` these have compulsory bytes, those that they move; they cross a bus, so that
    no cause which compares bytes with caches and DRAM may see them. Reading a damaged part file
    raises CurvescopeError.
    """

    def pieces(columns: Sequence[str]) -> Iterator[pa.Table]:
        yield from recording.pieces("kernels", columns)
        yield from copies(recording, columns, copied_bytes=copied_bytes)

    def on_device(columns: Sequence[str]) -> Iterator[pa.Table]:
        for piece in pieces([*columns, *{"device"}.difference(columns)]):
            yield piece.filter(pc.equal(piece["device"], device)).select(list(columns))

    return pieces if device is None else on_device


def gpus_of(recording: Recording) -> list[int]:
    """Numbers of the GPUs whose kernels are recorded, increasing."""
    if recording.work != KERNEL:  # sweeps on a CPU have hundreds of parts to open
        return []
    devices = pc.unique(recording.arrow("kernels", ["device"])["device"])
    return sorted(device for device in devices.to_pylist() if device is not None)


def copies(
    recording: Recording, columns: Sequence[str], *, copied_bytes: bool = False
) -> Iterator[pa.Table]:
    """The memcpys and memsets of a recording as kernels of those names, see `device_work`."""
    for memory in recording.pieces("memory"):
        moved = memory.filter(
            pc.and_(
                pc.is_in(memory["kind"], pa.array(["memcpy", "memset"])),
                memory["duration_ns"].is_valid(),
            )
        )
        kind, how = (
            pc.utf8_capitalize(moved["kind"].cast(pa.string())),
            moved["memcpy_kind"].cast(pa.string()),
        )
        own = {c: moved[c] for c in moved.column_names}
        if copied_bytes:
            own["bytes_compulsory"] = moved["bytes"]
        own["name"] = pc.coalesce(pc.binary_join_element_wise(kind, how, " "), kind)
        yield pa.table({c: own.get(c, pa.nulls(moved.num_rows, _SCHEMA[c])) for c in columns})


def kernel_times(
    work: Work,
    steps: pd.DataFrame,
    keys: Sequence[str] = KERNEL_IDENTITY,
    amounts: Sequence[str] = AMOUNTS,
    *,
    place_idle: bool = False,
    by_name: bool = True,
) -> pd.DataFrame:
    """Exclusive time of every group of kernels in every profiled step, then the idle time of every
    step.

    Rows outside profiled steps or without duration are left out. Keys are columns of `kernels`,
    including `name`; amounts are added up, or averaged over time, as the schema says, and rows with
    and without a value are in different groups. With `place_idle`, idle time has a row for each
    layer and phase: the gap before a kernel is that of the layer that launched it; else a row per
    step. Unless `by_name`, only communication, copies and products of each precision are apart,
    each under one of their names.

    The columns are step, batch, the keys, exclusive_ns, exclusive_ms, calls, the amounts, shared
    (see `split_fused`) and kind (see `with_kind`); an unknown amount is NaN. Per step, exclusive_ns
    adds up to the step's wall time.
    """
    profiled = select_profiled_steps(steps)
    places = ["layer", "phase"] if place_idle else []
    groups, idle = group_times(work, profiled, keys, amounts, places, by_name=by_name)
    rest = idle.assign(name=IDLE, calls=1, shared=False)
    table = pd.concat([groups, rest], ignore_index=True) if len(profiled) else groups
    position = table["step"].to_numpy(np.int64)
    table["step"] = profiled["step"].to_numpy(np.int64)[position]
    table["batch"] = profiled["batch"].array[position]
    return with_kind(table.assign(exclusive_ms=table["exclusive_ns"] / 1e6))


def with_kind(table: pd.DataFrame) -> pd.DataFrame:
    """The same rows with a column `kind`: idle, communication or kernels.

    Communication has no layer and no phase: it is started where a gradient is ready, and its time
    is no layer's.
    """
    kind_of = {
        name: COMMUNICATION if is_communication(str(name)) else KERNELS
        for name in table["name"].unique()
    }
    kind = table["name"].map({**kind_of, IDLE: IDLE})
    own = kind != COMMUNICATION
    return table.assign(
        kind=kind, layer=table["layer"].where(own, None), phase=table["phase"].where(own, None)
    )


def kernel_totals(
    work: Work, keys: Sequence[str] = KERNEL_IDENTITY, amounts: Sequence[str] = AMOUNTS
) -> pd.DataFrame:
    """As `kernel_times`, without step, batch and idle: sums of the durations, of a recording
    without steps.
    """
    read = _with_fused(keys)
    collected = _Groups(read, amounts)
    for piece in work(list(dict.fromkeys([*read, *amounts, "duration_ns", _PART]))):
        timed = piece.filter(piece["duration_ns"].is_valid())
        collected.add(timed.append_column("exclusive_ns", timed["duration_ns"]))
    groups = split_fused(collected.frame(), keys, amounts)
    return with_kind(groups.assign(exclusive_ms=groups["exclusive_ns"] / 1e6))


def _with_fused(keys: Sequence[str]) -> list[str]:
    """The columns to group by before `split_fused`."""
    return [*keys, *([_FUSED] if {"layer", "op"} & set(keys) else [])]


def split_fused(groups: pd.DataFrame, keys: Sequence[str], amounts: Sequence[str]) -> pd.DataFrame:
    """Share the time, the calls and the amounts of fused kernels over the operators in them.

    The column `fused` goes; each layer and operator (as far as they are keys) in a fused kernel
    gets a row. The column `shared` says whether others have a part of the row's kernels. Times stay
    whole nanoseconds, and all columns keep their sums.
    """
    if _FUSED not in groups:
        return groups.assign(shared=False)
    fused = groups[_FUSED].notna()
    whole = groups[~fused].drop(columns=_FUSED).assign(shared=False)
    if not fused.any():
        return whole
    rows = groups[fused].reset_index(drop=True)
    shares_of = {text: _shares(text, keys) for text in rows[_FUSED].unique()}
    shares = [shares_of[text] for text in rows[_FUSED]]
    of_row = np.repeat(np.arange(len(rows)), [len(share) for share in shares])
    split = rows.drop(columns=_FUSED).iloc[of_row].reset_index(drop=True)
    part = np.array([member.share for each in shares for member in each])
    layers = pd.Series([member.layer for each in shares for member in each], dtype=object)
    if "layer" in keys:  # an operator outside submodules has the layer of the whole kernel
        split["layer"] = layers.where(layers.notna(), split["layer"])
    if "op" in keys:
        split["op"] = [member.op for each in shares for member in each]
    reached = np.concatenate([np.cumsum([member.share for member in each]) for each in shares])
    upto = np.rint(reached * split["exclusive_ns"].to_numpy()).astype(np.int64)
    first = np.append(True, np.diff(of_row) != 0)
    last = np.append(first[1:], True)
    upto[last] = split["exclusive_ns"].to_numpy()[last]
    split["exclusive_ns"] = np.where(first, upto, np.diff(upto, prepend=0))
    for column in ("calls", *(amount for amount in amounts if amount not in _MEANS)):
        split[column] = split[column] * part
    return pd.concat([whole, split.assign(shared=part < 1)], ignore_index=True)


def _shares(text: str, keys: Sequence[str]) -> list[OperatorShare]:
    """The parts of a fused kernel, by the keys only."""
    try:
        shares = decode_shares(text)
    except ValueError as error:
        raise CurvescopeError(
            f"The column kernels.fused is damaged ({error}); record or import again."
        ) from error
    parts: dict[tuple[str | None, str], float] = {}
    for share in shares:
        key = share.layer if "layer" in keys else None, share.op if "op" in keys else ""
        parts[key] = parts.get(key, 0.0) + share.share
    return [OperatorShare(*key, 1.0 if len(parts) == 1 else part) for key, part in parts.items()]


def select_profiled_steps(steps: pd.DataFrame, batch: int | None = None) -> pd.DataFrame:
    """The profiled steps, or those of one batch size, whose start is known, by number; no visit
    that is set aside.
    """
    used = select_used_steps(steps)
    used = used[used["profiled"].astype(bool) & used["start_ns"].notna()].sort_values("step")
    return used if batch is None else used[used["batch"] == batch]


def group_times(
    work: Work,
    profiled: pd.DataFrame,
    keys: Sequence[str],
    amounts: Sequence[str] = (),
    places: Sequence[str] = (),
    *,
    by_name: bool = True,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Exclusive time of every group of kernels in every step, and the idle time, by places of the
    kernels after it.

    The columns are step (its position in `profiled`), the keys, exclusive_ns, calls, the amounts
    and shared (see `split_fused`); and for idle time step, the places and exclusive_ns. Both are
    whole ns that add up to the wall time.
    """
    number, start, window = (
        profiled[c].to_numpy(np.int64) for c in ("step", "start_ns", "duration_ns")
    )
    exclusive, gaps = exclusive_and_gaps(work, number, start, window)
    read = _with_fused(keys)
    collected, placed, first = (
        _Groups(["step", *read], amounts, by_name),
        _Groups(["step", *places], ()),
        0,
    )
    for piece in work(list(dict.fromkeys(["step", "duration_ns", *read, *amounts, _PART]))):
        inside, position = of_steps(piece, number)
        rows = slice(first, first + len(position))
        first += len(position)
        inside = inside.set_column(inside.column_names.index("step"), "step", pa.array(position))
        collected.add(inside.append_column("exclusive_ns", pa.array(exclusive[rows])))
        if places:
            before = inside.append_column("exclusive_ns", pa.array(gaps[rows]))
            placed.add(before.filter(pc.greater(before["exclusive_ns"], 0)))
    groups, idle = (
        split_fused(collected.frame(), keys, amounts),
        placed.frame().drop(columns="calls"),
    )
    busy, is_known = (
        np.bincount(
            rows["step"].to_numpy(np.int64), rows["exclusive_ns"], minlength=len(window)
        ).astype(np.int64)
        for rows in (groups, idle)
    )
    rest = pd.DataFrame({"step": range(len(window)), "exclusive_ns": window - busy - is_known})
    return groups, pd.concat([idle, rest], ignore_index=True) if len(idle) else rest


def of_steps(table: pa.Table, number: Ints) -> tuple[pa.Table, Ints]:
    """The rows of some steps, whose numbers increase, that have a duration, and the position of
    each row's step.
    """
    if not len(number):
        return table.slice(0, 0), np.zeros(0, np.int64)
    if table["step"].null_count or table["duration_ns"].null_count:
        table = table.filter(pc.and_(table["step"].is_valid(), table["duration_ns"].is_valid()))
    step = table["step"].to_numpy().astype(np.int64)
    if number[-1] - number[0] == len(number) - 1:  # mostly these are all steps: no search
        position = np.clip(step - number[0], 0, len(number) - 1)
    else:
        position = np.minimum(np.searchsorted(number, step), len(number) - 1)
    inside = number[position] == step
    return (table, position) if inside.all() else (table.filter(pa.array(inside)), position[inside])


def kernels_of(work: Work, step: int, columns: Sequence[str]) -> pd.DataFrame:
    """Every kernel of one step that has a duration; the columns include step and duration_ns."""
    pieces = [of_steps(piece, np.array([step]))[0].to_pandas() for piece in work(columns)]
    return pd.concat(
        [piece for piece in pieces if len(piece)] or [pd.DataFrame(columns=[*columns])],
        ignore_index=True,
    )


def exclusive_and_gaps(
    work: Work, number: Ints, window_start_ns: Ints, window_ns: Ints
) -> tuple[Ints, Ints]:
    """Exclusive time of every kernel of the steps, and the gap before it, in whole ns, in the order
    of `work`.
    """
    pieces: list[tuple[npt.NDArray[np.int32], Ints, Ints]] = []
    for piece in work(_TIMES):
        table, position = of_steps(piece, number)
        times = (table[c].to_numpy().astype(np.int64) for c in ("start_ns", "duration_ns"))
        pieces.append((position.astype(np.int32), *times))
    if not pieces:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    step = np.concatenate([piece[0] for piece in pieces])
    start, duration = (np.concatenate([piece[i] for piece in pieces]) for i in (1, 2))
    del pieces
    # Sorted by start inside a step, overlaps are between neighbours.
    ordered = ((step[1:] > step[:-1]) | ((step[1:] == step[:-1]) & (start[1:] >= start[:-1]))).all()
    order = None if ordered else np.lexsort((start, step))
    leading = step[::_BLOCK_ROWS] if order is None else step[order[::_BLOCK_ROWS]]
    # blocks of whole steps
    edges = np.unique(np.append(np.searchsorted(step, leading, sorter=order), len(step)))
    exclusive, gaps = np.empty(len(step), np.int64), np.empty(len(step), np.int64)
    for low, high in pairwise(edges.tolist()):
        rows = slice(low, high) if order is None else order[low:high]
        shared = _share_out(step[rows], start[rows], duration[rows], window_start_ns, window_ns)
        exclusive[rows], gaps[rows] = shared
    return exclusive, gaps


def _share_out(
    step: npt.NDArray[np.int32],
    start_ns: Ints,
    duration_ns: Ints,
    window_start_ns: Ints,
    window_ns: Ints,
) -> tuple[Ints, Ints]:
    """`exclusive_and_gaps` of whole steps, rows by step and start, rounded so that each step's sum
    stays.
    """
    low, room = window_start_ns[step], window_ns[step]
    start = np.clip(start_ns - low, 0, room)
    end = np.maximum(np.clip(start_ns + duration_ns - low, 0, room), start)
    exclusive: Ints = end - start
    # The exclusive time of a kernel without overlap is its duration; only steps with overlaps are
    # shared out.
    beside = (step[1:] == step[:-1]) & (start[1:] < end[:-1])
    for index in np.unique(step[1:][beside]).tolist():
        first, last = np.searchsorted(step, [index, index + 1])
        shares, _ = exclusive_ns(
            start[first:last], (end - start)[first:last], 0, int(window_ns[index])
        )
        # The running sum is rounded, not its terms: each is exact to a nanosecond, and their sum is
        # exact.
        exclusive[first:last] = np.diff(np.rint(np.cumsum(shares)).astype(np.int64), prepend=0)
    # Steps one after another, so that the latest end so far is never that of an earlier step.
    offset = step.astype(np.int64) * (int(room.max(initial=0)) + 1)
    until = np.maximum.accumulate(np.append(0, (end + offset)[:-1]))
    return exclusive, np.maximum(start + offset - np.maximum(until, offset), 0)


def _kind_of(name: str) -> tuple[bool, bool, str]:
    """What views tell of a kernel's name besides the name: communication, a copy, the precision of
    its products.
    """
    return is_communication(name), name.startswith(COPIES), kernel_precision(name)


class _Groups:
    """Groups of kernels that accumulate pieces; each text is stored once and referred
    to by a code.
    """

    def __init__(self, keys: Sequence[str], amounts: Sequence[str], by_name: bool = True) -> None:
        self._keys, self._amounts, self._by_name = keys, amounts, by_name
        self._codes: dict[str, dict[str, int]] = {}
        self._alike: dict[tuple[bool, bool, str], str] = {}  # the name that stands for others
        self._pieces: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        """Add kernels: their keys, amounts and exclusive_ns."""
        numbers = np.zeros(table.num_rows, np.int16)
        columns = {key: self._encode(key, table[key]) for key in self._keys}
        for bit, amount in enumerate(self._amounts):
            numbers |= np.left_shift(table[amount].is_valid().to_numpy().astype(np.int16), bit)
            columns[amount] = table[amount].cast(pa.float64(), safe=False)  # FLOPs may be over 2^53
            if amount in _MEANS:
                times = table["exclusive_ns"].cast(pa.float64(), safe=False)
                columns[amount] = pc.multiply(columns[amount], times)
        # A call of a host operator counts once, however often others interrupt it.
        first = (
            pc.fill_null(pc.equal(table[_PART], 0), True)
            if _PART in table.column_names
            else np.ones_like(numbers)
        )
        calls = pc.cast(first, pa.int16()) if _PART in table.column_names else pa.array(first)
        columns |= {
            _KNOWN: pa.array(numbers),
            "exclusive_ns": table["exclusive_ns"],
            "calls": calls,
        }
        self._pieces.append(self._add_up(pa.table(columns)))

    def _encode(self, key: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_string(column.type):
            column = column.dictionary_encode()
        if not pa.types.is_dictionary(column.type):
            return column
        codes = self._codes.setdefault(key, {})
        chunks = []
        for chunk in column.chunks:
            texts = chunk.dictionary.to_pylist()
            if key == "name" and not self._by_name:
                texts = [self._alike.setdefault(_kind_of(text), text) for text in texts]
            own = pa.array([codes.setdefault(text, len(codes)) for text in texts], pa.int32())
            chunks.append(own.take(chunk.indices))
        return pa.chunked_array(chunks, pa.int32())

    def _add_up(self, table: pa.Table) -> pa.Table:
        keys, added = [*self._keys, _KNOWN], ["exclusive_ns", "calls", *self._amounts]
        absent = [amount for amount in self._amounts if table[amount].null_count == table.num_rows]
        sums = [(name, "sum") for name in added if name not in absent]
        grouped = table.group_by(keys, use_threads=False).aggregate(sums)
        for amount in absent:
            grouped = grouped.append_column(
                f"{amount}_sum", pa.nulls(grouped.num_rows, pa.float64())
            )
        return grouped.select([*keys, *(f"{name}_sum" for name in added)]).rename_columns(
            [*keys, *added]
        )

    def frame(self) -> pd.DataFrame:
        """The keys, exclusive_ns, calls and the amounts of all groups, in order of appearance;
        means are over time.
        """
        if not self._pieces:
            columns = [*self._keys, *self._amounts, "exclusive_ns"]
            self.add(pa.schema([(c, _SCHEMA.get(c, pa.int64())) for c in columns]).empty_table())
        table = pa.concat_tables(self._pieces)
        table = self._add_up(table) if len(self._pieces) > 1 else table
        for key, codes in self._codes.items():
            texts = pa.array(codes, pa.string()).take(table[key])
            table = table.set_column(table.column_names.index(key), key, texts)
        frame: pd.DataFrame = table.drop_columns(_KNOWN).to_pandas(types_mapper=_PANDAS_TYPES.get)
        frame = frame.astype(
            {
                "exclusive_ns": np.int64,
                "calls": np.int64,
                **dict.fromkeys(self._amounts, np.float64),
            }
        )
        for amount in _MEANS.intersection(self._amounts):
            frame[amount] /= frame["exclusive_ns"].where(frame["exclusive_ns"] > 0)
        return frame
