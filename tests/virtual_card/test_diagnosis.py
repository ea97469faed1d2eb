"""Curvescope on the virtual card as a user runs it: a diagnosis, its recording, and what it says."""

import json
from pathlib import Path

import pytest

from curvescope.profiling.recording.store import open_recording

from .card import Card

STEPS = Path(__file__).with_name("steps.py")
H100 = Card(virtual_time=True)


@pytest.fixture
def diagnosed(curvescope_on, tmp_path):
    """Runs `diagnose` on a step of steps.py; its document and the recording."""

    def run(card, name, batches, *options, **environment):
        folder = tmp_path / "recording"
        step = ("--step", f"{STEPS}:{name}", "--batch", batches, "-o", folder, "--time-limit", 1, *options)
        text = curvescope_on(card, "diagnose", *step, "--json", **environment)
        return json.loads(text), open_recording(folder)

    return run


def test_a_diagnosis_of_an_own_step_has_kernels_layers_phases_and_an_exact_sum(diagnosed):
    document, recording = diagnosed(H100, "linear", "4096,8192,16384", "--experiments", 0)
    kernels = recording.frame("kernels")
    assert set(kernels["phase"].dropna()) == {"forward", "backward", "optimizer"}
    assert {"0", "1", "2"} <= set(kernels["layer"].dropna())
    assert kernels["grid_x"].notna().all()
    assert kernels["name"].str.contains("gemm").any()
    assert len(recording.frame("api_calls")) > len(kernels) / 2
    assert document["device"]["name"] == "NVIDIA H100 80GB HBM3"
    # The host works in no time, so nothing disturbs a step.
    steps = recording.frame("steps")
    unprofiled = steps[~steps["profiled"] & (steps["batch"] == 16384)]
    assert unprofiled["duration_ns"].std() < 0.01 * unprofiled["duration_ns"].mean()
