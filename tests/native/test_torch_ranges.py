"""`curvescope record -- python train.py` on a GPU: real programs, whose layers, phases and steps
are NVTX ranges.

Nothing runs on a GPU here. The functions that torch built for CUDA pushes ranges with are those of
the `nvtx` package, which reach the real collector; the kernel of each operator is missing.
"""

import sys
import textwrap

import pytest

from curvescope.cli import main
from curvescope.profiling.collect.inject import STARTUP
from curvescope.profiling.recording.store import open_recording

pytest.importorskip("torch")

AS_ON_A_GPU = f"""
import importlib.util, os, sys, types, nvtx, torch
torch._C._nvtx = types.SimpleNamespace(rangePushA=nvtx.push_range, rangePop=nvtx.pop_range)
def load(name):
    path = os.path.join({str(STARTUP)!r}, name.removeprefix("_curvescope_") + ".py")
    specification = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
windows, ranges = load("_curvescope_torch_windows"), load("_curvescope_torch_ranges")
os.environ.pop("CURVESCOPE_TORCH")
windows.start(torch, os.environ["CURVESCOPE_CHUNK_FOLDER"], ranges.GpuRecorder)
"""

TRAINING = """
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        return self.second(torch.sin(self.first(x)) * 2)
net = nn.Sequential(Block(), nn.Tanh())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    for _ in range(2):  # accumulation
        net(torch.randn(8, 4)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
with torch.no_grad():
    net(torch.randn(32, 4))
print("trained")
"""

FAILING = """
class Fails(torch.nn.Module):
    def forward(self, x):
        raise KeyError
for _ in range(2):
    try:
        torch.nn.Sequential(torch.nn.Linear(4, 4), Fails())(torch.randn(8, 4))
    except KeyError:
        pass
torch.nn.Sequential(torch.nn.Linear(4, 4))(torch.randn(8, 4))
"""


@pytest.fixture
def recorded(tmp_path, capfd, monkeypatch):
    """The recording of a program as on a GPU; what it printed is `trained` or nothing."""
    # the CPU's recorder; the program starts the GPU's
    monkeypatch.setenv("CURVESCOPE_TORCH", "off")

    def record(program):
        source = tmp_path / "program.py"
        source.write_text(AS_ON_A_GPU + textwrap.dedent(program))
        code = main(["record", "-o", str(tmp_path / "r"), "--", sys.executable, str(source)])
        out, err = capfd.readouterr()
        assert (code, out.replace("trained\n", "")) == (0, ""), err
        return open_recording(tmp_path / "r")

    return record


@pytest.mark.slow
def test_layers_phases_and_steps_are_ranges(recorded):
    recording = recorded(TRAINING)
    steps = recording.frame("steps")
    assert recording.meta["steps_from"] == "marks"
    assert steps["batch"].tolist() == [16, 16, 16, 32]
    ranges = recording.frame("ranges")
    counts = ranges["name"].value_counts().to_dict()
    layers = ("0", "0.first", "0.second", "1")
    for layer in layers:
        assert counts[f"curvescope.layer:{layer}"] == 7
    assert counts["curvescope.phase:forward"] == 7
    assert counts["curvescope.phase:optimizer"] == 3
    # Per backward pass: a node of each product and of tanh, sin and its product with 2, and pow and
    # sum of the loss.
    backward = {layer: counts[f"curvescope.layer:{layer} backward"] / 6 for layer in layers}
    assert (backward["0"], backward["1"]) == (2, 1)
    assert (
        counts["curvescope.layer:0.first backward"]
        == counts["curvescope.layer:0.second backward"]
        >= 6
    )
    assert counts["curvescope.phase:backward"] == 12
    assert recording.meta["lost"] == {}


@pytest.mark.slow
def test_layers_that_the_program_annotates_get_one_range_each(recorded):
    """On an H100, 45 ranges of a step of AlexNet crossed those of `curvescope step`,
    and were cut.
    """
    annotated = TRAINING.replace(
        "for _ in range(3):\n", "import curvescope\nfor _ in range(3):\n", 1
    )
    annotated = annotated.replace(
        "        net(torch.randn(8, 4)).pow(2).sum().backward()\n",
        "        with curvescope.annotate(net):\n            net(torch.randn(8, "
        "4)).pow(2).sum().backward()\n",
    )
    recording = recorded(annotated)
    counts = recording.frame("ranges")["name"].value_counts().to_dict()
    plain = counts["curvescope.layer:1"]
    assert (plain, counts["1"]) == (1, 6)  # the last call is not annotated
    assert counts["1 backward"] == 6
    assert "curvescope.layer:1 backward" not in counts
    assert counts["curvescope.phase:forward"] == 7
    assert counts["curvescope.phase:backward"] == 12
    assert recording.meta["lost"] == {}


@pytest.mark.slow
def test_kernels_of_a_recording_without_operators_lack_none(record_fake, monkeypatch):
    """CUPTI's recordings have no operators.

    Of a ResNet-50 on an H100 all 4,987 kernels were said to lack theirs.
    """
    monkeypatch.setenv("CURVESCOPE_TORCH", "off")
    launching = """
import threading
gpu = FakeGpu()
gpu.start()
number = iter(range(1, 1000))
class Launches(torch.nn.Linear):
    def forward(self, x):
        launch(gpu, "k", next(number), threading.get_native_id())
        return super().forward(x)
net = torch.nn.Sequential(Launches(4, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    net(torch.randn(8, 4)).pow(2).sum().backward()
    optimizer.step()
"""
    code, recording = record_fake(AS_ON_A_GPU + launching)
    assert code == 0
    assert recording.frame("kernels")["layer"].tolist() == ["0"] * 3
    assert recording.meta["steps_from"] == "marks"
    assert recording.meta["lost"] == {}


@pytest.mark.slow
def test_an_exception_in_a_layer_leaves_no_range_open(recorded):
    recording = recorded(FAILING)
    assert recording.meta["lost"] == {}
    assert (
        recording.frame("ranges")["name"].str.fullmatch(r"curvescope.layer:(Sequential\.)?0").sum()
        == 3
    )


def test_a_layer_backward_has_that_phase():
    from curvescope.profiling.attribution.range_names import RangeNames

    found = RangeNames().read("curvescope.layer:blocks.3.mlp backward")
    assert (found.layer, found.whole_layer, found.phase) == ("blocks.3.mlp", True, "backward")
    assert RangeNames().read("curvescope.layer:blocks.3.mlp").phase is None
