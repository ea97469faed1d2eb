"""A plain training script: recording it ends with advice, and with the command that tries it."""

import subprocess
import sys

import pytest

from curvescope.analysis.diagnosis.suggested import advise, suggest_shares
from curvescope.experiments.factors import all_facts
from curvescope.profiling.recording.experiments import Scope, Stage
from curvescope.profiling.recording.store import open_recording

from ..experiments.test_remedies import OfProgram
from ..shared import ROOT

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

layers = []
for _ in range(12):
    layers += [nn.Linear(128, 128), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(128, 1))
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.rand(160, 128), torch.rand(160, 1))
for inputs, targets in DataLoader(data, batch_size=8, shuffle=True):
    optimizer.zero_grad()
    loss = ((model(inputs) - targets) ** 2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.mark.slow
def test_a_plain_script_ends_with_advice_and_how_to_try_it(tmp_path):
    """Its optimizer updates one parameter after another: that is a large part of a step under any
    load.
    """
    script, folder = tmp_path / "train.py", tmp_path / "run"
    script.write_text(SCRIPT)
    record = [sys.executable, "-m", "curvescope", "record", "-o", folder, "--"]
    done = subprocess.run(
        [*record, sys.executable, script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "A step of batch 8 takes" in done.stderr
    assert "Suggested: Fuse the optimizer: saves at most" in done.stderr
    assert "host operators" in done.stderr
    assert " kernels" not in done.stderr
    explain = [sys.executable, "-m", "curvescope", "explain", folder, "--all"]
    done = subprocess.run(explain, cwd=ROOT, capture_output=True, text=True, check=True)
    text = " ".join(done.stdout.split())
    check_that_diagnose_tests_it_first(folder)
    assert "curvescope diagnose --batch 8 --assign 'batch_size={batch}' --" in text
    assert "one parameter after another" in text


def check_that_diagnose_tests_it_first(folder):
    """Of a program, `diagnose` tries alone and first what its recording suggests most."""
    recording = open_recording(folder)
    told = next(
        advised.suggestion
        for advised in advise(recording, all_facts(Scope.STEP, "cpu")).advised
        if advised.suggestion.factors
    )
    first = OfProgram({}, suggest_shares(recording)).next(150.0)
    assert first.stage == Stage.CONFIRM
    assert first.factors == told.factors[:1]
