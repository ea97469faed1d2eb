"""Reads CSV of Nsight Compute: the raw page with a column per metric, and the long form with a row
per metric.

Kernels are replayed for counting, so there is no timeline: a kernel has metrics and the duration of
one replay. The reader skips output of the tool and of the program around the table, and ignores
host and process names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ..attribution.profile import Options, describe_steps
from ..attribution.range_names import scrub
from ..recording.schema import KERNELS
from ..recording.store import RecordingWriter
from . import metrics
from .csv_lines import has_line, parse_number, rows_of
from .source import Source
from .values import read_extents, whole

NAME = "Nsight Compute CSV"

_HEADER = re.compile(r'^"?ID"?,"?Process ID"?,', re.MULTILINE)
_ERROR = re.compile(r"^==ERROR== (.*)$", re.MULTILINE)
_LOG = re.compile(r"^==PROF== ", re.MULTILINE)  # what ncu prints of itself
_LONGEST_ERROR = 300  # characters
_BATCH_ROWS = 50_000
# Metrics that describe the device instead of the kernel. Clocks are in kHz, the bus in bits.
_ATTRIBUTE = "device__attribute_"
DEVICE_ATTRIBUTES = _NAME, _SMS, _CLOCK, _BUS, _MEMORY_CLOCK = (
    f"{_ATTRIBUTE}display_name",
    f"{_ATTRIBUTE}multiprocessor_count",
    f"{_ATTRIBUTE}clock_rate",
    f"{_ATTRIBUTE}global_memory_bus_width",
    f"{_ATTRIBUTE}memory_clock_rate",
)
_VALUE = "Metric Value"
_Metric = tuple[str, str, str]
_TRIPLE = re.compile(r"\(\s*(\d+),\s*(\d+),\s*(\d+)\)")


def recognises(source: Source) -> bool:
    lines = ((_HEADER, "Process ID"), (_ERROR, "==ERROR=="), (_LOG, "==PROF=="))
    return any(has_line(source.text, line, word) for line, word in lines)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    lost: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    count = 0
    parts: set[str] = set()
    described: dict[str, str] = {}
    with source.open() as stream:
        for kernel in _kernels(rows_of(stream, _HEADER), lost, described):
            described.setdefault("CC", kernel["cells"].get("CC", ""))
            count += 1
            rows.append(_row(kernel, lost, parts))
            if len(rows) == _BATCH_ROWS:
                writer.write("kernels", pa.Table.from_pylist(rows, KERNELS.arrow))
                options.report("reading kernels", count, 0)
                rows.clear()
    if not count:
        error = _ERROR.search(source.text)
        if error:
            said = f"Nsight Compute says: {scrub(error[1].strip(), _LONGEST_ERROR)}"
        else:
            said = "no kernel was profiled"
        if not error and not has_line(source.text, _HEADER, "Process ID"):
            profiled = _count_profiled(source)
            if profiled:
                said = (
                    f"{counted(profiled, 'kernel')} {'was' if profiled == 1 else 'were'} profiled"
                )
            said += "; record with `ncu --csv --page raw --log-file FILE`"
            said += (
                ", or convert its report with `ncu --import REPORT --csv --page raw`"
                if profiled
                else ""
            )
            raise CurvescopeError(f"this is a log of Nsight Compute without a table of CSV; {said}")
        raise CurvescopeError(f"the table has no kernel; {said}")
    writer.write("kernels", pa.Table.from_pylist(rows, KERNELS.arrow))
    for name, number in lost.items():
        writer.count_lost(name, number)
    missing = {
        "timeline": "kernels were replayed for metrics: they have durations, but no start times"
    }
    missing["steps"] = (
        "no timeline, so no steps; a profile of Nsight Systems of the same command has them"
    )
    if (device := _device(described)) is not None:
        writer.update(device=device)
    writer.update(
        missing=missing, profiler={"name": "Nsight Compute"}, flops_counted=sorted(parts) or None
    )
    describe_steps(writer, [], None)


def _count_profiled(source: Source) -> int:
    """Number of kernels that a log says were profiled."""
    with source.open() as stream:
        return sum(line.startswith(b'==PROF== Profiling "') for line in stream)


def _kernels(
    rows: Iterator[list[str]], lost: Counter[str], described: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Each kernel with its values by metric, in B, ns and 1; puts the attributes of the first
    device in `described`.
    """
    kernel: dict[str, Any] = {"key": None}
    for key, cells, measured in _read_metrics(rows, lost):
        if key != kernel["key"]:
            if kernel["key"] is not None:
                yield kernel
            kernel = {"key": key, "cells": cells, "values": {}}
        for name, unit, text in measured:
            number = parse_number(text)
            factor = metrics.NCU_UNITS.get(unit)
            if name.startswith(_ATTRIBUTE):
                described.setdefault(name, text)
            elif number is not None and factor is not None:
                kernel["values"][name] = number * factor
            else:
                lost["metrics_unreadable"] += bool(text) and text != "n/a"
    if kernel["key"] is not None:
        yield kernel


def _read_metrics(
    rows: Iterator[list[str]], lost: Counter[str]
) -> Iterator[tuple[Any, dict[str, str], list[_Metric]]]:
    """Of each row the kernel that it belongs to, its cells by column, and known metrics: name, unit
    and value.
    """
    header = next(rows, [])
    names = metrics.known_names("ncu")
    understood = [name for name in header if name in names or name.startswith(_ATTRIBUTE)]
    # Rows of a metric end before the columns of rules, which stand in rows of their own.
    long = "Metric Name" in header
    units: dict[str, str] = {}  # of the raw page, in a row of its own
    for number, row in enumerate(rows):
        cells = dict(zip(header, row, strict=False))
        ends_early = long and _VALUE in cells and len(row) < len(header)
        if not long and not cells.get("ID") and not units:
            units = cells
        elif len(row) != len(header) and not ends_early:
            lost["metrics_unreadable"] += 1
        elif long:
            name = cells.get("Metric Name", "")
            measured = []
            if name in names or name.startswith(_ATTRIBUTE):
                measured = [(name, cells.get("Metric Unit", ""), cells.get("Metric Value", ""))]
            yield (cells.get("ID"), cells.get("Process ID")), cells, measured
        else:
            yield number, cells, [(name, units.get(name, ""), cells[name]) for name in understood]


def _device(described: Mapping[str, str]) -> dict[str, Any] | None:
    """Facts of the device by its attributes; None without its name."""
    if not (name := described.get(_NAME, "").strip()):
        return None

    def amount(attribute: str) -> int | None:
        number = parse_number(described.get(attribute, ""))
        if number is not None and 0 < number < 1 << 53:
            return round(number)
        return None

    clock = amount(_CLOCK)
    bus = amount(_BUS)
    memory_clock = amount(_MEMORY_CLOCK)
    return {
        "name": name,
        "compute_capability": described.get("CC") or None,
        "sm_count": amount(_SMS),
        "clock_hz": None if clock is None else clock * 1000,
        "memory_bytes_per_s": memory_rate(memory_clock, bus),
    }


def memory_rate(clock_khz: int | None, bus_bits: int | None) -> int | None:
    """Bytes per second of a DRAM with two transfers per clock, as CUDA's own deviceQuery computes
    it.
    """
    if clock_khz is None or bus_bits is None:
        return None
    return 2 * clock_khz * 1000 * bus_bits // 8


def _row(kernel: dict[str, Any], lost: Counter[str], parts: set[str]) -> dict[str, Any]:
    cells = kernel["cells"]
    values = kernel["values"]
    capability = cells.get("CC") or None
    columns = metrics.to_columns("ncu", values, capability)
    counted = metrics.parts("ncu", values, capability)
    parts.update(counted)
    lost["kernels_without_known_metric"] += not columns
    lost["flops_partly_counted"] += 0 < len(counted) < 3
    row: dict[str, Any] = {
        "name": scrub(cells.get("Kernel Name", "")) or "?",
        "device": whole(cells.get("Device")),
        "stream": whole(cells.get("Stream")),
        "source": "ncu",
    }
    for what in ("Grid", "Block"):
        triple = _TRIPLE.fullmatch(cells.get(f"{what} Size", ""))
        if triple is not None:
            row |= read_extents(what.lower(), triple.groups())
    return row | columns
