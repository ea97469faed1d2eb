"""A language model in bf16 on the virtual H100: its training, diagnosed as a user would, and the
changes of such a model.
"""

import json

import pytest

from curvescope.profiling.attribution.kernel_names import family
from curvescope.profiling.recording.store import open_recording

from .card import ROOT, Card

H100 = Card(virtual_time=True)
MODEL = ROOT / "examples" / "step" / "language_model.py"


def test_a_bf16_model_is_diagnosed(curvescope_on, tmp_path):
    folder = tmp_path / "found"
    text = curvescope_on(
        H100,
        *("diagnose", "--step", f"{MODEL}:train", "--batch", "4,8,16", "-o", folder, "--json"),
        *("--time-limit", 1, "--experiments", 0),
    )
    document, recording = json.loads(text), open_recording(folder)
    assert document["device"]["name"] == "NVIDIA H100 80GB HBM3"
    assert recording.meta["status"] == "complete"
    kernels = recording.frame("kernels")
    assert "attention" in set(map(family, kernels["name"]))
    assert kernels["name"].str.contains("bf16bf16").any()
    assert "blocks.0.attention.inputs" in set(kernels["layer"].dropna())


def test_decoding_waits_for_the_host_and_a_graph_is_suggested(curvescope_on, tmp_path):
    options = ("--time-limit", 1, "--experiments", 0, "-o", tmp_path / "found")
    text = curvescope_on(
        H100, "diagnose", "--step", f"{MODEL}:decode", "--batch", "1,2,4", *options
    )
    assert "launch- or host-bou" in text  # as far as 80 columns show it
    (graph,) = [line for line in text.splitlines() if "capture the step as a CUDA graph" in line]
    assert graph.endswith("suggested")


CHANGED = """
    import json, os, sys
    from curvescope.experiments.factor import Target
    from curvescope.experiments.factors import step_change
    from curvescope.profiling.collect.torch_step import record_step
    from curvescope.profiling.measure.configuration import Configuration
    from curvescope.profiling.measure.sites.here import build_workload

    configuration = Configuration.of_step({step!r}, "cuda:0")
    found = {{}}
    for name in (None, {factor!r}):
        change, target = step_change(name), Target(configuration, (8,))
        change.prepare(target)
        steps = change.change(build_workload(configuration), target)
        steps.load(8)
        for _ in range(2):
            steps.time_step()
        rows = record_step(lambda _: steps.time_step(), (), device="cuda:0")
        found[str(name)] = [[row["name"], row["duration_ns"]] for row in rows.kernels]
    print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("factor", "part"),
    [
        ("flash_attention", "flash_fwd"),
        ("efficient_attention", "fmha_cutlassF"),
        ("math_attention", "softmax"),
    ],
)
def test_another_kernel_runs_attention(answer_of, factor, part):
    found = answer_of(H100, CHANGED.format(step=f"{MODEL}:train", factor=factor))
    before, after = ([name.lower() for name, _ in found[name]] for name in ("None", factor))
    assert any("flash_fprop" in name for name in before)
    assert not any("flash_fprop" in name for name in after)
    count = sum(part.lower() in name for name in after)
    assert count > sum(part.lower() in name for name in before)


def test_a_padded_vocabulary_leaves_the_older_kernels(answer_of):
    """GPT-2's vocabulary is odd: products of the head and of both its gradients."""
    found = answer_of(H100, CHANGED.format(step=f"{MODEL}:train", factor="padded_vocabulary"))
    before, after = found["None"], found["padded_vocabulary"]
    old = [duration_ns for name, duration_ns in before if "align1" in name]
    assert len(old) == 3
    assert not any("align1" in name for name, _ in after)
    times = [sum(ns for name, ns in kernels if "gemm" in name) for kernels in (before, after)]
    assert times[0] - times[1] == pytest.approx(sum(old) * (1 - 1 / 1.8), rel=0.1)
