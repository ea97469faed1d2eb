"""Page faults and lines of a step's operators, seen from inside: what is counted, and that the step
runs the same.
"""

import inspect
import itertools
import os
import subprocess
import sys
import sysconfig
import time
from collections import Counter

import pytest

from ...tables import ask_each

torch = pytest.importorskip("torch")

from curvescope.profiling.collect import torch_step, watched_calls  # noqa: E402


@pytest.fixture
def step():
    """A training step of a small network, and its layers."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )
    optimizer, x = (
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        torch.randn(2, 3, 8, 8),
    )

    def run(ranges):
        optimizer.zero_grad()
        with ranges("curvescope.phase:forward"):
            loss = model(x).square().mean()
        with ranges("curvescope.phase:backward"):
            loss.backward()
        with ranges("curvescope.phase:optimizer"):
            optimizer.step()

    torch_step.record_step(run, model.named_modules())  # the first one makes the optimizer's state
    return lambda **options: (
        torch_step.record_step(run, model.named_modules(), **options).operator_calls
    )


def test_the_step_that_counts_calls_the_same_operators_and_shows_detach_too(step):
    def steps():
        return step(watch=True), step()

    def called(one):
        return [name for name in one.names if name[2] != "aten::detach"]

    # In one of thousands of steps a sample holds a gradient just when autograd would take it, and
    # it is copied.
    tries = [steps() for _ in range(3)]
    counted, usual = next((pair for pair in tries if called(pair[0]) == called(pair[1])), tries[0])
    assert called(counted) == called(usual)
    assert not Counter(usual.names) - Counter(counted.names)
    assert {"forward", "backward", "optimizer"} <= {phase for _, phase, _ in counted.names}
    assert len(counted.faults) == len(counted.names)
    assert usual.faults is None


def test_the_faults_of_a_call_are_those_that_the_process_has_more_after_it(monkeypatch):
    monkeypatch.setattr(
        watched_calls, "read_page_faults", itertools.chain([10, 17, 17, 17, 30, 31]).__next__
    )
    x, began_ns = torch.ones(3), time.time_ns()
    with watched_calls.watching_calls() as watched:
        x.relu()
        x.neg()
        between_ns = time.time_ns()
        x.exp()
    x.sin()
    first, second, last = watched.calls
    assert [call.faults for call in watched.calls] == [7, 0, 1]
    assert (
        began_ns <= first.time_ns <= second.time_ns <= between_ns <= last.time_ns <= time.time_ns()
    )


def test_a_call_has_the_faults_of_all_operators_inside_it(step, monkeypatch):
    """Each call of the dispatcher below autograd has one fault here."""
    reads = itertools.count()
    monkeypatch.setattr(watched_calls, "read_page_faults", lambda: (next(reads) + 1) // 2)
    counted = step(watch=True)
    faults = dict(zip(counted.names, counted.faults, strict=True))
    assert faults["0", "forward", "aten::conv2d"] == 1
    assert faults["3", "forward", "aten::linear"] == 2  # the view of the weights and the product
    assert faults["0", "backward", "aten::convolution_backward"] == 1
    assert sum(counted.faults) <= next(reads) // 2


def test_a_call_comes_from_the_innermost_line_outside_packages_and_its_gradient_too():
    source = inspect.getsource(sys.modules[__name__]).splitlines()
    module = torch.nn.Linear(4, 4)
    x = torch.ones(2, 4)
    with watched_calls.watching_calls() as watched:
        y = module(x)  # the product
        loss = y.sum()  # its sum
        loss.backward()  # what no operator of the forward pass made
    assert all(call.line.text == source[call.line.number - 1].strip() for call in watched.calls)
    lines = [source[call.line.number - 1].partition("# ")[2] for call in watched.calls]
    assert {call.line.file for call in watched.calls} == {os.path.relpath(__file__)}
    assert set(lines) == {"the product", "its sum", "what no operator of the forward pass made"}
    assert lines.index("its sum") < len(lines) - lines[::-1].index("the product") - 1, (
        "its gradient comes later"
    )


@ask_each(
    ("path", "named"),
    [
        (
            "/opt/venv/lib/python3.12/site-packages/torchvision/models/alexnet.py",
            (True, "torchvision/models/alexnet.py"),
        ),
        ("/opt/lib/python3.12/site-packages/torch/nn/modules/linear.py", None),
        (os.path.join(sysconfig.get_path("stdlib"), "threading.py"), None),
        (torch_step.__file__, None),
        ("<frozen importlib>", None),
        ("/home/a/train.py", (False, "/home/***/train.py")),
        ("/srv/train.py", (False, "/srv/train.py")),
        (os.path.abspath("model/net.py"), (False, "model/net.py")),
    ],
)
def test_a_file_is_the_programs_a_packages_or_none_to_name(path, named):
    assert watched_calls._file(path) == named


@pytest.mark.slow
def test_watching_imports_no_compiler():
    """It takes seconds: of a sweep of 15 s, so much that no other size was profiled."""
    program = """
import sys, torch
from curvescope.profiling.collect.torch_step import record_step
before = "torch._dynamo" in sys.modules
rows = record_step(lambda _: torch.ones(3) + 1, [], watch=True)
print(before, bool(rows.operator_calls.faults), "torch._dynamo" in sys.modules)
"""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
