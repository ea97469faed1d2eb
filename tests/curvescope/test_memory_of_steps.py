"""`diagnose --of memory` on a step of the user's: sizes are counts, and depend on no time."""

import pytest

pytest.importorskip("torch")

STEP = """
import torch

def make_step(batch):
    model, inputs = torch.nn.Linear(1000, 1000), torch.ones(batch, 1000)

    def step():
        with torch.no_grad():
            return model(inputs)

    step.module = torch.nn.Sequential(model)
    return step
"""


@pytest.mark.slow
def test_a_step_of_ones_own_has_its_layers_and_its_largest_batch(
    tmp_path, monkeypatch, document_of
):
    """4,004,000 bytes of parameters, and 4,000 for each of the input and the output of a sample: 10
    MB hold 749.5.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.py").write_text(STEP)
    step = ("--step", "step.py:make_step", "--batch", "100,200,400", "-o", "run")
    measured = document_of("diagnose", "--of", "memory", *step)
    found = document_of("explain", "run", "--of", "memory", "--memory-limit", "10MB")
    assert found["peaks"] == measured["peaks"]
    assert [peak["memory_mb"]["value"] for peak in found["peaks"]] == pytest.approx(
        [4.804, 5.604, 7.204]
    )
    assert found["peaks"][0]["kinds"] == pytest.approx(
        {"parameters": 4.004, "input": 0.4, "activations": 0.4}
    )
    assert found["largest_batch"]["batch"] == 749
