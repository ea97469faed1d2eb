"""Launch geometry of kernels and messages of collectives, from the metadata that Kineto keeps with
each event.

torch hands this metadata out only if its profiler is told to, and only in newer versions. An older
torch writes it to the file of its trace alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..attribution.collectives import collective_of_torch, message_bytes


class _Metadata(msgspec.Struct):
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers_per_thread: int | None = msgspec.field(default=None, name="registers per thread")
    shared_memory_bytes: int | None = msgspec.field(default=None, name="shared memory")
    graph_id: int | None = msgspec.field(default=None, name="graph id")  # 0 outside graphs
    bytes: int | None = None  # of copies
    collective: str | None = msgspec.field(default=None, name="Collective name")
    group_size: int | None = msgspec.field(default=None, name="Group size")
    elements_in: int | None = msgspec.field(default=None, name="In msg nelems")
    elements_out: int | None = msgspec.field(default=None, name="Out msg nelems")
    dtype: str | None = None


class _Event(msgspec.Struct):
    ts: msgspec.Raw = msgspec.Raw(b"0")
    cat: Any = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Correlation(msgspec.Struct):
    correlation: int = 0


class _Trace(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")


_read_metadata = msgspec.json.Decoder(_Metadata).decode
_read_correlation = msgspec.json.Decoder(_Correlation).decode


def geometries(results: Any, kernels: Sequence[Any], exposed: bool) -> list[dict[str, Any]]:
    """Columns of device work that its metadata gives: geometry, graph, collective with group and
    message, copied bytes.

    The metadata is in the events if the profiler ran with `startup.kineto.exposing_config`
    (`exposed`), else in the file of a trace.
    """
    if exposed or not kernels:
        return [metadata_columns(f"{{{event.metadata_json()}}}".encode()) for event in kernels]
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        path = Path(folder) / "trace.json"
        results.save(str(path))
        return _geometries_in_trace(path.read_bytes(), kernels)


def _geometries_in_trace(trace: bytes, kernels: Sequence[Any]) -> list[dict[str, Any]]:
    """Columns of the kernels from the file of their trace: one launch's kernels, e.g. a graph's, by
    their order.
    """
    saved: dict[int, list[tuple[float, bytes]]] = {}
    for event in msgspec.json.decode(trace, type=_Trace).events:
        if event.cat in ("kernel", "gpu_memcpy", "gpu_memset"):
            args = bytes(event.args)
            saved.setdefault(_read_correlation(args).correlation, []).append(
                (float(bytes(event.ts)), args)
            )
    for launched in saved.values():
        launched.sort(key=lambda launch: launch[0], reverse=True)
    geometries: list[dict[str, Any]] = [{} for _ in kernels]
    for index in sorted(range(len(kernels)), key=lambda index: kernels[index].start_ns()):
        if launched := saved.get(kernels[index].correlation_id(), []):
            geometries[index] = metadata_columns(launched.pop()[1])
    return geometries


def metadata_columns(metadata: bytes) -> dict[str, Any]:
    """Columns that the metadata of one kernel, memcpy or memset gives, from its JSON."""
    try:
        read = _read_metadata(metadata)
    except msgspec.MsgspecError:  # e.g. an infinite occupancy, which is no JSON
        return {}
    columns: dict[str, Any] = {}
    for what, extents in (("grid", read.grid), ("block", read.block)):
        if extents is not None:
            columns |= {
                f"{what}_{axis}": extent for axis, extent in zip("xyz", extents, strict=True)
            }
    for name in ("registers_per_thread", "shared_memory_bytes", "bytes"):
        if (value := getattr(read, name)) is not None:
            columns[name] = value
    if read.collective is not None:
        columns |= {
            "collective": collective_of_torch(read.collective),
            "group_size": read.group_size,
            "message_bytes": message_bytes(read.elements_in, read.elements_out, read.dtype),
        }
    return {**columns, "graph_id": read.graph_id} if read.graph_id else columns
