"""Curvescope on the virtual card as a user runs it: a diagnosis, its recording, and
what it says.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from curvescope.experiments.plan import rest
from curvescope.profiling.recording.store import open_recording

from .card import Card

STEPS = Path(__file__).with_name("steps.py")
H100 = Card(virtual_time=True)


@pytest.fixture
def diagnosed(curvescope_on, tmp_path):
    """Runs `diagnose` on a step of steps.py; its document and the recording."""

    def run(card, name, batches, *options, **environment):
        folder = tmp_path / "recording"
        step = (
            "--step",
            f"{STEPS}:{name}",
            "--batch",
            batches,
            "-o",
            folder,
            "--time-limit",
            1,
            *options,
        )
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


def test_a_diagnosis_of_vgg_tests_causes_in_workers_and_writes_a_report(curvescope_on, tmp_path):
    card = Card(["gtx1080"], virtual_time=True)
    options = ("--time-limit", 10, "--experiments", 10, "-o", tmp_path / "vgg")
    text = curvescope_on(card, "diagnose", "vgg_a", "--batch", "8,16,32", *options, "--json")
    document = json.loads(text)
    assert document["device"]["name"] == "NVIDIA GeForce GTX 1080"
    recording = open_recording(tmp_path / "vgg")
    kernels = recording.frame("kernels")
    names = set(kernels["name"])
    for family in ("maxwell_scudnn", "maxwell_sgemm", "max_pool_forward", "multi_tensor_apply"):
        assert any(family in name for name in names), family
    assert {"conv1_1", "fc6"} <= set(kernels["layer"].dropna())
    experiments = recording.frame("experiments")
    assert len(experiments["factor"].unique()) > 1
    curvescope_on(card, "report", tmp_path / "vgg", "-o", tmp_path / "vgg.html")
    assert "GTX 1080" in (tmp_path / "vgg.html").read_text()


def test_a_recorded_program_has_kernels_with_layers_through_the_collector(libraries, tmp_path):
    """The program is one of its own, into which the collector is injected, as the driver does."""
    program = tmp_path / "train.py"
    program.write_text(
        "import torch\n"
        "net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, "
        "64, 3)).cuda()\n"
        "optimizer, x = torch.optim.SGD(net.parameters(), 0.1), torch.randn(32, 3, 64, 64, "
        "device='cuda')\n"
        "for _ in range(20):\n"
        "    optimizer.zero_grad(); net(x).sum().backward(); optimizer.step()\n"
        "torch.cuda.synchronize()\n"
    )
    command = [
        sys.executable,
        "-m",
        "curvescope",
        "record",
        "-o",
        tmp_path / "r",
        "--",
        sys.executable,
        program,
    ]
    chosen = H100.environment(tmp_path / "card", libraries)
    done = subprocess.run(
        command, env=chosen, cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    recording = open_recording(tmp_path / "r")
    (collector,) = (
        one for one in recording.meta["collectors"] if one.get("cupti_status") == "recording"
    )
    assert "libcupti" in collector["cupti_path"]
    kernels = recording.frame("kernels")
    assert kernels["name"].str.contains("xmma_fprop_implicit_gemm").any()
    assert kernels["layer"].notna().any()
    assert len(recording.frame("api_calls")) >= len(kernels)


def test_a_diagnosed_program_has_kernels_with_layers_and_tries_what_its_profile_suggests_first(
    libraries, tmp_path
):
    """Its products in fp32 are half of the step: TF32 or bf16 saves most of that, the form of the
    optimizer next to nothing.
    """
    program = tmp_path / "train.py"
    program.write_text(
        "import sys, torch\n"
        "net = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU(), "
        "torch.nn.Linear(4096, 4096)).cuda()\n"
        "optimizer = torch.optim.AdamW(net.parameters())\n"
        "x = torch.randn(int(sys.argv[1]), 4096, device='cuda')\n"
        "while True:\n"
        "    optimizer.zero_grad(); net(x).sum().backward(); optimizer.step()\n"
    )
    options = ("--batch", "4096,8192", "--quick", "--time-limit", "8", "--experiments", "0")
    words = (sys.executable, "-m", "curvescope", "diagnose", *options, "-o", tmp_path / "r", "--")
    done = subprocess.run(
        [*words, sys.executable, program, "{batch}"],
        env=H100.environment(tmp_path / "card", libraries),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    recording = open_recording(tmp_path / "r")
    kernels = recording.frame("kernels")
    assert {"0", "1", "2"} <= set(kernels["layer"].dropna())
    assert set(kernels["phase"].dropna()) == {"forward", "backward", "optimizer"}
    assert kernels["op"].notna().all()
    assert kernels["grid_x"].notna().all()
    assert len(recording.frame("api_calls")) > len(kernels) / 2
    steps = recording.frame("steps").set_index("step")
    for number, rows in kernels.groupby("step"):
        start_ns, duration_ns = steps.loc[number, ["start_ns", "duration_ns"]]
        assert rows["start_ns"].min() >= start_ns
        assert (rows["start_ns"] + rows["duration_ns"]).max() <= start_ns + duration_ns
    assert "not recorded" not in done.stdout
    assert rest(recording).what[0] in ("tf32", "bf16_autocast")
