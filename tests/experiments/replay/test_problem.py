"""Which recorded calls are replayed, and whether they ran the same kernels."""

import json
from dataclasses import replace

import pytest

from curvescope.cli import main
from curvescope.experiments.replay.problem import ReplayProblem, compare_kernels, plan_replay
from curvescope.experiments.replay.recorded_call import RecordedCall, families
from curvescope.kernels import runner
from curvescope.profiling.attribution.operation import Work
from curvescope.profiling.recording.operators import TensorArgument, TensorList, Value
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ...tables import ask_each
from ..planted_experiments import operator

T = TensorArgument
SGEMM = "mkl SGEMM(T,N)"


def linear(batch, layer="fc", duration_ns=1000, position=0):
    arguments = (T((batch, 4), "float"), T((5, 4), "float"), None)
    return RecordedCall(
        "aten::linear", arguments, layer, "forward", batch, 1, duration_ns, (SGEMM,), position
    )


def norm(batch, position=1):
    """A call whose layout has no rule over batch sizes 1, 2 and 4."""
    arguments = (T(({1: 3, 2: 5, 4: 6}[batch], 4), "float"),)
    return RecordedCall("aten::relu", arguments, "norm", "forward", batch, 1, 10, None, position)


def test_the_calls_with_most_time_are_replayed_and_equal_ones_once():
    calls = [
        call
        for b in (1, 2)
        for call in (
            linear(b),
            replace(linear(b, "fc2", position=5), calls=2, duration_ns=4000),
            norm(b),
        )
    ]
    plan = plan_replay(families(calls), None, 0.99)
    (one,) = plan.sweeps
    assert (one.sweep.layers, list(one.sweep.problems), plan.minor) == (("fc", "fc2"), [1, 2], 1)
    assert plan.minor_share == pytest.approx(20 / 10_020)
    assert (one.in_step_ns(2), one.calls(2)) == (5000 / 3, 3)
    assert len(plan_replay(families(calls), None, 1.0).sweeps) == 2


def test_a_batch_size_that_was_not_recorded():
    calls = [call for b in (1, 2, 4) for call in (linear(b), norm(b))]
    plan = plan_replay(families(calls), [3, 4], 1.0)
    fc, relu = plan.sweeps
    assert [p.call.arguments[0].shape for p in fc.sweep.problems.values()] == [(3, 4), (4, 4)]
    assert (fc.in_step_ns(3), fc.kernels(3)) == (None, None)
    assert list(relu.sweep.problems) == [4]
    assert [(one.batch, one.reason) for one in plan.left_out] == [
        (3, "extent 0 of argument 0 follows no rule over the recorded batch sizes")
    ]


def test_the_work_of_a_call_is_that_of_its_shapes():
    assert ReplayProblem(linear(3)).work == Work(2 * 3 * 4 * 5, 4 * (3 * 4 + 4 * 5 + 3 * 5))
    image, weights = T((1, 2, 4, 4), "float"), T((3, 2, 3, 3), "float")
    geometry = (Value((1, 1)), Value((0, 0)), Value((1, 1)), Value(1))
    conv = RecordedCall("aten::conv2d", (image, weights, None, *geometry))
    assert ReplayProblem(conv).work.flops == 2 * 3 * 2 * 2 * 18
    assert ReplayProblem(RecordedCall("aten::relu", ())).work == Work(None, None)


@ask_each(
    ("recorded", "replayed", "expected"),
    [
        ([SGEMM, "aten::linear"], ["aten::addmm", "mkl SGEMM(N,N)"], "same"),
        (
            ["reorder jit:blk", "convolution.forward_training jit:avx512_core"],
            ["convolution.forward jit:sse41"],
            "same",
        ),
        ([SGEMM], ["mkl SGEMV(T)"], "other"),
        ([SGEMM], ["aten::addmm"], "other"),
        (["aten::clamp_min_", "aten::relu_"], ["aten::relu_", "aten::clamp_min_"], "same"),
        (["aten::mkldnn_rnn_layer"], ["aten::lstm_cell"], "other"),
        (None, ["aten::relu_"], "unknown"),
        ([SGEMM], None, "unknown"),
    ],
)
def test_kernels_in_the_step_and_alone(recorded, replayed, expected):
    assert compare_kernels(recorded, replayed) == expected


def record(folder, calls):
    same = ("layer", "phase", "calls", "duration_ns", "position")
    rows = [
        operator(
            call.batch, call.op, call.arguments, kernels=" | ".join(call.kernels or ()) or None
        )
        | {name: getattr(call, name) for name in same}
        for call in calls
    ]
    with RecordingWriter(folder, {"device": {"kind": "cpu"}, "precision": "fp32"}) as writer:
        writer.write("operators", columns_of(rows))
    return folder


@pytest.mark.slow
def test_the_command_prints_and_records_each_call(tmp_path, capsys):
    pytest.importorskip("torch")
    operands = TensorList((T((2, 3), "float"),))
    einsum = RecordedCall(
        "aten::einsum", (None, operands, None), "mix", "forward", 2, duration_ns=500, position=7
    )
    recorded = record(tmp_path / "r", [linear(1), linear(2), einsum])
    options = [
        "--batch",
        "2,3",
        "--time-limit",
        "0.02",
        "--json",
        "-o",
        str(tmp_path / "out"),
        "--device",
        "cpu",
    ]
    assert main(["bench", "replay", str(recorded), *options]) == 0
    document = json.loads(capsys.readouterr().out)
    found = [
        (c["op"], c["batch"], c["layers"], c["in_step_ns"], c["alone_ns"] is None)
        for c in document["calls"]
    ]
    assert found == [
        ("aten::linear", 2, ["fc"], 1000, False),
        ("aten::linear", 3, ["fc"], None, False),
        ("aten::einsum", 2, ["mix"], 500, True),
    ]
    assert {(c["op"], c["reason"][:16]) for c in document["left_out"]} == {
        ("aten::einsum", "its text argumen"),
        ("aten::einsum", "only batch size "),
    }
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert open_recording(tmp_path / "out" / folders[0]).meta["batches"] == [2, 3]


def test_the_command_prints_a_line_as_soon_as_a_call_is_measured(tmp_path, capsys):
    pytest.importorskip("torch")
    recorded = record(tmp_path / "r", [linear(1), linear(2)])
    options = [
        "--time-limit",
        "0.02",
        "-o",
        str(tmp_path / "out"),
        "--device",
        "cpu",
        "--op",
        "linear",
        "--all",
    ]
    assert main(["bench", "replay", str(recorded), *options]) == 0
    printed = capsys.readouterr().out
    assert [line.split(": alone ")[0] for line in printed.splitlines()[:4]] == [
        "fc forward linear, batch 1",
        "fc forward linear, batch 2",
        "Batch 1",
        "Batch 2",
    ]


def test_an_interrupt_keeps_the_lines_that_are_printed(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    other = replace(
        linear(2, "other", position=9), arguments=(T((2, 4), "float"), T((7, 4), "float"), None)
    )
    recorded = record(tmp_path / "r", [linear(2), other])
    run_sweep, calls = runner.run_sweep, iter(range(2))

    def interrupted(*arguments):
        if next(calls):
            raise KeyboardInterrupt
        return run_sweep(*arguments)

    monkeypatch.setattr(runner, "run_sweep", interrupted)
    options = ["--time-limit", "0.02", "-o", str(tmp_path / "out"), "--device", "cpu", "--all"]
    assert main(["bench", "replay", str(recorded), *options]) == 130
    assert capsys.readouterr().out.count(": alone ") == 1


def test_a_recording_without_operators_says_what_has_them(tmp_path, capsys):
    with RecordingWriter(tmp_path / "r", {}):
        pass
    assert main(["bench", "replay", str(tmp_path / "r")]) == 2
    assert "has no operators. `curvescope sweep`" in capsys.readouterr().err


def test_a_layer_that_is_not_there_lists_those_that_are(tmp_path, capsys):
    assert (
        main(["bench", "replay", str(record(tmp_path / "r", [linear(1)])), "--layer", "conv9"]) == 2
    )
    assert "layers: fc" in capsys.readouterr().err
