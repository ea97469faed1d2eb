"""Exports of Nsight Systems made by hand, in the schemas of its versions as real files
show them.
"""

import json
import sqlite3

PID, MAIN, AUTOGRAD = 4321, 4322, 4323
GLOBAL_PID = (1 << 48) | PID << 24
STRINGS = {
    1: "sgemm<128>",
    2: "sgemm",
    3: "cudaLaunchKernel_v7000",
    4: "relu",
    5: "cudaMemcpyAsync_v3020",
    6: "wgrad",
}
_COLUMNS = (
    "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, "
    "shortName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, "
    "staticSharedMemory, dynamicSharedMemory"
)
KERNEL_COLUMNS = {
    "2020.3": _COLUMNS,
    "2022.2": f"{_COLUMNS}, mangledName",
    "2025.5": f"{_COLUMNS}, mangledName, greenContextId, graphId, graphNodeId",
}
_METADATA = {"2020.3": None, "2022.2": "EXPORT_META_DATA", "2025.5": "META_DATA_EXPORT"}
_GPU = {"2020.3": "TARGET_INFO_CUDA_GPU", "2022.2": "TARGET_INFO_GPU", "2025.5": "TARGET_INFO_GPU"}


def tid(thread):
    return GLOBAL_PID | thread


def push_pop(text, start, end, thread=MAIN, **columns):
    return {
        "text": text,
        "start": start,
        "end": end,
        "eventType": 59,
        "globalTid": tid(thread),
        **columns,
    }


def launch(correlation, start, thread=MAIN, **columns):
    row = {
        "start": start,
        "end": start + 2,
        "globalTid": tid(thread),
        "correlationId": correlation,
        "nameId": 3,
    }
    return {**row, "returnValue": 0, "eventClass": 0, **columns}


def kernel(correlation, start, end, **columns):
    place = {
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "correlationId": correlation,
        "globalPid": GLOBAL_PID,
    }
    shape = {"gridX": 2, "gridY": 3, "gridZ": 1, "blockX": 64, "blockY": 1, "blockZ": 1}
    rest = {"registersPerThread": 32, "staticSharedMemory": 16, "dynamicSharedMemory": 1024}
    return {
        "start": start,
        "end": end,
        **place,
        "demangledName": 1,
        "shortName": 2,
        **shape,
        **rest,
        **columns,
    }


def copy(correlation, kind, size, memory):
    """A memcpy by CUPTI's kind; the host's memory is CUDA's number, 0 pageable and 1 pinned."""
    ends = {"srcKind": memory, "dstKind": 2} if kind == 1 else {"srcKind": 2, "dstKind": memory}
    place = {name: kernel(correlation, 0, 0)[name] for name in _PLACE}
    return {**place, "bytes": size, "copyKind": kind, **ends}


_PLACE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")


def graph_node(node, start, thread=MAIN, original=None):
    row = {"start": start, "end": start, "globalTid": tid(thread), "graphNodeId": node}
    return {**row, "originalGraphNodeId": original}


def wait(correlation, kind, stream=0xFFFFFFFF, event=0xFFFFFFFF, process=GLOBAL_PID):
    row = {
        "start": 0,
        "end": 1,
        "deviceId": 0,
        "contextId": 1,
        "streamId": stream,
        "correlationId": correlation,
    }
    return {**row, "globalPid": process, "syncType": kind, "eventId": event}


def write_export(
    path,
    version="2025.5",
    *,
    kernels=(),
    launches=(),
    ranges=(),
    copies=(),
    nodes=(),
    waits=(),
    strings=None,
    gpus=None,
):
    """Write one; a table without rows is left out, as the exporter does."""
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
    )
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", (strings or STRINGS).items())
    write_table(
        database, "CUPTI_ACTIVITY_KIND_KERNEL", KERNEL_COLUMNS[version].split(", "), kernels
    )
    write_table(database, "CUPTI_ACTIVITY_KIND_RUNTIME", list(launch(0, 0)), launches)
    moved = [*_PLACE, "bytes", "copyKind", "srcKind", "dstKind"]
    write_table(database, "CUPTI_ACTIVITY_KIND_MEMCPY", moved, copies)
    write_table(database, "CUDA_GRAPH_NODE_EVENTS", list(graph_node(0, 0)), nodes)
    write_table(database, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", list(wait(0, 0)), waits)
    nvtx = [
        "start",
        "end",
        "eventType",
        "rangeId",
        "category",
        "color",
        "text",
        "globalTid",
        "endGlobalTid",
        "textId",
    ]
    write_table(database, "NVTX_EVENTS", [*nvtx, "domainId"], ranges)
    gpu = [
        "id",
        "name",
        "smCount",
        "computeMajor",
        "computeMinor",
        "totalMemory",
        "memoryBandwidth",
        "clockRate",
    ]
    v100 = dict(zip(gpu, (0, "Tesla V100", 80, 7, 0, 16 << 30, 898048000000, 1), strict=True))
    write_table(database, _GPU[version], gpu, gpus or [v100])
    if (metadata := _METADATA[version]) is not None:
        rows = {
            "EXPORT_PRODUCT_VERSION": f"{version}.1.0",
            "EXPORT_HOST": "secret-host",
            "EXPORT_USER": "secret-user",
        }
        write_table(
            database,
            metadata,
            ["name", "value"],
            [{"name": n, "value": v} for n, v in rows.items()],
        )
    database.commit()
    database.close()
    return path


def write_table(database, name, columns, rows):
    """Write a table, unless it has no rows; what a row lacks is null."""
    if rows:
        database.execute(f'CREATE TABLE "{name}" ({", ".join(map(json.dumps, columns))})')
        listed = [tuple(row.get(column) for column in columns) for row in rows]
        database.executemany(
            f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', listed
        )
