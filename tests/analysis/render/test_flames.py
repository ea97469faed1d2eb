"""Stacks of a step add up to it, in both formats."""

import json
from pathlib import Path

import pytest

from curvescope.analysis.render.flames import read_stacks, render_collapsed, render_speedscope
from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.recording.store import RecordingWriter, open_recording

DATA = Path(__file__).parents[2] / "data"
ALEXNET = DATA / "networks" / "alexnet"


@pytest.fixture(scope="module")
def stacks():
    return read_stacks(open_recording(ALEXNET))


def test_stacks_of_a_batch_size_add_up_to_its_mean_profiled_step(stacks):
    steps = open_recording(ALEXNET).frame("steps")
    profiled = steps[steps["profiled"].astype(bool)]
    means_ns = profiled.groupby("batch")["duration_ns"].mean()
    assert [step.title for step in stacks] == [f"batch {batch}" for batch in means_ns.index]
    for step, mean_ns in zip(stacks, means_ns, strict=True):
        # Each stack is rounded to a nanosecond.
        assert abs(sum(step.time_ns.values()) - mean_ns) <= len(step.time_ns)


def test_a_stack_is_phase_layer_operator_kernel_and_a_name_stands_once(stacks):
    paths = stacks[0].time_ns
    assert ("forward", "conv1", "aten::conv2d", "reorder jit:uni") in paths
    assert ("forward", "conv1", "aten::conv2d") in paths  # the operator's own time
    assert ("idle",) in paths


def test_speedscope_names_each_frame_once_and_weighs_each_sample(stacks):
    document = json.loads(render_speedscope(stacks, "curvescope 1"))
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert len(names) == len(set(names))
    for profile, step in zip(document["profiles"], stacks, strict=True):
        assert profile["endValue"] == sum(profile["weights"])
        shown = {
            tuple(names[frame] for frame in sample): weight
            for sample, weight in zip(profile["samples"], profile["weights"], strict=True)
        }
        assert shown == step.time_ns


def test_collapsed_lines_are_names_and_a_number(stacks):
    lines = render_collapsed(stacks).splitlines()
    assert len(lines) == sum(len(step.time_ns) for step in stacks)
    for line in lines:
        names, _, time_ns = line.rpartition(" ")
        assert names.startswith("batch ")
        assert int(time_ns) > 0


def test_a_recording_without_a_profiled_step_says_what_to_do(tmp_path):
    with RecordingWriter(tmp_path / "small", {"recording_type": "profile"}) as writer:
        writer.write("kernels", {"name": ["gemm"], "duration_ns": [7], "source": ["ncu"]})
    with pytest.raises(CurvescopeError, match="curvescope record"):
        read_stacks(open_recording(tmp_path / "small"))


def test_the_command_writes_both_and_nothing_over_a_file(tmp_path, capsys):
    for kind in ("speedscope", "collapsed"):
        target = tmp_path / kind
        assert main(["export", str(ALEXNET), f"--{kind}", "-o", str(target)]) == 0
        assert target.stat().st_size > 1000
        assert main(["export", str(ALEXNET), f"--{kind}", "-o", str(target)]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err
