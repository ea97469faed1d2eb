"""Reads the output of nvprof: GPU traces and metrics, as CSV (`--csv`) or plain text, mixed with
program output.

A trace (`--print-gpu-trace`) has units in a second row of its CSV, or with each value. Metrics
(`--metrics`) are means over the invocations of a kernel, and become as many rows, so that sums are
right; kernels are replayed for them, so there is no timeline. With `--print-gpu-trace` they are
columns of each launch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from ...base.errors import CurvescopeError
from ..attribution.assemble import assemble
from ..attribution.columns import constant
from ..attribution.profile import Options, describe_steps, profile_of_tables, table_of_rows
from ..attribution.range_names import scrub
from ..recording.schema import KERNELS
from ..recording.store import RecordingWriter
from . import metrics
from .csv_lines import lines_of, parse_number, parse_row
from .source import Source
from .values import read_extents, whole

NAME = "nvprof output"

# A search of a whole text: no two parts of a pattern take the same characters, or a run of them
# takes quadratic time.
_BANNER = re.compile(
    r"^={2,}(?:\d+=*)?\s*"
    r"(?:NVPROF is profiling|Profiling (?:application|result)|(?:Metric|Event) result)",
    re.MULTILINE,
)
_TRACE_CSV = re.compile(r'^"?Start"?,"?Duration"?,', re.MULTILINE)
_TRACE_TEXT = re.compile(r"^[ \t]*Start\s+Duration\s+.*\bName\s*$", re.MULTILINE)
_METRICS_CSV = re.compile(r'^"?Device"?,"?Kernel"?,"?Invocations"?,"?Metric Name"?', re.MULTILINE)
_METRICS_TEXT = re.compile(
    r"^Invocations\s+Metric Name\s+Metric Description\s+Min\s+Max\s+Avg\s*$", re.MULTILINE
)
_LAUNCH_METRICS_CSV = re.compile(r'^"?Device"?,"?Context"?,"?Stream"?,"?Kernel"?,', re.MULTILINE)
_SUMMARY = re.compile(
    r'^(?:"?Type"?,)?"?Time\(%\)"?,|^[ \t]*(?:Type\s+)?Time\(%\)\s+Time\s+Calls', re.MULTILINE
)
_HEADERS = (_TRACE_CSV, _TRACE_TEXT, _METRICS_CSV, _METRICS_TEXT, _LAUNCH_METRICS_CSV)

_DROPPED = re.compile(r"={2,}(?:\d+=*)? Warning: (\d{1,15}) records have invalid timestamps")
_SAID = re.compile(
    r"={2,}(?:\d+=*)? (?:Warning|Error): (?P<text>.*profil.*|.*record.*)", re.IGNORECASE
)
_LONGEST_SAID = 300  # characters
_VALUE = re.compile(r"(-?[\d.]+(?:e[+-]?\d+)?)\s*([A-Za-z%/]*)")
_DEVICE = re.compile(r"(.*) \((\d{1,5})\)")
_CORRELATION = re.compile(r" \[(\d{1,18})\]$")
_TRIPLE = re.compile(r"\((\d{1,10}) (\d{1,10}) (\d{1,10})\)")
_COPY = re.compile(r"\[(?:CUDA|Unified Memory) memcpy (\w+)\]", re.IGNORECASE)
_COPY_KINDS = {kind: kind for kind in ("HtoD", "DtoH", "DtoD", "HtoH", "PtoP")} | {
    "HtoA": "HtoD",
    "AtoH": "DtoH",
}
_COLUMNS = {
    **{f"{what} {axis}": f"{what}_{axis}".lower() for what in ("Grid", "Block") for axis in "XYZ"},
    "Registers Per Thread": "registers_per_thread",
    "Regs*": "registers_per_thread",
    "Context": "context",
    "Stream": "stream",
}
_MOST_INVOCATIONS = 10_000_000
_BATCH_ROWS = 50_000


def recognises(source: Source) -> bool:
    return _BANNER.search(source.text) is not None or any(
        header.search(source.text) for header in _HEADERS
    )


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    reader = _Output(writer, options)
    with source.open() as stream:
        reader.run(reader.heeding(lines_of(stream)))
    if not reader.found:
        summary = "the file has no table"
        if _SUMMARY.search(source.text):
            summary = "the file has only a summary, without single kernels"
        said = f" nvprof says: {reader.said}" if reader.said else ""
        raise CurvescopeError(
            f"{summary}; record with `nvprof --csv --print-gpu-trace` or `--csv --metrics …`.{said}"
        )
    reader.finish()


class _Output:
    def __init__(self, writer: RecordingWriter, options: Options) -> None:
        self._writer = writer
        self._options = options
        self._lost: Counter[str] = Counter()
        self._kernels: list[dict[str, Any]] = []  # rows of a trace
        self._memory: list[dict[str, Any]] = []
        self._device: str | None = None
        self._parts: set[str] = set()
        self._measured = 0
        self.found = False
        self.said: str | None = None

    def heeding(self, lines: Iterator[str]) -> Iterator[str]:
        """The lines; counts what nvprof dropped by its own words, and keeps its first warning or
        error on recording.
        """
        for line in lines:
            if line.startswith("=="):
                if match := _DROPPED.match(line):
                    self._lost["nvprof_dropped"] += int(match[1])
                if self.said is None and (match := _SAID.match(line)):
                    self.said = scrub(match["text"].strip(), _LONGEST_SAID)
            yield line

    def run(self, lines: Iterator[str]) -> None:
        for line in lines:
            if _TRACE_CSV.match(line):
                self._trace(parse_row(line), _csv_cells(lines), csv=True)
            elif _TRACE_TEXT.match(line):
                self._trace(re.split(r"\s{2,}", line.strip()), _text_cells(lines), csv=False)
            elif _METRICS_CSV.match(line):
                header = parse_row(line)
                self._metrics(dict(zip(header, cells, strict=False)) for cells in _csv_cells(lines))
            elif _METRICS_TEXT.match(line):
                self._metrics(_metrics_of_text(lines))
            elif _LAUNCH_METRICS_CSV.match(line):
                self._launch_metrics(parse_row(line), _csv_cells(lines))
            else:
                continue
            self.found = True

    def finish(self) -> None:
        """Write the remaining rows."""
        missing = {"ranges": "a trace has no NVTX ranges, so layer and phase are unknown"}
        if not self._kernels and not self._measured:
            missing["kernels"] = "the table has no kernel, so GPU activity was not recorded"
        if self._measured:
            missing["timeline"] = "kernels were replayed for metrics, so they have no start times"
        for name, count in self._lost.items():
            self._writer.count_lost(name, count)
        device = None if self._device is None else {"name": self._device}
        counted = sorted(self._parts) or None
        self._writer.update(
            device=device, missing=missing, profiler={"name": "nvprof"}, flops_counted=counted
        )
        if self._kernels or self._memory:
            # no ranges, no API calls
            tables = map(table_of_rows, ((), (), self._kernels, self._memory))
            assemble(profile_of_tables("nvprof", *tables), self._writer, self._options)
        else:
            describe_steps(self._writer, [], None)

    def _trace(self, header: list[str], rows: Iterator[list[str]], *, csv: bool) -> None:
        units: dict[str, str] = {}
        for cells in rows:
            if csv and not units and len(cells) >= 2 and parse_number(cells[0]) is None:
                units = dict(zip(header, cells, strict=False))
                continue
            if len(cells) != len(header):
                self._lost["rows_unreadable"] += 1
                continue
            row = {}
            for name, cell in zip(header, cells, strict=True):
                if cell not in ("", "-"):
                    row[name] = cell
            self._take(row, units)

    def _take(self, row: dict[str, str], units: dict[str, str]) -> None:
        def value(*names: str) -> float | None:
            """The first existing column, in ns, B or 1."""
            present = (name for name in names if _VALUE.fullmatch(row.get(name, "")))
            return next((_parse_value(row[name], units.get(name, "")) for name in present), None)

        name = row.get("Name", "")
        start = value("Start")
        duration = value("Duration")
        device = row.get("Device", "")
        if start is None or not name:
            self._lost["rows_unreadable"] += 1
            return
        if not device or duration is None:
            self._lost["rows_of_other_kinds"] += 1
            return
        begin = round(start)
        columns: dict[str, Any] = {
            "start_ns": begin,
            "end_ns": begin + round(duration),
            **self._take_device(device),
        }
        for theirs, ours in _COLUMNS.items():
            number = value(theirs)
            if number is not None and number < 1 << 31:
                columns[ours] = int(number)
        if name.startswith("["):
            copy = _COPY.fullmatch(name)
            if copy is not None:
                columns |= {"kind": "memcpy", "memcpy_kind": _COPY_KINDS.get(copy[1])}
            elif name.lower() == "[cuda memset]":
                columns |= {"kind": "memset", "memcpy_kind": None}
            else:
                self._lost["rows_of_other_kinds"] += 1
                return
            size = value("Size")
            columns["bytes"] = None if size is None else round(size)
            self._memory.append(columns)
            return
        for what in ("Grid", "Block"):
            triple = _TRIPLE.fullmatch(row.get(f"{what} Size", ""))
            if triple is not None:
                columns |= read_extents(what.lower(), triple.groups())
        static = value("Static SMem", "SSMem*")
        dynamic = value("Dynamic SMem", "DSMem*")
        if static is not None and dynamic is not None:
            columns["shared_memory_bytes"] = round(static + dynamic)
        correlation = _CORRELATION.search(name)
        if correlation is not None:
            columns["correlation_id"] = int(correlation[1])
            name = name[: correlation.start()]
        self._kernels.append({**columns, "name": scrub(name)})

    def _take_device(self, device: str) -> dict[str, int | None]:
        """The column device of a cell, e.g. `Tesla K40m (0)`; nvprof cuts long names, and the
        number with them.
        """
        match = _DEVICE.fullmatch(device)
        self._device = self._device or (match[1] if match is not None else device) or None
        return {"device": int(match[2]) if match is not None else None}

    def _metrics(self, rows: Iterator[dict[str, str]]) -> None:
        """Read rows of one metric of one kernel each; a kernel's rows are consecutive."""
        for key, of_kernel in groupby(
            rows, lambda row: (row.get("Device"), row.get("Kernel"), row.get("Invocations"))
        ):
            measured = ((row.get("Metric Name", ""), row.get("Avg", "")) for row in of_kernel)
            self._add_measured_kernel(*key, self._values(measured))

    def _launch_metrics(self, header: list[str], rows: Iterator[list[str]]) -> None:
        """Read rows of one launch each, with a column per metric."""
        for cells in rows:
            row = dict(zip(header, cells, strict=False))
            if len(cells) != len(header) or not row.get("Device"):
                if any(map(parse_number, cells)):  # otherwise it is the row of units
                    self._lost["rows_unreadable"] += 1
                continue
            values = self._values((name.split(" ")[0], text) for name, text in row.items())
            self._add_measured_kernel(row.get("Device"), row.get("Kernel"), "1", values)

    def _values(self, measured: Iterable[tuple[str, str]]) -> dict[str, float]:
        """The known metrics by name."""
        known_names = metrics.known_names("nvprof")
        values = {name: _parse_value(text) for name, text in measured if name in known_names}
        unreadable = [name for name, value in values.items() if value is None]
        self._lost["metrics_unreadable"] += len(unreadable)
        return {name: value for name, value in values.items() if value is not None}

    def _add_measured_kernel(
        self,
        device: str | None,
        kernel: str | None,
        invocations: str | None,
        values: dict[str, float],
    ) -> None:
        count = whole(invocations, _MOST_INVOCATIONS)
        if not kernel or not count:
            self._lost["rows_unreadable"] += 1
            return
        columns = metrics.to_columns("nvprof", values)
        parts = metrics.parts("nvprof", values)
        self._parts.update(parts)
        lacks_parts = bool(parts) and len({*parts} - {"half precision"}) < 2
        self._lost["kernels_without_known_metric"] += 0 if columns else count
        self._lost["flops_partly_counted"] += count if lacks_parts else 0
        self._lost["metrics_averaged"] += count if count > 1 else 0
        arrays = {}
        for name, cell in {**self._take_device(device or ""), **columns}.items():
            arrays[name] = pa.array([cell], KERNELS.arrow.field(name).type)
        # A long name is stored once for ten million launches.
        arrays |= {"name": constant(scrub(kernel), 1), "source": constant("nvprof", 1)}
        for first in range(0, count, _BATCH_ROWS):
            launches = pa.repeat(0, min(_BATCH_ROWS, count - first))
            self._writer.write("kernels", pa.table(arrays).take(launches))
        self._measured += count


def _parse_value(text: str, unit: str = "") -> float | None:
    """A number in ns, B or 1; `unit` is for a number without one; None for other text."""
    if (match := _VALUE.fullmatch(text)) is None:
        return None
    number = parse_number(match[1])
    factor = metrics.NVPROF_UNITS.get(match[2] or unit)
    if number is None or factor is None:
        return None
    return number * factor


def _csv_cells(lines: Iterator[str]) -> Iterator[list[str]]:
    """Cells up to the next banner; output of the program in between has too few cells."""
    for line in lines:
        if line.startswith("=="):
            return
        if line.strip():
            yield parse_row(line)


def _text_cells(lines: Iterator[str]) -> Iterator[list[str]]:
    for line in lines:
        if line.startswith("==") or not line.strip():
            return
        yield re.split(r"\s{2,}", line.strip())


def _metrics_of_text(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    device = kernel = ""
    for line in lines:
        text = line.strip()
        if line.startswith("=="):
            return
        if text.startswith('Device "'):
            device = text.removeprefix('Device "').removesuffix('"')
        elif text.startswith("Kernel: "):
            kernel = text.removeprefix("Kernel: ")
        else:
            cells = re.split(r"\s{2,}", text)
            if len(cells) == 6 and cells[0].isdecimal():
                of_kernel = {"Device": device, "Kernel": kernel, "Invocations": cells[0]}
                yield {**of_kernel, "Metric Name": cells[1], "Avg": cells[5]}
