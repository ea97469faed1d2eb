"""Recordings and plans of somebody else: no command runs code that they name, unless it is asked
to.
"""

import json
import shutil
import sys
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
from curvescope.profiling.workload.program import Program

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


@pytest.mark.slow
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
    command = ["sweep"] if named == "step" else ["scale", "measure"]
    message = refusal_of(*command, "--resume", "shared/plan", "--device", "cpu")
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


COMMANDS = {
    "script": (sys.executable, "train.py", "{batch}"),
    "path of the script": (sys.executable, "./code/../train.py", "{batch}"),
    "module": (sys.executable, "-m", "train", "{batch}"),
    "module without a space": (sys.executable, "-u", "-mtrain", "{batch}"),
    "module in a package": (sys.executable, "-m", "code_of.train", "{batch}"),
    "found on PATH": ("python3", "train.py", "{batch}"),
    "in a shell": ("sh", "-c", "exec python3 train.py {batch}"),
}


@pytest.fixture(params=COMMANDS.values(), ids=COMMANDS)
def signed(request, tmp_path, monkeypatch):
    """The folder `mine`, with a signed plan of a command; this process has not signed it."""
    monkeypatch.setenv("CURVESCOPE_DATA", str(tmp_path / "data"))
    for folder in ("mine/code_of", "mine/code", "sent/code_of", "sent/code"):
        (tmp_path / folder).mkdir(parents=True)
    for script in ("mine/train.py", "mine/code_of/train.py"):
        (tmp_path / script).write_text("print('step 1')")
    monkeypatch.chdir(tmp_path / "mine")
    program = Program(request.param, step_line="step {n}")
    plan = SweepPlan((Configuration.of_program(program, "batch", {}),), (1,), False, QUICK)
    SWEEP.write(Path("plan"), plan)
    named_code._signed_here.clear()
    return tmp_path / "mine"


def test_a_signed_plan_in_another_folder_asks_again(signed, monkeypatch, refusal_of):
    sent = signed.parent / "sent"
    shutil.copytree(signed / "plan", sent / "plan")
    for script in ("train.py", "code_of/train.py"):
        (sent / script).write_text("open('ran', 'w')")
    monkeypatch.chdir(sent)
    message = refusal_of("sweep", "--resume", "plan", "--device", "cpu")
    assert "its signature does not fit" in message
    assert "--run-its-code" in message
    assert not (sent / "ran").exists()
    assert SWEEP.read_to_run(Path("plan"), run_its_code=True)


def test_a_users_own_plan_runs_in_its_place_whatever_changed_in_the_files(signed):
    for script in ("train.py", "code_of/train.py"):
        (signed / script).write_text("print('step 2')")
    (signed / "{batch}").touch()  # as if the command had written it
    assert SWEEP.read_to_run(Path("plan"), run_its_code=False)


def test_a_refusal_has_no_value_that_the_recording_hides(tmp_path, monkeypatch, refusal_of):
    """An agent may read it."""
    monkeypatch.setenv("CURVESCOPE_DATA", str(tmp_path / "data"))
    (tmp_path / "sent").mkdir()
    monkeypatch.chdir(tmp_path)
    program = Program(
        ("python3", "train.py", "{batch}", "--hub", "hf_abcdef"), step_line="step {n}"
    )
    configuration = Configuration.of_program(program, "batch", {})
    SWEEP.write(Path("plan"), SweepPlan((configuration,), (1,), False, QUICK))
    named_code._signed_here.clear()
    shutil.copytree("plan", "sent/plan")
    monkeypatch.chdir(tmp_path / "sent")
    message = refusal_of("sweep", "--resume", "plan", "--device", "cpu")
    assert "--hub '***'" in message
    assert "hf_abcdef" not in message


def test_a_message_names_the_script_and_not_the_interpreter_alone(signed, monkeypatch, refusal_of):
    shutil.copytree(signed / "plan", signed.parent / "sent" / "plan")
    monkeypatch.chdir(signed.parent / "sent")
    (signed.parent / "sent" / "train.py").touch()
    (signed.parent / "sent" / "code_of" / "train.py").touch()
    message = refusal_of("sweep", "--resume", "plan", "--device", "cpu")
    configuration = SWEEP.read(Path("plan")).configurations[0]
    if "sh" not in configuration.program:  # its script is in a text that a shell reads
        assert f"{signed.parent}/sent/" in message


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
