"""Reads JSON of ROCm's rocprofv3 (`--output-format json`), of ROCm 6 and 7.

One object per process has agents, names and records; a record of an API or a marker names its
operation by two numbers, into lists of names. The message of a roctx range is found by its
correlation id. Command lines, host names and configurations are not kept.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...base.errors import CurvescopeError
from ..recording.store import RecordingWriter
from . import Options
from .rocprof import Records, device_facts
from .source import Source
from .values import MOST_U64, whole

NAME = "rocprofv3 JSON"

_KEY = re.compile(r'\s*\{\s*"rocprofiler-sdk-tool"')
_MOST_BYTES = 4 << 30
_GPU = 2  # ROCPROFILER_AGENT_TYPE_GPU
_API = ("hip_api", "hsa_api", "rccl_api")
_Object = dict[str, Any]


class _Record(msgspec.Struct):
    kind: Any = None
    operation: Any = None
    thread_id: Any = None
    start_timestamp: Any = None
    end_timestamp: Any = None
    correlation_id: _Object = {}
    stream_id: _Object | None = None
    dispatch_info: _Object = {}
    dst_agent_id: _Object = {}
    src_agent_id: _Object = {}
    bytes: Any = None


class _Buffers(msgspec.Struct):
    kernel_dispatch: list[_Record] = []
    memory_copy: list[_Record] = []
    hip_api: list[_Record] = []
    hsa_api: list[_Record] = []
    rccl_api: list[_Record] = []
    marker_api: list[_Record] = []


class _Strings(msgspec.Struct):
    buffer_records: list[_Object] = []
    marker_api: list[_Object] = []


class _Process(msgspec.Struct):
    metadata: _Object = {}
    agents: list[_Object] = []
    kernel_symbols: list[_Object] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    buffer_records: _Buffers = msgspec.field(default_factory=_Buffers)


class _File(msgspec.Struct):
    processes: list[_Process] | _Process = msgspec.field(name="rocprofiler-sdk-tool")


def recognises(source: Source) -> bool:
    return _KEY.match(source.text) is not None


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    try:
        processes = msgspec.json.decode(source.read_all(_MOST_BYTES), type=_File).processes
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CurvescopeError(
            f"it is broken JSON ({str(error)[:200]}); the file was cut off or edited, record it "
            "again."
        ) from error
    records = Records()
    for process in processes if isinstance(processes, list) else [processes]:
        for agent in process.agents:
            if agent.get("type") == _GPU and (key := _handle(agent.get("id"))) is not None:
                records.add_gpu(
                    key,
                    device_facts(
                        agent.get("product_name"), agent.get("name"), agent.get("cu_count")
                    ),
                )
        _read_process(process, records)
    records.write(writer, options)


def _read_process(process: _Process, records: Records) -> None:
    pid, buffers = process.metadata.get("pid"), process.buffer_records
    symbols = {_id(symbol.get("kernel_id")): symbol for symbol in process.kernel_symbols}
    messages = {
        _id(message.get("key")): message.get("value") for message in process.strings.marker_api
    }

    def common(record: _Record) -> _Object:
        stream = (
            record.dispatch_info.get("queue_id") if record.stream_id is None else record.stream_id
        )
        return {
            "process": pid,
            "stream": _handle(stream),
            "correlation_id": record.correlation_id.get("internal"),
        }

    for record in buffers.kernel_dispatch:
        info = record.dispatch_info
        symbol = symbols.get(_id(info.get("kernel_id")), {})
        names = (symbol.get(f"{which}kernel_name") for which in ("formatted_", "demangled_", ""))
        items, block = (
            [info.get(size, {}).get(axis) for axis in "xyz"]
            for size in ("grid_size", "workgroup_size")
        )
        records.add_kernel(
            next((name for name in names if isinstance(name, str) and name), None),
            record.start_timestamp,
            record.end_timestamp,
            _handle(info.get("agent_id")),
            items=items,
            block=block,
            registers_per_thread=symbol.get("arch_vgpr_count"),
            shared_memory_bytes=info.get("group_segment_size"),
            **common(record),
        )
    for record in buffers.memory_copy:
        agents = [_handle(record.dst_agent_id), _handle(record.src_agent_id)]
        times = record.start_timestamp, record.end_timestamp
        records.add_copy(
            _operation(process, record), *times, agents, bytes=record.bytes, **common(record)
        )
    for record in (record for api in _API for record in getattr(buffers, api)):
        place = record.start_timestamp, record.end_timestamp, pid, record.thread_id
        correlation = record.correlation_id.get("internal")
        records.add_on_host(
            records.launches, _operation(process, record), *place, correlation_id=correlation
        )
    for record in buffers.marker_api:
        # A mark has a message, too, but no time; other calls of roctx have no message.
        message = messages.get(_id(record.correlation_id.get("internal")))
        if message is not None and record.start_timestamp != record.end_timestamp:
            place = record.start_timestamp, record.end_timestamp, pid, record.thread_id
            records.add_on_host(records.ranges, message, *place, kind="push_pop")


def _operation(process: _Process, record: _Record) -> Any:
    """The name of a record's operation; None if the lists of names lack it."""
    kind, operation, names = _id(record.kind), _id(record.operation), process.strings.buffer_records
    operations = names[kind].get("operations", []) if kind is not None and kind < len(names) else []
    return operations[operation] if operation is not None and operation < len(operations) else None


def _id(value: Any) -> int | None:
    """A number that can be a key or an index."""
    return whole(value, MOST_U64)


def _handle(of: Any) -> int | None:
    return _id(of.get("handle")) if isinstance(of, dict) else None
