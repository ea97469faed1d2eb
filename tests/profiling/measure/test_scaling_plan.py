"""What a scaling run measures, where it lies, and which device a rank takes."""

from contextlib import nullcontext

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.base.torch_runtime import import_torch
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.protocol import PROTOCOLS
from curvescope.profiling.measure.scaling_plan import ScalingPlan, ScalingPoint
from curvescope.profiling.measure.scaling_run import device_of
from curvescope.profiling.recording.rank_info import RankInfo


def plan_of(device="cpu", devices=(1, 2, 4), batch=8, total_batch=None):
    setting = Configuration("m:build", (3, 8, 8), device=device)
    return ScalingPlan(
        setting, devices, batch, total_batch, PROTOCOLS["quick"], 1, "resident", 60.0
    )


def test_strong_scaling_measures_one_device_at_every_batch_size():
    plan = plan_of(batch=4, total_batch=16)
    assert plan.weak == (ScalingPoint(1, 4), ScalingPoint(2, 4), ScalingPoint(4, 4))
    assert plan.strong == (ScalingPoint(1, 16), ScalingPoint(2, 8), ScalingPoint(4, 4))
    alone = [point.batch for point in plan.points if point.devices == 1]
    assert alone == [4, 8, 16]
    assert len(plan.points) == len(set(plan.points)) == 3 + 2 + 1


@pytest.mark.parametrize(
    ("slurm", "gpus", "rank", "device"),
    [
        (None, 2, RankInfo(5, 8, 1), "cuda:1"),
        (None, 2, RankInfo(6, 8, 2), None),
        ("3", 1, RankInfo(3, 4, 3), "cuda:0"),  # Slurm may show a rank its own GPU alone
    ],
)
def test_a_rank_takes_the_gpu_of_its_local_rank(monkeypatch, slurm, gpus, rank, device):
    monkeypatch.delenv("SLURM_LOCALID", raising=False)
    if slurm:
        monkeypatch.setenv("SLURM_LOCALID", slurm)
    monkeypatch.setattr(import_torch().cuda, "device_count", lambda: gpus)
    with nullcontext() if device else pytest.raises(CurvescopeError, match="has 2 GPUs"):
        assert device_of(plan_of("cuda"), rank) == device
