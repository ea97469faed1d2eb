"""Recordings and plans of somebody else: no command runs code that they name, unless it is asked
to.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from curvescope.cli import main
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.protocol import PROTOCOLS, get_protocol
from curvescope.profiling.measure.scaling_plan import PLAN_FILE as SCALE
from curvescope.profiling.measure.scaling_plan import ScalingPlan
from curvescope.profiling.measure.sweep_plan import PLAN_FILE as SWEEP
from curvescope.profiling.measure.sweep_plan import SweepPlan
from curvescope.profiling.recording import named_code

from ..shared import ROOT

HARMFUL = """
from pathlib import Path
Path("ran").touch()
def make_step(batch):
    return lambda: None
build = source = make_step
"""
QUICK = get_protocol("quick")
BUILT_IN = Configuration("alexnet")


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder that somebody sent, with a recording of a step whose file lies inside it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples" / "recordings" / "alexnet-cpu", "shared")
    (tmp_path / "shared" / "x.py").write_text(HARMFUL)
    change_meta(step="shared/x.py:make_step", mode="own", device=None)
    return tmp_path / "shared"


def change_meta(**entries):
    with open("shared/recording.json", "r+") as file:
        meta = json.load(file) | entries
        for name in ("experiments", "factors", "experiments_wait_for_time", "experiments_rest"):
            meta.pop(name, None)
        file.seek(0)
        json.dump(meta, file)
        file.truncate()


def planned(file, plan):
    """A plan as somebody else wrote it."""
    file.write(Path("shared/plan"), plan)
    path = Path("shared/plan", file.name)
    document = json.loads(path.read_text())
    document.pop(named_code.SIGNATURE, None)
    path.write_text(json.dumps(document))
    named_code._signed_here.clear()


@pytest.mark.parametrize("command", ["confirm shared --experiments 5s", "counters shared"])
def test_a_recordings_step_is_not_run(shared, command, refusal_of):
    if command.startswith("counters"):
        change_meta(torch_device="cuda:0")
    message = refusal_of(*command.split())
    assert "shared/x.py:make_step" in message
    assert "--run-its-code" in message
    assert not (shared.parent / "ran").exists()


@pytest.mark.parametrize("named", ["step", "network", "source"])
def test_a_plans_code_is_not_run(shared, named, refusal_of):
    spec = "shared/x.py:build"
    if named == "source":
        planned(SCALE, ScalingPlan(BUILT_IN, (1,), 1, None, QUICK, 1, spec, 60.0))
    elif named == "network":
        planned(
            SCALE, ScalingPlan(Configuration(spec, (8,)), (1,), 1, None, QUICK, 1, "resident", 60.0)
        )
    else:
        planned(
            SWEEP, SweepPlan((BUILT_IN, Configuration.of_step(spec, "cpu")), (1,), False, QUICK)
        )
    command = "sweep" if named == "step" else "scale"
    message = refusal_of(command, "--resume", "shared/plan", "--device", "cpu")
    assert spec in message
    assert "--run-its-code" in message
    assert not (shared.parent / "ran").exists()


def test_with_leave_it_runs(shared):
    planned(
        SWEEP,
        SweepPlan((Configuration.of_step("shared/x.py:make_step", "cpu"),), (1,), False, QUICK),
    )
    plan = SWEEP.read_to_run(Path("shared/plan"), run_its_code=True)
    plan.configurations[0].check()
    assert (shared.parent / "ran").exists()


@pytest.mark.slow
def test_a_users_own_step_is_confirmed_without_a_question(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick = replace(PROTOCOLS["quick"], rounds=(4, 4))  # however busy the machine is
    monkeypatch.setitem(PROTOCOLS, "quick", quick)
    (tmp_path / "x.py").write_text(
        HARMFUL.replace("lambda: None", "lambda: sum(range(20_000 * batch))")
    )
    options = [
        "--batch",
        "1,2,4",
        "--quick",
        "--time-limit",
        "600",
        "--experiments",
        "0",
        "-o",
        "run",
    ]
    assert main(["diagnose", "--step", "x.py:make_step", *options]) == 0
    named_code._signed_here.clear()  # as in another process
    assert main(["confirm", "run", "--experiments", "5s"]) == 0
