"""Reads kernel traces of ROCm's rocprofv3 (`*_kernel_trace.csv`), also as `rocpd convert` writes them.

Columns are found by name, whatever the version writes (https://rocm.docs.amd.com/projects/rocprofiler-sdk, "Kernel
trace"): `Agent_Id` is a number or `Agent 4`, older versions have no `Stream_Id` and name the memory of a work-group
`Group_Segment_Size`. A grid counts work-items, a work-group is a block. Other files of the same run (HIP API, markers)
have rows of their own and are not read, so kernels have no layer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ..attribution.assemble import assemble
from ..attribution.profile import profile_of_tables, table_of_rows
from ..errors import CurvescopeError
from ..recording.store import RecordingWriter
from . import Options
from .csv_lines import rows_of
from .source import Source

NAME = "rocprofv3 kernel trace"

_HEADER = re.compile(r'^"?(?:Guid"?,"?)?Kind"?,"?Agent_Id"?,.*Kernel_Name', re.MULTILINE | re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(\d+)\D*$")  # of an agent
_MOST_I32 = (1 << 31) - 1


def recognises(source: Source) -> bool:
    """Whether the first lines contain the header of such a table."""
    return _HEADER.search(source.text) is not None


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the table; devices are numbered in the order of their agents.

    Raises:
        CurvescopeError: the table has no kernel.
    """
    lost: Counter[str] = Counter()
    with source.open() as stream:
        kernels = list(_kernels(rows_of(stream, _HEADER), lost))
    if not kernels:
        raise CurvescopeError("the table has no kernel; record with `rocprofv3 --kernel-trace --output-format csv`.")
    agents = {agent: index for index, agent in enumerate(sorted({row["agent"] for row in kernels}))}
    for row in kernels:
        row["device"] = agents[row.pop("agent")]
    for name, count in lost.items():
        writer.count_lost(name, count)
    writer.update(profiler={"name": "rocprofv3"}, missing={"ranges": "a kernel trace has no ranges, so no layers"})
    assemble(profile_of_tables("rocprof", *map(table_of_rows, ((), (), kernels, ()))), writer, options)


def _kernels(rows: Iterator[list[str]], lost: Counter[str]) -> Iterator[dict[str, Any]]:
    header = [name.lower() for name in next(rows, [])]
    for cells in rows:
        row = dict(zip(header, cells, strict=False))
        start, end = (_number(row, f"{name}_timestamp", (1 << 62) - 1) for name in ("start", "end"))
        agent = _LAST_NUMBER.search(row.get("agent_id", ""))
        if len(cells) != len(header) or start is None or end is None or agent is None or not row.get("kernel_name"):
            lost["rows_unreadable"] += 1
            continue
        if row.get("kind") != "KERNEL_DISPATCH":
            lost["rows_of_other_kinds"] += 1
            continue
        found = {
            "name": row["kernel_name"],
            "start_ns": start,
            "end_ns": end,
            "agent": int(agent[1]),
            "stream": _number(row, "stream_id" if "stream_id" in row else "queue_id"),
            "correlation_id": _number(row, "correlation_id"),
            "registers_per_thread": _number(row, "vgpr_count"),
            "shared_memory_bytes": _number(row, "lds_block_size" if "lds_block_size" in row else "group_segment_size"),
        }
        for axis in "xyz":
            block, items = (_number(row, f"{what}_size_{axis}") for what in ("workgroup", "grid"))
            found |= {f"block_{axis}": block, f"grid_{axis}": -(-items // block) if block and items else None}
        yield found


def _number(row: dict[str, str], name: str, most: int = _MOST_I32) -> int | None:
    """A whole number of a cell; None if it is missing, unreadable or too large."""
    text = row.get(name, "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    return number if number is not None and number <= most else None
