"""Traces of GPU work that `nsys stats` prints."""

import pytest

from curvescope.base.errors import CurvescopeError

from .made_profiles import lost, of_text, rows

SIZES = "StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd"
GRID = "CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd"
GPU = "NVIDIA RTX 5000 Ada Generation Laptop GPU"
# Nsight Systems 2022, and 2025 with a column for green contexts, in other units, after its own
# lines.
TRACES = {
    "2022": f"""Start (ns),Duration (ns),{GRID},{SIZES},Device,Ctx,Strm,Name
1134711990,661398,123,,,,,,,,,,4.194,6337.593,Pinned,Device,{GPU} (0),1,13,[CUDA memcpy HtoD]
1136125733,7072,128,4096,2,1,256,1,1,16,0.000,0.000,,,,,{GPU} (0),1,13,"saxpy(float, const float *)"
1136225733,1000,129,,,,,,,,,,0.000,340.000,Device,,{GPU} (0),1,7,[CUDA memset]
""",
    "2025": f"""
NOTICE: Existing SQLite export found: x.sqlite

Processing [x.sqlite] with [cuda_gpu_trace.py]...
Start (us),Duration (us),{GRID},{SIZES},Device,Ctx,GreenCtx,Strm,Name
1134711.990,661.398,123,,,,,,,,,,4.194,6337.593,Pinned,Device,{GPU} (0),1,,13,[CUDA memcpy Host-to-Device]
1136125.733,7.072,128,4096,2,1,256,1,1,16,0.000,0.000,,,,,{GPU} (0),1,,13,"saxpy(float, const float *)"
1136225.733,1.000,129,,,,,,,,,,0.000,340.000,Device,,{GPU} (0),1,,7,[CUDA memset]
""",  # noqa: E501
}


@pytest.mark.parametrize("version", TRACES)
def test_kernels_and_copies_of_every_version(version, tmp_path):
    recording = of_text(TRACES[version], tmp_path)
    (kernel,) = recording.arrow("kernels").to_pylist()
    assert (kernel["name"], kernel["start_ns"]) == ("saxpy(float, const float *)", 1136125733)
    shape = (
        "duration_ns",
        "grid_x",
        "grid_y",
        "block_x",
        "registers_per_thread",
        "device",
        "stream",
        "correlation_id",
    )
    assert [kernel[column] for column in shape] == [7072, 4096, 2, 256, 16, 0, 13, 128]
    # sizes are rounded in the table
    copies = [
        ("memcpy", "HtoD", 661398, None),
        ("memset", None, 1000, None),
    ]
    assert rows(recording, "memory", "kind", "memcpy_kind", "duration_ns", "bytes") == copies
    assert kernel["shared_memory_bytes"] is None
    assert recording.meta["device"]["name"] == GPU
    assert set(recording.meta["missing"]) == {"ranges", "api_calls"}
    assert recording.meta["lost"] == {}


def test_unreadable_rows_are_counted(tmp_path):
    text = TRACES["2022"] + "x,5,1\n" + TRACES["2022"].splitlines()[2].replace("7072", "") + "\n"
    recording = of_text(text, tmp_path)
    assert (recording.count_rows("kernels"), lost(recording)["rows_unreadable"]) == (1, 2)


def test_a_summary_and_a_trace_without_kernels_say_what_to_do(tmp_path):
    with pytest.raises(
        CurvescopeError, match="summary, without the times of single kernels; `nsys stats --report"
    ):
        of_text(
            "Time (%),Total Time (ns),Instances,Avg (ns),Name\n90.1,100,4,25.0,gemm\n", tmp_path
        )
    with pytest.raises(CurvescopeError, match="no kernel"):
        of_text(TRACES["2022"].splitlines()[0] + "\n", tmp_path)
