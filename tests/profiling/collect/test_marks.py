"""Marks at the borders of layers and phases, on a clock that only the layers move."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from curvescope.profiling.attribution.range_names import LAYER_RANGE, PHASE_RANGE
from curvescope.profiling.collect.marks import Marks


class Clock:
    now_ns = 0

    def __call__(self):
        return self.now_ns


class Spend(torch.autograd.Function):
    """Takes time in both directions."""

    @staticmethod
    def forward(ctx, x, clock, forward_ns, backward_ns):
        ctx.clock, ctx.backward_ns = clock, backward_ns
        clock.now_ns += forward_ns
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.clock.now_ns += ctx.backward_ns
        return gradient, None, None, None


class Layer(torch.nn.Module):
    def __init__(self, clock, forward_ns, backward_ns=0):
        super().__init__()
        self.times = clock, forward_ns, backward_ns
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return Spend.apply(x * self.weight, *self.times)


class Block(torch.nn.Module):
    """x + inner(x), with time of its own around the inner layer."""

    def __init__(self, clock, inner):
        super().__init__()
        self.clock, self.inner = clock, inner

    def forward(self, x):
        x = Spend.apply(x, self.clock, 3, 5)
        return Spend.apply(x + self.inner(x), self.clock, 7, 11)


def times_of(rows):
    return {(row["layer"], row["phase"]): row["duration_ns"] for row in rows}


def run(clock, model, step):
    with Marks(clock).install(
        [(name, module) for name, module in model.named_modules() if name]
    ) as marks:
        return marks.run(step)


def test_a_training_step_by_layer_and_phase():
    clock = Clock()
    model = torch.nn.Sequential(
        Layer(clock, 100, 200), Block(clock, Layer(clock, 1000, 2000)), Layer(clock, 10, 20)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer.register_step_pre_hook(lambda *_: setattr(clock, "now_ns", clock.now_ns + 40_000))

    def step(_):
        clock.now_ns += 30_000
        loss = Spend.apply(model(torch.ones(1)), clock, 300, 600).sum()
        loss.backward()
        optimizer.step()
        clock.now_ns += 1

    rows = run(clock, model, step)
    assert times_of(rows) == {
        (None, "forward"): 30_301,
        ("0", "forward"): 100,
        ("1", "forward"): 10,
        ("1.inner", "forward"): 1000,
        ("2", "forward"): 10,
        (None, "backward"): 600,
        ("2", "backward"): 20,
        ("1", "backward"): 16,
        ("1.inner", "backward"): 2000,
        ("0", "backward"): 200,
        (None, "optimizer"): 40_000,
    }
    assert sum(row["duration_ns"] for row in rows) == clock.now_ns


def test_what_a_mark_does_belongs_to_no_layer():
    """Each reading of the clock takes 1 ns: a time between two marks has one of its two
    readings.
    """
    clock = Clock()

    class Ticking:
        def __call__(self):
            clock.now_ns += 1
            return clock.now_ns

    model = torch.nn.Sequential(Layer(clock, 100))
    with torch.no_grad():
        rows = run(Ticking(), model, lambda _: model(torch.ones(1)))
    assert times_of(rows) == {(None, "forward"): 2, ("0", "forward"): 101}
    assert [row["marks"] for row in rows] == [2, 1]


def test_a_recomputed_layer_counts_in_the_backward_phase():
    clock = Clock()
    model = torch.nn.Sequential(Layer(clock, 100, 200))
    with set_checkpoint_early_stop(False):
        rows = run(
            clock,
            model,
            lambda _: checkpoint(model, torch.ones(1), use_reentrant=False).sum().backward(),
        )
    assert times_of(rows)[("0", "backward")] == 300


def test_ranges_name_phases_and_layers_that_are_no_modules():
    clock = Clock()

    def step(ranges):
        with ranges(f"{PHASE_RANGE}input"):
            clock.now_ns += 5
        with ranges(f"{PHASE_RANGE}forward"), ranges(f"{LAYER_RANGE}loss"):
            clock.now_ns += 7

    assert times_of(Marks(clock).run(step)) == {
        (None, "forward"): 0,
        (None, "input"): 5,
        ("loss", "forward"): 7,
    }


def test_layers_that_run_in_another_thread_are_not_marked():
    clock = Clock()
    model = torch.nn.Sequential(Layer(clock, 100))
    with ThreadPoolExecutor(1) as pool:
        rows = run(clock, model, lambda _: pool.submit(model, torch.ones(1)).result())
    assert times_of(rows) == {(None, "forward"): 100}


def test_afterwards_everything_is_as_before():
    model, engine = torch.nn.Sequential(Layer(Clock(), 1)), torch.autograd._engine_run_backward
    model[0].forward = forward = lambda x: x  # as a library sets it
    with pytest.raises(ZeroDivisionError), Marks().install(list(model.named_modules())) as marks:
        marks.run(lambda _: 1 // 0)
    assert torch.autograd._engine_run_backward is engine
    assert model[0].forward is forward
    assert "forward" not in vars(model)


def test_waiting_for_the_next_batch_of_a_loader_is_input():
    clock = Clock()

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            clock.now_ns += 100
            return torch.zeros(1)

    batches = iter(torch.utils.data.DataLoader(Slow(), batch_size=2))
    layer, marks = Layer(clock, 7), Marks(clock)
    with marks.install([("a", layer)]):
        rows = marks.run(lambda ranges: layer(next(batches)))
    assert times_of(rows) == {(None, "forward"): 0, (None, "input"): 200, ("a", "forward"): 7}
    clock.now_ns = 0
    next(batches)
    assert clock.now_ns == 200  # not marked after the block
