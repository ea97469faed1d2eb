"""From the tables of a CUDA profiler to a recording: what the readers of Nsight Systems and nvprof have in common.

Neutral tables, columns by name; a column that a format lacks may be absent. Times are `start_ns` and `end_ns`.

- ranges: name, start_ns, end_ns, process, thread, thread_key (unique over processes), domain, category, kind,
  color_argb, payload; `shown`, false for what only places the work in it, such as a framework's operators.
- launches: name, start_ns, end_ns, process, thread, thread_key, correlation_id, return_value.
- device: for kernels name and columns of the `kernels` table; for copies and sets columns of the `memory` table; for
  both start_ns, end_ns, process, device, context, stream, correlation_id. Work that the host itself does has
  thread_key instead of a launch: it lies where it runs.
- each may have `source`, where that is not the profile's.

Names are dictionary-encoded, all batches of one table with one dictionary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..schema import TABLES
from ..store import RecordingWriter
from . import Options, describe_steps, steps, timeline
from .nesting import NONE, Codes, HostRanges, Ints, Placement
from .range_names import RangeName, scrub
from .timeline import DeviceWork, Joiner, Launches, Timeline

_MOST_ROOM = 1 << 26  # rows; a file may say anything
_LATEST_NS = 1 << 62  # past it differences of times no longer fit 64 bits: no clock shows that
_PLACING = ("start_ns", "end_ns", "process", "correlation_id", "thread_key")
_TELLING_APART = ("device", "context", "stream", "name")  # needed where no range marks the steps

_Rows = TypeVar("_Rows", Launches, DeviceWork)
Batches = Callable[[Sequence[str] | None], Iterator[pa.Table]]  # given the columns that are needed; null for all


@dataclass
class Profile:
    """What a reader hands over.

    Attributes:
        source: value of the `source` columns.
        ranges: all at once.
        launches: reads host calls, batch by batch; called twice.
        kernels: likewise the kernels.
        memory: likewise copies and sets.
        count: rows of launches, kernels, copies and sets, for the progress report.
        replayed: whether kernels were run again and again for metrics, so that their places in time mean nothing.
        operators: what launches lie in, where the profile tells of the framework's operators.
    """

    source: str
    ranges: pa.Table
    launches: Batches
    kernels: Batches
    memory: Batches
    count: int
    replayed: bool = False
    operators: Operators | None = None


class Operators(Protocol):
    """Operators of a framework on the host, which know more than ranges: shapes, and so work and batch sizes."""

    placement: Placement

    def count_work(self, built: Timeline, work: DeviceWork) -> dict[str, pa.Array]:
        """Columns flops and bytes_compulsory of all device work; each operator's call counts once."""

    def batches(self, built: Timeline) -> list[int | None]:
        """Samples in each step, as shapes tell."""


def assemble(profile: Profile, writer: RecordingWriter, options: Options) -> Timeline:
    """Join, find the steps, and write every table."""
    lost: Counter[str] = Counter()
    ranges, names, said = _named_ranges(profile.ranges, options, lost)
    everything = HostRanges(
        _ints(ranges, "start_ns"),
        _ints(ranges, "end_ns"),
        _ints(ranges, "thread_key"),
        _ints(ranges, "process"),
        _codes(ranges["name"]),
        said,
    )
    marks = steps.find_marks(everything, names)
    hosts = _host_calls(profile, options)
    work = _device_work(profile, hosts, options, lost, marked=bool(marks))
    nested = _select(everything, pc.equal(ranges["kind"], "push_pop").to_numpy().astype(bool))
    # What reading left behind is given back before the joins: together they would set the peak.
    pa.default_memory_pool().release_unused()
    operators = profile.operators
    placement = operators.placement if operators is not None else None
    built = timeline.build(nested, everything, hosts, work, marks, options.batch, placement)
    counted: dict[str, pa.Array] = {}
    if operators is not None:
        counted = operators.count_work(built, work)
        for row, batch in zip(built.step_rows, operators.batches(built), strict=True):
            row["batch"] = row["batch"] or batch
    processes = [column for column in (hosts.process, work.process, everything.process) if len(column)]
    several = len({int(end) for column in processes for end in (column.min(), column.max())}) > 1
    keep = frozenset({"process"} if several else ())
    seen: dict[int, set[str]] = {}
    with _WriteBehind(writer) as behind:
        behind.write("ranges", _range_rows(profile, ranges, everything, built, keep))
        first = 0
        for batch in profile.launches(None):
            rows = slice(first, first + batch.num_rows)
            first = rows.stop
            columns = _columns_of("launches", batch, keep) | _Timed(batch).columns()
            columns["step"] = built.step_of_host(hosts.process[rows], hosts.start_ns[rows])
            behind.write("launches", pa.table({"source": _constant(profile.source, batch.num_rows), **columns}))
            options.report("writing launches", first, profile.count)
        first = 0
        for table, batches in (("kernels", profile.kernels), ("memory", profile.memory)):
            for batch in batches(None):
                rows = slice(first, first + batch.num_rows)
                first = rows.stop
                timed = _Timed(batch)
                # A profile that names layers itself knows them better than the ranges around a launch.
                columns = built.columns(rows) | _columns_of(table, batch, keep) | timed.columns(profile.replayed)
                _see_phases(seen, built.step[rows], columns["phase"])
                if table == "memory":
                    columns.pop("op")
                else:
                    columns |= {name: column[rows.start : rows.stop] for name, column in counted.items()}
                behind.write(table, pa.table({"source": _constant(profile.source, batch.num_rows), **columns}))
                options.report(f"writing {table}", first, profile.count)
    for name, count in (lost + built.lost).items():
        writer.count_lost(name, count, timeline.LOST[name])
    for row in built.step_rows:
        row["phase"] = _kind(seen.get(row["step"], set()))
    describe_steps(writer, built.step_rows, built.steps_from)
    return built


class _WriteBehind:
    """Writes one table while the next is made: both take about as long. Failures show at the next call."""

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def write(self, table: str, rows: pa.Table) -> None:
        if self._last is not None:
            self._last.result()
        self._last = self._pool.submit(self._writer.write, table, rows)

    def __enter__(self) -> _WriteBehind:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown()
        if kind is None and self._last is not None:
            self._last.result()


def _see_phases(seen: dict[int, set[str]], step: Codes, phase: pa.Array) -> None:
    """Note the phases of the work in every step."""
    encoded = _dictionary(phase)
    phases = encoded.dictionary.to_pylist()
    pairs = (step - NONE) * (len(phases) + 1) + _codes(encoded) + 1
    for pair in np.flatnonzero(np.bincount(pairs)).tolist():
        number, code = divmod(pair, len(phases) + 1)
        if number and code:
            seen.setdefault(number + NONE, set()).add(phases[code - 1])


def _kind(seen: set[str]) -> str | None:
    """What a step runs, by the phases seen in it; null where none was."""
    if "optimizer" in seen:
        return "training"
    if "backward" in seen:
        return "forward+backward"
    return "forward" if "forward" in seen else None


class _Timed:
    """Starts and durations of a table; what has no believable time has none."""

    def __init__(self, table: pa.Table) -> None:
        start, end = table["start_ns"], table["end_ns"]
        begun, ended = (column.is_valid().to_numpy().astype(bool) for column in (start, end))
        self.start_ns, self.end_ns = _ints(table, "start_ns"), _ints(table, "end_ns")
        # The least number of all has no positive twin: both ends are asked for.
        far = np.maximum(self.start_ns, self.end_ns) >= _LATEST_NS
        far |= np.minimum(self.start_ns, self.end_ns) <= -_LATEST_NS
        self.placed = begun & ~far & ((self.start_ns != 0) | (ended & (self.end_ns != 0)))
        self.backwards = self.placed & ended & (self.end_ns < self.start_ns)
        self.timed = self.placed & ended & ~self.backwards

    def columns(self, replayed: bool = False) -> dict[str, pa.Array]:
        """Columns start_ns and duration_ns; without starts where kernels were replayed."""
        duration = np.where(self.timed, self.end_ns - self.start_ns, 0)
        return {
            "start_ns": pa.array(self.start_ns, mask=~self.placed | replayed),
            "duration_ns": pa.array(duration, mask=~self.timed),
        }


def _named_ranges(table: pa.Table, options: Options, lost: Counter[str]) -> tuple[pa.Table, list[str], list[RangeName]]:
    """The readable ranges, the scrubbed name of each dictionary entry, and what it says."""
    times = _Timed(table)
    unclosed = table["end_ns"].is_null().to_numpy().astype(bool)
    lost["ranges_unclosed"] += int(np.count_nonzero(unclosed))
    lost["negative_durations"] += int(np.count_nonzero(times.backwards))
    if not times.timed.all():
        table = table.filter(pa.array(times.timed))
    # What a name says depends on its domain too.
    domain = _dictionary(table["domain"] if "domain" in table.column_names else pa.nulls(table.num_rows, pa.string()))
    name = _dictionary(table["name"])
    domains = domain.dictionary.to_pylist()
    texts = name.dictionary.to_pylist()
    domain_code = _codes(domain)
    pairs, which = np.unique(_codes(name) * (len(domains) + 1) + domain_code + 1, return_inverse=True)
    rules = options.names
    names, said = [], []
    for pair in pairs.tolist():
        text, of_domain = texts[pair // (len(domains) + 1)], pair % (len(domains) + 1) - 1
        said.append(rules.read(text, domains[of_domain] if of_domain >= 0 else None))
        names.append(scrub(text))
    codes = pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int32)), pa.array(names, pa.string()))
    return table.set_column(table.column_names.index("name"), "name", codes), names, said


def _host_calls(profile: Profile, options: Options) -> Launches:
    """What the joins need of the host calls."""
    none, codes = np.zeros(0, np.int64), np.zeros(0, np.int32)
    calls = _Growing(Launches(none, none, codes, none), profile.count)
    for batch in profile.launches(("start_ns", "process", "thread_key", "correlation_id")):
        process = _ints(batch, "process").astype(np.int32)
        start, thread, correlation = (_ints(batch, name) for name in ("start_ns", "thread_key", "correlation_id"))
        calls.append(Launches(start, thread, process, correlation))
        options.report("reading launches", calls.count, profile.count)
    return calls.rows()


class _Growing(Generic[_Rows]):
    """Rows taken in piece by piece, column by column."""

    def __init__(self, empty: _Rows, expected: int) -> None:
        """Make room.

        Args:
            empty: of no row; says the types.
            expected: rows, about; memory that is not written to is not taken.
        """
        self.count = 0
        self._kind: type[_Rows] = type(empty)
        self._room = min(expected, _MOST_ROOM)
        self._columns = [np.empty(self._room, getattr(empty, column.name).dtype) for column in fields(empty)]

    def append(self, piece: _Rows) -> None:
        values = [getattr(piece, column.name) for column in fields(piece)]
        first, self.count = self.count, self.count + len(values[0])
        if self.count > self._room:
            self._room = max(2 * self._room, self.count)
            self._columns = [
                np.append(column[:first], np.empty(self._room - first, column.dtype)) for column in self._columns
            ]
        for column, value in zip(self._columns, values, strict=True):
            column[first : self.count] = value

    def rows(self) -> _Rows:
        return self._kind(*(column[: self.count] for column in self._columns))


def _device_work(
    profile: Profile, hosts: Launches, options: Options, lost: Counter[str], *, marked: bool
) -> DeviceWork:
    """Work with its launches; that of the host is its own launch, which is added to `hosts`."""
    joiner = Joiner(hosts)
    none, codes = np.zeros(0, np.int64), np.zeros(0, np.int32)
    work = _Growing(DeviceWork(none, none, np.zeros(0, bool), codes, codes, codes, codes), profile.count)
    own: list[Launches] = [hosts]
    for batches, named in ((profile.kernels, True), (profile.memory, False)):
        for batch in batches(_PLACING if marked else _PLACING + _TELLING_APART):
            times = _Timed(batch)
            lost["negative_durations"] += int(np.count_nonzero(times.backwards))
            lost["without_time"] += int(np.count_nonzero(~times.timed & ~times.backwards))
            process = _ints(batch, "process").astype(np.int32)
            launch = joiner.find(process, _ints(batch, "correlation_id"))
            thread = _ints(batch, "thread_key")
            if (here := thread != NONE).any():
                first = sum(len(piece.start_ns) for piece in own)
                launch[here] = first + np.arange(np.count_nonzero(here))
                no_id = np.full(np.count_nonzero(here), NONE, np.int64)
                own.append(Launches(times.start_ns[here], thread[here], process[here], no_id))
            name, stream = np.full((2, batch.num_rows), 0 if named else NONE, np.int32)
            if not marked:
                name = _codes(batch["name"]) if named else name
                stream = _streams(batch, process)
            start, end = np.where(times.placed, times.start_ns, 0), np.where(times.timed, times.end_ns, 0)
            work.append(DeviceWork(start, end, times.timed & (not profile.replayed), process, launch, name, stream))
            options.report("reading device work", work.count, profile.count)
    if len(own) > 1:
        for each in fields(hosts):
            setattr(hosts, each.name, np.concatenate([getattr(piece, each.name) for piece in own]))
    return work.rows()


def _streams(batch: pa.Table, process: Codes) -> Ints:
    """Numbers that tell streams apart, over devices."""
    streams = process.astype(np.int64)
    for column in ("device", "context", "stream"):
        streams = streams * 1_000_003 + _ints(batch, column)  # wraps around
    return np.asarray((streams ^ streams >> 32).astype(np.int32))


def _range_rows(
    profile: Profile, table: pa.Table, ranges: HostRanges, built: Timeline, keep: frozenset[str]
) -> pa.Table:
    columns = _columns_of("ranges", table, keep)
    columns["start_ns"] = pa.array(ranges.start_ns)
    columns["duration_ns"] = pa.array(ranges.end_ns - ranges.start_ns)
    columns["step"] = built.step_of_host(ranges.process, ranges.start_ns)
    rows = pa.table({"source": _constant(profile.source, table.num_rows), **columns})
    return rows.filter(pc.fill_null(table["shown"], True)) if "shown" in table.column_names else rows


def _columns_of(table: str, data: pa.Table, keep: frozenset[str]) -> dict[str, pa.ChunkedArray]:
    """The columns that the schema's table has too; the process only where there are several."""
    wanted = {column.name for column in TABLES[table].columns} - ({"process"} - keep)
    return {name: data[name] for name in data.column_names if name in wanted}


def _select(ranges: HostRanges, rows: np.typing.NDArray[np.bool_]) -> HostRanges:
    return HostRanges(
        ranges.start_ns[rows],
        ranges.end_ns[rows],
        ranges.thread[rows],
        ranges.process[rows],
        ranges.name[rows],
        ranges.said,
    )


def _ints(table: pa.Table, column: str) -> Ints:
    """A column as int64, `NONE` for null; all `NONE` where it is absent."""
    if column not in table.column_names:
        return np.full(table.num_rows, NONE, np.int64)
    values = table[column].cast(pa.int64())
    if values.null_count:
        values = pc.fill_null(values, NONE)
    return np.asarray(values.to_numpy(), dtype=np.int64)


def _dictionary(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    """A text column with one dictionary."""
    if isinstance(column, pa.ChunkedArray):
        column = (
            column.unify_dictionaries().combine_chunks()
            if pa.types.is_dictionary(column.type)
            else column.combine_chunks()
        )
    if isinstance(column, pa.ChunkedArray):  # of no chunk, or more than one
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _codes(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Codes of a dictionary column, `NONE` for null."""
    encoded = _dictionary(column)
    return np.asarray(pc.fill_null(encoded.indices, NONE).to_numpy(zero_copy_only=False), dtype=np.int64)


def _constant(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))
