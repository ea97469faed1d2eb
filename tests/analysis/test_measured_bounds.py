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
    "launch__registers_per_thread": "register/thread",
    "smsp__average_warp_latency_per_inst_issued.ratio": "cycle",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "inst",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": "inst",
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
    ("uneven", 640, 200, 30, 30, 20, 20, 20, FEW_WARPS),
)
# Registers, cycles between two instructions, and those that wait for memory and for barriers.
WAITS = {"heavy": (168, 10, 1, 1), "chain": (32, 10, 6.4, 1), "uneven": (32, 10, 1, 5)}


@pytest.fixture
def report(tmp_path):
    """The raw page of a report."""
    lines = [list(COLUMNS), list(COLUMNS.values())]
    for number, (name, blocks, *values, _) in enumerate(KERNELS):
        about = (number, 7, name, "(128, 1, 1)", f"({blocks}, 1, 1)", 0, "8.6", "NVIDIA A10G", 80)
        lines.append([*about, *values, *WAITS.get(name, (32, 10, 1, 1))])
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    (tmp_path / "report.csv").write_text(f"{text}\n")
    return tmp_path / "report.csv"


def test_the_busiest_unit_bounds_a_kernel(report, tmp_path):
    found = measured_bounds(open_recording(import_profile(report, tmp_path / "run").path))
    assert [(one.kernel, one.bound) for one in found] == [(k[0], k[-1]) for k in KERNELS]
    assert (found[1].dram_use, found[1].time_ms) == (pytest.approx(0.92), pytest.approx(0.8))


def test_explain_says_what_bounds_each_kernel_and_what_to_try(
    report, text_of, document_of, monkeypatch
):
    """A profile without a timeline had no answer, though it holds the bound."""
    monkeypatch.setenv("COLUMNS", "120")
    said = " ".join(text_of("explain", report, "--all").split())
    assert "Nothing can be suggested" not in said
    for kernel, *_, bound in KERNELS:
        assert kernel in said
        assert bound in said
    assert [one["bound"] for one in document_of("explain", report)["bounds"]] == [
        bound for *_, bound in KERNELS
    ]


@pytest.mark.slow
def test_a_kernel_that_waits_says_for_what_and_what_makes_room(
    report, tmp_path, text_of, monkeypatch
):
    """128 threads with 168 registers each are 3 blocks of an SM of 8.6: 12 warps of 48."""
    found = measured_bounds(open_recording(import_profile(report, tmp_path / "run").path))
    of = {one.kernel: one for one in found}
    heavy, chain, uneven = of["heavy"], of["chain"], of["uneven"]
    assert (heavy.occupancy, heavy.limited_by) == (0.25, ("registers",))
    assert heavy.do.startswith("fewer registers")
    assert (chain.stall, chain.stall_share) == ("global memory", pytest.approx(0.64))
    assert chain.do.startswith("load earlier")
    assert uneven.occupancy == 1.0
    assert (uneven.stall, uneven.stall_share) == ("barriers", pytest.approx(0.5))
    assert uneven.do.startswith("blocks that take equally long")
    assert of["copy"].stall is None
    monkeypatch.setenv("COLUMNS", "200")
    one = text_of("explain", report, "6")
    assert "heavy takes 0.4000 ms: bound by few warps." in one
    assert "Try:   fewer registers" in one
    said = " ".join(text_of("explain", report, "--all").split())
    assert "64% for global memory" in said
    assert "registers limit occupancy to 25%" in said


def test_occupancy_limits_are_those_of_the_report(imported_profile):
    """The report says 2 blocks by registers and 3 by warps for blocks of 512 threads."""
    found = measured_bounds(open_recording(imported_profile("averyclapp_a10g.ncu-rep.gz")))
    (bound,) = (one for one in found if one.kernel == "one_blocktiling")
    assert (bound.occupancy, bound.limited_by) == (pytest.approx(2 * 16 / 48), ("registers",))
    assert bound.stall is None  # its section was not recorded
