"""Sweeps and experiments on a CUDA device. Not one of these has run on a GPU yet."""

from __future__ import annotations

import pytest

from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.step_variants import run_step
from curvescope.profiling.measure.sweep_plan import PLAN_FILE, SweepPlan, run_plan, sweep_recordings
from curvescope.profiling.recording.experiments import Experiment, Scope, Stage
from curvescope.profiling.recording.store import RecordingWriter, open_recording

pytestmark = pytest.mark.gpu

ONE_ROUND = Protocol("one", (1, 1), 1, (2, 2), visit_s=0.0, profiled_steps=1, time_limit_s=None)


def sweep(folder, setting, batches):
    plan = SweepPlan((setting,), batches, False, ONE_ROUND)
    PLAN_FILE.write(folder, plan)
    assert run_plan(folder, plan) == []
    (path,) = sweep_recordings(folder)
    return open_recording(path)


def test_out_of_memory_under_a_limit_leaves_the_other_batch_sizes_measured(tmp_path):
    limited = Configuration("vgg_a", device="cuda:0", memory_limit_bytes=4 * 10**9)
    recording = sweep(tmp_path / "r", limited, (1, 16, 512))
    assert set(recording.frame("steps")["batch"]) == {1, 16}
    (cell,) = recording.meta["unmeasured"]
    assert (cell["batch"], cell["why"]) == (512, "out of memory")
    assert recording.frame("steps")["peak_memory_bytes"].max() <= 4 * 10**9


def test_layers_phases_clocks_and_memory_of_a_training_step(tmp_path):
    recording = sweep(tmp_path / "r", Configuration("resnet50", device="cuda:0"), (8,))
    kernels, steps = recording.frame("kernels"), recording.frame("steps")
    assert set(kernels["phase"].dropna()) == {"forward", "backward", "optimizer"}
    computing = kernels[~kernels["name"].str.startswith(("Memcpy", "Memset"))]
    assert len(computing) > 100
    for name in ("grid_x", "block_x", "registers_per_thread", "shared_memory_bytes"):
        assert computing[name].notna().all(), name
    calls = recording.frame("api_calls")
    assert calls["name"].str.contains("LaunchKernel").sum() >= len(computing)
    assert set(computing["correlation_id"]) <= set(calls["correlation_id"])
    assert kernels["layer"].notna().mean() > 0.5
    assert (steps["peak_memory_bytes"].dropna() > 10**8).all()
    assert recording.meta["lost"].get("kernels_without_operator", {"count": 0})["count"] < 0.01 * len(kernels)
    if recording.meta["clocks_missing"] is None:
        assert (recording.frame("clocks")["sm_clock_hz"] > 10**8).any()


def test_complete_steps_run_with_each_factor_changed(tmp_path):
    recording = sweep(tmp_path / "r", Configuration("resnet50", device="cuda:0"), (8, 16))
    names = ("kept_memory", "cuda_graph", "cudnn_benchmark", "channels_last", "smaller_memory", "compiled")
    functional = ((8, -2.0), (16, 1.0))
    experiment = Experiment(0, Stage.SCREEN, Scope.STEP, functional, "excess", (8, 16), names, rounds=(2, 2))
    with RecordingWriter.extend(recording.path) as writer:
        done = run_step(recording, experiment, writer)
    rows = open_recording(recording.path).frame("experiments")
    ran = {*names} - {*done.untested}
    assert {"kept_memory", "cuda_graph", "cudnn_benchmark", "channels_last"} <= ran
    assert set(rows["factor"].dropna()) == ran
    assert rows["factor"].isna().any()
    assert not {"kept_memory", "cuda_graph"} & {*done.changed_results}
