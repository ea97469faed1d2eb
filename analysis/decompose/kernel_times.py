"""Exclusive time of device work: millions of kernels reduced to a row per step and group.

Memcpy and memset count as kernels. The kernels are read twice, piece by piece: first their times,
which are shared out over each step, then the columns they are grouped by: memory holds some forty
bytes per kernel, and one piece.
"""

from __future__ import annotations

from collections import defaultdict
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
from ...profiling.recording.store import Recording
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
_PANDAS_TYPES = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}


def device_work(
    recording: Recording, *, copied_bytes: bool = False, device: int | None = None
) -> Work:
    """The kernels of a recording, piece by piece, then its memcpy and memset as kernels of
    those names.

    With `copied_bytes` the copies have compulsory bytes, the bytes that they move. These cross a
    bus, so no cause which compares bytes with caches and DRAM may see them. Reading a damaged part
    file raises CurvescopeError.
    """

    def pieces(columns: Sequence[str]) -> Iterator[pa.Table]:
        yield from recording.pieces("kernels", columns)
        yield from copies(recording, columns, copied_bytes=copied_bytes)

    def on_device(columns: Sequence[str]) -> Iterator[pa.Table]:
        read = list(dict.fromkeys([*columns, "device"]))
        for piece in pieces(read):
            own = piece.filter(pc.equal(piece["device"], device))
            yield own.select(list(columns))

    return pieces if device is None else on_device


def gpus_of(recording: Recording) -> list[int]:
    """Numbers of the GPUs whose kernels are recorded, increasing."""
    if recording.on_host:  # sweeps on a CPU have hundreds of parts to open
        return []
    devices = pc.unique(recording.arrow("kernels", ["device"])["device"])
    return sorted(device for device in devices.to_pylist() if device is not None)


def copies(
    recording: Recording, columns: Sequence[str], *, copied_bytes: bool = False
) -> Iterator[pa.Table]:
    """The memcpys and memsets of a recording as kernels of those names, see `device_work`."""
    for memory in recording.pieces("memory"):
        is_copy = pc.is_in(memory["kind"], pa.array(["memcpy", "memset"]))
        moved = memory.filter(pc.and_(is_copy, memory["duration_ns"].is_valid()))
        kind = pc.utf8_capitalize(moved["kind"].cast(pa.string()))
        direction = moved["memcpy_kind"].cast(pa.string())
        name = pc.binary_join_element_wise(kind, direction, " ")
        own = {"name": pc.coalesce(name, kind)}
        if copied_bytes:
            own["bytes_compulsory"] = moved["bytes"]
        for column in set(columns).difference(own):
            if column in moved.column_names:
                own[column] = moved[column]
            else:
                own[column] = pa.nulls(moved.num_rows, _SCHEMA[column])
        yield pa.table(own).select(list(columns))


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
    including `name`. Amounts are added up, or averaged over time, as the schema says. Rows with and
    without a value are in different groups. With `place_idle`, idle time has a row for each layer
    and phase, else a row per step: the layer that launched the next kernel has the gap before it.
    Unless `by_name`, only communication, copies and products of each precision are apart, each
    under one of their names.

    The columns are step, batch, the keys, exclusive_ns, exclusive_ms, calls, the amounts, shared
    (see `split_fused`) and kind (see `with_kind`); an unknown amount is NaN. Per step, exclusive_ns
    adds up to the step's wall time.
    """
    profiled = select_profiled_steps(steps)
    places = ["layer", "phase"] if place_idle else []
    table, idle = group_times(work, profiled, keys, amounts, places, by_name=by_name)
    if len(profiled):
        rest = idle.assign(name=IDLE, calls=1, shared=False)
        table = pd.concat([table, rest], ignore_index=True)
    position = table["step"].to_numpy(np.int64)
    number = profiled["step"].to_numpy(np.int64)
    table["step"] = number[position]
    table["batch"] = profiled["batch"].array[position]
    table["exclusive_ms"] = table["exclusive_ns"] / 1e6
    return with_kind(table)


def with_kind(table: pd.DataFrame) -> pd.DataFrame:
    """The same rows with a column `kind`: idle, communication or kernels.

    Communication has no layer and no phase: it is started where a gradient is ready, and its time
    is no layer's.
    """
    kind_of = {IDLE: IDLE}
    for name in table["name"].unique():
        kind = COMMUNICATION if is_communication(str(name)) else KERNELS
        kind_of.setdefault(name, kind)
    kinds = table["name"].map(kind_of)
    own = kinds != COMMUNICATION
    layer = table["layer"].where(own, None)
    phase = table["phase"].where(own, None)
    return table.assign(kind=kinds, layer=layer, phase=phase)


def kernel_totals(
    work: Work, keys: Sequence[str] = KERNEL_IDENTITY, amounts: Sequence[str] = AMOUNTS
) -> pd.DataFrame:
    """As `kernel_times`, without step, batch and idle: sums of the durations, of a recording
    without steps.
    """
    read = _with_fused(keys)
    collected = _Groups(read, amounts)
    columns = dict.fromkeys([*read, *amounts, "duration_ns", _PART])
    for piece in work(list(columns)):
        timed = piece.filter(piece["duration_ns"].is_valid())
        collected.add(timed.append_column("exclusive_ns", timed["duration_ns"]))
    groups = split_fused(collected.frame(), keys, amounts)
    groups["exclusive_ms"] = groups["exclusive_ns"] / 1e6
    return with_kind(groups)


def _with_fused(keys: Sequence[str]) -> list[str]:
    """The columns to group by before `split_fused`."""
    by_operator = "layer" in keys or "op" in keys
    return [*keys, _FUSED] if by_operator else [*keys]


def split_fused(groups: pd.DataFrame, keys: Sequence[str], amounts: Sequence[str]) -> pd.DataFrame:
    """Share the time, the calls and the amounts of fused kernels over the operators in them.

    The column `fused` goes; each layer and operator (as far as they are keys) in a fused kernel
    gets a row. The column `shared` says whether others have a part of the row's kernels. Times stay
    whole nanoseconds, and all columns keep their sums.
    """
    if _FUSED not in groups:
        return groups.assign(shared=False)
    fused = groups[_FUSED].notna()
    whole = groups[~fused].drop(columns=_FUSED)
    whole = whole.assign(shared=False)
    if not fused.any():
        return whole
    rows = groups[fused].reset_index(drop=True)
    shares_of = {text: _shares(text, keys) for text in rows[_FUSED].unique()}
    shares, of_row, reached = [], [], []
    for row, text in enumerate(rows[_FUSED]):
        members = shares_of[text]
        shares += members
        of_row += [row] * len(members)
        parts = [member.share for member in members]
        reached.append(np.cumsum(parts))
    split = rows.drop(columns=_FUSED).iloc[of_row]
    split = split.reset_index(drop=True)
    if "layer" in keys:  # an operator outside submodules has the layer of the whole kernel
        layers = pd.Series([member.layer for member in shares], dtype=object)
        split["layer"] = layers.where(layers.notna(), split["layer"])
    if "op" in keys:
        split["op"] = [member.op for member in shares]
    whole_ns = split["exclusive_ns"].to_numpy()
    reached_ns = np.concatenate(reached) * whole_ns
    upto = np.rint(reached_ns).astype(np.int64)
    first = np.append(True, np.diff(of_row) != 0)
    last = np.append(first[1:], True)
    upto[last] = whole_ns[last]
    split["exclusive_ns"] = np.where(first, upto, np.diff(upto, prepend=0))
    part = np.array([member.share for member in shares])
    for column in ("calls", *amounts):
        if column not in _MEANS:
            split[column] *= part
    split["shared"] = part < 1
    return pd.concat([whole, split], ignore_index=True)


def _shares(text: str, keys: Sequence[str]) -> list[OperatorShare]:
    """The parts of a fused kernel, by the keys only."""
    try:
        shares = decode_shares(text)
    except ValueError as error:
        message = f"The column kernels.fused is damaged ({error}); record or import again."
        raise CurvescopeError(message) from error
    parts: defaultdict[tuple[str | None, str], float] = defaultdict(float)
    for share in shares:
        layer = share.layer if "layer" in keys else None
        op = share.op if "op" in keys else ""
        parts[layer, op] += share.share
    if len(parts) == 1:
        return [OperatorShare(*key, 1.0) for key in parts]
    return [OperatorShare(*key, part) for key, part in parts.items()]


def select_profiled_steps(steps: pd.DataFrame, batch: int | None = None) -> pd.DataFrame:
    """The profiled steps with a start, by number, of one batch size or all; no visit that is set
    aside.
    """
    used = select_used_steps(steps)
    if batch is not None:
        used = used[used["batch"] == batch]
    profiled = used["profiled"].astype(bool)
    return used[profiled & used["start_ns"].notna()].sort_values("step")


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
    number = profiled["step"].to_numpy(np.int64)
    start = profiled["start_ns"].to_numpy(np.int64)
    window = profiled["duration_ns"].to_numpy(np.int64)
    exclusive, gaps = exclusive_and_gaps(work, number, start, window)
    read = _with_fused(keys)
    collected = _Groups(["step", *read], amounts, by_name)
    placed = _Groups(["step", *places], ())
    first = 0
    columns = dict.fromkeys(["step", "duration_ns", *read, *amounts, _PART])
    for piece in work(list(columns)):
        inside, position = of_steps(piece, number)
        rows = slice(first, first + len(position))
        first = rows.stop
        inside = replace_column(inside, "step", pa.array(position))
        collected.add(inside.append_column("exclusive_ns", pa.array(exclusive[rows])))
        if places:
            before = inside.append_column("exclusive_ns", pa.array(gaps[rows]))
            placed.add(before.filter(pc.greater(before["exclusive_ns"], 0)))
    groups = split_fused(collected.frame(), keys, amounts)
    idle = placed.frame().drop(columns="calls")
    busy_ns = _sum_by_step(groups, len(window))
    placed_ns = _sum_by_step(idle, len(window))
    rest_ns = window - busy_ns - placed_ns
    rest = pd.DataFrame({"step": range(len(window)), "exclusive_ns": rest_ns})
    if len(idle):
        rest = pd.concat([idle, rest], ignore_index=True)
    return groups, rest


def replace_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with other values in a column."""
    return table.set_column(table.column_names.index(name), name, values)


def _sum_by_step(rows: pd.DataFrame, n: int) -> Ints:
    position = rows["step"].to_numpy(np.int64)
    sums = np.bincount(position, rows["exclusive_ns"], minlength=n)
    return sums.astype(np.int64)


def of_steps(table: pa.Table, number: Ints) -> tuple[pa.Table, Ints]:
    """The rows of some steps, whose numbers increase, that have a duration, and the position of
    each row's step.
    """
    if not len(number):
        return table.slice(0, 0), np.zeros(0, np.int64)
    for column in ("step", "duration_ns"):
        if table[column].null_count:
            table = table.filter(table[column].is_valid())
    step = table["step"].to_numpy().astype(np.int64)
    last = len(number) - 1
    if number[-1] - number[0] == last:  # mostly these are all steps: no search
        position = np.clip(step - number[0], 0, last)
    else:
        position = np.minimum(np.searchsorted(number, step), last)
    inside = number[position] == step
    if inside.all():
        return table, position
    return table.filter(pa.array(inside)), position[inside]


def kernels_of(work: Work, number: Ints, columns: Sequence[str]) -> pd.DataFrame:
    """Every kernel of some steps, whose numbers increase, that has a duration; the columns include
    step and duration_ns.
    """
    pieces = []
    for piece in work(columns):
        inside, _ = of_steps(piece, number)
        if inside.num_rows:
            pieces.append(inside.to_pandas())
    if not pieces:
        return pd.DataFrame(columns=[*columns])
    return pd.concat(pieces, ignore_index=True)


def exclusive_and_gaps(
    work: Work, number: Ints, window_start_ns: Ints, window_ns: Ints
) -> tuple[Ints, Ints]:
    """Exclusive time of every kernel of the steps, and the gap before it, in whole ns, in the order
    of `work`.
    """
    steps: list[npt.NDArray[np.int32]] = [np.zeros(0, np.int32)]
    starts: list[Ints] = [np.zeros(0, np.int64)]
    durations: list[Ints] = [np.zeros(0, np.int64)]
    for piece in work(_TIMES):
        table, position = of_steps(piece, number)
        steps.append(position.astype(np.int32))
        starts.append(table["start_ns"].to_numpy().astype(np.int64))
        durations.append(table["duration_ns"].to_numpy().astype(np.int64))
    step = np.concatenate(steps)
    start = np.concatenate(starts)
    duration = np.concatenate(durations)
    del steps, starts, durations
    exclusive = np.empty(len(step), np.int64)
    gaps = np.empty(len(step), np.int64)
    if not len(step):
        return exclusive, gaps
    # Sorted by start inside a step, overlaps are between neighbours.
    order = None if is_in_order(step, start) else np.lexsort((start, step))
    every = slice(0, None, _BLOCK_ROWS)
    leading = step[every] if order is None else step[order[every]]
    # blocks of whole steps
    begins = np.searchsorted(step, leading, sorter=order)
    edges = np.unique(np.append(begins, len(step)))
    for low, high in pairwise(edges.tolist()):
        rows = slice(low, high) if order is None else order[low:high]
        block = step[rows], start[rows], duration[rows]
        exclusive[rows], gaps[rows] = _share_out(*block, window_start_ns, window_ns)
    return exclusive, gaps


def is_in_order(step: npt.NDArray[np.integer[Any]], start_ns: Ints) -> bool:
    """Whether rows are in order of their steps, and in a step of their starts."""
    later_step = step[1:] > step[:-1]
    same_step = step[1:] == step[:-1]
    later_start = start_ns[1:] >= start_ns[:-1]
    in_order = later_step | (same_step & later_start)
    return bool(in_order.all())


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
    room = window_ns[step]
    begin_ns = start_ns - window_start_ns[step]
    start = np.clip(begin_ns, 0, room)
    end = np.clip(begin_ns + duration_ns, 0, room)
    end = np.maximum(end, start)
    exclusive: Ints = end - start
    # The exclusive time of a kernel without overlap is its duration; only steps with overlaps are
    # shared out.
    same_step = step[1:] == step[:-1]
    overlaps = start[1:] < end[:-1]
    for index in np.unique(step[1:][same_step & overlaps]).tolist():
        first, last = np.searchsorted(step, [index, index + 1])
        rows = slice(first, last)
        shares, _ = exclusive_ns(start[rows], exclusive[rows], 0, int(window_ns[index]))
        # The running sum is rounded, not its terms: each is exact to a nanosecond, and their sum is
        # exact.
        upto = np.rint(np.cumsum(shares)).astype(np.int64)
        exclusive[rows] = np.diff(upto, prepend=0)
    # Steps one after another, so that the latest end so far is never that of an earlier step.
    longest = int(room.max(initial=0))
    offset = step.astype(np.int64) * (longest + 1)
    previous_end = np.append(0, (end + offset)[:-1])
    until = np.maximum.accumulate(previous_end)
    until = np.maximum(until, offset)
    return exclusive, np.maximum(start + offset - until, 0)


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
            is_valid = table[amount].is_valid().to_numpy().astype(np.int16)
            numbers |= np.left_shift(is_valid, bit)
            columns[amount] = table[amount].cast(pa.float64(), safe=False)  # FLOPs may be over 2^53
            if amount in _MEANS:
                times = table["exclusive_ns"].cast(pa.float64(), safe=False)
                columns[amount] = pc.multiply(columns[amount], times)
        columns[_KNOWN] = pa.array(numbers)
        columns["exclusive_ns"] = table["exclusive_ns"]
        if _PART in table.column_names:
            # A call of a host operator counts once, however often others interrupt it.
            is_first = pc.fill_null(pc.equal(table[_PART], 0), True)
            columns["calls"] = pc.cast(is_first, pa.int16())
        else:
            columns["calls"] = pa.array(np.ones_like(numbers))
        self._pieces.append(self._add_up(pa.table(columns)))

    def _encode(self, key: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_string(column.type):
            column = column.dictionary_encode()
        if not pa.types.is_dictionary(column.type):
            return column
        codes = self._codes.setdefault(key, {})
        chunks = []
        for chunk in column.chunks:
            own = []
            for text in chunk.dictionary.to_pylist():
                if key == "name" and not self._by_name:
                    text = self._alike.setdefault(_kind_of(text), text)
                own.append(codes.setdefault(text, len(codes)))
            own_codes = pa.array(own, pa.int32())
            chunks.append(own_codes.take(chunk.indices))
        return pa.chunked_array(chunks, pa.int32())

    def _add_up(self, table: pa.Table) -> pa.Table:
        keys = [*self._keys, _KNOWN]
        present = ["exclusive_ns", "calls"]
        absent: list[str] = []
        for amount in self._amounts:
            if table[amount].null_count == table.num_rows:
                absent.append(amount)
            else:
                present.append(amount)
        sums = [(name, "sum") for name in present]
        grouped = table.group_by(keys, use_threads=False).aggregate(sums)
        summed = [f"{name}_sum" for name in present]
        grouped = grouped.select([*keys, *summed]).rename_columns([*keys, *present])
        for amount in absent:
            grouped = grouped.append_column(amount, pa.nulls(grouped.num_rows, pa.float64()))
        return grouped.select([*keys, "exclusive_ns", "calls", *self._amounts])

    def frame(self) -> pd.DataFrame:
        """The keys, exclusive_ns, calls and the amounts of all groups, in order of appearance;
        means are over time.
        """
        added = ["exclusive_ns", "calls"]
        if not self._pieces:
            columns = [*self._keys, *self._amounts, "exclusive_ns"]
            fields = [(name, _SCHEMA.get(name, pa.int64())) for name in columns]
            self.add(pa.schema(fields).empty_table())
        table = pa.concat_tables(self._pieces)
        if len(self._pieces) > 1:
            table = self._add_up(table)
        for key, codes in self._codes.items():
            texts = pa.array(codes, pa.string()).take(table[key])
            table = replace_column(table, key, texts)
        table = table.drop_columns(_KNOWN)
        frame: pd.DataFrame = table.to_pandas(types_mapper=_PANDAS_TYPES.get)
        frame = frame.astype(dict.fromkeys(added, np.int64))
        frame = frame.astype(dict.fromkeys(self._amounts, np.float64))
        for amount in _MEANS.intersection(self._amounts):
            frame[amount] /= frame["exclusive_ns"].where(frame["exclusive_ns"] > 0)
        return frame
