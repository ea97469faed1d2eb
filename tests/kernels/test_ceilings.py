"""Ceilings from results: the fastest visit of the fastest problem, by precision and
memory level.
"""

import pytest

from curvescope.kernels.ceilings import ceiling_problems, every_problem, find_ceilings
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.memory import Memory
from curvescope.kernels.method import Method
from curvescope.kernels.peak import Peak, PeakRounds
from curvescope.kernels.runner import run_sweep
from curvescope.kernels.sweeps import single

from .fakes import FakeBackend, exact

METHOD = Method(visit_s=0.0, profile=False)


def result(tmp_path, problem, durations_ns):
    (one,) = run_sweep(
        single(problem), FakeBackend(exact, durations_ns), METHOD, tmp_path / problem.label
    )
    return one


@pytest.mark.slow
def test_the_fastest_visit_of_the_fastest_problem_is_the_ceiling(tmp_path):
    # visits of 3, 1 and 2 ms after a discarded sample each, and again
    durations = [
        9e6,
        3e6,
        9e6,
        1e6,
        9e6,
        2e6,
    ]
    gemm = result(tmp_path, Gemm(10, 10, 10), durations)
    peak = result(tmp_path, Gemm(10, 10, 5), durations)
    copy = result(tmp_path, Memory("copy", 8000), durations)
    triad = result(tmp_path, Memory("triad", 12_000), durations)
    assert gemm.fastest_visit_ns == 1e6
    found = find_ceilings(
        {"name": "device"},
        [
            ("a", "fp32", gemm),
            ("b", "fp32", peak),
            ("a", "L1", copy),
            ("b", "L1", triad),
            ("b", "DRAM", copy),
        ],
    )
    assert found.compute["fp32"].per_s == 2000 / 1e-3
    assert found.compute["fp32"].how == "gemm 10x10x10 NN fp32, a"
    assert found.bandwidth["L1"].per_s == 12_000 / 1e-3
    assert found.bandwidth["DRAM"].per_s == 8_000 / 1e-3
    assert found.clock_hz == (10**9, 10**9)


def test_constants_give_the_peak_of_the_units_and_no_ceiling(tmp_path):
    """A card runs products at 788 TFLOP/s on random numbers and chains of ones at 894: no data
    reaches the second.
    """
    streams = FakeBackend(exact)
    streams.peak_precisions, streams.peak = (
        ("bf16",),
        lambda _: PeakRounds("peak_bf16_tensor", 256, 4, "bf16"),
    )
    names = [
        name
        for _, name, _ in ceiling_problems(streams, FakeBackend(exact))
        if name.endswith("bf16")
    ]
    assert names == ["bf16", "units bf16"]
    product, ones = (
        result(tmp_path, Gemm(10, 10, n), [ns] * 6) for n, ns in ((10, 1e6), (11, 0.9e6))
    )
    found = find_ceilings(
        {"name": "device"}, [("torch", names[0], product), ("cupy", names[1], ones)]
    )
    assert found.compute["bf16"].per_s == 2000 / 1e-3
    assert found.units["bf16"].per_s == pytest.approx(2200 / 0.9e-3)
    assert found.entry()["units"]["bf16"]["how"].endswith("cupy")


def test_a_lower_bound_is_no_peak_of_the_units():
    """The products of the library pass what mma.sync does on Hopper and Blackwell."""
    streams = FakeBackend(exact)
    streams.peak_precisions = ("fp32", "bf16")
    streams.peak = lambda precision: PeakRounds(
        f"peak_{precision}", 256, 4, precision, beyond="tcgen05" if precision == "bf16" else ""
    )
    names = [name for _, name, _ in ceiling_problems(streams, FakeBackend(exact))]
    assert [name for name in names if name.startswith("units")] == ["units fp32"]


def test_what_was_not_timed_is_no_ceiling(tmp_path):
    (wrong,) = run_sweep(
        single(Gemm(4, 4, 4)),
        FakeBackend(lambda p, o: exact(p, o) + 1),
        Method(visit_s=0.0),
        tmp_path / "wrong",
    )
    found = find_ceilings({"name": "device"}, [("a", "fp16", wrong)])
    assert found.compute == {}
    assert found.clock_hz is None


class Streams(FakeBackend):
    peak_precisions = ("fp32", "fp64")

    def peak(self, precision):
        return Peak(64, precision)


def test_every_precision_and_every_level_is_asked_for():
    streams, library = Streams(exact), FakeBackend(exact)
    problems = ceiling_problems(streams, library)
    names = [name for _, name, _ in problems]
    assert {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "DRAM"} <= set(names)
    assert names.count("fp32") == 2  # a product and chains
    assert names.count("DRAM") == 4
    kinds = {
        type(next(iter(sweep.problems.values()))).__name__
        for _, sweep in every_problem(streams, library)
    }
    assert kinds == {
        "Gemm",
        "Conv",
        "Attention",
        "Experts",
        "RowOperator",
        "Memory",
        "Mix",
        "Latency",
        "Launch",
        "Peak",
    }
