"""Sweeps whose visits run in processes of their own, on models that misbehave on purpose."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from curvescope.analysis.decompose.breakdown import break_down
from curvescope.analysis.decompose.kernel_times import device_work
from curvescope.analysis.diagnosis.explain import explain
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.processes import PRELOADED
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.scaling_plan import PLAN_FILE as SCALE_FILE
from curvescope.profiling.measure.scaling_plan import ScalingPlan
from curvescope.profiling.measure.sites import here, machines
from curvescope.profiling.measure.sites.machines import LocalMeasurer
from curvescope.profiling.measure.sweep_plan import (
    PLAN_FILE,
    SweepPlan,
    find_largest,
    run_plan,
    sweep_recordings,
)
from curvescope.profiling.measure.visits import Visit, VisitPlan
from curvescope.profiling.recording.store import Status, open_recording

from ...tables import ask_each

TWO_ROUNDS = Protocol("two", (2, 2), 1, (2, 2), visit_s=0.0, profiled_steps=1, time_limit_s=None)
ONE_ROUND = Protocol("one", (1, 1), 1, (1, 1), visit_s=0.0, profiled_steps=0, time_limit_s=None)

MODELS = """
import os
from torch import nn

class Hungry(nn.Module):
    def forward(self, x):
        return x.repeat(1, 1 << 18).sum(1)  # 1 MiB of fp32 per element of a sample

class Aborting(nn.Linear):
    def forward(self, x):
        if len(x) == 4:
            os.abort()
        return super().forward(x)

class Raising(nn.Linear):
    def forward(self, x):
        if len(x) == 4:
            raise ValueError("four is not for me")
        return super().forward(x)

hungry = Hungry
linear, aborting, raising = (lambda make=make: make(8, 4) for make in (nn.Linear, Aborting, Raising))

def deep():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
"""  # noqa: E501


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    (tmp_path / "sweep_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configuration(function, mode="training", **others):
    return Configuration(f"sweep_models:{function}", (8,), mode=mode, **others)


def sweep(folder, configurations, batches, protocol=ONE_ROUND, up_to_largest=False):
    plan = SweepPlan(tuple(configurations), tuple(batches), up_to_largest, protocol)
    PLAN_FILE.write(folder, plan)
    failed = run_plan(folder, plan)
    return [open_recording(path) for path in sweep_recordings(folder)], failed


def visited_steps(recordings):
    return {
        (recording.path.name, *step)
        for recording in recordings
        for step in recording.frame("steps")[["batch", "round", "index", "profiled"]].itertuples(
            index=False
        )
    }


RUN = """
import os, signal, sys
from pathlib import Path
from curvescope.profiling.measure.sweep_plan import PLAN_FILE, run_plan
from curvescope.profiling.recording.store import RecordingWriter

def kill_before(table, number, write=RecordingWriter.write):
    left = number

    def killed(writer, name, *arguments):
        nonlocal left
        left -= name == table
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        write(writer, name, *arguments)

    RecordingWriter.write = killed

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        kill_before(sys.argv[2], int(sys.argv[3]))
    run_plan(folder, PLAN_FILE.read(folder), lambda label, standing: print(label, standing.doing, flush=True))
"""  # noqa: E501
LONG = SweepPlan((configuration("linear"),), (1, 2), False, replace(ONE_ROUND, rounds=(99, 99)))


UNDISTURBED = (configuration("linear"), configuration("deep", "forward"))


@pytest.mark.slow
def test_a_killed_sweep_resumes_and_ends_with_the_steps_of_an_undisturbed_one(workplace):
    """At its worst moment: of the fourth visit all is written but the steps, which come last."""
    undisturbed = visited_steps(sweep(workplace / "whole", UNDISTURBED, (1, 2), TWO_ROUNDS)[0])
    (workplace / "run.py").write_text(RUN)
    PLAN_FILE.write(workplace / "cut", PLAN_FILE.read(workplace / "whole"))
    killed = subprocess.run(
        [sys.executable, "run.py", "cut", "steps", "4"], stdout=subprocess.PIPE, text=True
    )
    assert killed.returncode == -signal.SIGKILL
    kept = visited_steps(open_recording(path) for path in sweep_recordings(workplace / "cut"))
    assert len(killed.stdout.splitlines()) == len({step[:3] for step in kept}) == 3

    assert run_plan(workplace / "cut", PLAN_FILE.read(workplace / "cut")) == []
    resumed = [open_recording(path) for path in sweep_recordings(workplace / "cut")]
    assert kept < visited_steps(resumed) == undisturbed
    for recording in resumed:
        assert recording.meta["status"] == Status.COMPLETE
        steps, kernels = recording.frame("steps"), recording.frame("kernels")
        assert steps["step"].is_unique
        assert set(kernels["step"]) == set(steps[steps["profiled"]]["step"])
        assert not kernels.duplicated(["step", "start_ns", "name", "duration_ns"]).any()
        assert explain(recording).curve.conditions == (1, 2)
    # What was whole before the kill is the same file still: nothing that is done is run again.
    written = {path: path.stat().st_mtime_ns for path in (workplace / "cut").rglob("*.parquet")}
    assert run_plan(workplace / "cut", PLAN_FILE.read(workplace / "cut")) == []
    assert {
        path: path.stat().st_mtime_ns for path in (workplace / "cut").rglob("*.parquet")
    } == written


@pytest.mark.slow
def test_a_killed_sweep_leaves_nothing_running(workplace):
    PLAN_FILE.write(workplace / "r", LONG)
    (workplace / "run.py").write_text(RUN)
    with subprocess.Popen(
        [sys.executable, "run.py", "r"], stdout=subprocess.PIPE, start_new_session=True, text=True
    ) as process:
        process.stdout.readline()
        process.kill()
        # Every process of the sweep holds the other end of this pipe: at its end there is none
        # left.
        process.communicate(timeout=600)


@pytest.mark.slow
def test_out_of_memory_under_a_limit_is_recorded_and_the_other_batch_sizes_are_measured(workplace):
    limited = configuration("hungry", "forward", memory_limit_bytes=300 << 20)
    (recording,), failed = sweep(workplace / "r", [limited], (1, 16, 256))
    assert failed == []
    assert set(recording.frame("steps")["batch"]) == {1, 16}
    (unmeasured,) = recording.meta["unmeasured"]
    assert (unmeasured["batch"], unmeasured["why"]) == (256, "out of memory")
    assert "memory" in unmeasured["detail"]
    assert recording.meta["status"] == Status.COMPLETE
    assert recording.meta["memory_limit_bytes"] == 300 << 20


def test_where_nothing_fits_it_is_said_and_the_other_networks_are_there(workplace):
    tight = configuration("hungry", "forward", memory_limit_bytes=100 << 20)
    recordings, ((which, why),) = sweep(workplace / "r", [tight, configuration("linear")], (64,))
    assert [r.frame("steps")["batch"].tolist() for r in recordings] == [[], [64]]
    assert which == tight
    assert why.startswith("batch 64: out of memory")


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    ("function", "why", "detail"),
    [("aborting", "killed", "SIGABRT"), ("raising", "failed", "ValueError: four is not for me")],
)
def test_a_crash_costs_one_batch_size(workplace, function, why, detail):
    (recording,), failed = sweep(workplace / "r", [configuration(function)], (2, 4, 8))
    assert failed == []
    assert set(recording.frame("steps")["batch"]) == {2, 8}
    assert recording.meta["unmeasured"] == [{"batch": 4, "round": 0, "why": why, "detail": detail}]


@pytest.mark.slow
def test_peak_memory_grows_with_the_batch(workplace):
    (recording,), _ = sweep(workplace / "r", [configuration("hungry", "forward")], (1, 32))
    peaks = recording.frame("steps").set_index("batch")["peak_memory_bytes"]
    # 8 elements a sample, 1 MiB each, 31 samples more
    assert peaks[32] - peaks[1] == pytest.approx(31 * 8 * 2**20, rel=0.1)


@pytest.mark.slow
def test_the_largest_batch_that_fits_is_found_and_measured(workplace):
    limited = configuration("hungry", "forward", memory_limit_bytes=200 << 20)
    (recording,), _ = sweep(workplace / "r", [limited], (4,), up_to_largest=True)
    largest, too_large = recording.meta["largest_batch"], recording.meta["smallest_too_large"]
    # 8 MiB a sample: 25 fill the limit, and what the process had and no longer uses holds a few
    # more
    assert 12 <= largest < too_large <= 30
    assert too_large - largest == 1
    assert recording.meta["batches"] == sorted(
        {4, 8, 16, largest} - ({16} if largest < 16 else set())
    )
    # A visit records more than the trial of two steps: if 1 MiB is missing for it, the recording
    # says so.
    unmeasured = {(one["batch"], one["why"]) for one in recording.meta.get("unmeasured", [])}
    assert unmeasured <= {(largest, "out of memory")}
    measured = set(recording.frame("steps")["batch"])
    assert measured | {batch for batch, _ in unmeasured} == set(recording.meta["batches"])


@ask_each("limit", [0, 1, 2, 3, 63, 64, 65, 1000, 40000])
@ask_each("first", [1, 8])
def test_the_search_is_right_to_a_32nd(limit, first):
    tried = []
    largest, too_large = find_largest(lambda batch: tried.append(batch) or batch <= limit, first)
    assert largest <= limit < too_large
    assert too_large - largest <= max(1, largest // 32)
    assert len(tried) <= 25
    assert min(tried) >= 1
    assert find_largest(lambda batch: True, first) == (1 << 16, None)


def test_every_configuration_has_a_recording_that_says_what_it_is(workplace):
    configurations = [
        configuration("linear", "forward", precision=precision) for precision in ("fp32", "bf16")
    ]
    recordings, _ = sweep(workplace / "r", configurations, (1,))
    assert [r.path.name for r in recordings] == [
        "sweep_models-linear_forward_fp32",
        "sweep_models-linear_forward_bf16",
    ]
    assert [r.meta["precision"] for r in recordings] == ["fp32", "bf16"]
    assert all(r.meta["device"]["kind"] == "cpu" for r in recordings)
    assert all(len(r.frame("clocks")) >= 2 for r in recordings)


@pytest.mark.slow
def test_a_compiled_step_has_phases_and_layers(workplace):
    profiled = replace(ONE_ROUND, profiled_steps=1)
    (recording,), failed = sweep(
        workplace / "r", [configuration("deep", compiled=True)], (2,), profiled
    )
    assert failed == []
    assert recording.meta["compiled"] is True
    assert recording.path.name.endswith("_compiled")
    kernels = recording.frame("kernels")
    assert set(kernels["phase"].dropna()) == {"forward", "backward", "optimizer"}
    assert set(kernels["layer"].dropna()) >= {"0", "1", "2"}
    breakdown = break_down(recording.frame("steps"), device_work(recording), "phase", 2)
    assert sum(row.time_ms for row in breakdown.rows) == pytest.approx(breakdown.time_ms, rel=1e-9)


@pytest.mark.parametrize(
    ("file", "plan"),
    [
        (
            PLAN_FILE,
            SweepPlan((configuration("linear", fixed=(("n", 8),)),), (1, 2), True, TWO_ROUNDS),
        ),
        (
            SCALE_FILE,
            ScalingPlan(configuration("deep"), (1, 2, 4), 4, 16, TWO_ROUNDS, 1, "resident", 60.0),
        ),
    ],
    ids=["sweep", "scale"],
)
def test_a_plan_comes_back_as_it_was_written_and_is_never_overwritten(tmp_path, file, plan):
    file.write(tmp_path / "r", plan)
    assert file.read(tmp_path / "r") == plan
    with pytest.raises(CurvescopeError, match=f"curvescope {file.command} --resume"):
        file.write(tmp_path / "r", plan)
    written = tmp_path / "r" / file.name
    document = json.loads(written.read_text())
    for changed in ({"other": 1}, {"protocol": {**document["protocol"], "other": 1}}):
        written.write_text(json.dumps({**document, **changed}))
        with pytest.raises(CurvescopeError, match=r"cannot be read \(a plan has no other\)"):
            file.read(tmp_path / "r")
    written.write_text(json.dumps({**document, "version": 99}))
    with pytest.raises(CurvescopeError, match="another version of Curvescope"):
        file.read(tmp_path / "r")


HEAD = '"format": "curvescope sweep", "version": 1, "argv": []'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "contains no sweep"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ("{}", "cannot be read"),
        (f"{{{HEAD}}}", "cannot be read"),
        (f'{{{HEAD}, "configurations": 3}}', "cannot be read"),
        ('{"format": 1}', "another"),
    ],
)
def test_a_folder_without_a_plan_is_not_resumed(tmp_path, text, message):
    if text is not None:
        (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(CurvescopeError, match=message):
        PLAN_FILE.read(tmp_path)


@pytest.mark.slow
def test_an_interrupt_ends_the_visit_and_keeps_what_is_whole(workplace):
    PLAN_FILE.write(workplace / "r", LONG)
    (workplace / "run.py").write_text(RUN)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "run.py", "r"], **pipes, start_new_session=True, text=True
    ) as process:
        for _ in range(3):
            process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    assert "KeyboardInterrupt" in errors
    (recording,) = (open_recording(path) for path in sweep_recordings(workplace / "r"))
    assert recording.meta["status"] == Status.INTERRUPTED
    assert len(recording.frame("steps")) >= 3


def test_an_interrupt_while_a_process_starts_is_passed_on(monkeypatch):
    """There was nothing to kill yet, and killing it failed with a traceback."""

    def interrupted(_self):
        raise KeyboardInterrupt

    monkeypatch.setattr("multiprocessing.context.ForkServerProcess.start", interrupted)
    with pytest.raises(KeyboardInterrupt), LocalMeasurer() as here:
        here.describe("cpu")


@pytest.mark.slow
def test_what_the_server_of_visits_has_loaded_asks_for_no_device_and_starts_no_thread():
    """A fork would lose the thread, and CUDA in it would fail."""
    program = (
        "import importlib, os, torch\n"
        "def refuse(*_): raise AssertionError('asked for a device')\n"
        "for name in ('is_available', 'device_count', 'init', '_lazy_init', 'current_device'):\n"
        "    setattr(torch.cuda, name, refuse)\n"
        "before = os.listdir('/proc/self/task')\n"
        f"for name in {PRELOADED}: importlib.import_module(name)\n"
        "assert os.listdir('/proc/self/task') == before\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_process_of_a_visit_samples_clocks_around_its_steps(monkeypatch):
    """A short visit ends before the process that waits for it takes a sample."""

    def visit(workload, batch, how, between, reference):
        return Visit([{"start_ns": time.monotonic_ns(), "duration_ns": 1}])

    on_cpu = SimpleNamespace(device="cpu", cuda=False)
    monkeypatch.setattr(machines, "build_workload", lambda configuration: on_cpu)
    monkeypatch.setattr(here, "visit", visit)
    began_ns = time.monotonic_ns()
    result = machines._Functions.visit(configuration("deep"), 2, VisitPlan(ONE_ROUND))
    before, after = (sample["start_ns"] for sample in result.clocks)
    assert began_ns <= before <= result.unprofiled[0]["start_ns"] <= after
