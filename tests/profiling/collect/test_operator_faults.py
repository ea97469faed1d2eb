"""Page faults inside the operators of a step: which are counted, and that a step that counts them runs the same."""

from __future__ import annotations

import itertools
import time

import pytest

torch = pytest.importorskip("torch")

from curvescope.profiling.collect import operator_faults, torch_step  # noqa: E402


@pytest.fixture
def step():
    """A training step of a small network, and its layers."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.randn(2, 3, 8, 8)

    def run(ranges):
        optimizer.zero_grad()
        with ranges("curvescope.phase:forward"):
            loss = model(x).square().mean()
        with ranges("curvescope.phase:backward"):
            loss.backward()
        with ranges("curvescope.phase:optimizer"):
            optimizer.step()

    torch_step.record_step(run, model.named_modules())  # the first one makes the optimizer's state
    return lambda **options: torch_step.record_step(run, model.named_modules(), **options).operator_calls


def test_the_step_that_counts_calls_the_same_operators_and_shows_detach_too(step):
    counted, usual = step(count_faults=True), step()
    extra = list(counted.names)
    for name in usual.names:
        extra.remove(name)
    assert {name for *_, name in extra} <= {"aten::detach"}
    assert [name for name in counted.names if name[2] != "aten::detach"] == [
        name for name in usual.names if name[2] != "aten::detach"
    ]
    assert {"forward", "backward", "optimizer"} <= {phase for _, phase, _ in counted.names}
    assert len(counted.faults) == len(counted.names)
    assert usual.faults is None


def test_the_faults_of_a_call_are_those_that_the_process_has_more_after_it(monkeypatch):
    monkeypatch.setattr(operator_faults, "read_page_faults", itertools.chain([10, 17, 17, 17, 30, 31]).__next__)
    x, began_ns = torch.ones(3), time.time_ns()
    with operator_faults.counting_faults() as counted:
        x.relu()
        x.neg()
        between_ns = time.time_ns()
        x.exp()
    x.sin()
    (first, faults), (last, one) = counted
    assert (faults, one) == (7, 1)
    assert began_ns <= first <= between_ns <= last <= time.time_ns()


def test_a_call_has_the_faults_of_all_operators_inside_it(step, monkeypatch):
    """Each call of the dispatcher below autograd has one fault here."""
    reads = itertools.count()
    monkeypatch.setattr(operator_faults, "read_page_faults", lambda: (next(reads) + 1) // 2)
    counted = step(count_faults=True)
    faults = dict(zip(counted.names, counted.faults, strict=True))
    assert faults["0", "forward", "aten::conv2d"] == 1
    assert faults["3", "forward", "aten::linear"] == 2  # the view of the weights and the product
    assert faults["0", "backward", "aten::convolution_backward"] == 1
    assert sum(counted.faults) <= next(reads) // 2
