"""The losses of a user's first steps."""

import math
import random
from types import SimpleNamespace

import numpy as np
import pytest

from curvescope.profiling.workload.losses import LIMIT_S, STEPS, find_loss, read_losses

from ...tables import ask_each


class Workload:
    """A step that returns losses, one after the other."""

    is_users = True

    def __init__(self, loss):
        self._loss, self.made = loss, []

    def release(self):
        self.made.clear()

    def load(self, batch):
        self.made.append((batch, random.random(), float(np.random.rand())))
        self._next = 0

    def submit(self):
        self._next += 1
        return self._loss(self._next)


def test_the_losses_of_fifty_steps_come_from_a_step_made_anew_with_one_seed():
    workload = Workload(lambda number: 1 / number)
    workload.made.append("of an earlier visit")
    losses = read_losses(workload, 8)
    first = list(workload.made)
    assert losses == [1 / number for number in range(1, STEPS + 1)]
    assert read_losses(workload, 8) == losses
    assert workload.made == first


def test_a_loss_that_is_not_finite_ends_them():
    losses = read_losses(Workload(lambda number: math.nan if number == 3 else 1.0), 8)
    assert losses == [1.0, 1.0, None]


def test_a_slow_step_has_as_many_as_fit_the_time():
    times_s = iter(range(0, 1000, 5))
    losses = read_losses(Workload(lambda _: 1.0), 8, lambda: next(times_s))
    assert len(losses) == LIMIT_S // 5


def test_a_step_without_a_loss_runs_once():
    workload = Workload(lambda _: None)
    assert read_losses(workload, 8) == []
    assert workload._next == 1


def test_a_network_by_name_has_none():
    workload = Workload(lambda _: 1.0)
    workload.is_users = False
    assert read_losses(workload, 8) == []


@ask_each(
    ("result", "loss"),
    [
        (0.5, 0.5),
        (np.float32(0.5), 0.5),
        (np.array([0.5]), 0.5),
        (SimpleNamespace(loss=0.5, logits=[1, 2]), 0.5),
        (None, None),
        ("0.5", None),
        (True, None),
        ([0.5, 1.0], None),
        (np.zeros(3), None),
    ],
)
def test_a_loss_is_a_number_or_an_attribute(result, loss):
    assert find_loss(result) == loss


def test_a_tensor_that_requires_a_gradient_is_a_loss():
    torch = pytest.importorskip("torch")
    assert find_loss(torch.tensor(0.5, requires_grad=True) * 2) == 1.0
