"""Reads kernel traces of ROCm's rocprofv3 (`*_kernel_trace.csv`), also as `rocpd convert` writes
them.

Columns are found by name, as versions differ (https://rocm.docs.amd.com/projects/rocprofiler-sdk,
"Kernel trace"). Other files of the run are not read, so kernels have no layer; the JSON and the
rocpd database have them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...base.errors import CurvescopeError
from ..recording.store import RecordingWriter
from . import Options
from .csv_lines import rows_of
from .rocprof import Records
from .source import Source

NAME = "rocprofv3 kernel trace"

_HEADER = re.compile(
    r'^"?(?:Guid"?,"?)?Kind"?,"?Agent_Id"?,.*Kernel_Name', re.MULTILINE | re.IGNORECASE
)
# The other tables of a run, by their first columns, and what they are.
_OTHERS = {
    "counters": re.compile(
        r'^"?Correlation_Id"?,"?Dispatch_Id"?,.*Counter_Name', re.MULTILINE | re.IGNORECASE
    ),
    "calls or ranges of the host": re.compile(
        r'^"?Domain"?,"?Function"?,"?Process_Id"?,', re.MULTILINE | re.IGNORECASE
    ),
    "copies": re.compile(
        r'^"?Kind"?,(?:"?Stream_Id"?,)?"?Direction"?,', re.MULTILINE | re.IGNORECASE
    ),
}
_LAST_NUMBER = re.compile(r"(?<!\d)(\d+)\D*$")  # of an agent


def recognises(source: Source) -> bool:
    return _HEADER.search(source.text) is not None or _other(source) is not None


def _other(source: Source) -> str | None:
    """What a table of rocprofv3 without kernels holds; None for other files."""
    return next((what for what, header in _OTHERS.items() if header.search(source.text)), None)


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the table; devices are numbered in the order of their agents.

    CurvescopeError: the table is another one of the run.
    """
    if _HEADER.search(source.text) is None:
        raise CurvescopeError(
            f"a table of rocprofv3 with {_other(source)} and no timeline of kernels; import the "
            "*_kernel_trace.csv that `rocprofv3 --kernel-trace` writes, or the JSON or rocpd "
            "database, which have both."
        )
    with source.open() as stream:
        _records(rows_of(stream, _HEADER)).write(writer, options)


def _records(rows: Iterator[list[str]]) -> Records:
    records, header = Records(), [name.lower() for name in next(rows, [])]
    for cells in rows:
        row = dict(zip(header, cells, strict=False))
        if (
            len(cells) != len(header)
            or (agent := _LAST_NUMBER.search(row.get("agent_id", ""))) is None
        ):
            records.lost["rows_unreadable"] += 1
        elif row.get("kind") != "KERNEL_DISPATCH":
            records.lost["rows_of_other_kinds"] += 1
        else:
            records.add_kernel(
                row.get("kernel_name"),
                row.get("start_timestamp"),
                row.get("end_timestamp"),
                int(agent[1]),
                items=[row.get(f"grid_size_{axis}") for axis in "xyz"],
                block=[row.get(f"workgroup_size_{axis}") for axis in "xyz"],
                stream=row.get("stream_id", row.get("queue_id")),
                correlation_id=row.get("correlation_id"),
                registers_per_thread=row.get("vgpr_count"),
                shared_memory_bytes=row.get("lds_block_size", row.get("group_segment_size")),
            )
    return records
