"""Reads the trace of GPU work that `nsys stats --report cuda_gpu_trace --format csv` prints, also
in its older form.

The unit of times is in the header. Sizes are rounded to thousandths of a megabyte there, so they
are not read. A trace has no API calls and no ranges, so kernels have no layer; the SQLite export of
the report has them all. A summary has no time of a single kernel and is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...base.errors import CurvescopeError
from ..attribution.assemble import assemble
from ..attribution.cupti_names import COPY_KINDS
from ..attribution.profile import profile_of_tables, table_of_rows
from ..attribution.range_names import scrub
from ..recording.store import RecordingWriter
from . import Options
from .csv_lines import has_line, parse_number, rows_of
from .source import Source
from .values import LATEST_NS, whole

NAME = "Nsight Systems CSV (cuda_gpu_trace)"

_HEADER = re.compile(r'^"?Start ?\(\w+\)"?,"?Duration ?\(\w+\)"?,"?CorrId', re.MULTILINE)
_SUMMARY = re.compile(r'^"?Time ?\(%\)"?,"?Total Time ?\(\w+\)"?,', re.MULTILINE)
_UNIT = re.compile(r"\((\w+)\)")
_NANOSECONDS = {
    "ns": 1,
    "us": 1000,
    "ms": 10**6,
    "s": 10**9,
    "nsec": 1,
    "usec": 1000,
    "msec": 10**6,
    "sec": 10**9,
}
_DEVICE = re.compile(r"(.*\S) ?\((\d{1,4})\)")
_COPY = re.compile(r"\[CUDA (memcpy|memset)(?: (\w)\w*-?to-?(\w))?")
_EXPORT = (
    "`nsys stats --report cuda_gpu_trace --format csv FILE`, or better "
    "`nsys export --type sqlite FILE`, writes it."
)
_MISSING = {
    "ranges": "the table has no ranges, so no layers; import the SQLite export of the report",
    "api_calls": "the table has no CUDA calls; import the SQLite export of the report",
}


def recognises(source: Source) -> bool:
    return has_line(source.text, _HEADER, "CorrId") or has_line(source.text, _SUMMARY, "Total Time")


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    if not _HEADER.search(source.text):
        raise CurvescopeError(f"it is a summary, without the times of single kernels; {_EXPORT}")
    lost: Counter[str] = Counter()
    kernels: list[dict[str, Any]] = []
    memory: list[dict[str, Any]] = []
    names: list[str] = []
    with source.open() as stream:
        for row in _rows(rows_of(stream, _HEADER), lost):
            names += [name] if (name := row.pop("device_name")) and not names else []
            (memory if "kind" in row else kernels).append(row)
    if not kernels:
        raise CurvescopeError("it has no kernel; record with `nsys profile --trace=cuda,nvtx`.")
    for name, count in lost.items():
        writer.count_lost(name, count)
    device = {"name": names[0]} if names else None
    writer.update(device=device, profiler={"name": "Nsight Systems"}, missing=_MISSING)
    assemble(
        profile_of_tables("nsys", *map(table_of_rows, ((), (), kernels, memory))), writer, options
    )


def _rows(rows: Iterator[list[str]], lost: Counter[str]) -> Iterator[dict[str, Any]]:
    header = next(rows, [])
    units = [match[1] if (match := _UNIT.search(name)) else "" for name in header]
    names = [name.partition("(")[0].strip() for name in header]
    factors = {name: _NANOSECONDS.get(unit) for name, unit in zip(names, units, strict=True)}
    for cells in rows:
        cell = dict(zip(names, cells, strict=False))
        start, duration = (
            _time(cell.get(name, ""), factors.get(name)) for name in ("Start", "Duration")
        )
        name = cell.get("Name", "")
        if len(cells) != len(names) or start is None or duration is None or not name:
            lost["rows_unreadable"] += 1
            continue
        device = _DEVICE.fullmatch(cell.get("Device", ""))
        row: dict[str, Any] = {
            "start_ns": start,
            "end_ns": start + duration,
            "device": int(device[2]) if device else None,
            "device_name": device[1] if device else None,
            "stream": whole(cell.get("Strm")),
            "correlation_id": whole(cell.get("CorrId")),
        }
        if moved := _COPY.match(name):
            kind = f"{moved[2]}to{moved[3]}"
            row |= {"kind": moved[1], "memcpy_kind": kind if kind in COPY_KINDS.values() else None}
        else:
            row |= {"name": scrub(name) or "?", "registers_per_thread": whole(cell.get("Reg/Trd"))}
            for what, short in (("grid", "Grd"), ("block", "Blk")):
                row |= {
                    f"{what}_{axis}": whole(cell.get(f"{short}{axis.upper()}")) for axis in "xyz"
                }
        yield row


def _time(text: str, factor: int | None) -> int | None:
    """Nanoseconds; None for other text, or an unknown unit."""
    exact = whole(text, LATEST_NS)  # a float has 53 bits
    number = parse_number(text) if exact is None else exact
    return (
        None
        if number is None or factor is None
        else whole(round(number * factor), LATEST_NS // 2 - 1)
    )
