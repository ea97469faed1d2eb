"""Exports a recording to other formats: a Chrome trace for Perfetto, CSV, Parquet files.

A trace has an event for each row with a start time, and every column as its argument.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...base.csv_cells import FORMULA, NUMBER, csv_text
from ...base.errors import CurvescopeError
from .atomic_files import atomic_file, storage_error
from .part_files import read_batches
from .schema import TABLES
from .store import FORMAT, Recording

_BATCH_ROWS = 1 << 15
_DRAWN = "drawn"  # category of slices and counters that are no rows
Report = Callable[[str, int, int], None]


class Drawn(NamedTuple):
    """A slice or a value of a track that is no row of a recording."""

    process: str  # name of the group of tracks
    track: str
    name: str  # text of the slice, or name of the counter
    start_ns: int  # start, in the recording's time
    duration_ns: int | None  # duration; None for a value of a counter
    value: float | None = None  # value of a counter


Draw = Callable[[Recording], Iterable[Drawn]]


def export_trace(
    recording: Recording,
    target: Path,
    report: Report = lambda *_: None,
    draw: Draw = lambda _: (),
    others: Sequence[tuple[str, Recording]] = (),
    name: str = "",
) -> int:
    """Write a Chrome trace, compressed if the name ends in `.gz`; returns the number of rows
    without a start time.

    Times are microseconds with three decimals since the recording's first event; a float represents
    these exactly to the nanosecond for 52 days. `draw` gives further slices and counters of one.
    `others` are named further recordings, e.g. other ranks, each of which begins at time 0.
    """
    refuse_existing(target)
    base = _first_ns(recording)
    unplaced = 0
    with atomic_file(target) as file:
        stream = gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if target.suffix == ".gz" else file
        head = {
            "otherData": {"format": FORMAT},
            "baseTimeNanoseconds": base,
            "displayTimeUnit": "ns",
        }
        _put(
            stream,
            json.dumps(head, ensure_ascii=False, allow_nan=False)[:-1] + ', "traceEvents": [\n',
        )
        tracks = _Tracks()
        separator = ""
        everything = [(name, recording), *others]
        done = 0
        total = sum(_row_count(source) for _, source in everything)
        for tracks.owner, source in everything:
            base = _first_ns(source)
            for table in TABLES:
                for rows in _batches(source, table):
                    listed = rows.to_pylist()
                    placed = [row for row in listed if row.get("start_ns") is not None]
                    unplaced += len(listed) - len(placed)
                    events = [_event(table, row, base, tracks) for row in placed]
                    separator = _put_events(stream, separator, events)
                    done += rows.num_rows
                    report(f"exporting {table}", done, total)
            slices = (_write_drawn(drawn, base, tracks) for drawn in draw(source))
            while batch := list(islice(slices, _BATCH_ROWS)):
                separator = _put_events(stream, separator, batch)
        _put_events(
            stream, separator, [json.dumps(event, ensure_ascii=False) for event in tracks.names()]
        )
        _put(stream, "\n]}\n")
        if stream is not file:
            stream.close()
    return unplaced


# Columns of a result of a microbenchmark behind those of its axes.
_RESULT = (
    *("problem", "outcome", "median_ns", "low_ns", "high_ns", "best_ns", "gflop_per_s"),
    *("gb_per_s", "flops", "bytes_compulsory"),
)
_OF_PEAK = ("share", "level", "kind")


def export_results(recordings: Sequence[Recording], target: Path) -> None:
    """Write a folder with `results.csv`, a row for each problem of microbenchmarks: its axes as
    columns, its times and its rates.
    """
    _make_folder(target)
    _write_results(recordings, target)


def _write_results(recordings: Sequence[Recording], target: Path) -> None:
    rows: list[dict[str, Any]] = []
    axes: dict[str, None] = {}
    for recording in recordings:
        protocol = recording.meta["protocol"]
        for result in recording.meta["results"]:
            row = {**result.get("axes", {})}
            axes |= dict.fromkeys(row)
            row |= {name: result.get(name) for name in _RESULT}
            reached = result.get("of_peak") or {}
            row |= {f"of_peak_{name}": reached.get(name) for name in _OF_PEAK}
            row |= {"samples": result.get("n"), "cache": protocol["cache"]}
            row["backend"] = recording.meta["backend"]
            rows.append(row)
    of_peak = [f"of_peak_{name}" for name in _OF_PEAK]
    columns = [*axes, *_RESULT, *of_peak, "samples", "cache", "backend"]
    with atomic_file(target / "results.csv") as file:
        file.write(csv_text(columns, rows).encode())


def export_text(text: str, target: Path) -> None:
    """Write a new text file."""
    refuse_existing(target)
    with atomic_file(target) as file:
        file.write(text.encode())


def export_csv(recording: Recording, target: Path) -> None:
    """Write a folder with one CSV per non-empty table, and of a microbenchmark with its results;
    null is an empty field, text is quoted and no formula.
    """
    from pyarrow import csv  # late: an import needs no CSV

    _export_files(
        recording,
        target,
        "csv",
        lambda schema, file: csv.CSVWriter(file, schema),
        _without_formulas,
    )
    if recording.meta.get("results"):
        _write_results([recording], target)


def export_parquet(recording: Recording, target: Path) -> None:
    """Write a folder with one Parquet file per non-empty table."""
    _export_files(
        recording, target, "parquet", lambda s, file: pq.ParquetWriter(file, s, compression="zstd")
    )


def _without_formulas(rows: pa.Table) -> pa.Table:
    """Rows whose texts no spreadsheet takes for formulas, see `csv_cells`."""
    for place, field in enumerate(rows.schema):
        if field.type == pa.string():
            begins = pc.match_substring_regex(rows[field.name], FORMULA)
            is_number = pc.match_substring_regex(rows[field.name], NUMBER)
            marked = pc.binary_join_element_wise("'", rows[field.name], "")
            texts = pc.if_else(pc.and_not(begins, is_number), marked, rows[field.name])
            rows = rows.set_column(place, field, texts)
    return rows


def _export_files(
    recording: Recording,
    target: Path,
    ending: str,
    open_writer: Callable[..., Any],
    change: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> None:
    _make_folder(target)
    for name, table in TABLES.items():
        if recording.parts(name):
            with (
                atomic_file(target / f"{name}.{ending}") as file,
                open_writer(table.arrow, file) as writer,
            ):
                for batch in _batches(recording, name):
                    writer.write_table(change(batch))


def _make_folder(target: Path) -> None:
    refuse_existing(target)
    try:
        target.mkdir(parents=True)
    except OSError as error:
        raise storage_error(target, error) from error


def _batches(recording: Recording, table: str) -> Iterator[pa.Table]:
    for part in recording.parts(table):
        yield from read_batches(part, TABLES[table], _BATCH_ROWS)


def _row_count(recording: Recording) -> int:
    return sum(recording.count_rows(table) for table in TABLES)


def _put_events(stream: BinaryIO | gzip.GzipFile, separator: str, events: Sequence[str]) -> str:
    """Write events; returns what must stand before the next ones."""
    if events:
        _put(stream, separator + ",\n".join(events))
    return ",\n" if events else separator


def _write_drawn(drawn: Drawn, base_ns: int, tracks: _Tracks) -> str:
    process, thread = tracks.place_drawn(drawn)
    at = f'"pid": {process}, "tid": {thread}, "ts": {_microseconds(drawn.start_ns - base_ns)}'
    kind = "C"
    more = f'"args": {{"value": {drawn.value}}}'
    if drawn.duration_ns is not None:
        kind = "X"
        more = f'"dur": {_microseconds(drawn.duration_ns)}'
    return f'{{"ph": "{kind}", "cat": "{_DRAWN}", "name": {_text(drawn.name)}, {at}, {more}}}'


def _event(table: str, row: dict[str, Any], base_ns: int, tracks: _Tracks) -> str:
    args = {name: value for name, value in row.items() if value is not None}
    time = _microseconds(args.pop("start_ns") - base_ns)
    duration = args.pop("duration_ns", None)
    kind = "i"
    length = ""
    if duration is not None:
        kind = "X"
        length = f', "dur": {_microseconds(duration)}'
    name = args.pop("name", None)
    shown = _text(name or _name_untitled(table, args))
    process, thread = tracks.place(table, row)
    return (
        f'{{"ph": "{kind}", "cat": "{table}", "name": {shown}, "pid": {process}, '
        f'"tid": {thread}, "ts": {time}{length}, "args": {_text(args)}}}'
    )


def _name_untitled(table: str, args: dict[str, Any]) -> str:
    if table == "steps":
        return f"step {args['step']}"
    if table == "experiments":
        return (
            f"experiment {args['experiment']}, {args.get('factor', 'without a change')}, batch "
            f"{args['batch']}"
        )
    return str(args.get("kind", table))


def _microseconds(nanoseconds: int) -> str:
    """Microseconds with three exact decimals, which a float would round."""
    whole, rest = divmod(abs(nanoseconds), 1000)
    return f"{'-' if nanoseconds < 0 else ''}{whole}.{rest:03d}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


class _Tracks:
    def __init__(self) -> None:
        # name of the recording whose tracks these are, if there are several
        self.owner = ""
        self._processes: dict[tuple[str, int | None], int] = {}
        self._of_drawn: dict[tuple[str, str], int] = {}
        self._threads: dict[tuple[int, int], str] = {}

    def place(self, table: str, row: dict[str, Any]) -> tuple[int, int]:
        of = row.get("process")
        if table in ("api_calls", "ranges"):
            thread = row.get("thread") or 0
            return self._put(("host", of), thread, f"thread {thread}")
        if table in ("steps", "experiments"):
            return self._put((table, of), 0, table)
        device = row.get("device")
        stream = row.get("stream") or 0
        name = "host kernels" if device is None else f"device {device}"
        return self._put((name, of), stream, f"stream {stream}")

    def place_drawn(self, drawn: Drawn) -> tuple[int, int]:
        thread = self._of_drawn.setdefault((drawn.process, drawn.track), len(self._of_drawn))
        return self._put((drawn.process, None), thread, drawn.track)

    def names(self) -> Iterator[dict[str, Any]]:
        numbers = {number for _, number in self._processes if number is not None}
        for (name, number), process in self._processes.items():
            if len(numbers) > 1 and number is not None:
                name = f"{name} of process {number}"
            yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        for (process, thread), name in self._threads.items():
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": process,
                "tid": thread,
                "args": {"name": name},
            }

    def _put(self, process: tuple[str, int | None], thread: int, name: str) -> tuple[int, int]:
        title, of_process = process
        if self.owner:
            title = f"{self.owner}: {title}"
        number = self._processes.setdefault((title, of_process), len(self._processes) + 1)
        self._threads.setdefault((number, thread), name)
        return number, thread


def _first_ns(recording: Recording) -> int:
    starts = []
    for name, table in TABLES.items():
        if "start_ns" in table.arrow.names:
            starts += [pa.compute.min(rows["start_ns"]) for rows in _batches(recording, name)]
    times = [start.as_py() for start in starts if start.is_valid]
    return min(times, default=0)


def refuse_existing(target: Path) -> None:
    """Refuse to write where something is: nothing is overwritten."""
    if target.exists():
        raise CurvescopeError(
            f"{target} exists already; nothing is overwritten. Choose another -o."
        )


def _put(stream: BinaryIO | gzip.GzipFile, text: str) -> None:
    stream.write(text.encode("utf-8", errors="replace"))
