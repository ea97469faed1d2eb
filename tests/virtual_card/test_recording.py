"""Programs under `curvescope record` on the virtual card."""

import sys

from curvescope.profiling.recording.store import open_recording

from ..tables import ask_each
from .card import Card

PROFILED = """
import torch
a = torch.randn(256, 256, device="cuda")
with torch.autograd.profiler.profile(use_kineto=True):
    (a @ a).sum()
(a @ a).sum()
torch.cuda.synchronize()
"""


def test_a_program_that_ends_is_recorded_to_its_end(tmp_path, curvescope_on):
    """CUPTI samples the clocks until the process is gone, and that is no work lost."""
    (tmp_path / "program.py").write_text(
        "import torch\na = torch.ones(8, device='cuda')\n(a + a).sum()\ntorch.cuda.synchronize()\n"
    )
    curvescope_on(Card(), "record", "-o", "r", "--", sys.executable, "program.py")
    recording = open_recording(tmp_path / "r")
    assert recording.count_rows("kernels") == 3
    assert "cupti_unsaved" not in recording.meta["lost"]


def test_a_program_that_profiles_its_cpu_is_recorded_to_its_end(tmp_path, curvescope_on):
    """Kineto collects records of its own meanwhile, ids of operators: attributes of CUPTI may not
    change then, and the ids are nobody's loss.
    """
    (tmp_path / "program.py").write_text(PROFILED)
    curvescope_on(Card(), "record", "-o", "r", "--", sys.executable, "program.py")
    recording = open_recording(tmp_path / "r")
    names = recording.frame("kernels")["name"]
    assert names.str.contains("gemm").sum() == 2
    assert "records_of_unknown_kind" not in recording.meta["lost"]
    (collector,) = (one for one in recording.meta["collectors"] if "cupti_status" in one)
    assert collector["cupti_status"] == "recording"
    assert "without exit handlers" not in str(collector.get("ended"))


COPYING = """
import torch
model = torch.nn.Linear(1024, 1024, device="cuda")
optimizer = torch.optim.SGD(model.parameters())
data = torch.randn(8192, 1024)
data = data.pin_memory() if {pinned} else data
for _ in range(12):
    optimizer.zero_grad()
    model(data.to("cuda", non_blocking=True)).sum().backward()
    optimizer.step()
torch.cuda.synchronize()
"""


@ask_each(
    ("pinned", "memory", "advice"),
    [(False, "pageable", "pin the host's memory"), (True, "pinned", "copy beside other work")],
)
def test_pageable_memory_is_seen_and_named(tmp_path, curvescope_on, pinned, memory, advice):
    (tmp_path / "program.py").write_text(COPYING.format(pinned=pinned))
    curvescope_on(Card(), "record", "-o", memory, "--", sys.executable, "program.py")
    copies = open_recording(tmp_path / memory).frame("memory")
    large = copies[copies["memcpy_kind"].eq("HtoD") & (copies["bytes"] > 1 << 20)]
    assert len(large) == 12
    assert set(large["host_memory"]) == {memory}
    said = " ".join(curvescope_on(Card(), "explain", memory, "--all").split())
    assert advice in said.lower()
