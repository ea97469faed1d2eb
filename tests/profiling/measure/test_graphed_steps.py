"""Steps that are replays of a CUDA graph, on a double of torch's graphs: nothing here
ran on a GPU.
"""

from contextlib import contextmanager

import pytest

import curvescope
from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.measure import sweep_plan
from curvescope.profiling.measure.configuration import Configuration, configuration_of
from curvescope.profiling.measure.graphed_steps import GraphedSteps

from ...experiments.test_factors_of_steps import Counting, fake_cuda_graphs


class OnGpu(Counting):
    """A workload that says that it runs on a GPU."""

    device = "cuda:0"
    name, spec = "net", {"network": "net", "mode": "training", "torch_device": "cuda:0"}

    def try_step(self, batch):
        self.load(batch)


@contextmanager
def refuses():
    raise RuntimeError(
        "operation not permitted when stream is capturing\nCUDA kernel errors might be reported"
    )
    yield


def test_each_batch_size_is_captured_once_and_every_step_is_a_replay(monkeypatch):
    workload = OnGpu()
    fake_cuda_graphs(monkeypatch, workload)
    steps = GraphedSteps(workload)
    steps.load(2)
    steps.load(2)
    assert workload.log == ["load 2", "run", "run", "run", "submit"]
    workload.log.clear()
    assert steps.time_step() == (0, 30)
    assert steps.submit() == 5.0  # where each replay writes its result
    assert workload.log == ["replay", "replay"]
    assert (steps.loaded, steps.layers()) == (2, [])


def test_its_recording_says_how_to_build_it_again():
    configuration = configuration_of(dict(GraphedSteps(OnGpu()).spec))
    assert configuration.graphed
    assert configuration.label == "net_training_fp32_graphed"


def test_a_step_that_cannot_be_captured_is_said_with_the_reason_and_what_to_do(monkeypatch):
    workload = OnGpu()
    fake_cuda_graphs(monkeypatch, workload, refuses)
    with pytest.raises(
        CurvescopeError,
        match=r"cannot be captured \(RuntimeError: .*when stream is capturing\)\. .*without "
        r"--cuda-graph",
    ):
        GraphedSteps(workload).try_step(4)


def test_a_batch_size_that_is_too_large_for_a_capture_is_one_that_does_not_fit(monkeypatch):
    workload = OnGpu()
    fake_cuda_graphs(monkeypatch, workload)
    monkeypatch.setattr(
        workload, "submit", lambda: (_ for _ in ()).throw(RuntimeError("CUDA out of memory"))
    )
    with pytest.raises(RuntimeError, match="out of memory"):
        GraphedSteps(workload).load(64)


def test_only_a_gpu_has_graphs(tmp_path, refusal_of):
    assert "--cuda-graph: " in refusal_of(
        "diagnose", "alexnet", "--cuda-graph", "--device", "cpu", "-o", tmp_path / "r"
    )


def test_a_sweep_measures_steps_as_they_are_and_as_graphs(tmp_path, monkeypatch):
    plans = []
    # without a device
    monkeypatch.setattr("curvescope.commands.sweep.pick_device", lambda name: name)
    monkeypatch.setattr(
        sweep_plan, "run_plan", lambda folder, plan, *rest: plans.append(plan) or []
    )
    main(
        [
            "sweep",
            "alexnet",
            "--cuda-graph",
            "both",
            "--device",
            "cuda:0",
            "-o",
            str(tmp_path / "r"),
        ]
    )
    main(["sweep", "--resume", str(tmp_path / "r")])
    for plan in plans:
        labels = [one.label for one in plan.configurations]
        assert labels == ["alexnet_training_fp32", "alexnet_training_fp32_graphed"]
    assert len(plans) == 2


def test_python_measures_replays_too(tmp_path):
    with pytest.raises(CurvescopeError, match="only steps on a CUDA device"):
        curvescope.diagnose(
            lambda batch: lambda: None, (1, 2), cuda_graph=True, device="cpu", output=tmp_path / "r"
        )
    assert not (tmp_path / "r").exists()


def test_gradient_scaling_cannot_be_captured():
    with pytest.raises(CurvescopeError, match="bf16"):
        Configuration("alexnet", device="cuda:0", precision="fp16", graphed=True).check()
