"""Sweeps and experiments on a CUDA device.

On a GPU time was up before them; they run on a virtual card.
"""

from dataclasses import replace

import pytest

from curvescope.analysis.causes import context
from curvescope.experiments.step_variants import run_step
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.measure.sweep_plan import PLAN_FILE, SweepPlan, run_plan, sweep_recordings
from curvescope.profiling.recording.experiments import Experiment, Scope, Stage
from curvescope.profiling.recording.store import RecordingWriter, open_recording
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network

pytestmark = pytest.mark.gpu

# Factors that are tried at once, and the one that takes minutes; none may refuse CUDA.
TOGETHER = ("cuda_graph", "cudnn_benchmark", "channels_last", "smaller_memory")
COMPILED = ("compiled",)
ONE_ROUND = Protocol("one", (1, 1), 1, (2, 2), visit_s=0.0, profiled_steps=1, time_limit_s=None)


def sweep(folder, setting, batches):
    """A recorded sweep, whose kernels have what every sweep on a GPU records."""
    plan = SweepPlan((setting,), batches, False, ONE_ROUND)
    PLAN_FILE.write(folder, plan)
    assert run_plan(folder, plan) == []
    (path,) = sweep_recordings(folder)
    recording = open_recording(path)
    calls, kernels = recording.frame("api_calls"), recording.frame("kernels")
    computing = kernels[~kernels["name"].str.startswith(("Memcpy", "Memset"))]
    assert len(computing) > 10
    for name in ("grid_x", "block_x", "registers_per_thread", "shared_memory_bytes"):
        assert computing[name].notna().all(), name
    assert "kernels_without_geometry" not in recording.meta["lost"]
    assert calls["name"].str.contains("LaunchKernel").sum() > 10
    assert set(computing["correlation_id"]) <= set(calls["correlation_id"])
    assert recording.meta["device"]["kind"] == "cuda"
    assert recording.meta["device"]["driver"]
    return recording


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
    assert len(kernels) > 100
    assert kernels["layer"].notna().mean() > 0.5
    assert (steps["peak_memory_bytes"].dropna() > 10**8).all()
    assert recording.meta["lost"].get("kernels_without_operator", {"count": 0})[
        "count"
    ] < 0.01 * len(kernels)
    if recording.meta["clocks_missing"] is None:
        assert (recording.frame("clocks")["sm_clock_hz"] > 10**8).any()
        assert recording.meta["device_settings"]["max_sm_clock_hz"] > 10**8


def test_causes_see_clocks_of_the_steps(tmp_path):
    """In one process, as `diagnose` measures: the steps count their clock, and NVML knows the
    highest.
    """
    protocol = replace(ONE_ROUND, steps_per_visit=(20, 20))
    run_sweep(Here(Workload(get_network("resnet50"), "cuda:0")), (32,), protocol, tmp_path / "r")
    recording = open_recording(tmp_path / "r")
    if recording.meta["clocks_missing"] is not None:
        pytest.skip(recording.meta["clocks_missing"])
    steps, most_hz = recording.frame("steps"), recording.meta["device_settings"]["max_sm_clock_hz"]
    counted_hz = steps.loc[~steps["profiled"], "sm_clock_hz"]
    assert counted_hz.between(0.5 * most_hz, 1.01 * most_hz).all()  # the GPU is warm
    assert context.mean_clock(steps, recording.frame("clocks"))[0] == counted_hz.mean()


@pytest.mark.parametrize(
    "names",
    [
        TOGETHER,
        pytest.param(COMPILED, marks=pytest.mark.not_virtual("compiling takes minutes")),
    ],
    ids=["set", "compiled"],
)
def test_complete_steps_run_with_each_factor_changed(tmp_path, names):
    recording = sweep(tmp_path / "r", Configuration("resnet50", device="cuda:0"), (8, 16))
    functional = ((8, -2.0), (16, 1.0))
    experiment = Experiment(
        number=0,
        stage=Stage.SCREEN,
        scope=Scope.STEP,
        functional=functional,
        functional_kind="excess",
        batches=(8, 16),
        factors=names,
        rounds=(2, 2),
    )
    with RecordingWriter.extend(recording.path) as writer:
        done = run_step(recording, experiment, writer)
    rows = open_recording(recording.path).frame("experiments")
    ran = {*names} - {*done.untested}
    # How full the memory is decides whether it can be made smaller.
    assert {*names} - {"smaller_memory"} <= ran
    assert set(rows["factor"].dropna()) == ran
    assert rows["factor"].isna().any()
    assert "cuda_graph" not in done.changed_results
