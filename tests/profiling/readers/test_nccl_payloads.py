"""Messages of NCCL's calls in exports of Nsight Systems."""

import sqlite3
import struct

import pytest

from curvescope.profiling.readers.nccl_payloads import decode_payload

from ...tables import ask_each
from .made_profiles import imported
from .nsys_export import kernel, launch, push_pop, write_export

ID = 0xFEED_0000_0000_0001
CREATED, REDUCED = 16777218, 16777220
# The rows of a real export (Nsight Systems 2026, NCCL 2.27).
ENTRIES = [
    (1, CREATED, 18, "NCCL communicator ID", None),
    (1, CREATED, 5, "No. of ranks", 8),
    (1, CREATED, 5, "Rank", 12),
    (1, REDUCED, 18, "NCCL communicator ID", None),
    (1, REDUCED, 22, "Message size [bytes]", 8),
]
NAMES = {1: "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 2: "gemm", 3: "cudaLaunchKernelExC"}
NAMES |= {4: "ncclDevKernel_AllGather_RING_LL", 5: "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"}


def payload(schema, layout, *values):
    fields = struct.pack(layout, *values)
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(fields), 32 + len(fields)) + fields


def export(path, declared="BLOB", ranks=8):
    calls = [("ncclAllReduce", 100, 1), ("ncclAllGather", 200, 4), ("ncclReduceScatter", 300, 5)]
    ranges = [
        push_pop("ncclCommInitRank", 10, 20),
        *(push_pop(name, at, at + 50) for name, at, _ in calls),
    ]
    launches = [launch(at, at + 10) for _, at, _ in calls]
    kernels = [kernel(at, at + 20, at + 90, demangledName=name) for _, at, name in calls]
    launches.append(launch(7, 115))
    # inside ncclAllReduce, but no kernel of NCCL
    kernels.append(kernel(7, 500, 510, demangledName=2))
    write_export(path, ranges=ranges, launches=launches, kernels=kernels, strings=NAMES)
    with sqlite3.connect(path) as database:
        database.execute(f"ALTER TABLE NVTX_EVENTS ADD COLUMN binaryData {declared}")
        database.execute(
            "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, type, name, offset)"
        )
        database.executemany(
            "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (?, ?, ?, ?, ?)", ENTRIES
        )
        made = payload(CREATED, "<Qii", ID, ranks, 3)
        sized = payload(REDUCED, "<QQ", ID, 1 << 20)
        for name, data in [("ncclCommInitRank", made), *((name, sized) for name, *_ in calls)]:
            database.execute("UPDATE NVTX_EVENTS SET binaryData = ? WHERE text = ?", (data, name))
    return path


@pytest.mark.parametrize("declared", ["BLOB", "TEXT"])
def test_collectives_have_the_message_that_nccl_tests_counts(declared, tmp_path):
    kernels = (
        imported(export(tmp_path / "p", declared), tmp_path)
        .frame("kernels")
        .sort_values("start_ns")
    )
    columns = ["collective", "message_bytes", "group_size", "communicator"]
    of_ranks = 8, f"{ID:016x}"
    assert kernels[columns].iloc[:3].values.tolist() == [
        ["AllReduce", 1 << 20, *of_ranks],
        ["AllGather", 8 << 20, *of_ranks],  # what a rank gets: the parts of all of them
        ["ReduceScatter", 8 << 20, *of_ranks],
    ]
    assert kernels[columns].iloc[3].isna().all()


def test_a_message_per_rank_is_unknown_without_the_number_of_ranks(tmp_path):
    kernels = (
        imported(export(tmp_path / "p", ranks=0), tmp_path).frame("kernels").sort_values("start_ns")
    )
    assert kernels["message_bytes"].iloc[0] == 1 << 20
    assert kernels[["message_bytes", "group_size"]].iloc[1:].isna().all(axis=None)


@ask_each(
    "damaged",
    [
        None,
        5,
        b"",
        b"x" * 31,
        payload(REDUCED, "<Q", ID)[:36],
        payload(99, "<QQ", 1, 2),
        "text, no bytes…" * 3,
    ],
)
def test_a_damaged_payload_tells_nothing(damaged):
    fields = {(1, REDUCED): {"Message size [bytes]": (8, "<Q"), "x": (-40, "<Q")}}
    assert decode_payload(damaged, fields) == {}
