"""The side rooms on the virtual card: microbenchmarks, counters, memory, and data-parallel steps on
two cards.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from curvescope.profiling.hardware.devices import get_device
from curvescope.profiling.recording.store import open_recording

from .card import Card
from .measured import table

STEPS = Path(__file__).with_name("steps.py")
H100 = Card(virtual_time=True)
US = r"\s+([\d.]+) µs"


def cost(name):
    """A measured cost of the card."""
    return table()["h100"]["costs"][name]["value"]


def microseconds(text, problem):
    """The median of a problem in a printed table."""
    found = re.search(re.escape(problem) + US, text)
    assert found, text
    return float(found[1])


@pytest.fixture
def bench(curvescope_on):
    def run(*words):
        return curvescope_on(H100, "bench", *words, "--no-verify", "--time-limit", 0.1, "-o", "run")

    return run


def test_a_product_takes_what_its_tiles_take(bench):
    text = bench("gemm", "--axis", "n=512,1024")
    h100, fmas = get_device("h100"), 2048 * 2048 * 1024
    of_peak = fmas / (h100.sm_count * h100.fp32_lanes_per_sm * h100.clock_hz) * 1e6
    assert of_peak < microseconds(text, "gemm 2048x1024x2048 NN fp32") < 1.5 * of_peak


def test_launches_take_what_the_card_says(bench):
    """A kernel after its gap; the host's time for a launch."""
    text = bench("launch")
    between_us = (cost("kernel_ns") + cost("gap_ns")) / 1e3
    assert microseconds(text, "launch throughput") == pytest.approx(between_us, rel=0.02)
    assert 0 < microseconds(text, "launch call") - cost("launch_ns") / 1e3 < 1


def test_a_copy_in_memory_takes_its_bytes_over_the_bandwidth(bench):
    problem = ("--axis", "kind=scale", "--axis", "size=1000000000")
    text = bench("memory", *problem, "--backend", "torch")
    bytes_per_s = cost("memory_efficiency") * get_device("h100").memory_bytes_per_s
    read_and_written = 1e9 / bytes_per_s * 1e6
    assert microseconds(text, "memory scale 1000000000 B fp32") == pytest.approx(
        read_and_written, rel=0.02
    )


def test_convolutions_of_a_network_are_timed_in_every_direction(bench):
    text = bench("conv", "--from", "alexnet", "--batch", "1", "--json")
    for direction in ("fwd", "bwd_data", "bwd_weights"):
        assert f"conv3 conv {direction}" in text


def test_kernels_get_counters_by_cuptis_range_profiler(curvescope_on, tmp_path):
    """The double counts each kernel by its position in the step; the values mean nothing."""
    folder = tmp_path / "recording"
    step = (
        "--step",
        f"{STEPS}:linear",
        "--batch",
        "8192",
        "--time-limit",
        0.5,
        "--experiments",
        0,
    )
    curvescope_on(H100, "diagnose", *step, "-o", folder)
    assert open_recording(folder).frame("kernels")["dram_bytes"].isna().all()
    curvescope_on(H100, "counters", folder, "--run-its-code")
    counted = open_recording(folder).frame("kernels")
    assert counted.loc[counted["dram_bytes"].notna(), "name"].str.contains("gemm").any()


def test_the_memory_of_a_step_is_told_by_layers(curvescope_on):
    text = curvescope_on(
        H100, "diagnose", "--of", "memory", "alexnet", "--batch", "8,16", "-o", "run"
    )
    assert re.search(
        r"fc6 \(Linear\) parameters +151", text
    )  # 9216 x 4096 numbers of 4 bytes, in MB


def test_two_cards_lose_time_to_communication(libraries, tmp_path):
    """Each rank is a process of its own; NCCL's collectives take the time of their bytes."""
    words = (
        "scale",
        "measure",
        "alexnet",
        "--at",
        "8",
        "--devices",
        "1,2",
        "--time-limit",
        "1",
        "-o",
        "run",
    )
    done = subprocess.run(
        [sys.executable, "-m", "curvescope", *words],
        env=Card(["h100", "h100"]).environment(tmp_path / "card", libraries),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 devices lose" in done.stdout
    names = open_recording(tmp_path / "run" / "devices2" / "rank1").frame("kernels")["name"]
    assert names.str.contains("ncclDevKernel_AllReduce").any()
