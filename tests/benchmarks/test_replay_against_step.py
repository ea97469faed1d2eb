"""The sums of replayed operators against those of a step, on times by hand and on a tiny network."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.replay_against_step import AS_IN_STEP, by_operator, calls_of, fastest, prepare, ratio, replay
from curvescope.experiments.replay.recorded_call import families
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import from_factory


def rounds(*times):
    return [[("aten::relu_", first), ("linear", second)] for first, second in times]


def test_of_each_operator_the_fastest_round_counts():
    measured = rounds((5, 900), (7, 100), (4, 500))
    assert fastest(measured) == [4, 100]
    assert by_operator(measured) == {"relu": 4e-6, "linear": 1e-4}


def test_the_ratio_of_equal_rounds_has_no_width():
    assert ratio(rounds(*[(11, 99)] * 6), rounds(*[(10, 90)] * 6)) == (1.1, 1.1, 1.1)


def test_the_interval_holds_the_ratio_where_rounds_differ():
    middle, low, high = ratio(rounds(*[(10, 90 + r) for r in range(9)]), rounds(*[(10, 90 + 2 * r) for r in range(9)]))
    assert low <= middle == 1.0 <= high


def test_every_call_of_a_step_is_replayed_as_often_as_it_is_in_the_step(tmp_path, monkeypatch):
    (tmp_path / "tiny.py").write_text(
        "from torch import nn\n"
        "def net():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), nn.Dropout())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    workload = Workload(from_factory("tiny:net", (3, 8, 8)), "cpu", "forward")
    found = families([call for batch in (1, 2) for call in calls_of(workload, batch)])
    ready, left_out = prepare(found, 2)
    ticks = iter(range(1000))
    times = replay(ready, AS_IN_STEP, lambda: None, lambda: next(ticks))
    names = [name for name, _ in times]
    assert names == ["aten::conv2d", "aten::relu", "aten::flatten", "aten::linear", "aten::dropout"]
    assert left_out == []
    assert {duration for _, duration in times} == {1}
    assert [len(one.inputs) for one in ready] == [1, 1, 1, 1, 1]
