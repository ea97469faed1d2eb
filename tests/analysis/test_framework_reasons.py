"""What is said of one network in several frameworks: how each ran, and which layers differ."""

import shutil
from types import SimpleNamespace

import pytest

from curvescope.analysis.conditions import conditions_of
from curvescope.analysis.framework_reasons import reasons
from curvescope.analysis.render.compare import _not_recorded
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

LAYERS = {"conv1": 3_000_000, "pool1": 1_000_000}


def recorded(path, slower=1, rounds=4, **meta):
    """A sweep of AlexNet at batch 4: its pool takes `slower` times as long, the kernel with it."""
    entries = {"recording_type": "sweep", "network": "alexnet", "mode": "training", **meta}
    entries |= {"precision": "fp32", "device": {"kind": "cpu", "name": "CPU", "threads": 2}}
    key = {"batch": 4, "mode": "training", "index": 0}
    with RecordingWriter(path, entries) as writer:
        steps, kernels = [], []
        for number in range(2 * rounds):
            durations = [ns * (slower if layer == "pool1" else 1) for layer, ns in LAYERS.items()]
            start_ns = number * 10**9
            step = {**key, "step": number, "round": number // 2, "profiled": bool(number % 2)}
            steps.append({**step, "start_ns": start_ns, "duration_ns": sum(durations)})
            for layer, ns in zip(LAYERS, durations, strict=True) if number % 2 else ():
                kernel = {"step": number, "name": f"{layer}_kernel", "layer": layer}
                kernel |= {"phase": "forward", "source": "torch"}
                kernel |= {"start_ns": start_ns, "duration_ns": ns}
                kernels.append(kernel)
                start_ns += ns
        writer.write("steps", columns_of(steps), "one")
        writer.write("kernels", columns_of(kernels), "one")
    return open_recording(path)


@pytest.fixture
def both(tmp_path):
    jax = {"runs_in": "jax", "frameworks": {"jax": "0.10.2"}, "framework_threads": {"jax": 1}}
    return [
        recorded(tmp_path / "torch", setup_s={"4": 0.5}),
        recorded(tmp_path / "jax", 5, **jax, setup_s={"4": 3.25}),
    ]


def test_each_framework_has_its_conditions_with_threads_and_the_time_of_the_first_step(both):
    torch, jax = conditions_of(both)
    assert torch.startswith("torch: channels first; not compiled; fp32 products exact")
    assert torch.endswith("2 threads; first step after 0.5000 s.")
    assert "donated" in jax
    assert jax.endswith("1 thread; first step after 3.250 s.")


def test_steps_that_only_run_forward_write_no_parameters(both, tmp_path):
    forward = [
        recorded(tmp_path / "t", mode="forward"),
        recorded(tmp_path / "o", mode="forward", runs_in="onnxruntime"),
    ]
    assert all("parameters updated in place" in line for line in conditions_of(both)[:1])
    assert not any("updated" in line for line in conditions_of(forward))


def test_on_a_cpu_what_was_not_recorded_is_no_matter_of_a_tool_for_gpus():
    hardware = SimpleNamespace(kind="cpu")
    sides = [SimpleNamespace(name="onnxruntime", hardware=hardware)]
    comparison = SimpleNamespace(unseen=["onnxruntime"], sides=sides)
    assert _not_recorded(comparison) == (
        "onnxruntime: what runs in a step was not recorded, so there are no rows."
    )
    hardware.kind = "cuda"
    assert "nsys profile" in _not_recorded(comparison)


def test_what_a_recording_does_not_tell_is_unknown(tmp_path):
    (line,) = conditions_of([recorded(tmp_path / "r", runs_in="jax")])
    assert line.endswith("threads unknown; time of the first step unknown.")


def test_pytorch_alone_needs_no_conditions(both):
    assert conditions_of(both[:1]) == []


def test_a_pair_of_frameworks_differs_by_its_layers(both):
    (sentence,) = reasons(both)
    assert sentence.startswith(
        "alexnet training at batch 4: jax takes 8.000 ms, torch 4.000 ms. Of 4.000 ms more: pool1"
    )
    assert "+4.000 (1.000 ms → 5.000 ms" in sentence
    assert "conv1" not in sentence


def test_other_networks_and_one_framework_are_not_compared(both, tmp_path):
    shutil.copytree(both[1].path, tmp_path / "other")
    with RecordingWriter.extend(tmp_path / "other") as writer:
        writer.update(network="googlenet")
    other = open_recording(tmp_path / "other")
    assert reasons([both[0], other]) == []
    assert reasons([both[0], both[0]]) == []


@pytest.mark.slow
def test_a_framework_that_ran_once_is_named(tmp_path):
    torch = recorded(tmp_path / "torch")
    jax = recorded(tmp_path / "jax", 5, rounds=1, runs_in="jax", frameworks={"jax": "0.10.2"})
    (sentence,) = reasons([torch, jax])
    assert sentence.endswith("Whether it repeats is unknown: jax ran in one process.")
    (sentence,) = reasons([torch, recorded(tmp_path / "again", 5, runs_in="jax")])
    assert "repeats" not in sentence
