"""Turns the tables of a profile into a recording: joins work to launches and ranges, finds steps,
writes tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...base.errors import CurvescopeError
from ...base.limits import PART_FREE_TEXT_BYTES, PART_TEXT_PER_BYTE, check_limit
from ...base.prefetch import map_ahead
from ..recording.part_files import text_bytes
from ..recording.schema import TABLES
from ..recording.store import RecordingWriter, columns_of
from . import steps
from .collectives import is_communication
from .columns import (
    Growing,
    Timed,
    code_array,
    code_column,
    constant,
    count_true,
    dictionary,
    flags_of,
    int_column,
)
from .device_work import Captures, DeviceWork, Launches, Placed
from .kernel_columns import demangle_names, find_fused_operators
from .memory_peak import peak_rows
from .nesting import NONE, Bools, Codes, Ints
from .operator_calls import LaunchedWork, attach_work
from .operator_work import count_work
from .outermost_operators import OperatorKernels, operator_calls, outermost_operators
from .profile import Options, Profile, describe_steps
from .profile_spans import layer_classes, read_spans
from .timeline import Timeline

_CAPTURE_COLUMNS = ("graph_node_id", "capture_ns", "capture_thread_key")
_JOIN_COLUMNS = (
    "start_ns",
    "end_ns",
    "process",
    "correlation_id",
    "thread_key",
    "name",
    *_CAPTURE_COLUMNS,
)
_STREAM_COLUMNS = ("device", "context", "stream")  # needed if no range marks the steps

_COMMUNICATION = ("collective", "message_bytes", "group_size", "communicator")

_LEAST_ROW_BYTES = 8  # of a row in the file of a part
_WORKERS = 3  # threads that place and write batches; Arrow and NumPy release the interpreter lock
_AHEAD = 5  # batches in memory at once

_Result = TypeVar("_Result")


def assemble(profile: Profile, writer: RecordingWriter, options: Options) -> Timeline:
    """Write every table; returns the timeline with the steps.

    CurvescopeError: the wanted device has no work.
    """
    return _Assembly(profile, writer, options).run()


class _Assembly:
    def __init__(self, profile: Profile, writer: RecordingWriter, options: Options) -> None:
        self._profile = profile
        self._options = options
        self._lost: Counter[str] = Counter()
        self._ranges, self._spans, names = read_spans(profile.ranges, options, self._lost)
        push_pop = pc.equal(self._ranges["kind"], "push_pop").to_numpy().astype(bool)
        self._nested = self._spans.select(push_pop)
        columns = [name for name in _COMMUNICATION if name in self._ranges.column_names]
        self._nested_ranges = self._ranges.select(columns).filter(pa.array(push_pop))
        self._timeline = Timeline(self._spans, self._nested, names, options, profile.batch)
        self._has_shapes = bool(self._nested.operations)
        self._names = pa.array([], pa.string())  # names of kernels
        self._phases: dict[int, set[str]] = {}
        self._devices: set[int] = set()  # devices with work; filled if the user wants one of them
        self._writer = writer
        self._workers = ThreadPoolExecutor(_WORKERS)
        self._done = 0

    def run(self) -> Timeline:
        timeline = self._timeline
        with self._workers:
            ranges = self._workers.submit(self._write_ranges)
            timeline.join(self._write_launches())
            ranges.result()
            if timeline.marked and not self._has_shapes:
                # The step of a row is known when it is read, so one pass is enough.
                timeline.finish_marked_steps(list(self._write_as_read()))
            else:
                work = self._collect()
                # Return free memory before the joins, which need the most: this lowers the peak.
                pa.default_memory_pool().release_unused()
                if timeline.marked:
                    timeline.finish_marked_steps([(work.start_ns, work.step)])
                else:
                    timeline.find_steps(work, _communicate(self._names.to_pylist()))
                self._write_collected(work)
                self._write_operators(work)
            self._write_peaks()
        self._refuse_idle_device()
        for name, count in (self._lost + timeline.lost).items():
            self._writer.count_lost(name, count)
        for row in timeline.step_rows:
            row["mode"] = row["mode"] or steps.mode_of(self._phases.get(row["step"], set()))
        describe_steps(self._writer, timeline.step_rows, timeline.steps_from)
        entries: dict[str, Any] = {}
        classes = layer_classes(self._ranges, self._options.names)
        if classes:
            entries["layer_classes"] = classes
        entries["batch_from"] = timeline.batch_from
        total, inside = timeline.device_time_ns
        entries["device_time_in_steps"] = inside / total if total and timeline.step_rows else None
        self._writer.update(**entries)
        return timeline

    def _refuse_idle_device(self) -> None:
        device = self._options.device
        if device is not None and device not in self._devices:
            others = ", ".join(map(str, sorted(self._devices)))
            which = f"it has work of {others}" if others else "it names no device; omit --gpu"
            raise CurvescopeError(
                f"--gpu {device}: the profile has no work of this device; {which}."
            )

    def _in_order(
        self, work: Callable[..., _Result], items: Iterable[tuple[Any, ...]]
    ) -> Iterator[_Result]:
        """Results of `work`, in the order of the items; the workers take the next items
        meanwhile.
        """
        return map_ahead(self._workers, work, items, _AHEAD)

    def _write(self, table: str, part: str, columns: dict[str, Any], count: int) -> None:
        rows = pa.table({"source": constant(self._profile.source, count), **columns})
        _check_text(rows)
        self._writer.write(table, rows, part)

    def _columns_of(self, table: str, data: pa.Table) -> dict[str, Any]:
        wanted = {column.name for column in TABLES[table].columns}
        return {name: data[name] for name in data.column_names if name in wanted}

    def _write_ranges(self) -> None:
        host = self._spans
        table = self._ranges
        columns = self._columns_of("ranges", table)
        columns["start_ns"] = pa.array(host.start_ns)
        columns["duration_ns"] = pa.array(host.end_ns - host.start_ns)
        columns["step"] = code_array(self._timeline.marked.step_of(host.process, host.start_ns))
        if "shown" in table.column_names:
            shown = pc.fill_null(table["shown"], True)
            columns = {name: column.filter(shown) for name, column in columns.items()}
        self._write("ranges", self._writer.next_part("ranges"), columns, len(columns["step"]))

    def _write_launches(self) -> Launches:
        calls = Growing(Launches, self._profile.count)
        batches = (
            (self._writer.next_part("api_calls"), batch) for batch in self._profile.launches()
        )
        for placed in self._in_order(self._write_calls, batches):
            calls.append(placed)
            self._report("writing launches", len(placed.process))
        return calls.rows()

    def _write_calls(self, part: str, batch: pa.Table) -> Launches:
        times = Timed(batch)
        process = int_column(batch, "process").astype(np.int32)
        thread = int_column(batch, "thread_key")
        correlation = int_column(batch, "correlation_id")
        placed = self._timeline.place_calls(times.start_ns, process, thread, correlation)
        columns = self._columns_of("api_calls", batch) | times.columns()
        columns["step"] = code_array(placed.step)
        self._write("api_calls", part, columns, batch.num_rows)
        return placed

    def _batches(self, needed: Sequence[str] | None) -> Iterator[tuple[str, pa.Table]]:
        device = self._options.device
        if device is not None and needed is not None:
            needed = (*needed, "device")
        sources = {"kernels": self._profile.kernels, "memory": self._profile.memory}
        for table, batches in sources.items():
            for batch in batches(needed):
                if device is not None:
                    of_row = int_column(batch, "device")
                    self._devices.update(np.unique(of_row[of_row != NONE]).tolist())
                    batch = batch.filter(of_row == device)
                if table == "kernels" and "name" in batch.column_names:
                    batch = demangle_names(batch)
                yield table, batch

    def _place(self, batch: pa.Table) -> tuple[Timed, Codes, Placed]:
        times = Timed(batch, self._profile.replayed)
        process = int_column(batch, "process").astype(np.int32)
        thread = int_column(batch, "thread_key") if "thread_key" in batch.column_names else None
        correlation = int_column(batch, "correlation_id")
        work = times.start_ns, times.timed, process, correlation, thread
        return times, process, self._timeline.place_work(*work, _captures(batch))

    def _count_placed(self, times: Timed, process: Codes, placed: Placed) -> None:
        self._timeline.take(placed, process, times.timed, times.start_ns, times.end_ns)
        untimed = ~times.complete & ~times.backwards
        self._lost["negative_durations"] += count_true(times.backwards)
        self._lost["without_time"] += count_true(untimed)

    def _write_as_read(self) -> Iterator[tuple[Ints, Codes]]:
        """Write device work with marked steps; yields starts and steps."""

        def write(
            table: str, part: str, batch: pa.Table
        ) -> tuple[str, Timed, Codes, Placed, set[tuple[int, str]]]:
            times, process, placed = self._place(batch)
            phases = self._write_work(table, part, batch, times, placed.range_, placed.step)
            return table, times, process, placed, phases

        batches = (
            (table, self._writer.next_part(table), batch) for table, batch in self._batches(None)
        )
        for table, times, process, placed, phases in self._in_order(write, batches):
            self._count_placed(times, process, placed)
            self._add_phases(phases)
            self._report(f"writing {table}", len(placed.step))
            # no view: it would hold all columns of the batch
            yield times.start_ns.copy(), placed.step

    def _collect(self) -> DeviceWork:
        marked = bool(self._timeline.marked)

        def place(table: str, batch: pa.Table) -> tuple[Timed, Codes, Placed, DeviceWork]:
            times, process, placed = self._place(batch)
            name = np.full(batch.num_rows, NONE)
            if table == "kernels":
                names = dictionary(batch["name"])
                self._names = names.dictionary
                name = code_column(names)
            stream = np.zeros(batch.num_rows, np.int64) if marked else _streams(batch, process)
            work = DeviceWork(
                times.start_ns,
                times.end_ns,
                times.timed,
                placed.range_,
                placed.step,
                name.astype(np.int32),
                stream.astype(np.int32),
                placed.launch,
                int_column(batch, "thread_key") != NONE,
                int_column(batch, "capture_ns") != NONE,
            )
            return times, process, placed, work

        work = Growing(DeviceWork, self._profile.count)
        columns = _JOIN_COLUMNS if marked else (*_JOIN_COLUMNS, *_STREAM_COLUMNS)
        for times, process, placed, rows in self._in_order(place, self._batches(columns)):
            self._count_placed(times, process, placed)
            work.append(rows)
            done = self._done + work.count
            self._options.report("reading device work", done, self._profile.count)
        return work.rows()

    def _write_collected(self, work: DeviceWork) -> None:
        counted = self._count(work) if self._has_shapes else {}

        def batches() -> Iterator[tuple[str, str, pa.Table, int]]:
            first = 0
            for table, batch in self._batches(None):
                yield table, self._writer.next_part(table), batch, first
                first += batch.num_rows

        def write(
            table: str, part: str, batch: pa.Table, first: int
        ) -> tuple[str, int, set[tuple[int, str]]]:
            rows = slice(first, first + batch.num_rows)
            # FLOPs and bytes are columns of kernels only.
            counts = {}
            if table == "kernels":
                for name, column in counted.items():
                    counts[name] = column[rows.start : rows.stop]
            times = Timed(batch, self._profile.replayed)
            phases = self._write_work(
                table, part, batch, times, work.range_[rows], work.step[rows], counts
            )
            return table, batch.num_rows, phases

        for table, count, phases in self._in_order(write, batches()):
            self._add_phases(phases)
            self._report(f"writing {table}", count)

    def _write_operators(self, work: DeviceWork) -> None:
        """Write the outermost operators of one step per batch size: a step of median duration."""
        nested = self._nested
        placement = self._timeline.placement
        outer = outermost_operators(nested, placement)
        if (outer == NONE).all() or not self._timeline.step_rows:
            return
        marked = self._timeline.marked
        if marked:
            step_of = marked.step_of(nested.process, nested.start_ns).astype(np.int64)
        else:
            step_of = _steps_by_work(outer, work, len(self._timeline.step_rows))
        names = self._names.to_pylist()
        is_timed = work.timed & (work.kernel_name != NONE) & ~work.captured
        rows = []
        for batch, step_row in self._usual_steps().items():
            step = step_row["step"]
            at = np.flatnonzero(is_timed & (work.step == step))
            duration_ns = work.end_ns[at] - work.start_ns[at]
            kernel_names = [names[code] for code in work.kernel_name[at].tolist()]
            kernels = OperatorKernels(work.range_[at], duration_ns, kernel_names, work.on_host[at])
            calls = operator_calls(nested, placement, outer, kernels, step_of == step)
            rows += [{"batch": batch, **row} for row in calls.rows]
        part = self._writer.next_part("operators")
        self._write("operators", part, columns_of(rows), len(rows))

    def _usual_steps(self) -> dict[int | None, dict[str, Any]]:
        """The row of the step of median duration, by batch size."""
        steps_of: dict[int | None, list[dict[str, Any]]] = {}
        for row in sorted(self._timeline.step_rows, key=itemgetter("duration_ns")):
            steps_of.setdefault(row.get("batch"), []).append(row)
        usual = {}
        for batch in sorted(steps_of, key=lambda batch: (batch is None, batch)):
            rows = steps_of[batch]
            usual[batch] = rows[(len(rows) - 1) // 2]
        return usual

    def _write_peaks(self) -> None:
        """Write what held the memory at the peak of one step per batch size.

        Steps that nothing marks are of the device, which allocates nothing: they get the peak of
        the whole profile.
        """
        allocations = self._profile.allocations
        steps = self._usual_steps()
        marked = bool(self._timeline.marked)
        if allocations is None or not (marked or len(steps) == 1):
            return
        nested = self._nested
        placement = self._timeline.placement
        outer = outermost_operators(nested, placement)
        rows = []
        for batch, step in steps.items():
            window = (step["start_ns"], step["start_ns"] + step["duration_ns"])
            if not marked:
                window = (int(allocations.time_ns[0]), int(allocations.time_ns[-1]))
            peaks = peak_rows(nested, placement, outer, allocations, window)
            rows += [{"batch": batch, **row} for row in peaks]
        self._writer.write("peaks", columns_of(rows))

    def _count(self, work: DeviceWork) -> dict[str, pa.Array]:
        # An operator that was captured once is replayed in every step: its work belongs to none of
        # them alone.
        counts = work.timed & (work.kernel_name != NONE) & ~work.captured
        duration = np.where(counts, work.end_ns - work.start_ns, NONE)
        names = self._names.to_pylist()
        launched = LaunchedWork(work.range_, duration, work.kernel_name, names, work.on_host)
        nested = self._timeline.placement.nest
        flops, size = attach_work(self._nested, nested, launched, count_work)
        return {"flops": code_array(flops), "bytes_compulsory": code_array(size)}

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
        """Write device work; returns the pairs of step and phase in it."""
        columns = self._timeline.placement.take(range_)
        # Layers that the profile itself gives replace those of the ranges around a launch.
        columns |= self._columns_of(table, batch)
        columns |= times.columns()
        phases = _phases(step, columns["phase"])
        if table == "kernels":
            columns = self._of_communication(range_, batch) | columns
            fused = find_fused_operators(batch["name"])
            if fused is not None:
                columns["fused"] = fused
        if table == "memory":
            columns = self._columns_of(table, pa.table(columns))
        columns |= counts
        columns["step"] = code_array(step)
        self._write(table, part, columns, batch.num_rows)
        return phases

    def _of_communication(self, range_: Codes, batch: pa.Table) -> dict[str, pa.Array]:
        """What ranges of a library tell about the collectives launched in them; empty if none tells
        anything.
        """
        if not set(_COMMUNICATION) <= set(self._nested_ranges.column_names):
            return {}
        names = dictionary(batch["name"])
        moves = _communicate(names.dictionary.to_pylist())
        moves = moves[code_column(names)] if len(moves) else np.zeros(len(range_), np.bool_)
        at = pa.array(range_, mask=(range_ == NONE) | ~moves)
        columns = {}
        for name in _COMMUNICATION:
            columns[name] = self._nested_ranges[name].combine_chunks().take(at)
        return columns

    def _add_phases(self, phases: set[tuple[int, str]]) -> None:
        for step, phase in phases:
            self._phases.setdefault(step, set()).add(phase)

    def _report(self, what: str, count: int) -> None:
        self._done += count
        self._options.report(what, self._done, self._profile.count)


def _communicate(names: Sequence[str]) -> Bools:
    return flags_of(names, is_communication)


def _steps_by_work(outer: Ints, work: DeviceWork, steps: int) -> Ints:
    """The step of each outermost operator's first work, in a profile without marks.

    `NONE` if unknown.
    """
    if steps == 1:
        return np.zeros(len(outer), np.int64)
    is_placed = (work.range_ != NONE) & (work.step != NONE)
    rows = np.flatnonzero(is_placed & ~work.captured)
    latest_first = np.argsort(-work.start_ns[rows], kind="stable")
    rows = rows[latest_first]
    around = outer[work.range_[rows]]
    inside = around != NONE
    positions = np.full(len(outer), NONE, np.int64)
    # the last assignment, the earliest work, stays
    positions[around[inside]] = work.step[rows][inside]
    return positions


def _phases(step: Codes, phase: pa.Array) -> set[tuple[int, str]]:
    encoded = dictionary(phase)
    texts = encoded.dictionary.to_pylist()
    codes = len(texts) + 1  # 0 for none
    pairs = (step - NONE) * codes + code_column(encoded) + 1
    phases = set()
    for pair in np.flatnonzero(np.bincount(pairs)).tolist():
        number, code = divmod(pair, codes)
        if number and code:
            phases.add((number + NONE, texts[code - 1]))
    return phases


def _captures(batch: pa.Table) -> Captures | None:
    if "capture_ns" not in batch.column_names:
        return None
    node, time_ns, thread = (int_column(batch, column) for column in _CAPTURE_COLUMNS)
    return Captures(node != NONE, time_ns, thread)


def _streams(batch: pa.Table, process: Codes) -> Ints:
    streams = process.astype(np.int64)
    for column in _STREAM_COLUMNS:
        streams = streams * 1_000_003 + int_column(batch, column)  # wraps around
    return np.asarray((streams ^ streams >> 32).astype(np.int32))


def _check_text(rows: pa.Table) -> None:
    """Refuse rows that share long texts: each is written, and read, as often as rows name it."""
    total = 0
    for column in rows.columns:
        if pa.types.is_dictionary(column.type):
            lengths = [pc.max(pc.binary_length(chunk.dictionary)) for chunk in column.chunks]
            longest = max((length.as_py() or 0 for length in lengths), default=0)
            if longest * len(column) > PART_FREE_TEXT_BYTES:
                total += text_bytes(column)
    most = max(PART_FREE_TEXT_BYTES, PART_TEXT_PER_BYTE * _LEAST_ROW_BYTES * rows.num_rows)
    check_limit(total, most, f"bytes of text in {rows.num_rows:,} rows")
