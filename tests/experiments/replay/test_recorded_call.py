"""Calls of several batch sizes become families, whose rules give the call at other sizes."""

from dataclasses import replace

import pytest

from curvescope.experiments.replay.recorded_call import (
    CannotReplay,
    RecordedCall,
    device_of,
    families,
    find_rule,
)
from curvescope.profiling.recording.operators import TensorArgument, Value
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ...tables import ask_each


def tensor(*shape, strides=None):
    return TensorArgument(shape, "float", strides)


def linear(batch, tokens=128):
    flat = tensor(batch * tokens, 768, strides=(768, 1))
    return RecordedCall("aten::linear", (flat, tensor(64, 768), None), "encoder", "forward", batch)


@ask_each(
    ("values", "at_64"),
    [
        ({1: 7, 2: 7}, 7),
        ({1: 128, 4: 512}, 128 * 64),
        ({2: 12, 4: 48}, 3 * 64**2),
        ({1: 5, 2: 7, 4: 11}, 131),
        ({1: 5, 2: 7}, None),  # every two points lie on a line
        ({1: 5, 2: 7, 4: 12}, None),
    ],
)
def test_the_simplest_rule_that_gives_all_values(values, at_64):
    rule = find_rule(values)
    assert (rule and rule.at(64)) == at_64


def test_extents_and_strides_that_move_with_the_batch():
    moved = [
        RecordedCall(
            "aten::permute", (tensor(b, 8, strides=(1, b)), Value((b * 8, 1))), "head", None, b
        )
        for b in (1, 2, 4)
    ]
    (family,) = families(moved)
    expected = (tensor(3, 8, strides=(1, 3)), Value((24, 1)))
    assert (family.at(3).arguments, family.at(3).batch, family.at(3).duration_ns) == (
        expected,
        3,
        None,
    )
    assert family.batch_dimensions() == {0: (0,)}


def test_an_extent_that_is_a_multiple_of_the_batch():
    (family,) = families([linear(1), linear(8)])
    assert family.at(5).arguments == linear(5).arguments
    assert family.at(8) == linear(8)


def test_calls_of_one_layer_are_matched_in_the_order_of_the_step():
    calls = [
        replace(linear(b), arguments=(tensor(b, n),), position=at)
        for b in (2, 4)
        for at, n in enumerate((5, 6, 5))
    ]
    found = families(calls)
    assert [[call.arguments[0].shape for call in family.calls.values()] for family in found] == [
        [(2, 5), (4, 5)],
        [(2, 6), (4, 6)],
        [(2, 5), (4, 5)],
    ]


def test_a_row_of_two_calls_that_are_equal_at_one_batch_size_only():
    """Batch size 1 has one row for (b, 64) and (1, 64): both families find it there, each with one
    call.
    """
    calls = [RecordedCall("aten::mul", (tensor(1, 64),), "a", None, 1, calls=2, duration_ns=10)]
    for b in (2, 4):
        calls += [
            RecordedCall("aten::mul", (tensor(n, 64),), "a", None, b, position=n == 1)
            for n in (b, 1)
        ]
    found = families(calls)
    assert [family.calls[1].duration_ns for family in found] == [5, 5]
    assert [family.at(3).arguments[0].shape for family in found] == [(3, 64), (1, 64)]


def test_a_call_of_one_batch_size_says_why_it_is_not_elsewhere():
    alone = replace(linear(4), op="aten::relu")
    family = next(
        f for f in families([linear(1), linear(4), alone]) if f.largest.op == "aten::relu"
    )
    assert family.missing == {1: "no such call was recorded at batch size 1"}
    with pytest.raises(CannotReplay, match="only batch size 4 was recorded"):
        family.at(1)


GPU = {"device": {"kind": "cuda"}}


@pytest.mark.parametrize(
    ("meta", "count", "device"),
    [
        ({**GPU, "torch_device": "cuda:1"}, 2, "cuda:1"),
        ({**GPU, "torch_device": "cuda:1"}, 1, "cuda:0"),  # this machine has fewer
        (GPU, 2, "cuda:0"),
        ({"device": {"compute_capability": "9.0"}}, 2, "cuda:0"),  # another tool's profile
        ({"device": {"kind": "cpu"}, "torch_device": "cpu"}, 2, "cpu"),
    ],
)
def test_calls_run_on_the_device_of_their_steps(tmp_path, monkeypatch, meta, count, device):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with RecordingWriter(tmp_path / "r", meta):
        pass
    assert device_of(open_recording(tmp_path / "r")) == device
