"""What a result says beside its time: the share of a peak, and its row of a CSV file."""

import csv

import pytest

from curvescope.kernels import sweeps
from curvescope.kernels.conv import Conv
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import Method
from curvescope.kernels.runner import axes_of, run_sweep
from curvescope.profiling.recording.export import export_csv, export_results
from curvescope.profiling.recording.store import open_recording

from .fakes import FakeBackend, exact

H100 = {"name": "NVIDIA H100 80GB HBM3", "kind": "cuda", "l2_cache_bytes": 50 << 20}


class Card(FakeBackend):
    """An H100 on which every call takes the same time."""

    def describe(self):
        return H100


def measure(tmp_path, axes, duration_ns, precision="fp32", **method):
    (sweep,) = sweeps.span(Gemm(64, 64, 64), axes, precision)
    backend = Card(exact, (duration_ns,))
    return run_sweep(sweep, backend, Method(visit_s=0.003, verify=False, **method), tmp_path / "r")


def test_a_product_is_held_against_the_peak_of_its_precision(tmp_path):
    """2 · 1024³ FLOPs in 64.2 µs are 33.45 TFLOP/s: half of fp32's peak, a thirtieth of bf16's."""
    axes = ["m=1024", "n=1024", "k=1024"]
    (result,) = measure(tmp_path, axes, 64_200)
    assert (result.of_peak.level, result.of_peak.kind) == ("compute", "peak")
    assert result.of_peak.share == pytest.approx(0.5, rel=0.01)
    (result,) = measure(tmp_path / "bf16", axes, 64_200, "bf16")
    assert result.of_peak.share == pytest.approx(33.45 / 989.4, rel=0.01)


def test_operands_that_stay_in_the_cache_are_none_of_dram(tmp_path):
    """A product with one column moves its matrix of 4 MiB: in 2.5 µs from DRAM at half its rate,
    and from L2 at no rate of DRAM.
    """
    axes = ["m=1024", "n=1", "k=1024"]
    (cold,) = measure(tmp_path / "cold", axes, 2_510, cache="cold")
    (hot,) = measure(tmp_path / "hot", axes, 2_510, cache="hot")
    assert (cold.of_peak.level, hot.of_peak.level) == ("DRAM", "compute")
    assert cold.of_peak.share == pytest.approx(0.5, rel=0.02)


def test_a_pair_is_one_cell():
    axes = axes_of(Conv(8, 3, 9, 9, 4, 3, 1, padding=(1, 0)))
    assert (axes["n"], axes["padding"], axes["direction"]) == (8, "1x0", "fwd")


def read_rows(folder):
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_csv_has_a_row_for_each_problem_with_its_axes_and_rates(tmp_path):
    results = measure(tmp_path, ["n=1,2,4"], 1000)
    recording = open_recording(tmp_path / "r")
    export_csv(recording, tmp_path / "csv")
    rows = read_rows(tmp_path / "csv")
    assert [(row["m"], row["n"], row["precision"]) for row in rows] == [
        ("64", size, "fp32") for size in ("1", "2", "4")
    ]
    for row, result in zip(rows, results, strict=True):
        assert float(row["gflop_per_s"]) == result.gflop_per_s
        assert float(row["of_peak_share"]) == result.of_peak.share
        assert (row["cache"], row["samples"]) == ("cold", str(result.n))
    assert (tmp_path / "csv" / "steps.csv").exists()


@pytest.mark.slow
def test_several_sweeps_are_rows_of_one_file(tmp_path):
    measure(tmp_path / "a", ["n=1,2"], 1000)
    measure(tmp_path / "b", ["k=8", "n=4"], 1000, cache="hot")
    recordings = [open_recording(tmp_path / name / "r") for name in ("a", "b")]
    export_results(recordings, tmp_path / "csv")
    rows = [(row["n"], row["k"], row["cache"]) for row in read_rows(tmp_path / "csv")]
    assert rows == [("1", "64", "cold"), ("2", "64", "cold"), ("4", "8", "hot")]
