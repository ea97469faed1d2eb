"""One run under rocprofv3 as rocpd databases, made by hand in the schemas of its versions.

Two steps in roctx ranges: a copy to the device, a product and an activation, launched by HIP calls
on one thread.
"""

import json
import sqlite3

from .nsys_export import write_table

PID, TID, GPU = 4321, 4322, 4
START = 1_614_963_487_000_000
SUFFIX = "_0197a1b2_c3d4_7e5f_8a9b_0c1d2e3f4a5b"
GEMM, RELU = 11, 12
KERNELS = {GEMM: "gemm(float*, int)", RELU: "relu<float>"}
COPY, LAUNCH = "hipMemcpyAsync", "hipLaunchKernel"
HOST_TO_DEVICE = "MEMORY_COPY_HOST_TO_DEVICE"
# Name, begin and end of the call after the step's start, correlation id within the step, begin and
# end of its work.
CALLS = [
    (COPY, 100, 200, 1, 250, 300),
    (LAUNCH, 300, 400, 2, 500, 900),
    (LAUNCH, 500, 600, 3, 900, 1000),
]
STEP_NS = 2000


def steps():
    """Number, start and calls of each step."""
    for step in range(2):
        begin = START + step * STEP_NS
        calls = [
            (name, begin + start, begin + end, 10 * step + number, begin + work, begin + done)
            for name, start, end, number, work, done in CALLS
        ]
        yield step, begin, calls


def write_database(path, version=3, suffix=SUFFIX):
    """The rocpd database; version 4 of the schema keeps process, thread, agent and stream in
    tracks.
    """
    database = sqlite3.connect(path)
    strings = ["", "KERNEL_DISPATCH", "HIP_RUNTIME_API", "MARKER_CORE_RANGE_API", "MEMORY_COPY"]
    strings += [COPY, LAUNCH, HOST_TO_DEVICE, "roctxThreadRangeA"]
    number = {text: index for index, text in enumerate(strings, start=1)}
    kinds = {kind: index if version == 3 else index + 100 for kind, index in number.items()}
    tables = {
        "string": [{"id": index, "string": text} for text, index in number.items()],
        "info_process": [{"id": PID, "pid": PID, "command": "secret-command"}],
        "info_thread": [{"id": TID, "pid": PID, "tid": TID}],
        "info_node": [{"id": 1, "hostname": "secret-host"}],
        "info_agent": [
            {
                "id": 0,
                "type": "CPU",
                "type_index": 0,
                "name": "AMD EPYC",
                "product_name": "AMD EPYC",
            },
            {
                "id": GPU,
                "type": "GPU",
                "type_index": 0,
                "name": "gfx942",
                "product_name": "AMD Instinct MI300X OAM",
            },
        ],
        "info_kernel_symbol": [
            {"id": kernel, "kernel_name": "_Z4gemm.kd", "display_name": name, "arch_vgpr_count": 12}
            for kernel, name in KERNELS.items()
        ],
        **{name: [] for name in ("event", "region", "kernel_dispatch", "memory_copy", "track")},
    }
    if version == 4:
        tables["info_category"] = [{"id": kinds[kind], "name": kind} for kind in strings]

    def event(kind, correlation, extdata="{}"):
        row = {
            "id": len(tables["event"]) + 1,
            "category_id": kinds[kind],
            "stack_id": correlation,
            "extdata": extdata,
        }
        tables["event"].append(row)
        return row["id"]

    def place(**columns):
        columns = {"pid": PID, "tid": TID, **columns}
        if version == 3:
            return columns
        tables["track"].append({"id": len(tables["track"]) + 1, **columns})
        return {"track_id": len(tables["track"])}

    for step, begin, calls in steps():
        marked = event(
            "MARKER_CORE_RANGE_API", 1000 + step, json.dumps({"message": f"step {step}"})
        )
        times = {"start": begin, "end": begin + STEP_NS - 100}
        tables["region"].append(
            {**place(), **times, "name_id": number["roctxThreadRangeA"], "event_id": marked}
        )
        for index, (name, start, end, correlation, work, done) in enumerate(calls):
            called = event("HIP_RUNTIME_API", correlation)
            times = {"start": start, "end": end}
            tables["region"].append(
                {**place(), **times, "name_id": number[name], "event_id": called}
            )
            times = {"start": work, "end": done}
            if name == COPY:
                moved = {
                    "dst_agent_id": GPU,
                    "src_agent_id": 0,
                    "size": 4096,
                    "name_id": number[HOST_TO_DEVICE],
                }
                row = {
                    **place(stream_id=3),
                    **times,
                    **moved,
                    "event_id": event("MEMORY_COPY", correlation),
                }
                tables["memory_copy"].append(row)
                continue
            sizes = dict(
                zip((f"workgroup_size_{axis}" for axis in "xyz"), (256, 1, 1), strict=True)
            )
            sizes |= dict(zip((f"grid_size_{axis}" for axis in "xyz"), (1000, 2, 1), strict=True))
            ran = {"kernel_id": GEMM if index == 1 else RELU, "group_segment_size": 1024, **sizes}
            on = place(agent_id=GPU, stream_id=3)
            row = {**on, **times, **ran, "event_id": event("KERNEL_DISPATCH", correlation)}
            tables["kernel_dispatch"].append(row)
    for table, rows in tables.items():
        if rows:
            write_table(
                database,
                f"rocpd_{table}{suffix}",
                dict.fromkeys(column for row in rows for column in row),
                rows,
            )
            database.execute(
                f'CREATE VIEW "rocpd_{table}" AS SELECT * FROM "rocpd_{table}{suffix}"'
            )
    database.commit()
    database.close()
    return path
