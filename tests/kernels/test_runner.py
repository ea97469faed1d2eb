"""Recordings of sweeps: what stands in them, interrupted too; and DeepBench from end to end."""

import json

import pytest

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.kernels import problem_sets, sweeps
from curvescope.kernels.backends import open_backend
from curvescope.kernels.conv import Conv
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.levels import memory_levels
from curvescope.kernels.method import BenchOutcome, Method
from curvescope.kernels.runner import kept_bytes, run_sweep
from curvescope.profiling.hardware.devices import devices
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.recording.store import open_recording

from .fakes import FakeBackend, exact

SWEEP = sweeps.span(Gemm(8, 8, 8), ["n=1,2,4"])[0]
METHOD = Method(visit_s=0.003)


def test_every_sample_is_a_step_and_a_profiled_call_is_a_kernel(tmp_path):
    results = run_sweep(SWEEP, FakeBackend(exact), METHOD, tmp_path / "r")
    recording = open_recording(tmp_path / "r")
    steps, kernels = recording.frame("steps"), recording.frame("kernels")
    assert recording.complete
    assert [r.outcome for r in results] == ["ok"] * 3
    assert (~steps["profiled"]).sum() == sum(r.n for r in results)
    assert set(steps["batch"]) == {1, 2, 4}
    assert set(steps["round"]) == set(range(6))
    assert len(kernels) == 3 * 6 == steps["profiled"].sum()  # a profiled call in every visit
    assert set(kernels["name"]) == {"fake_kernel"}
    assert sorted(set(kernels["flops"])) == [2 * 8 * 8 * n for n in (1, 2, 4)]
    assert [p.time_ms.value for p in cost_curve(steps).points] == [1.0] * 3
    assert recording.meta["results"][0]["problem"] == "gemm 8x1x8 NN fp32"
    assert recording.meta["protocol"]["timer"] == "fake"
    assert len(recording.frame("clocks")) == 18


def test_a_wrong_kernel_is_in_the_recording_by_its_verdict_alone(tmp_path):
    results = run_sweep(
        SWEEP,
        FakeBackend(lambda problem, operands: exact(problem, operands) * 1.01),
        METHOD,
        tmp_path,
    )
    assert [r.outcome for r in results] == [BenchOutcome.INCORRECT] * 3
    assert all(r.median_ns is None and r.gflop_per_s is None and r.n == 0 for r in results)
    recording = open_recording(tmp_path)
    assert recording.frame("steps").empty
    assert {row["outcome"] for row in recording.meta["results"]} == {"incorrect"}


def test_a_result_that_is_not_a_number_can_be_written(tmp_path):
    (result,) = run_sweep(
        sweeps.span(Gemm(8, 8, 8), [])[0],
        FakeBackend(lambda problem, operands: exact(problem, operands) * float("nan")),
        METHOD,
        tmp_path,
    )
    assert result.outcome == BenchOutcome.INCORRECT
    assert result.error is None
    assert (
        "off by nan"
        in json.loads((tmp_path / "recording.json").read_text())["results"][0]["detail"]
    )


def test_an_interrupted_run_keeps_what_it_has(tmp_path):
    visits = []

    def report(result):
        visits.append(result)
        if len(visits) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(SWEEP, FakeBackend(exact), METHOD, tmp_path, report)
    recording = open_recording(tmp_path)
    assert recording.meta["status"] == "interrupted"
    assert set(recording.frame("steps")["batch"]) == {1, 2, 4}
    last = {result.value: result.visits for result in visits}  # what was known last of each problem
    assert [row["visits"] for row in recording.meta["results"]] == [
        last[value] for value in SWEEP.problems
    ]


def test_operands_beyond_what_is_kept_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr("curvescope.kernels.runner._KEPT_BYTES", 100)
    backend = FakeBackend(exact)
    prepared = []
    original = backend.prepare
    backend.prepare = lambda *arguments: prepared.append(1) or original(*arguments)
    run_sweep(SWEEP, backend, METHOD, tmp_path)
    assert len(prepared) == 3 * 6


def test_operands_of_a_working_set_for_each_memory_level_are_kept_on_every_gpu():
    """The largest, 16 times the L2, is over 1 GB on an H200."""
    for device in devices():
        facts = {name: fact.value for name, fact in device.facts.items()}
        described = {"kind": "cuda", "memory_bytes": facts.get("memory_bytes")}
        levels = memory_levels({**described, "l2_cache_bytes": facts.get("l2_bytes")})
        assert sum(level.size_bytes for level in levels) <= kept_bytes(described), device.name


@pytest.mark.parametrize("kind", [Gemm, Conv])
def test_the_layers_of_a_network_run_from_end_to_end(tmp_path, kind):
    """All transposes and directions are among them."""
    backend = open_backend("torch", "cpu")
    once = Method(cache="hot", visits=(1, 1), visit_s=0.0, profile=False)
    network = Configuration("tests.profiling.planted:build_plain", (3, 16, 16)).find_network()
    for i, sweep in enumerate(problem_sets.layer_sweeps(network, (2,), kind)):
        for result in run_sweep(sweep, backend, once, tmp_path / str(i)):
            assert result.outcome == BenchOutcome.OK, result
            assert result.n >= 1
