"""The numbers in the operands of a watched step: shares that can be counted by hand."""

import pytest

from ...tables import ask_each

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from curvescope.profiling.collect.torch_step import record_step  # noqa: E402
from curvescope.profiling.collect.watched_calls import watching_calls  # noqa: E402
from curvescope.profiling.recording.operand_numbers import CallNumbers, Numbers, decode_numbers  # noqa: E402

# 1e-40 is below the smallest normal number of fp32, 1.18e-38, and exp(-90) = 8.2e-40.
HALF_DENORMAL = torch.tensor([1.0, 0.0, 1e-40, 1e-40] * 100)


def operands_of(run, parameters=None):
    with watching_calls(parameters or {}) as watched:
        run()
    return watched.calls[-1]


@ask_each(
    ("tensor", "expected"),
    [
        (torch.tensor([[1.0, 0.0], [0.0, 0.0]]).t(), Numbers(4, "float", zeros=0.75)),
        (torch.tensor([True, False, True, True]), Numbers(4, "bool", zeros=0.25)),
        (torch.tensor([3, 3, 5, 9]), Numbers(4, "long int", distinct=0.75, ascending=True)),
        (torch.tensor([9, 3, 5, 3]), Numbers(4, "long int", distinct=0.75)),
        (torch.tensor([1.0, 2.0]).expand(50, 2), Numbers(100, "float")),
        (
            torch.ones(3, dtype=torch.float16) * 1e-6,
            Numbers(3, "c10::Half"),
        ),  # denormal, and computed in fp32
    ],
)
def test_what_a_tensor_is_like(tensor, expected):
    call = operands_of(lambda: torch.ops.aten.clone(tensor))
    assert (call.operands, call.denormal_results) == ((expected,), 0.0)
    assert call.looked_ns > 0


def test_a_part_of_a_parameter_is_known_by_its_memory():
    stack = torch.nn.Parameter(torch.ones(4, 3, 2))
    names = {stack.data_ptr(): "experts.up"}
    for index, name in ((0, "experts.up"), (2, None)):
        (numbers,) = operands_of(lambda at=index: stack[at].detach().neg(), names).operands
        assert (numbers.parameter, numbers.part_of, numbers.parts) == (name, "experts.up", 4)
    (whole,) = operands_of(lambda: stack.detach().neg(), names).operands
    assert (whole.parameter, whole.part_of, whole.parts) == ("experts.up", None, 0)


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped product")
def test_of_a_grouped_product_the_ends_of_the_groups_are_kept():
    rows, weights = torch.ones(6, 16), torch.ones(4, 16, 16)
    ends = torch.tensor([3, 3, 4, 6], dtype=torch.int32)
    with watching_calls({}) as watched:
        torch._grouped_mm(rows.bfloat16(), weights.bfloat16(), offs=ends)
    kept = [numbers.values for call in watched.calls for numbers in call.operands]
    assert (3, 3, 4, 6) in kept


def test_of_calls_with_denormal_numbers_the_distribution_is_kept_too():
    call = operands_of(HALF_DENORMAL.neg)
    (numbers,) = call.operands
    assert (numbers.zeros, numbers.denormals, call.denormal_results) == (0.25, 0.5, 0.5)
    assert len(numbers.order) == 64
    assert numbers.order[0] == 0
    assert numbers.order[32] == pytest.approx(1e-40)
    assert numbers.order[-1] == 1
    (numbers,) = (call := operands_of(torch.full((5,), -90.0).exp)).operands
    assert (numbers.denormals, call.denormal_results, numbers.order) == (0.0, 1.0, (-90.0,) * 5)


def test_a_large_tensor_is_seen_by_a_sample():
    (numbers,) = operands_of(
        lambda: torch.ops.aten.clone(torch.arange(100_000.0) - 50_000)
    ).operands
    assert numbers.elements == 100_000
    assert numbers.zeros < 0.001


def test_looking_runs_no_operator_that_a_profiler_would_record():
    """Operators of torch took 11 s and 1.4 GB for an encoder of 40 blocks, and no later step had
    page faults.
    """

    class Outer(TorchDispatchMode):
        ran = ()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.ran = (*self.ran, str(func))
            return func(*args, **(kwargs or {}))

    tensors = [
        HALF_DENORMAL,
        HALF_DENORMAL.bfloat16(),
        torch.tensor([2, 1]),
        torch.tensor([True]),
        torch.ones(2).half(),
    ]
    with Outer() as outer:
        calls = [operands_of(lambda one=one: torch.ops.aten.clone(one)) for one in tensors]
    assert outer.ran == ("aten.clone.default",) * 5
    assert [call.operands[0].denormals for call in calls] == [0.5, 0.5, 0, 0, 0]


def test_a_step_gives_its_outermost_operators_the_numbers_and_names_of_parameters():
    layer, table = torch.nn.Linear(4, 3), torch.nn.Embedding(9, 4)
    layer.weight.data[0] = 1e-40

    def step(_):
        layer(table(torch.tensor([2, 2, 2, 7])))

    rows = record_step(
        step, [("fc", layer), ("table", table)], watch=True, look_at_numbers=True
    ).operator_calls.rows
    found = {row["op"]: decode_numbers(row["numbers"]) for row in rows}
    looked_up, product = found["aten::embedding"], found["aten::linear"]
    assert looked_up.operands[0].parameter == "table.weight"
    assert (looked_up.operands[1].distinct, looked_up.distinct) == (0.5, 0.5)
    assert [product.operands[index].parameter for index in (0, 1, 2)] == [
        None,
        "fc.weight",
        "fc.bias",
    ]
    assert product.denormals == pytest.approx(4 / 12, abs=1e-4)
    plain = record_step(step, [("fc", layer), ("table", table)], watch=True).operator_calls.rows
    assert {row["numbers"] for row in plain} == {None}


def test_damaged_text_is_an_error_and_none_is_nothing():
    assert decode_numbers(None) == CallNumbers()
    with pytest.raises(ValueError, match="no numbers of operands"):
        decode_numbers("[1]")
