"""CSV of Nsight Compute: the shared long form against its own rows, the raw page and the oddities
by hand.
"""

import csv

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers import metrics
from curvescope.profiling.recording.schema import KERNELS

from .made_profiles import PROFILES, imported, lost, of_text, rows

LONG = PROFILES / "averyclapp_metrics_long.csv"


def test_the_long_form_is_a_row_per_kernel(tmp_path):
    recording = imported(LONG, tmp_path)
    with LONG.open(newline="") as file:
        rows = list(csv.DictReader(file))

    def values(name):
        return [
            int(row["Metric Value"].replace(",", "")) for row in rows if row["Metric Name"] == name
        ]

    kernels = recording.frame("kernels")
    assert kernels["duration_ns"].tolist() == values("gpu__time_duration.sum")
    assert kernels["dram_bytes"].tolist() == values("dram__bytes.sum")
    counted = [
        values(f"sm__sass_thread_inst_executed_op_{op}_pred_on.sum")
        for op in ("fadd", "fmul", "ffma")
    ]
    assert kernels["flops_executed"].tolist() == [
        add + mul + 2 * fma for add, mul, fma in zip(*counted, strict=True)
    ]
    assert kernels["name"].tolist() == [row["Kernel Name"] for row in rows[::5]]
    assert kernels[["block_x", "block_y", "block_z"]].iloc[0].tolist() == [32, 32, 1]
    assert kernels["start_ns"].isna().all()
    assert recording.meta["flops_counted"] == ["single precision"]
    assert "127.0.0.1" not in recording.arrow("kernels").to_pandas().to_csv()


SINGLE = [f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma")]
RAW = (
    "==PROF== Connected to process 7 (/home/somebody/a.out)\n"
    'epoch 1, "loss" 0.3\n'
    "==PROF== Disconnected from process 7\n"
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block '
    'Size","Grid Size",'
    '"Device","CC","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum","lts__t_sectors.sum",'
    '"sm__warps_active.avg.pct_of_peak_sustained_active","sm__inst_executed_pipe_tensor.sum",'
    + ",".join(f'"{name}"' for name in SINGLE)
    + ',"launch__registers_per_thread"\n'
    '"","","","","","","","","","","","Kbyte","Mbyte","usecond","sector","%","inst","inst","inst","inst","register/thread"\n'
    '"0","7","a.out","host","void f<1, 2>(int)","1","7","(128, 1, 1)","(64, 2, 1)","0","7.0",'
    '"1.5","2","3.25","10","62.5","3","1","2","3","40"\n'
    '"1","7","a.out","host","g","1","7","(1, 1, 1)","(1, 1, 1)","0","8.0",'
    '"n/a","2","3.25","10","62.5","3","1","2","3","40"\n'
    '"2","7","a.out","host","cut off","1","7"\n'
)


def test_the_raw_page_has_units_of_its_own(tmp_path):
    recording = of_text(RAW, tmp_path)
    first, second = recording.arrow("kernels").to_pylist()
    assert (first["name"], first["grid_y"], first["registers_per_thread"]) == (
        "void f<1, 2>(int)",
        2,
        40,
    )
    assert (first["dram_bytes"], first["l2_bytes"], first["duration_ns"]) == (2_001_500, 320, 3250)
    assert first["achieved_occupancy"] == pytest.approx(0.625)
    assert first["flops_executed"] == 1 + 2 + 2 * 3 + 512 * 3  # tensor cores of a V100
    assert (second["dram_bytes"], second["flops_executed"]) == (
        None,
        9,
    )  # other tensor cores: not known
    assert lost(recording)["metrics_unreadable"] == 1


ATTRIBUTES = {
    "device__attribute_display_name": ("", "NVIDIA A100-SXM4-40GB"),
    "device__attribute_multiprocessor_count": ("", "108"),
    "device__attribute_clock_rate": ("", "1,410,000"),
    "device__attribute_global_memory_bus_width": ("", "5,120"),
    "device__attribute_memory_clock_rate": ("", "1,215,000"),
}


@pytest.mark.parametrize("form", ["raw", "long"])
def test_the_device_is_the_one_that_its_attributes_describe(form, tmp_path):
    head = ["ID", "Process ID", "Kernel Name", "CC"]
    metric = {"gpu__time_duration.sum": ("nsecond", "5"), **ATTRIBUTES}
    kernel = ["0", "7", "f", "8.0"]
    measured = [(name, unit, value) for name, (unit, value) in metric.items()]
    if form == "raw":
        columns = zip((head, [""] * 4, kernel), zip(*measured, strict=True), strict=True)
        rows = [[*cells, *column] for cells, column in columns]
    else:
        rows = [
            [*head, "Metric Name", "Metric Unit", "Metric Value"],
            *([*kernel, *metric] for metric in measured),
        ]
    with (tmp_path / "p").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    recording = imported(tmp_path / "p", tmp_path)
    assert recording.meta["device"] == {
        "name": "NVIDIA A100-SXM4-40GB",
        "compute_capability": "8.0",
        "sm_count": 108,
        "clock_hz": 1_410_000_000,
        "memory_bytes_per_s": 1_555_200_000_000,
    }
    assert recording.frame("kernels")["duration_ns"].tolist() == [5]


ERROR = (
    "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RAW[: RAW.index('"",""')], "no kernel"),
        (
            f"==PROF== Connected to process 7\n==ERROR== {ERROR}\n",
            f"no kernel; Nsight Compute says: {ERROR}",
        ),
    ],
)
def test_a_table_of_no_kernel_is_refused_with_the_error_of_the_tool(text, message, tmp_path):
    with pytest.raises(CurvescopeError, match=message):
        of_text(text, tmp_path)


def test_every_entry_of_the_metrics_table_has_a_column_and_a_source():
    columns = {column.name for column in KERNELS.columns}
    for metric in metrics.metrics():
        assert metric.column in columns
        assert metric.source
        assert metric.generation
        assert metric.tool in ("nvprof", "ncu")
        assert all(factor > 0 for factor in metric.terms.values())


def test_of_two_ways_to_a_column_one_is_taken_and_parts_add_up():
    values = {"dram_read_bytes": 10.0, "dram_write_bytes": 5.0, "dram_read_transactions": 99.0}
    values |= {
        "dram_write_transactions": 99.0,
        "flop_count_sp": 7.0,
        "flop_count_sp_add": 1.0,
        "flop_count_hp": 2.0,
    }
    assert metrics.to_columns("nvprof", values) == {"dram_bytes": 15.0, "flops_executed": 9.0}
    assert metrics.to_columns("nvprof", {"dram_read_bytes": 10.0}) == {}


def test_the_products_of_tensor_cores_are_counted_under_the_names_of_each_generation():
    paths = {
        f"sm__ops_path_tensor_src_{path}.sum": 100.0
        for path in ("bf16_dst_fp32", "fp16", "tf32_dst_fp32", "fp64")
    }
    hopper = {**dict.fromkeys(SINGLE, 1.0), **paths, "sm__ops_path_tensor_src_fp8.sum": 0.0}
    assert metrics.to_columns("ncu", hopper, "9.0")["flops_executed"] == 4 + 400
    assert metrics.parts("ncu", hopper, "9.0") == ["single precision", "tensor cores"]
    assert (
        metrics.to_columns("ncu", hopper, "8.0")["flops_executed"] == 4
    )  # other names there: not known


DETAILS = """
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name",\
"Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"
"0","7","julia","127.0.0.1","f","1","13","(1024, 1, 1)","(108, 1, 1)","0","8.0",\
"GPU Speed Of Light Throughput","Duration","us","56.06",
"0","7","julia","127.0.0.1","f","1","13","(1024, 1, 1)","(108, 1, 1)","0","8.0","Occupancy",\
"Achieved Occupancy","%","48.1",
"0","7","julia","127.0.0.1","f","1","13","(1024, 1, 1)","(108, 1, 1)","0","8.0",\
"SpeedOfLight","","","","SOLBottleneck","OPT","Low utilization, of both.","",""
"1","7","julia","127.0.0.1","g","1","13","(1, 1, 1)","(1, 1, 1)","0","8.0",\
"GPU Speed Of Light Throughput","Duration","ms","30.86",
"""


def test_rows_of_a_details_page_end_before_the_columns_of_its_rules(tmp_path):
    """No kernel had a time: such a row was unreadable."""
    recording = of_text(DETAILS.replace("\\\n", "").lstrip(), tmp_path)
    assert rows(recording, "kernels", "name", "duration_ns", "achieved_occupancy") == [
        ("f", 56_060, pytest.approx(0.481)),
        ("g", 30_860_000, None),
    ]
    assert "metrics_unreadable" not in lost(recording)
