"""Reads JSON of ROCm's rocprofv3 (`--output-format json`), of ROCm 6 and 7.

One object per process has agents, names and records; a record of an API or a marker names its operation by two numbers,
into lists of names. The message of a roctx range is found by its correlation id. Command lines, host names and
configurations are not decoded.
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

NAME = "rocprofv3 JSON"

_KEY = re.compile(r'\s*\{\s*"rocprofiler-sdk-tool"')
_MOST_BYTES = 4 << 30
_GPU = 2  # ROCPROFILER_AGENT_TYPE_GPU
_API = ("hip_api", "hsa_api", "rccl_api")


class _Handle(msgspec.Struct):
    handle: Any = None


class _Correlation(msgspec.Struct):
    internal: Any = None


class _Size(msgspec.Struct):
    x: Any = None
    y: Any = None
    z: Any = None

    def extents(self) -> list[Any]:
        return [self.x, self.y, self.z]


class _Dispatch(msgspec.Struct):
    kernel_id: Any = None
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    grid_size: _Size = msgspec.field(default_factory=_Size)
    workgroup_size: _Size = msgspec.field(default_factory=_Size)
    group_segment_size: Any = None


class _Record(msgspec.Struct):
    """A record of any kind."""

    kind: Any = None
    operation: Any = None
    thread_id: Any = None
    start_timestamp: Any = None
    end_timestamp: Any = None
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    stream_id: _Handle | None = None
    dispatch_info: _Dispatch = msgspec.field(default_factory=_Dispatch)
    dst_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    src_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    bytes: Any = None


class _Buffers(msgspec.Struct):
    kernel_dispatch: list[_Record] = []
    memory_copy: list[_Record] = []
    hip_api: list[_Record] = []
    hsa_api: list[_Record] = []
    rccl_api: list[_Record] = []
    marker_api: list[_Record] = []


class _Agent(msgspec.Struct):
    id: _Handle = msgspec.field(default_factory=_Handle)
    type: Any = None
    name: Any = None
    product_name: Any = None
    cu_count: Any = None


class _Symbol(msgspec.Struct):
    kernel_id: Any = None
    formatted_kernel_name: Any = None
    demangled_kernel_name: Any = None
    kernel_name: Any = None
    arch_vgpr_count: Any = None

    @property
    def name(self) -> str | None:
        names = (self.formatted_kernel_name, self.demangled_kernel_name, self.kernel_name)
        return next((name for name in names if isinstance(name, str) and name), None)


class _Operations(msgspec.Struct):
    kind: Any = None
    operations: list[Any] = []


class _Message(msgspec.Struct):
    key: Any = None
    value: Any = None


class _Strings(msgspec.Struct):
    buffer_records: list[_Operations] = []
    marker_api: list[_Message] = []


class _Metadata(msgspec.Struct):
    pid: Any = None


class _Process(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[_Agent] = []
    kernel_symbols: list[_Symbol] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    buffer_records: _Buffers = msgspec.field(default_factory=_Buffers)


class _File(msgspec.Struct):
    processes: list[_Process] | _Process = msgspec.field(name="rocprofiler-sdk-tool")


def recognises(source: Source) -> bool:
    """Whether it begins with the tool's key."""
    return _KEY.match(source.text) is not None


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Read the records of all processes.

    Raises:
        CurvescopeError: broken JSON, records of other forms, or no kernel.
    """
    try:
        found = msgspec.json.decode(source.read_all(_MOST_BYTES), type=_File).processes
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CurvescopeError(
            f"it is broken JSON ({str(error)[:200]}); the file was cut off or edited, record it again."
        ) from error
    records, gpus = Records(), []
    for process in found if isinstance(found, list) else [found]:
        for agent in process.agents:
            if agent.type == _GPU and _key(agent.id) is not None and _key(agent.id) not in records.gpus:
                records.gpus[_key(agent.id)] = len(records.gpus)
                gpus.append(agent)
        _read_process(process, records)
    used = next((gpus[records.gpus[row["agent"]]] for row in records.kernels if row["agent"] in records.gpus), None)
    if used is not None:
        writer.update(device=device_facts(used.product_name, used.name, used.cu_count))
    records.write(writer, options)


def _read_process(process: _Process, records: Records) -> None:
    pid, buffers = process.metadata.pid, process.buffer_records
    symbols = {_number(symbol.kernel_id): symbol for symbol in process.kernel_symbols}
    messages = {_number(message.key): message.value for message in process.strings.marker_api}
    for record in buffers.kernel_dispatch:
        info = record.dispatch_info
        symbol = symbols.get(_number(info.kernel_id), _Symbol())
        records.add_kernel(
            symbol.name,
            record.start_timestamp,
            record.end_timestamp,
            _key(info.agent_id),
            items=info.grid_size.extents(),
            block=info.workgroup_size.extents(),
            process=pid,
            stream=_stream(record),
            correlation_id=record.correlation_id.internal,
            registers_per_thread=symbol.arch_vgpr_count,
            shared_memory_bytes=info.group_segment_size,
        )
    for record in buffers.memory_copy:
        records.add_copy(
            _operation(process, record),
            record.start_timestamp,
            record.end_timestamp,
            [_key(record.dst_agent_id), _key(record.src_agent_id)],
            process=pid,
            stream=_stream(record),
            correlation_id=record.correlation_id.internal,
            bytes=record.bytes,
        )
    for api in _API:
        for record in getattr(buffers, api):
            place = record.start_timestamp, record.end_timestamp, pid, record.thread_id
            records.add_call(_operation(process, record), *place, record.correlation_id.internal)
    for record in buffers.marker_api:
        # A mark has a message, too, but no time; other calls of roctx have no message.
        message = messages.get(_number(record.correlation_id.internal))
        if message is not None and record.start_timestamp != record.end_timestamp:
            records.add_range(message, record.start_timestamp, record.end_timestamp, pid, record.thread_id)


def _operation(process: _Process, record: _Record) -> str | None:
    """The name of a record's operation; None if the lists of names lack it."""
    kind, operation, names = _number(record.kind), _number(record.operation), process.strings.buffer_records
    if kind is None or operation is None or kind >= len(names) or operation >= len(names[kind].operations):
        return None
    name = names[kind].operations[operation]
    return name if isinstance(name, str) else None


def _stream(record: _Record) -> Any:
    return record.dispatch_info.queue_id.handle if record.stream_id is None else record.stream_id.handle


def _number(value: Any) -> int | None:
    """A number that can be a key or an index; None for other values."""
    return value if isinstance(value, int) and value >= 0 else None


def _key(agent: _Handle) -> int | None:
    return _number(agent.handle)
