"""`explain --as-env`: what the environment can set of the measured remedies, and the rest as lines
to add.
"""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from curvescope.analysis.render.remedies import remedy_table
from curvescope.as_environment import _divide
from curvescope.cli import main
from curvescope.experiments.factors import step_change
from curvescope.profiling.recording.axis import Axis

from ..experiments.test_remedies import Machine
from .recordings import write_planted
from .tested_recording import write_tested

ALLOCATOR = step_change("kept_memory").variables()


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A recording whose fixed cost goes away with kept memory."""
    return write_tested(tmp_path_factory.mktemp("as_env") / "tested")


def divided(saves):
    """Names of the changes that the environment sets, and of the others, after a plan on a machine
    of known costs.
    """
    remedies = Machine(saves, noise=0.01).run(seconds=200.0).remedies
    settings, others = _divide(SimpleNamespace(remedies=remedies, axis=Axis()))
    return [row.factors[0] for row, _ in settings], [row.factors[0] for row in others]


def test_the_variables_of_the_measured_remedies_are_printed_alone(tested, capfd, monkeypatch):
    """So that `env $(curvescope explain RUN --as-env) python train.py` sets them."""
    monkeypatch.delenv("MALLOC_TOP_PAD_", raising=False)
    assert main(["explain", str(tested), "--as-env"]) == 0
    out, err = capfd.readouterr()
    assert dict(line.split("=") for line in out.splitlines()) == ALLOCATOR
    said = " ".join(err.split())
    assert "keep freed memory in the process: it saved 62 %" in said
    assert "of the step at batch 1" in said


def test_a_variable_that_is_set_stays(tested, capfd, monkeypatch):
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    assert main(["explain", str(tested), "--as-env"]) == 0
    out, err = capfd.readouterr()
    assert "MALLOC_TOP_PAD_" not in out
    assert len(out.splitlines()) == len(ALLOCATOR) - 1
    assert "MALLOC_TOP_PAD_ stays as it is set." in " ".join(err.split())


@pytest.mark.slow
def test_what_the_environment_cannot_set_is_left_to_the_program():
    assert divided({"fused_optimizer": lambda _: 0.3, "kept_memory": lambda _: 0.2}) == (
        ["kept_memory"],
        ["fused_optimizer"],
    )
    assert divided({"fused_optimizer": lambda _: 0.3}) == ([], ["fused_optimizer"])


def test_of_two_that_do_not_add_only_the_better_one_is_set():
    class Overlapping(Machine):
        def time_ms(self, name, batch):
            one = "one_thread" if name and "one_thread" in name else name
            return super().time_ms(one, batch)

    remedies = (
        Overlapping({"one_thread": lambda _: 0.3, "kept_memory": lambda _: 0.2}, noise=0.01)
        .run(200.0)
        .remedies
    )
    settings, others = _divide(SimpleNamespace(remedies=remedies, axis=Axis()))
    assert [row.factors[0] for row in remedy_table(remedies, Axis()).rows] == [
        "one_thread",
        "kept_memory",
    ]
    assert [(row.factors, variables) for row, variables in settings] == [
        (("one_thread",), {"OMP_NUM_THREADS": "1"})
    ]
    assert not others


@pytest.mark.slow
def test_denormal_numbers_are_flushed_once_a_program_has_loaded_torch():
    program = "import torch; print(float(torch.tensor([1e-40]) * 2))"
    assert float(torch.tensor([1e-40]) * 2) > 0  # in this process without the variables
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **step_change("flush_denormal").variables()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "0.0"


def test_a_recording_without_a_remedy_says_how_to_get_one(tmp_path, refusal_of):
    path = write_planted(tmp_path / "r")
    assert "`curvescope confirm " in refusal_of("explain", path, "--as-env")
