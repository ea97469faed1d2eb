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

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..readers import Options, describe_steps
from ..recording.schema import TABLES
from ..recording.store import RecordingWriter
from .columns import Growing, Timed, code_array, code_column, constant, dictionary, int_column
from .nesting import NONE, Codes, HostRanges, Ints, Placement
from .range_names import RangeName, scrub
from .timeline import DeviceWork, Launches, Placed, Timeline

_TABLES = ("ranges", "launches", "kernels", "memory")
_PLACING = ("start_ns", "end_ns", "process", "correlation_id", "thread_key")
_TELLING_APART = ("device", "context", "stream", "name")  # needed where no range marks the steps

_WORKERS = 3  # threads that place and write batches: Arrow and NumPy let them run beside each other
_AHEAD = 5  # batches that are in memory at once

_Result = TypeVar("_Result")
Batches = Callable[[Sequence[str] | None], Iterator[pa.Table]]  # given the columns that are needed; null for all


@dataclass
class Profile:
    """What a reader hands over.

    Attributes:
        source: value of the `source` columns.
        ranges: all at once.
        launches: reads host calls, batch by batch; called again, as what follows, where a second process turns up.
        kernels: likewise the kernels; called again where no range marks the steps.
        memory: likewise copies and sets.
        count: rows of launches, kernels, copies and sets, for the progress report.
        replayed: whether kernels were run again and again for metrics, so that their places in time mean nothing.
        operators: what launches lie in, where the profile tells of the framework's operators.
    """

    source: str
    ranges: pa.Table
    launches: Callable[[], Iterator[pa.Table]]
    kernels: Batches
    memory: Batches
    count: int
    replayed: bool = False
    operators: Operators | None = None


class Operators(Protocol):
    """Operators of a framework on the host, which know more than ranges: shapes, and so work and batch sizes."""

    placement: Placement

    def count_work(self, work: DeviceWork) -> dict[str, pa.Array]:
        """Columns flops and bytes_compulsory of all device work; each operator's call counts once."""

    def batches(self, built: Timeline) -> list[int | None]:
        """Samples in each step, as shapes tell."""


def assemble(profile: Profile, writer: RecordingWriter, options: Options) -> Timeline:
    """Join, find the steps, and write every table."""
    try:
        return _Assembly(profile, writer, options, several=False).run()
    except _SeveralProcessesError:
        writer.take_back(_TABLES)
        return _Assembly(profile, writer, options, several=True).run()


class _SeveralProcessesError(Exception):
    """There is a second process, so that each row has to say its own."""


class _Assembly:
    """One attempt; the process column is written only if there are several."""

    def __init__(self, profile: Profile, writer: RecordingWriter, options: Options, *, several: bool) -> None:
        self._profile, self._options = profile, options
        self._lost: Counter[str] = Counter()
        self._ranges, names, said = _named_ranges(profile.ranges, options, self._lost)
        self._host = HostRanges(
            int_column(self._ranges, "start_ns"),
            int_column(self._ranges, "end_ns"),
            int_column(self._ranges, "thread_key"),
            int_column(self._ranges, "process"),
            code_column(self._ranges["name"]),
            said,
        )
        nested = _select(self._host, pc.equal(self._ranges["kind"], "push_pop").to_numpy().astype(bool))
        operators = profile.operators
        self._built = Timeline(self._host, nested, names, operators.placement if operators is not None else None)
        self._several = several
        self._processes: set[int] = set()
        self._phases: dict[int, set[str]] = {}
        self._writer = writer
        self._workers = ThreadPoolExecutor(_WORKERS)
        self._done = 0

    def run(self) -> Timeline:
        built, batch_size = self._built, self._options.batch
        self._see(self._host.process)
        with self._workers:
            ranges = self._workers.submit(self._write_ranges)
            built.join(self._write_launches())
            ranges.result()
            if built.marked and self._profile.operators is None:
                # Each row's step is known as it is read: once is enough.
                built.finish_marked_steps(list(self._write_as_read()), batch_size)
            else:
                work = self._collect()
                # What reading left behind is given back before the joins: together they would set the peak.
                pa.default_memory_pool().release_unused()
                if built.marked:
                    built.finish_marked_steps([(work.start_ns, work.step)], batch_size)
                else:
                    built.find_steps(work, batch_size)
                self._write_collected(work)
        for name, count in (self._lost + built.lost).items():
            self._writer.count_lost(name, count)
        for row in built.step_rows:
            row["phase"] = _kind(self._phases.get(row["step"], set()))
        describe_steps(self._writer, built.step_rows, built.steps_from)
        return built

    def _see(self, process: Ints | Codes) -> None:
        """Note the processes of some rows."""
        if not self._several and len(process):
            self._processes |= {int(process.min()), int(process.max())}
            if len(self._processes) > 1:
                raise _SeveralProcessesError

    def _in_order(self, work: Callable[..., _Result], items: Iterable[tuple[Any, ...]]) -> Iterator[_Result]:
        """What the workers make of each item, in order; the items behind it are read and worked on meanwhile."""
        pending: deque[Future[_Result]] = deque()
        for item in items:
            pending.append(self._workers.submit(work, *item))
            if len(pending) == _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def _write(self, table: str, part: str, columns: dict[str, Any], count: int) -> None:
        rows = pa.table({"source": constant(self._profile.source, count), **columns})
        self._writer.write(table, rows, part)

    def _columns_of(self, table: str, data: pa.Table) -> dict[str, Any]:
        """The columns that the schema's table has too; the process only where there are several."""
        wanted = {column.name for column in TABLES[table].columns} - (set() if self._several else {"process"})
        return {name: data[name] for name in data.column_names if name in wanted}

    def _write_ranges(self) -> None:
        host, table = self._host, self._ranges
        columns = self._columns_of("ranges", table)
        columns["start_ns"] = pa.array(host.start_ns)
        columns["duration_ns"] = pa.array(host.end_ns - host.start_ns)
        columns["step"] = code_array(self._built.marked.step_of(host.process, host.start_ns))
        if "shown" in table.column_names:
            shown = pc.fill_null(table["shown"], True)
            columns = {name: column.filter(shown) for name, column in columns.items()}
        self._write("ranges", self._writer.next_part("ranges"), columns, len(columns["step"]))

    def _write_launches(self) -> Launches:
        """Write the host calls; returns what the joins need of them."""
        none, codes = np.zeros(0, np.int64), np.zeros(0, np.int32)
        calls = Growing(Launches(none, codes, none, codes, codes), self._profile.count)
        batches = ((self._writer.next_part("launches"), batch) for batch in self._profile.launches())
        for placed in self._in_order(self._write_calls, batches):
            self._see(placed.process)
            calls.append(placed)
            self._report("writing launches", len(placed.process))
        return calls.rows()

    def _write_calls(self, part: str, batch: pa.Table) -> Launches:
        times, process = Timed(batch), int_column(batch, "process").astype(np.int32)
        thread, correlation = int_column(batch, "thread_key"), int_column(batch, "correlation_id")
        placed = self._built.place_calls(times.start_ns, process, thread, correlation)
        columns = self._columns_of("launches", batch) | times.columns() | {"step": code_array(placed.step)}
        self._write("launches", part, columns, batch.num_rows)
        return placed

    def _batches(self, needed: Sequence[str] | None) -> Iterator[tuple[str, pa.Table]]:
        for table, batches in (("kernels", self._profile.kernels), ("memory", self._profile.memory)):
            for batch in batches(needed):
                yield table, batch

    def _place(self, batch: pa.Table) -> tuple[Timed, Codes, Placed]:
        """Times, processes and places of device work."""
        times = Timed(batch, self._profile.replayed)
        process = int_column(batch, "process").astype(np.int32)
        thread = int_column(batch, "thread_key") if "thread_key" in batch.column_names else None
        correlation = int_column(batch, "correlation_id")
        return times, process, self._built.place_work(times.start_ns, times.timed, process, correlation, thread)

    def _take(self, times: Timed, process: Codes, placed: Placed) -> None:
        """Count device work that was placed."""
        self._see(process)
        self._built.take(placed, times.end_ns)
        self._lost["negative_durations"] += int(np.count_nonzero(times.backwards))
        self._lost["without_time"] += int(np.count_nonzero(~times.told & ~times.backwards))

    def _write_as_read(self) -> Iterator[tuple[Ints, Codes]]:
        """Write device work whose steps are marked; gives starts and steps."""

        def write(table: str, part: str, batch: pa.Table) -> tuple[str, Timed, Codes, Placed, set[tuple[int, str]]]:
            times, process, placed = self._place(batch)
            phases = self._write_work(table, part, batch, times, placed.range_, placed.step)
            return table, times, process, placed, phases

        batches = ((table, self._writer.next_part(table), batch) for table, batch in self._batches(None))
        for table, times, process, placed, phases in self._in_order(write, batches):
            self._take(times, process, placed)
            self._see_phases(phases)
            self._report(f"writing {table}", len(process))
            yield times.start_ns, placed.step

    def _collect(self) -> DeviceWork:
        """All device work, without what only the tables need."""
        marked = bool(self._built.marked)

        def place(table: str, batch: pa.Table) -> tuple[Timed, Codes, Placed, Ints, Ints]:
            times, process, placed = self._place(batch)
            name, stream = np.full((2, batch.num_rows), 0 if table == "kernels" else NONE)
            if not marked:
                name = code_column(batch["name"]) if table == "kernels" else name
                stream = _streams(batch, process)
            return times, process, placed, name, stream

        none, codes = np.zeros(0, np.int64), np.zeros(0, np.int32)
        work = Growing(DeviceWork(none, none, np.zeros(0, bool), codes, codes, codes, codes), self._profile.count)
        batches = self._batches(_PLACING if marked else _PLACING + _TELLING_APART)
        for times, process, placed, name, stream in self._in_order(place, batches):
            self._take(times, process, placed)
            rows = times.start_ns, times.end_ns, times.timed, placed.range_, placed.step
            work.append(DeviceWork(*rows, name.astype(np.int32), stream.astype(np.int32)))
            self._options.report("reading device work", self._done + work.count, self._profile.count)
        return work.rows()

    def _write_collected(self, work: DeviceWork) -> None:
        operators = self._profile.operators
        counted: dict[str, pa.Array] = {}
        if operators is not None:
            counted = operators.count_work(work)
            for row, batch_size in zip(self._built.step_rows, operators.batches(self._built), strict=True):
                row["batch"] = row["batch"] or batch_size

        def batches() -> Iterator[tuple[str, str, pa.Table, int]]:
            first = 0
            for table, batch in self._batches(None):
                yield table, self._writer.next_part(table), batch, first
                first += batch.num_rows

        def write(table: str, part: str, batch: pa.Table, first: int) -> tuple[str, int, set[tuple[int, str]]]:
            rows = slice(first, first + batch.num_rows)
            # Work counts once, as a kernel's.
            counts = {name: column[rows.start : rows.stop] for name, column in counted.items() if table == "kernels"}
            times = Timed(batch, self._profile.replayed)
            phases = self._write_work(table, part, batch, times, work.range_[rows], work.step[rows], counts)
            return table, batch.num_rows, phases

        for table, count, phases in self._in_order(write, batches()):
            self._see_phases(phases)
            self._report(f"writing {table}", count)

    def _write_work(
        self,
        table: str,
        part: str,
        batch: pa.Table,
        times: Timed,
        range_: Codes,
        step: Codes,
        counts: Mapping[str, pa.Array] = {},
    ) -> set[tuple[int, str]]:
        """Write device work; returns the steps in it with their phases."""
        # A profile that names layers itself knows them better than the ranges around a launch.
        columns = self._built.placement.take(range_) | self._columns_of(table, batch) | times.columns()
        phases = _phases(step, columns["phase"])
        if table == "memory":
            columns.pop("op")
        self._write(table, part, {**columns, **counts, "step": code_array(step)}, batch.num_rows)
        return phases

    def _see_phases(self, phases: set[tuple[int, str]]) -> None:
        for step, phase in phases:
            self._phases.setdefault(step, set()).add(phase)

    def _report(self, what: str, count: int) -> None:
        self._done += count
        self._options.report(what, self._done, self._profile.count)


def _phases(step: Codes, phase: pa.Array) -> set[tuple[int, str]]:
    """Steps, and the phases of the work in them."""
    encoded = dictionary(phase)
    texts = encoded.dictionary.to_pylist()
    pairs = (step - NONE) * (len(texts) + 1) + code_column(encoded) + 1
    found = (divmod(pair, len(texts) + 1) for pair in np.flatnonzero(np.bincount(pairs)).tolist())
    return {(number + NONE, texts[code - 1]) for number, code in found if number and code}


def _kind(seen: set[str]) -> str | None:
    """What a step runs, by the phases seen in it; null where none was."""
    if "optimizer" in seen:
        return "training"
    if "backward" in seen:
        return "forward+backward"
    return "forward" if "forward" in seen else None


def _named_ranges(table: pa.Table, options: Options, lost: Counter[str]) -> tuple[pa.Table, list[str], list[RangeName]]:
    """The readable ranges, the scrubbed name of each dictionary entry, and what it says."""
    times = Timed(table)
    unclosed = table["end_ns"].is_null().to_numpy().astype(bool)
    lost["ranges_unclosed"] += int(np.count_nonzero(unclosed))
    lost["negative_durations"] += int(np.count_nonzero(times.backwards))
    if not times.told.all():
        table = table.filter(pa.array(times.told))
    # What a name says depends on its domain too.
    domain = dictionary(table["domain"] if "domain" in table.column_names else pa.nulls(table.num_rows, pa.string()))
    name = dictionary(table["name"])
    domains = domain.dictionary.to_pylist()
    texts = name.dictionary.to_pylist()
    domain_code = code_column(domain)
    pairs, which = np.unique(code_column(name) * (len(domains) + 1) + domain_code + 1, return_inverse=True)
    rules = options.names
    names, said = [], []
    for pair in pairs.tolist():
        text, of_domain = texts[pair // (len(domains) + 1)], pair % (len(domains) + 1) - 1
        said.append(rules.read(text, domains[of_domain] if of_domain >= 0 else None))
        names.append(scrub(text))
    codes = pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int32)), pa.array(names, pa.string()))
    return table.set_column(table.column_names.index("name"), "name", codes), names, said


def _streams(batch: pa.Table, process: Codes) -> Ints:
    """Numbers that tell streams apart, over devices."""
    streams = process.astype(np.int64)
    for column in ("device", "context", "stream"):
        streams = streams * 1_000_003 + int_column(batch, column)  # wraps around
    return np.asarray((streams ^ streams >> 32).astype(np.int32))


def _select(ranges: HostRanges, rows: np.typing.NDArray[np.bool_]) -> HostRanges:
    return HostRanges(
        ranges.start_ns[rows],
        ranges.end_ns[rows],
        ranges.thread[rows],
        ranges.process[rows],
        ranges.name[rows],
        ranges.said,
    )
