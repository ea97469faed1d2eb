"""The allocations of real steps on a CPU: sizes are counts, and depend on no time."""

from collections import Counter
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from curvescope.profiling.collect.allocations import Tensors, allocations_of  # noqa: E402
from curvescope.profiling.collect.torch_step import record_step  # noqa: E402

WEIGHT, BIAS = 100 * 200 * 4, 200 * 4
HIDDEN = 64 * 200 * 4  # a tensor of 64 samples


def linear_step(optimizer=torch.optim.SGD, **options):
    model = torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.ReLU())
    made = optimizer(model.parameters(), lr=1e-3, **options)
    inputs = torch.randn(64, 100)

    def step(_ranges):
        made.zero_grad()
        model(inputs).sum().backward()
        made.step()

    step(None)
    return step, model


def peak_of(step, model):
    steps = [
        record_step(step, model.named_modules(), watch=True, samples=False, memory=True)
        for _ in range(2)
    ]
    rows = steps[-1].peak
    sums = Counter()
    for row in rows:
        sums[row["kind"], row["layer"]] += row["bytes"]
    return sums, rows


def test_the_peak_of_a_training_step_is_in_its_backward():
    """The weight's gradient is made beside that of the hidden tensor, whose values nothing needs
    any more.
    """
    sums, _ = peak_of(*linear_step())
    assert sums["parameters", "0"] == WEIGHT + BIAS
    assert sums["input", None] >= 64 * 100 * 4
    assert sums["gradients", "0"] == WEIGHT + BIAS
    assert sums["activation gradients", "1"] == HIDDEN
    assert sums["activations", "1"] == sums["optimizer state", "0"] == 0


def test_state_and_gradients_belong_to_the_layer_of_their_parameter():
    """Adam keeps two tensors of the size of each parameter, and a step count of 4 bytes."""
    sums, _ = peak_of(*linear_step(torch.optim.Adam, foreach=False))
    assert sums["optimizer state", "0"] == 2 * (WEIGHT + BIAS) + 2 * 4
    assert sums["gradients", "0"] == WEIGHT + BIAS


@pytest.mark.slow
def test_gradients_that_a_step_frees_at_its_begin_are_known_although_they_are_older():
    """`zero_grad` frees what the step before made.

    Without it they would count at the peak of the forward pass.
    """
    step, model = linear_step()

    def forward_only(_ranges):
        model.zero_grad()
        model(torch.ones(4096, 100)).sum().backward()

    sums, _ = peak_of(forward_only, model)
    assert sums["gradients", "0"] <= WEIGHT + BIAS
    del step


@pytest.mark.slow
def test_a_tensor_that_no_operator_takes_is_apart():
    step, model = linear_step()
    kept = torch.zeros(1_000_000)
    sums, _ = peak_of(step, model)
    assert sums["not used in the step", None] >= 4_000_000
    del kept


@pytest.mark.slow
def test_a_tensor_that_a_compiler_only_imagines_is_not_asked_for_its_memory(recwarn):
    """Torch warned the user of it, once in a process, with a line of ours."""
    step, model = linear_step()
    with FakeTensorMode():
        imagined = torch.zeros(1_000_000)
    sums, _ = peak_of(step, model)
    assert not [one for one in recwarn if "FakeTensor" in str(one.message)]
    assert sums.get(("not used in the step", None), 0) < 4_000_000
    del imagined


@pytest.mark.slow
def test_the_allocators_notes_do_not_reach_the_user(capfd):
    """It prints one for a block that it does not know, which may be in any step."""
    step, model = linear_step()
    peak_of(step, model)
    assert "unknown size" not in capfd.readouterr().err


def test_a_gpus_allocator_counts_from_before_the_step():
    """Two blocks of GPU 0 in a tree of events, beside one of a CPU and one of another GPU; 512 are
    older.
    """

    def block(at_ns, size, total, device, children=()):
        fields = SimpleNamespace(
            device=torch.device(device),
            alloc_size=size,
            ptr=at_ns,
            total_allocated=total,
            total_reserved=2048,
        )
        tag = SimpleNamespace(name="Allocation")
        return SimpleNamespace(
            tag=tag, start_time_ns=at_ns, start_tid=1, extra_fields=fields, children=children
        )

    inner = [block(20, 1024, 2048, "cuda:0"), block(15, 9, 9, "cpu"), block(16, 9, 9, "cuda:1")]
    operator = SimpleNamespace(
        tag=SimpleNamespace(name="TorchOp"), children=[*inner, block(10, 512, 1024, "cuda:0")]
    )
    results = SimpleNamespace(experimental_event_tree=lambda: [operator])
    found = allocations_of(results, Tensors([], "cuda:0"), None)
    assert found.size_bytes.tolist() == [512, 1024]
    assert found.total_bytes.tolist() == [1024, 2048]
    assert found.reserved_bytes.tolist() == [2048, 2048]


def test_a_step_without_watching_has_its_memory_too():
    step, model = linear_step()
    rows = record_step(step, model.named_modules(), samples=False, memory=True).peak
    assert {row["kind"] for row in rows} >= {"parameters", "activations"}
    assert not any(row["file"] for row in rows)
    assert record_step(step, model.named_modules()).peak == []
