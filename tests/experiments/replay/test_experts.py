"""Experts of a mixture in isolation: each reads its own weights, and with a factor those of one."""

import pytest

from curvescope.experiments.factors import experts, term_change
from curvescope.experiments.replay.rebuild import rebuild
from curvescope.experiments.replay.recorded_call import CannotReplay, RecordedCall, families
from curvescope.experiments.replay.run import run_term
from curvescope.experiments.replay.runnable import Runnable
from curvescope.experiments.replay.term import read_term
from curvescope.profiling.recording.operand_numbers import CallNumbers, Numbers, encode_numbers
from curvescope.profiling.recording.operators import TensorArgument
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ..planted_experiments import experiment as planted
from ..planted_experiments import operator as row
from .test_run import Backend

torch = pytest.importorskip("torch")

LAYER, STACK = "moe.experts.*.up", "moe.experts"
ONE = term_change("one_expert")
PART = Numbers(64, "float", parameter="moe.experts.up", part_of="moe.experts.up", parts=4)
WHOLE = Numbers(256, "float", parameter="moe.experts.up")
OF_WHOLE = CallNumbers({1: WHOLE})


def tensor(*shape, dtype="float", strides=None):
    return TensorArgument(shape, dtype, strides)


def part(tokens, calls=1):
    """A product of some tokens with one part of the tensor of all experts' weights."""
    arguments = [tensor(tokens, 8), tensor(8, 8)]
    numbers = encode_numbers(CallNumbers({1: PART}))
    return {"op": "aten::mm", "arguments": arguments, "calls": calls, "numbers": numbers}


def recorded(writer, rows):
    writer.write("operators", columns_of(rows))
    return open_recording(writer.path)


@pytest.fixture
def writer(tmp_path):
    with RecordingWriter(tmp_path / "run", {"device": {"kind": "cpu"}}) as opened:
        yield opened


@pytest.fixture
def stack(writer):
    """Two experts with one token each at 2, and three with one and one with five at 8."""
    rows = [row(2, layer=STACK, **part(1, calls=2))]
    rows += [row(8, layer=STACK, **part(1, calls=3)), row(8, layer=STACK, **part(5))]
    return recorded(writer, rows)


@pytest.fixture
def modules(writer):
    """The same, of experts that are modules."""
    tokens = {2: (1, 1), 8: (1, 1, 1, 5)}
    return recorded(
        writer,
        [
            row(
                batch,
                op="aten::linear",
                arguments=[tensor(rows, 8), tensor(8, 8), None],
                layer=f"moe.experts.{index}.up",
            )
            for batch, counts in tokens.items()
            for index, rows in enumerate(counts)
        ],
    )


def places(term, name, batch):
    """Where the weights of each call lie."""
    return [
        one.arguments[1].data_ptr()
        for one in term.runnables(name, batch, (2, 8))
        for _ in range(one.call.calls)
    ]


@pytest.mark.parametrize(("form", "layer"), [("stack", STACK), ("modules", LAYER)])
def test_every_expert_has_weights_of_its_own_until_all_read_those_of_one(form, layer, request):
    term = read_term(request.getfixturevalue(form), layer, "forward", "cpu", 1e9)
    for batch, experts_ in ((2, 2), (8, 4)):
        assert len(places(term, None, batch)) == len(set(places(term, None, batch))) == experts_
        assert len(places(term, "one_expert", batch)) == experts_
        assert len(set(places(term, "one_expert", batch))) == 1
    tokens = [one.arguments[0].shape[0] for one in term.runnables("one_expert", 8, (2, 8))]
    assert sorted(tokens) == [1, 1, 1, 5]


def test_it_runs_in_an_experiment_and_counts_as_no_other_result(stack, writer):
    facts = {"functional": ((8, 1.0), (2, -4.0)), "batches": (2, 8), "layer": STACK}
    one = planted(factors=("one_expert",), functional_kind="excess", rounds=(2, 2), **facts)
    done = run_term(stack, one, writer, backend=Backend())
    assert (done.untested, done.changed_results) == ({}, {})


def one_of(op, numbers, *arguments):
    (family,) = families([RecordedCall(op, arguments, STACK, "forward", 2, numbers=numbers)])
    return family


def test_a_product_of_all_experts_reads_the_weights_of_the_first():
    family = one_of("aten::bmm", OF_WHOLE, tensor(4, 2, 8), tensor(4, 8, 8))
    plain = Runnable.of(family, rebuild(family.at(2)))
    changed = ONE.call(plain, (2,))
    x, weights = plain.arguments
    assert ONE.reason_against(family) is None
    assert changed.arguments[1].stride() == (0, 8, 1)
    torch.testing.assert_close(changed.run(), x @ weights[0])


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped product")
@pytest.mark.parametrize("ends", [(2, 2, 3, 6), ()])
def test_groups_of_a_grouped_product_end_where_they_did_or_are_even(ends):
    numbers = CallNumbers({2: Numbers(4, "int", values=ends)})
    x, weights = tensor(6, 16, dtype="c10::BFloat16"), tensor(4, 16, 16, dtype="c10::BFloat16")
    family = one_of("aten::_grouped_mm", numbers, x, weights, tensor(4, dtype="int"))
    plain = Runnable.of(family, rebuild(family.at(2)))
    assert tuple(plain.arguments[2].tolist()) == (ends or (1, 3, 4, 6))
    changed = ONE.call(plain, (2,))
    expected = plain.arguments[0] @ plain.arguments[1][0]
    torch.testing.assert_close(changed.run(), expected, rtol=0.02, atol=0.1)


def test_what_is_no_product_of_experts_or_does_not_fit_the_cache_is_refused(monkeypatch):
    dense = one_of("aten::bmm", CallNumbers(), tensor(4, 2, 8), tensor(4, 8, 8))
    assert "weights of experts" in ONE.reason_against(dense)
    family = one_of("aten::bmm", OF_WHOLE, tensor(4, 2, 8), tensor(4, 8, 8))
    monkeypatch.setattr(experts, "read_shared_cache_bytes", lambda device: 128)
    with pytest.raises(CannotReplay, match="256 B, do not fit the last-level cache of 128 B"):
        ONE.call(Runnable.of(family, rebuild(family.at(2))), (2,))
