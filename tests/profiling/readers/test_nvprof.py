"""nvprof's files and printed output: the shared ones against queries on them, and every schema and
oddity by hand.
"""

import csv
import gzip
import json
import sqlite3
import struct
from collections import Counter

import pytest

from curvescope.profiling.recording.store import NO_STEP

from .made_profiles import PROFILES, imported, lost, of_text, query, rows
from .nsys_export import write_table

TITAN = PROFILES / "syed-ahmed_tf_out.nvvp.gz"
LANGUAGE_MODEL = PROFILES / "josiahdavis_lm_net_17ed.sql.gz"
TRACE = PROFILES / "magus_gtx1080ti_convolutionFFT2D_trace.csv"
METRICS = PROFILES / "magus_gtx950_convolutionFFT2D_metrics.csv.gz"


@pytest.mark.parametrize("path", [TITAN, LANGUAGE_MODEL], ids=lambda p: p.name[:12])
def test_counts_and_times_are_what_sql_says(path, tmp_path):
    recording = imported(path, tmp_path)
    kernels, memory, launches = (
        recording.frame(name) for name in ("kernels", "memory", "api_calls")
    )

    def select(what, table):
        return query(path, tmp_path, f"SELECT {what} FROM CUPTI_ACTIVITY_KIND_{table}")[0]

    sums = "count(*), sum(end - start), sum(gridX * gridY * gridZ), sum(registersPerThread)"
    grid = kernels["grid_x"].astype("int64") * kernels["grid_y"] * kernels["grid_z"]
    found = (
        len(kernels),
        kernels["duration_ns"].sum(),
        grid.sum(),
        kernels["registers_per_thread"].sum(),
    )
    assert found == select(sums, "CONCURRENT_KERNEL")
    for kind in ("memcpy", "memset"):
        of_kind = memory[memory["kind"] == kind]
        found = (len(of_kind), of_kind["duration_ns"].sum(), of_kind["bytes"].sum())
        assert found == select("count(*), sum(end - start), sum(bytes)", kind.upper())
    assert len(launches) == select("count(*)", "RUNTIME")[0] + select("count(*)", "DRIVER")[0]
    named = launches[launches["name"].isin(["cudaLaunch", "cudaLaunchKernel", "cuLaunchKernel"])]
    assert kernels["correlation_id"].isin(named["correlation_id"]).all()


def test_maxwell_device_and_demangled_names(tmp_path):
    recording = imported(TITAN, tmp_path)
    device = recording.meta["device"]
    assert (device["name"], device["compute_capability"], device["sm_count"]) == (
        "GeForce GTX TITAN X",
        "5.2",
        24,
    )
    assert device["memory_bytes_per_s"] == 336_480_000_000
    assert recording.meta["profiler"] == {"name": "nvprof", "schema": "8"}
    names = set(recording.frame("kernels")["name"])
    assert "maxwell_scudnn_128x32_small_nn" in names
    assert not [name for name in names if name.startswith("_Z")]
    assert any(
        name.startswith("void cudnn::detail::implicit_convolve_sgemm<float, 1024, 5, 5, 3")
        for name in names
    )


def test_markers_of_every_call_give_layer_phase_and_operator(tmp_path):
    recording = imported(LANGUAGE_MODEL, tmp_path)
    kernels = recording.frame("kernels")
    attention = kernels[kernels["layer"] == "language-model.py:110"]
    assert {"torch.nn.functional.multi_head_attention_forward", "BmmBackward"} <= set(
        attention["op"]
    )
    phases = kernels.groupby("op")["phase"].agg(lambda found: set(found.dropna()))
    assert phases["torch.nn.functional.embedding"] == {"forward"}
    assert phases["MmBackward"] == {"backward"}
    assert phases["EmbeddingBackward"] == {"backward"}
    backward = kernels[kernels["phase"] == "backward"]
    assert backward["layer"].notna().all()
    sql = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MARKER m JOIN StringTable s ON s._id_ = m.name "
    sql += "WHERE m.flags = 2 AND s.value GLOB '*Backward*, seq = *'"
    ((pairs,),) = query(LANGUAGE_MODEL, tmp_path, sql)
    ranges = recording.frame("ranges")
    assert ranges["name"].str.fullmatch(r".*Backward\w*, seq = \d+").sum() == pairs
    assert len(ranges) == 683
    assert recording.meta["steps_from"] == NO_STEP


def test_nothing_of_the_machine_is_copied(tmp_path):
    recording = imported(LANGUAGE_MODEL, tmp_path)
    text = json.dumps(recording.meta)
    for table in ("kernels", "ranges", "api_calls", "memory"):
        text += recording.arrow(table).to_pandas().to_csv()
    assert not [word for word in ("josiah", "ubuntu", "/home") if word in text]


def write_nvprof(path, version, kernel_table="CONCURRENT_KERNEL", extra=(), metric=False):
    """Two kernels under one marker range, launched through the driver; the table's columns are the
    version's.
    """
    columns = [
        "start",
        "end",
        "deviceId",
        "contextId",
        "streamId",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
    ]
    columns += [
        "blockZ",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "registersPerThread",
        "correlationId",
        "name",
    ]
    of_kernels = [
        [100, 130, 0, 1, 7, 8, 1, 1, 32, 1, 1, 16, 0, 24, 5, 2],
        [140, 190, 0, 1, 7, 8, 1, 1, 32, 1, 1, 16, 0, 24, 6, 3],
    ]
    database = sqlite3.connect(path)

    def table(name, columns, rows):
        write_table(database, name, columns, [dict(zip(columns, row, strict=True)) for row in rows])

    strings = ["-- null --", "Tesla K40", "_Z4gemmIfEvPT_", "relu", "fc1"]
    table("StringTable", ["_id_", "value"], enumerate(strings))
    table("Version", ["version"], [(version,)])
    table(
        f"CUPTI_ACTIVITY_KIND_{kernel_table}",
        [*columns, *extra],
        [[*row, *[9] * len(extra)] for row in of_kernels],
    )
    calls = ["cbid", "start", "end", "processId", "threadId", "correlationId", "returnValue"]
    table(
        "CUPTI_ACTIVITY_KIND_DRIVER",
        calls,
        [(307, 90, 95, 7, -2, 5, 0), (99999, 96, 98, 7, -2, 6, 0)],
    )
    thread = (7).to_bytes(4, "little") + (0xFFFFFFFE).to_bytes(4, "little") + bytes(4)
    marker = ["flags", "timestamp", "id", "objectKind", "objectId", "name"] + (
        ["domain"] if version > 8 else []
    )
    rest = [0] if version > 8 else []
    markers = [
        (2, 80, 1, 2, thread, 4, *rest),
        (4, 99, 1, 2, thread, 0, *rest),
        (2, 300, 2, 2, thread, 4, *rest),
    ]
    table("CUPTI_ACTIVITY_KIND_MARKER", marker, [*markers, (1, 85, 3, 1, thread, 4, *rest)])
    data = [
        (2, 1, 1, (1 << 63).to_bytes(8, "little"), -16711936, 0),  # ARGB, an unsigned payload
        (1, 2, 0, bytes(8), 255, 0),  # no colour, no payload
        (2, 3, 0, struct.pack("<d", 0.5), 255, 0),
    ]
    table(
        "CUPTI_ACTIVITY_KIND_MARKER_DATA",
        ["flags", "id", "payloadKind", "payload", "color", "category"],
        data,
    )
    if metric:
        table(
            "CUPTI_ACTIVITY_KIND_METRIC", ["id", "value", "correlationId"], [(1, bytes(8), 5)] * 3
        )
    database.commit()
    database.close()
    return path


@pytest.mark.parametrize(
    ("version", "extra"),
    [
        (8, ()),
        (11, ("queued", "submitted", "launchType")),
        (16, ("graphNodeId", "graphId", "pAccessPolicyWindow")),
        (
            22,
            (
                "graphNodeId",
                "graphId",
                "channelID",
                "clusterX",
                "localMemoryTotal_v2",
                "maxActiveClusters",
            ),
        ),
    ],
)
def test_every_schema_version_joins(version, extra, tmp_path):
    recording = imported(write_nvprof(tmp_path / "p", version, extra=extra), tmp_path)
    first, second = recording.arrow("kernels").to_pylist()
    assert (first["name"], first["layer"], first["duration_ns"]) == (
        "void gemm<float>(float*)",
        "fc1",
        30,
    )
    assert (second["layer"], second["shared_memory_bytes"]) == ("fc1", 16)
    assert first["graph_id"] == (9 if "graphId" in extra else None)
    assert rows(recording, "api_calls", "name") == [("cuLaunchKernel",), ("driver call 99999",)]
    assert rows(recording, "ranges", "kind") == [("push_pop",), ("mark",)]
    assert lost(recording) == {"ranges_unclosed": 1}


def test_markers_have_their_colour_and_payload(tmp_path):
    recording = imported(write_nvprof(tmp_path / "p", 12), tmp_path)
    assert rows(recording, "ranges", "color_argb", "payload") == [
        (0xFF00FF00, str(1 << 63)),
        (255, "0.5"),
    ]


def test_migrations_of_unified_memory_are_copies_with_bytes(tmp_path):
    path = write_nvprof(tmp_path / "p", 11)
    columns = ["counterKind", "value", "start", "end", "address", "srcId", "dstId"]
    # the host's number, and a group of page faults of the GPU, which is no copy
    host, fault = (
        2**32 - 1,
        4,
    )
    moved = [
        (1, 65536, 100, 110, 4096, host, 0),
        (2, 4096, 150, 155, 4096, 1, host),
        (fault, 3, 100, 190, 0, 0, 0),
    ]
    moved = [dict(zip(columns, row, strict=True)) for row in moved]
    with sqlite3.connect(path) as database:
        write_table(database, "CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER", columns, moved)
    shown = ("kind", "memcpy_kind", "bytes", "duration_ns", "device", "stream", "correlation_id")
    assert rows(imported(path, tmp_path), "memory", *shown) == [
        ("memcpy", "HtoD", 65536, 10, 0, None, None),
        ("memcpy", "DtoH", 4096, 5, 1, None, None),
    ]


@pytest.mark.parametrize(
    "row",
    [(2, 1, 9, b"", 5, 0), (None, 1, None, None, None, 0), (2, 1, 1, bytes(40), 2**40, 0)],
    ids=["no bytes", "nulls", "too long"],
)
def test_markers_of_odd_data_have_none(row, tmp_path):
    path = write_nvprof(tmp_path / "p", 12)
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MARKER_DATA")
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MARKER_DATA VALUES (?, ?, ?, ?, ?, ?)", row
        )
    (_, first), second = rows(imported(path, tmp_path), "ranges", "color_argb", "payload")
    assert (first, *second) == (None, None, None)


def test_replayed_kernels_have_no_place_in_time(tmp_path):
    recording = imported(write_nvprof(tmp_path / "p", 12, "KERNEL", metric=True), tmp_path)
    kernels = recording.frame("kernels")
    assert kernels["start_ns"].isna().all()
    assert kernels["duration_ns"].tolist() == [30, 50]
    assert recording.frame("steps").empty
    assert "replayed" in recording.meta["missing"]["timeline"]
    assert lost(recording)["metrics_without_name"] == 3


def table_rows(path):
    text = (
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    ).decode()
    return list(
        csv.reader(line for line in text.splitlines() if line and not line.startswith("=="))
    )


def test_a_printed_trace_is_read_in_its_own_units(tmp_path):
    recording = imported(TRACE, tmp_path)
    header, units, *rows = table_rows(TRACE)
    assert dict(zip(header, units, strict=True))["Duration"] == "ms"
    kernels, memory = recording.frame("kernels"), recording.frame("memory")
    on_device = [dict(zip(header, row, strict=True)) for row in rows]
    launched = [row for row in on_device if row["Grid X"]]
    assert len(kernels) == len(launched)
    assert len(memory) == len(on_device) - len(launched)
    assert kernels["duration_ns"].sum() == sum(
        round(float(row["Duration"]) * 1e6) for row in launched
    )
    assert memory["duration_ns"].sum() == sum(
        round(float(r["Duration"]) * 1e6) for r in on_device if not r["Grid X"]
    )
    first = recording.arrow("kernels").to_pylist()[2]
    assert first["name"].startswith("void spRadix0032B::kernel1Tex<unsigned int, float")
    assert (first["correlation_id"], first["shared_memory_bytes"], first["grid_x"]) == (
        2455,
        8192,
        1024,
    )
    # The tool's MB are MiB: 16.000000MB are 2^24 bytes.
    assert (memory["bytes"] == 1 << 24).sum() == sum(
        row["Size"] == "16.000000" for row in on_device
    )
    copies = Counter(row["Name"][-5:-1] for row in on_device if "memcpy" in row["Name"])
    assert memory["memcpy_kind"].value_counts().to_dict() == copies
    assert recording.meta["device"] == {"name": "GeForce GTX 1080 Ti"}


def test_printed_metrics_are_bytes_and_flops(tmp_path):
    recording = imported(METRICS, tmp_path)
    header, *rows = table_rows(METRICS)
    table = [dict(zip(header, row, strict=True)) for row in rows]

    def total(name, factor=1):
        return sum(
            factor * int(row["Invocations"]) * float(row["Avg"])
            for row in table
            if row["Metric Name"] == name
        )

    kernels = recording.frame("kernels")
    assert kernels["dram_bytes"].sum() == total("dram_read_transactions", 32) + total(
        "dram_write_transactions", 32
    )
    assert kernels["l2_bytes"].sum() == total("l2_read_transactions", 32) + total(
        "l2_write_transactions", 32
    )
    assert kernels["flops_executed"].sum() == total("flop_count_sp") + total("flop_count_dp")
    by_kind = (
        total("flop_count_sp_add") + total("flop_count_sp_mul") + total("flop_count_sp_fma", 2)
    )
    assert total("flop_count_sp") == by_kind  # one FMA is two FLOPs
    assert kernels["achieved_occupancy"].between(0, 1).all()
    assert len(kernels) == sum(
        int(row["Invocations"]) for row in table if row["Metric Name"] == "ipc"
    )
    assert kernels[["start_ns", "duration_ns"]].isna().all().all()
    assert recording.frame("steps").empty


TEXT_TRACE = """\
my program says hello
==991== NVPROF is profiling process 991, command: ./a.out
==991== Profiling application: ./a.out
==991== Profiling result:
   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput  SrcMemType  DstMemType           Device   Context    Stream  Name
235.05ms  1.1520us                    -               -         -         -         -      112B  92.721MB/s    Pageable      Device  Tesla K40m (0)         1         7  [CUDA memcpy HtoD]
236.10ms  2.5000us            (160 2 1)       (256 1 1)        16  1.5000KB        0B         -           -           -           -  Tesla K40m (0)         1         7  vecAdd(float const *, int) [188]
237.10ms         -                    -               -         -         -         -         -           -           -           -  Tesla K40m (0)         -         -  [Unified Memory GPU page faults]

Regs: Number of registers used per CUDA thread.
"""  # noqa: E501
TEXT_METRICS = """\
==17== Profiling result:
==17== Metric result:
Invocations                               Metric Name                        Metric Description         Min         Max         Avg
Device "Tesla K40m (0)"
    Kernel: vecAdd(float const *, int)
          3                   dram_read_transactions        Device Memory Read Transactions         500         520         510
          3                  dram_write_transactions       Device Memory Write Transactions         500         500         500
          3                       achieved_occupancy                     Achieved Occupancy    0.500000    0.900000    0.750000
          3                           flop_count_sp         Floating Point Operations(Single)      <OVERFLOW>  <OVERFLOW>  <OVERFLOW>
"""  # noqa: E501
LAUNCH_METRICS = """\
==5== Profiling result:
"Device","Context","Stream","Kernel","flop_count_sp (Floating Point Operations(Single Precision))","dram_utilization"
"Tesla P100 (1)","1","7","f(int)",1024,"High (7)"
"""  # noqa: E501


def test_text_of_a_trace(tmp_path):
    recording = of_text(TEXT_TRACE, tmp_path)
    (kernel,) = recording.arrow("kernels").to_pylist()
    name = "vecAdd(float const *, int)"
    assert (kernel["name"], kernel["start_ns"], kernel["duration_ns"]) == (name, 236_100_000, 2500)
    assert (
        kernel["grid_x"],
        kernel["grid_y"],
        kernel["block_x"],
        kernel["shared_memory_bytes"],
    ) == (160, 2, 256, 1536)
    (copy,) = recording.arrow("memory").to_pylist()
    assert (copy["bytes"], copy["memcpy_kind"]) == (112, "HtoD")
    assert lost(recording) == {"rows_of_other_kinds": 1}


def test_text_of_metrics(tmp_path):
    recording = of_text(TEXT_METRICS, tmp_path)
    measured = rows(recording, "kernels", "dram_bytes", "achieved_occupancy", "flops_executed")
    assert measured == [(32320, 0.75, None)] * 3
    assert lost(recording) == {"metrics_unreadable": 1, "metrics_averaged": 3}


def test_metrics_by_launch(tmp_path):
    (row,) = of_text(LAUNCH_METRICS, tmp_path).arrow("kernels").to_pylist()
    assert (row["name"], row["device"], row["flops_executed"], row["dram_bytes"]) == (
        "f(int)",
        1,
        1024,
        None,
    )


BANNER = "==1== NVPROF is profiling process 1, command: ./a\n"
NOT_RECORDED = (
    "Some profiling data are not recorded. Make sure cudaProfilerStop() or cuProfilerStop() is "
    "called."
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            f'{BANNER}==1== Profiling result:\n"Type","Time(%)","Time","Calls"\n',
            "--print-gpu-trace",
        ),
        (BANNER, "no table"),
        (
            f"{BANNER}No kernels were profiled.\n==9== Warning: {NOT_RECORDED}\n",
            f"nvprof says: {NOT_RECORDED}",
        ),
        ('<?xml version="1.0"?><session/>', "XML"),
        ("hello", "no profile"),
        ("\0" * 99, "binary file of no known kind"),
    ],
)
def test_bad_output_is_refused_with_a_remedy(content, words, tmp_path, refusal_of):
    (tmp_path / "p").write_text(content)
    assert words in refusal_of("import", tmp_path / "p", "-o", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_device_name_that_nvprof_cut_costs_no_row(tmp_path):
    cut = TRACE.read_text().replace("GeForce GTX 1080 Ti (0)", "GeForce GTX 1080")
    (tmp_path / "cut.csv").write_text(cut)
    whole, one = (imported(path, tmp_path) for path in (TRACE, tmp_path / "cut.csv"))
    assert one.count_rows("kernels") == whole.count_rows("kernels") == 42
    assert one.meta["device"]["name"] == "GeForce GTX 1080"
    assert one.frame("kernels")["device"].isna().all()


def test_what_nvprof_dropped_is_counted_as_lost(tmp_path):
    said = (
        "insufficient device buffer space. You can configure the buffer space using the option "
        "--device-buffer-size."
    )
    warning = f"==764== Warning: 12 records have invalid timestamps due to {said}\n"
    recording = of_text(warning + TEXT_TRACE, tmp_path)
    assert recording.meta["lost"]["nvprof_dropped"]["count"] == 12
    assert not recording.complete
