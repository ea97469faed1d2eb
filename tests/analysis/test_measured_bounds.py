"""What bounds a kernel by the throughputs that Nsight Compute measured, and what is said of it."""

import pytest

from curvescope.analysis.measured_bounds import (
    COMPUTE,
    DRAM,
    FEW_BLOCKS,
    FEW_WARPS,
    L2,
    LATENCY,
    PIPES,
    measured_bounds,
)
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

USED = "avg.pct_of_peak_sustained_elapsed"
COLUMNS = {
    "ID": "",
    "Process ID": "",
    "Kernel Name": "",
    "Block Size": "",
    "Grid Size": "",
    "Device": "",
    "CC": "",
    "device__attribute_display_name": "",
    "device__attribute_multiprocessor_count": "",
    "gpu__time_duration.sum": "usecond",
    f"sm__throughput.{USED}": "%",
    f"gpu__compute_memory_throughput.{USED}": "%",
    f"gpu__dram_throughput.{USED}": "%",
    f"lts__throughput.{USED}": "%",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "%",
}
# Kernel, blocks, time in µs, percent of SMs, memory, DRAM, L2 and warps; and what bounds it.
KERNELS = (
    ("product", 640, 900, 85, 40, 20, 30, 40, COMPUTE),
    ("copy", 640, 800, 10, 92, 92, 50, 90, DRAM),
    ("again", 640, 700, 10, 81, 10, 81, 90, L2),
    ("strided", 640, 600, 30, 75, 10, 20, 90, PIPES),
    ("small", 4, 500, 3, 2, 1, 1, 10, FEW_BLOCKS),
    ("heavy", 640, 400, 30, 30, 20, 20, 20, FEW_WARPS),
    ("chain", 640, 300, 30, 30, 20, 20, 95, LATENCY),
)


@pytest.fixture
def report(tmp_path):
    """The raw page of a report."""
    lines = [list(COLUMNS), list(COLUMNS.values())]
    for number, (name, blocks, *values, _) in enumerate(KERNELS):
        about = (number, 7, name, "(128, 1, 1)", f"({blocks}, 1, 1)", 0, "8.6", "NVIDIA A10G", 80)
        lines.append([*about, *values])
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    (tmp_path / "report.csv").write_text(f"{text}\n")
    return tmp_path / "report.csv"


def test_the_busiest_unit_bounds_a_kernel(report, tmp_path):
    found = measured_bounds(open_recording(import_profile(report, tmp_path / "run").path))
    assert [(one.kernel, one.bound) for one in found] == [(k[0], k[-1]) for k in KERNELS]
    assert (found[1].dram_use, found[1].time_ms) == (pytest.approx(0.92), pytest.approx(0.8))


def test_explain_says_what_bounds_each_kernel_and_what_to_try(report, text_of, document_of):
    """A profile without a timeline had no answer, though it holds the bound."""
    said = " ".join(text_of("explain", report).split())
    assert "Nothing can be suggested" not in said
    for kernel, *_, bound in KERNELS:
        assert kernel in said
        assert bound in said
    assert [one["bound"] for one in document_of("explain", report)["bounds"]] == [
        bound for *_, bound in KERNELS
    ]
