"""Causes on this machine's own CPU, where a model can be made to have one: no synthetic recording in between."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

MODELS = """
import time

import torch
from torch import nn


class WaitsForItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        if x.shape[0] >= 4:
            time.sleep(0.6)
        return self.conv(x).mean((2, 3))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 1)

    def forward(self, x):
        return self.conv(x).mean((2, 3))
"""

RECORD = """
import json, sys
from pathlib import Path
import torch
import curvescope
from curvescope.analysis import anomalies
from curvescope.analysis.functionals import excess
from curvescope.profiling.networks import from_factory
from curvescope.profiling.protocol import Protocol
from curvescope.profiling.sweep import run_sweep
from curvescope.profiling.workload import Workload
from curvescope.show import recorded

spec, shape, pair = sys.argv[1], tuple(map(int, sys.argv[2].split(","))), tuple(map(int, sys.argv[3].split(",")))
# One thread: with more, torch gives oneDNN every convolution.
torch.set_num_threads(1)
network = from_factory(spec, shape)
run_sweep(Workload(network), pair, Protocol("test", (4, 4), 1, (2, 2), 0.0, 4, None), Path("run"))
recording = curvescope.open_recording("run")
found = curvescope.explain(recording)
split = anomalies.explain(excess(*pair), found.curve, found.terms, found.parts, recorded(recording))
print(json.dumps({
    "value": split.value.value,
    "causes": {c.cause: c.amount for c in split.attribution.causes},
    "claims": [[c.cause, t.label, [e.what for e in t.claim.evidence], [[e.before, e.after] for e in t.claim.evidence]]
               for c in split.attribution.causes for t in c.terms if t.claim],
    "rivals": [[r.cause, t.label, [[e.before, e.after] for e in r.evidence]]
               for c in split.attribution.causes for t in c.terms for r in t.rivals],
}))
"""


def record(tmp_path, model, shape, pair):
    (tmp_path / "models.py").write_text(MODELS)
    done = subprocess.run(
        [sys.executable, "-c", RECORD, f"models:{model}", shape, pair],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert math.fsum(found["causes"].values()) == pytest.approx(found["value"], rel=1e-9, abs=1e-9)
    return found


@pytest.mark.slow
def test_a_step_that_waits_for_its_input_is_host_bound(tmp_path):
    found = record(tmp_path, "WaitsForItsInput", "3,32,32", "2,4")
    assert max(found["causes"], key=lambda cause: found["causes"][cause]) == "launch- or host-bound"
    # 600 ms at 4, none at 2; a loaded machine wakes late, never early.
    assert found["causes"]["launch- or host-bound"] > 500


@pytest.mark.slow
def test_torchs_own_choice_of_library_is_an_algorithm_switch(tmp_path):
    """With one thread torch computes a 1x1 convolution of up to 15 samples by GEMM, from 16 on by oneDNN."""
    found = record(tmp_path, "Convolution", "64,28,28", "8,16")
    claims = [(cause, label, sides) for cause, label, _, sides in found["claims"]] + [
        (cause, label, sides) for cause, label, sides in found["rivals"]
    ]
    switched = {label: sides for cause, label, sides in claims if cause == "algorithm switch"}
    assert "conv forward" in switched
    kernels, families = switched["conv forward"][:2]
    assert kernels[0] != kernels[1]
    assert families[0] != families[1]
