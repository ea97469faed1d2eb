"""Replays of a step's operators, against the step."""

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from curvescope.base.errors import CurvescopeError
from curvescope.experiments.replay.operator_tape import OperatorTape


def training(momentum=0.9):
    """A model and a function that makes one step of training on a fixed batch."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum)
    x, y = torch.randn(5, 3, 8, 8), torch.randint(4, (5,))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return model, step


def test_replays_of_a_training_step_train_like_the_step():
    (model, step), (other, usual) = training(), training()
    assert step() == usual()
    tape = OperatorTape(step)
    usual()
    losses = [(float(tape.replay()), float(usual())) for _ in range(5)]
    assert losses[0][0] > losses[-1][0]
    for one, expected in losses:
        assert one == pytest.approx(expected, rel=1e-4)
    for one, expected in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        if one.is_floating_point():
            torch.testing.assert_close(one, expected, rtol=1e-3, atol=1e-4)


class Seen(TorchDispatchMode):
    """Names of the operators that run, and the largest number of results of 64 MiB that were alive
    at a time.
    """

    def __init__(self):
        super().__init__()
        self.names, self.large, self.most = [], [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.names.append(func._schema.name.removeprefix("aten::"))
        if found.numel() == 1 << 24:
            self.large.append(StorageWeakRef(found.untyped_storage()))
        self.most = max(self.most, sum(not one.expired() for one in self.large))
        return found


def test_the_operators_stay_and_what_the_host_makes_goes():
    x = torch.ones(4, 6)

    def step():
        table = torch.tensor([[float(i + j) for j in range(4)] for i in range(6)])
        return (x * table.t()).add(1)[1]

    tape = OperatorTape(step)
    with Seen() as seen:
        result = tape.replay()
    assert seen.names == ["mul", "add", "as_strided"]  # the last is the view that is returned
    assert result.tolist() == step().tolist() == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


@pytest.mark.slow
def test_a_replay_frees_results_where_the_step_frees_them():
    x = torch.ones(1 << 24)

    def one_at_a_time():
        return (x + 1).sum() + (x * 2).sum()

    def two_at_a_time():
        one, other = x + 1, x * 2
        return one.sum() + other.sum()

    for step, most in ((one_at_a_time, 1), (two_at_a_time, 2)):
        tape = OperatorTape(step)
        with Seen() as seen:
            tape.replay()
        assert seen.most == most


def test_lists_of_tensors_and_named_arguments_are_replayed():
    x = torch.randn(3, 4)

    def step():
        parts = [x * 2, x + 1]
        return {
            "all": torch.cat([*parts, x], dim=1),
            "like": torch.zeros_like(parts[0], dtype=torch.float64),
        }

    found = OperatorTape(step).replay()
    torch.testing.assert_close(found["all"], step()["all"])
    assert found["like"].dtype == torch.float64


def test_steps_that_cannot_be_replayed_say_why():
    with pytest.raises(CurvescopeError, match="no plain arrays"):
        OperatorTape(lambda: torch.ones(3, 3).to_sparse() * 2)
    weight = torch.zeros(3)

    def also_writes_without_an_operator():
        weight.add_(1)
        weight.numpy()[:] *= 2
        return 7.0

    with pytest.raises(CurvescopeError, match="gives another result: it does more than they do"):
        OperatorTape(also_writes_without_an_operator)


def test_a_check_leaves_the_state_and_the_random_numbers_as_one_step_would():
    weight, x = torch.ones(4), torch.ones(4)

    def step():
        weight.mul_(3)
        return weight + nn.functional.dropout(x)

    torch.manual_seed(3)
    OperatorTape(step)
    after = weight.tolist(), torch.rand(1)
    torch.manual_seed(3)
    nn.functional.dropout(x)
    assert after == ([3.0] * 4, torch.rand(1))
