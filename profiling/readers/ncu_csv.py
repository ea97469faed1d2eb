"""Reads CSV of Nsight Compute: the raw page with a column per metric, and the long form with a row per metric.

Kernels are replayed for counting, so there is no timeline: a kernel has metrics and the duration of one replay. The
reader skips output of the tool and of the program around the table, and ignores host and process names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ...base.errors import CurvescopeError
from ..attribution.profile import Options, describe_steps
from ..attribution.range_names import scrub
from ..recording.schema import KERNELS
from ..recording.store import RecordingWriter
from . import metrics
from .csv_lines import has_line, parse_number, rows_of
from .source import Source

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
_TRIPLE = re.compile(r"\(\s*(\d+),\s*(\d+),\s*(\d+)\)")


def recognises(source: Source) -> bool:
    """Whether the first lines contain the header of such a table, or only what the tool says of itself."""
    lines = ((_HEADER, "Process ID"), (_ERROR, "==ERROR=="), (_LOG, "==PROF=="))
    return any(has_line(source.text, line, word) for line, word in lines)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the table; the recording has no steps.

    Raises:
        CurvescopeError: the table has no kernel.
    """
    lost: Counter[str] = Counter()
    seen: set[str] = set()
    rows: list[dict[str, Any]] = []
    count = 0
    parts: set[str] = set()
    described: dict[str, str] = {}
    with source.open() as stream:
        for kernel in _kernels(rows_of(stream, _HEADER), lost, described):
            described.setdefault("CC", kernel["cells"].get("CC", ""))
            row = _row(kernel, lost, parts)
            count += 1
            rows.append(row)
            seen.update(kernel["values"])
            if len(rows) == _BATCH_ROWS:
                writer.write("kernels", pa.Table.from_pylist(rows, KERNELS.arrow))
                options.report("reading kernels", count, 0)
                rows.clear()
    if not count:
        error = _ERROR.search(source.text)
        said = f"Nsight Compute says: {scrub(error[1].strip(), _LONGEST_ERROR)}" if error else "no kernel was profiled"
        if not error and not has_line(source.text, _HEADER, "Process ID"):
            said += "; record with `ncu --csv --page raw --log-file FILE`"
            raise CurvescopeError(f"this is a log of Nsight Compute without a table; {said}")
        raise CurvescopeError(f"the table has no kernel; {said}")
    writer.write("kernels", pa.Table.from_pylist(rows, KERNELS.arrow))
    for name, number in lost.items():
        writer.count_lost(name, number)
    missing = {"timeline": "kernels were replayed for metrics: they have durations, but no start times"}
    missing["steps"] = "no timeline, so no steps; a profile of Nsight Systems of the same command has them"
    if (device := _device(described)) is not None:
        writer.update(device=device)
    writer.update(missing=missing, profiler={"name": "Nsight Compute"}, flops_counted=sorted(parts) or None)
    describe_steps(writer, [], None)


def _kernels(rows: Iterator[list[str]], lost: Counter[str], described: dict[str, str]) -> Iterable[dict[str, Any]]:
    """Each kernel with its values by metric, in B, ns and 1; puts the attributes of the first device in `described`."""
    header = next(rows, None)
    if header is None:
        return
    known = metrics.known_names("ncu")
    if "Metric Name" in header:
        yield from _from_long(header, rows, known, lost, described)
        return
    units: dict[str, str] = {}
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        if not cells.get("ID") and not units:
            units = cells
            continue
        if len(row) != len(header):
            lost["metrics_unreadable"] += 1
            continue
        if not described:
            described.update((name, cells[name]) for name in header if name.startswith(_ATTRIBUTE))
        values: dict[str, float] = {}
        for name in known.intersection(cells):
            _add_metric(values, name, cells[name], units.get(name, ""), lost)
        yield {"cells": cells, "values": values}


def _from_long(
    header: list[str],
    rows: Iterator[list[str]],
    known: frozenset[str],
    lost: Counter[str],
    described: dict[str, str],
) -> Iterable[dict[str, Any]]:
    kernel: dict[str, Any] | None = None
    for row in rows:
        if len(row) != len(header):
            lost["metrics_unreadable"] += 1
            continue
        cells = dict(zip(header, row, strict=True))
        key = cells.get("ID"), cells.get("Process ID")
        if kernel is None or kernel["key"] != key:
            if kernel is not None:
                yield kernel
            kernel = {"key": key, "cells": cells, "values": {}}
        if cells["Metric Name"] in known:
            unit, value = cells.get("Metric Unit", ""), cells.get("Metric Value", "")
            _add_metric(kernel["values"], cells["Metric Name"], value, unit, lost)
        elif cells["Metric Name"].startswith(_ATTRIBUTE):
            described.setdefault(cells["Metric Name"], cells.get("Metric Value", ""))
    if kernel is not None:
        yield kernel


def _device(described: Mapping[str, str]) -> dict[str, Any] | None:
    """Facts of the device by its attributes; None without its name."""
    if not (name := described.get(_NAME, "").strip()):
        return None

    def amount(attribute: str) -> int | None:
        number = parse_number(described.get(attribute, ""))
        return round(number) if number is not None and 0 < number < 1 << 53 else None

    clock, bus, memory_clock = amount(_CLOCK), amount(_BUS), amount(_MEMORY_CLOCK)
    return {
        "name": name,
        "compute_capability": described.get("CC") or None,
        "sm_count": amount(_SMS),
        "clock_hz": None if clock is None else clock * 1000,
        "memory_bytes_per_s": memory_rate(memory_clock, bus),
    }


def memory_rate(clock_khz: int | None, bus_bits: int | None) -> int | None:
    """Bytes per second of a DRAM with two transfers per clock, as CUDA's own deviceQuery computes it."""
    return None if clock_khz is None or bus_bits is None else 2 * clock_khz * 1000 * bus_bits // 8


def _add_metric(values: dict[str, float], name: str, text: str, unit: str, lost: Counter[str]) -> None:
    number = parse_number(text)
    factor = metrics.NCU_UNITS.get(unit)
    if number is None or factor is None:
        lost["metrics_unreadable"] += bool(text) and text != "n/a"
        return
    values[name] = number * factor


def _row(kernel: dict[str, Any], lost: Counter[str], parts: set[str]) -> dict[str, Any]:
    cells, values = kernel["cells"], kernel["values"]
    capability = cells.get("CC") or None
    columns = metrics.to_columns("ncu", values, capability)
    counted = metrics.parts("ncu", values, capability)
    parts.update(counted)
    lost["kernels_without_known_metric"] += not columns
    lost["flops_partly_counted"] += 0 < len(counted) < 3
    row: dict[str, Any] = {
        "name": scrub(cells.get("Kernel Name", "")) or "?",
        "device": _parse_integer(cells.get("Device")),
        "stream": _parse_integer(cells.get("Stream")),
        "source": "ncu",
    }
    for what, column in (("grid", "Grid Size"), ("block", "Block Size")):
        if (found := _TRIPLE.fullmatch(cells.get(column, ""))) is not None:
            extents = [int(extent) for extent in found.groups()]
            if max(extents) < 1 << 31:
                row |= dict(zip((f"{what}_x", f"{what}_y", f"{what}_z"), extents, strict=True))
    return row | columns


def _parse_integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None
