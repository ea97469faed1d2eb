"""Steps that another framework than PyTorch runs: what nobody recorded is not idle, and nobody's is
not PyTorch's.
"""

import shutil

import numpy as np
import pytest

from curvescope.analysis.decompose.terms import NOT_RECORDED
from curvescope.analysis.diagnosis.explain import explain
from curvescope.analysis.ran_by import framework_beside_torch, framework_of, step_threads
from curvescope.analysis.render.show import show_diagnosis
from curvescope.analysis.step_table import cells_of
from curvescope.experiments.budget import Budget
from curvescope.experiments.factors import COMMON
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.recording.experiments import Scope, Stage
from curvescope.profiling.recording.store import RecordingWriter, open_recording
from curvescope.profiling.workload.own_step import OwnStep

from ..experiments.planted_experiments import experiment_on_steps

SHORT = Protocol("short", (2, 2), 1, (2, 2), 0.0, 1, None)


def make_step(batch):
    """A step that PyTorch does not run."""
    matrix = np.ones((64, 64))
    return lambda: [matrix @ matrix for _ in range(batch)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("numpy") / "r"
    run_sweep(Here(OwnStep(make_step, name="mine")), (8, 16, 64), SHORT, path)
    return open_recording(path)


def of_jax(recording, path, threads=None):
    """A copy of the recording, as if JAX had run its steps."""
    shutil.copytree(recording.path, path)
    with RecordingWriter.extend(path) as writer:
        writer.update(frameworks={"jax": "0.10.2"}, framework_threads={"jax": threads})
    return open_recording(path)


@pytest.mark.slow
def test_what_nobody_recorded_is_not_idle(recorded, capsys):
    found = explain(recorded)
    assert {key.kind for key in found.terms.keys} == {NOT_RECORDED}
    causes = {total.cause for one in found.explanations for total in one.causes}
    assert "launch- or host-bound" not in causes
    show_diagnosis(recorded, everything=True)
    text = capsys.readouterr().out
    assert "is not recorded" in text
    assert "idle" not in text
    assert "step.module" not in text


@pytest.mark.slow
def test_the_framework_is_unknown_where_pytorch_ran_nothing(recorded):
    assert framework_of(recorded) == framework_beside_torch(recorded) == "unknown"
    assert {cell.framework for cell in cells_of(recorded)} == {"unknown"}


@pytest.mark.slow
@pytest.mark.parametrize(("torch", "framework"), [(None, "unknown"), ("2.13", None)])
def test_a_program_that_loads_no_pytorch_is_not_pytorchs(recorded, tmp_path, torch, framework):
    """Its changes were said to be tried on it, and none was made."""
    shutil.copytree(recorded.path, tmp_path / "r")
    with RecordingWriter.extend(tmp_path / "r") as writer:
        versions = {**recorded.meta["versions"], "torch": torch}
        writer.update(mode="program", program=["train"], versions=versions)
    program = open_recording(tmp_path / "r")
    assert framework_beside_torch(program) == framework
    assert framework_of(program) == (framework or "torch 2.13")
    budget = Budget(None, "cpu", 60.0, run_s=1.0, framework=framework_beside_torch(program))
    tried = {name for name in COMMON if budget.fits(Scope.STEP, name)}
    assert (tried == {"kept_memory"}) is (torch is None)


@pytest.mark.slow
def test_a_recording_names_the_framework_that_ran_its_steps(recorded, tmp_path, capsys):
    named = of_jax(recorded, tmp_path / "r")
    assert framework_of(named) == "jax 0.10.2"
    assert framework_beside_torch(named) == "jax"
    show_diagnosis(named, everything=True)
    text = capsys.readouterr().out
    assert "as jax runs it" in text
    # Not the threads of PyTorch, which ran nothing, and JAX's are not recorded.
    first = text.partition("protocol")[0]
    assert "own step, jax 0.10.2," in first
    assert step_threads(named) is None
    assert step_threads(of_jax(recorded, tmp_path / "told", threads=3)) == 3


def test_factors_of_pytorch_are_not_tried_on_another_framework():
    torchs, jaxs, tensorflows = (
        Budget(None, "cpu", 60.0, framework=framework)
        for framework in (None, "jax", "keras and tensorflow")
    )
    of_torch, of_jax, of_tensorflow = (
        {name for name in COMMON if one.fits(Scope.STEP, name)}
        for one in (torchs, jaxs, tensorflows)
    )
    assert of_torch & of_jax == of_torch & of_tensorflow == {"kept_memory"}
    assert of_jax - of_torch == {name for name in COMMON if name.startswith("jax_")}
    others = {name for name in COMMON if name.startswith("tensorflow_")}
    assert of_tensorflow - of_torch == others
    assert of_torch | of_jax | of_tensorflow >= set(COMMON) - {"loader_workers"}
    assert not jaxs.fits(Scope.TERM, "split_batch")
    only_torch = experiment_on_steps(Stage.SCREEN, ["fused_optimizer", "one_thread"], (8,))
    assert list(jaxs.fitting(only_torch)) == []
