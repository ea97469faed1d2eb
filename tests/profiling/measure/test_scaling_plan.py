"""What a scaling run measures, where it lies, and which device a rank takes."""

from __future__ import annotations

import json

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.base.torch_runtime import import_torch
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.protocol import get_protocol
from curvescope.profiling.measure.scaling_plan import (
    PLAN_FILE,
    ScalingPlan,
    ScalingPoint,
)
from curvescope.profiling.measure.scaling_run import device_of
from curvescope.profiling.recording.rank_info import RankInfo


def plan_of(device="cpu", devices=(1, 2, 4), batch=8, total_batch=None):
    setting = Configuration("m:build", (3, 8, 8), device=device)
    return ScalingPlan(setting, devices, batch, total_batch, get_protocol("quick"), 1, "resident", 60.0)


def test_strong_scaling_measures_one_device_at_every_batch_size():
    plan = plan_of(batch=4, total_batch=16)
    assert plan.weak == (ScalingPoint(1, 4), ScalingPoint(2, 4), ScalingPoint(4, 4))
    assert plan.strong == (ScalingPoint(1, 16), ScalingPoint(2, 8), ScalingPoint(4, 4))
    alone = [point.batch for point in plan.points if point.devices == 1]
    assert alone == [4, 8, 16]
    assert len(plan.points) == len(set(plan.points)) == 3 + 2 + 1


def test_plan_comes_back_and_is_never_overwritten(tmp_path):
    plan = plan_of(total_batch=16)
    PLAN_FILE.write(tmp_path / "run", plan)
    assert PLAN_FILE.read(tmp_path / "run") == plan
    with pytest.raises(CurvescopeError, match="curvescope scale --resume"):
        PLAN_FILE.write(tmp_path / "run", plan)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '"x"', '{"format": "curvescope scale", "version": 99}'])
def test_a_plan_that_cannot_be_read_is_refused(tmp_path, damage):
    (tmp_path / PLAN_FILE.name).write_text(damage)
    with pytest.raises(CurvescopeError, match=PLAN_FILE.name):
        PLAN_FILE.read(tmp_path)


def test_folders_of_another_kind_are_refused(tmp_path):
    (tmp_path / PLAN_FILE.name).write_text(json.dumps({"format": "x", "version": 1, "argv": []}))
    with pytest.raises(CurvescopeError, match="another version of Curvescope"):
        PLAN_FILE.read(tmp_path)


def test_a_rank_takes_the_gpu_of_its_local_rank(monkeypatch):
    monkeypatch.delenv("SLURM_LOCALID", raising=False)
    monkeypatch.setattr(import_torch().cuda, "device_count", lambda: 2)
    assert device_of(plan_of("cuda"), RankInfo(5, 8, 1)) == "cuda:1"
    with pytest.raises(CurvescopeError, match="has 2 GPUs"):
        device_of(plan_of("cuda"), RankInfo(6, 8, 2))


def test_slurm_may_show_a_rank_its_own_gpu_alone(monkeypatch):
    monkeypatch.setenv("SLURM_LOCALID", "3")
    monkeypatch.setattr(import_torch().cuda, "device_count", lambda: 1)
    assert device_of(plan_of("cuda"), RankInfo(3, 4, 3)) == "cuda:0"
