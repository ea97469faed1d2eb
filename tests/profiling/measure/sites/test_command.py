"""Visits of a program as it is: tiny scripts that print their steps, and what a run of
them says.
"""

import gzip
import os
import re
import stat
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from curvescope.analysis.diagnosis.explain import explain
from curvescope.analysis.render.notes import list_notes
from curvescope.analysis.render.show import show_diagnosis
from curvescope.analysis.step_table import cells_of
from curvescope.base.errors import CurvescopeError
from curvescope.diagnosing import _device_of
from curvescope.profiling.collect.framework_profile import steps_after
from curvescope.profiling.measure import program_run
from curvescope.profiling.measure.configuration import Configuration, configuration_of
from curvescope.profiling.measure.program_run import Found, run_program
from curvescope.profiling.measure.protocol import PROTOCOLS, Protocol
from curvescope.profiling.measure.sites.command import Command, mark_entry, request_steps
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.measure.visits import VisitPlan
from curvescope.profiling.recording import hidden_commands, named_code
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.named_code import check_recorded_code
from curvescope.profiling.recording.store import RecordingWriter, open_recording
from curvescope.profiling.workload.program import Program, line_pattern, steps_of_lines

from ....tables import ask_each

SHORT = Protocol("short", (2, 2), 1, (2, 2), 0.0, 0, None)
PRINTING = """
import sys, time
try:
    for n in range(100_000):
        time.sleep(0.001)
        print(f"step {n}: {2.5 * int(sys.argv[1])} ms", flush=True)
except KeyboardInterrupt:
    open(sys.argv[2], "a").write("interrupted")
    raise
"""


def program_of(tmp_path, source, *arguments, **how):
    script = tmp_path / "train.py"
    script.write_text(source)
    return Program((sys.executable, str(script), "{batch}", *arguments), **how)


@pytest.fixture
def printing(tmp_path):
    return program_of(tmp_path, PRINTING, str(tmp_path / "end"), step_line="step {n}: {ms} ms")


def test_a_program_is_measured_and_recorded_and_made_again_from_its_recording(printing, tmp_path):
    configuration = Configuration.of_program(printing, "batch", {})
    run_sweep(Command.of(configuration), (2, 4), SHORT, tmp_path / "r")
    recording = open_recording(tmp_path / "r")
    steps = recording.frame("steps")
    assert {size: set(of["duration_ns"]) for size, of in steps.groupby("batch")} == {
        2: {5_000_000},
        4: {10_000_000},
    }
    assert set(steps["round"]) == {0, 1}
    assert recording.meta["network"] == "train.py"
    assert recording.meta["steps_by"] == "lines of its output: step {n}: {ms} ms"
    assert set(recording.meta["startup_s"]) == {"2", "4"}
    assert configuration_of(recording.meta) == configuration
    # this process measured it
    check_recorded_code(recording.path, recording.meta, run_its_code=False)


@pytest.mark.slow
def test_steps_that_the_sizes_do_not_reach_have_no_samples_per_second(printing, tmp_path, capsys):
    run_sweep(
        Command.of(Configuration.of_program(printing, "batch", {})), (2, 4), SHORT, tmp_path / "r"
    )
    for marks in ({}, {"same_shapes": True, "may_be_steps": ["update"]}):
        with RecordingWriter.extend(tmp_path / "r") as writer:
            writer.update(**marks)
        recording = open_recording(tmp_path / "r")
        show_diagnosis(recording)
        page = capsys.readouterr().out
        assert ("samples/s" in page) is (not marks)
        assert ("do not reach the step" in page) is bool(marks)
        show_diagnosis(recording, everything=True)
        text = " ".join(capsys.readouterr().out.split())
        has_rates = not marks
        assert ("samples/s" in text) is has_rates
        assert ("Batch size:" in text) is has_rates
        assert all((cell.samples_per_s is None) is not has_rates for cell in cells_of(recording))
    assert "have the same shapes at every batch" in text
    assert "--step-function update times the calls of another function." in text


def test_a_program_that_ends_before_it_has_enough_steps_says_so(tmp_path):
    source = "for n in range(5): print(f'step {n}: 3 ms', flush=True)"
    program = program_of(tmp_path, source, step_line="step {n}: {ms} ms")
    protocol = replace(SHORT, rounds=(1, 1), steps_per_visit=(1, 8))
    run_sweep(
        Command.of(Configuration.of_program(program, "batch", {})), (2,), protocol, tmp_path / "r"
    )
    recording = open_recording(tmp_path / "r")
    assert recording.meta["ended_after_steps"] == 4  # the first ends with its line
    assert any("one after 4 timed steps" in note for note in list_notes(explain(recording)))


def test_a_program_of_somebody_else_does_not_run_from_a_recording(printing, tmp_path):
    run_sweep(
        Command.of(Configuration.of_program(printing, "batch", {})), (2,), SHORT, tmp_path / "r"
    )
    meta = {**open_recording(tmp_path / "r").meta, "program": ["rm", "-r", "{batch}"]}
    with pytest.raises(CurvescopeError, match="program rm -r"):
        check_recorded_code(tmp_path / "r", meta, run_its_code=False)


def wanted(**changes):
    return {"discarded": 2, "steps": [2, 2], "visit_s": 0.0, "profiled": 0, **changes}


def test_a_program_is_interrupted_once_it_has_its_steps(printing, tmp_path):
    found = run_program(printing, {"batch": 1}, wanted(), tmp_path)
    assert found.code is None
    assert (tmp_path / "end").read_text() == "interrupted"


def test_a_program_that_ignores_an_interrupt_is_killed_with_its_children(monkeypatch, tmp_path):
    monkeypatch.setattr(program_run, "_PATIENCE_S", 0.2)
    source = """
import os, signal, subprocess, sys, time
for name in ("SIGINT", "SIGTERM"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
while True:
    print("step", flush=True)
    time.sleep(0.001)
"""
    found = run_program(
        program_of(tmp_path, source, step_line="step"), {"batch": 1}, wanted(), tmp_path
    )
    child = next(int(line.split()[1]) for _, line in found.lines if line.startswith("child"))
    until_s = time.monotonic() + 60
    while (
        Path(f"/proc/{child}/stat").exists()
        and " Z " not in Path(f"/proc/{child}/stat").read_text()
    ):
        assert time.monotonic() < until_s
        time.sleep(0.01)


class Chunks:
    """The output of a process in pieces, each a second after the one before it."""

    def __init__(self, pieces):
        self.pieces, self.now_s = pieces, 0

    def read1(self, _):
        self.now_s += 1
        return self.pieces.pop(0) if self.pieces else b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        # A bar comes with its own text, and only the next one ends it.
        ([b"\rbar 1", b"\rbar 2", b"\nend\n"], [(1, ""), (1, "bar 1"), (2, "bar 2"), (3, "end")]),
        ([b"bar 1\r", b"bar 2\r"], [(1, "bar 1"), (2, "bar 2")]),
        ([b"one\r", b"\ntwo\r\n"], [(1, "one"), (2, "two")]),
        ([b"on", b"e\n", b"rest"], [(2, "one"), (3, "rest")]),
    ],
)
def test_lines_end_at_either_character_and_came_with_their_last_letter(monkeypatch, pieces, lines):
    output = Chunks(list(pieces))
    clock = SimpleNamespace(monotonic_ns=lambda: output.now_s)
    monkeypatch.setattr(program_run, "time", clock)
    reading = program_run._Output(SimpleNamespace(stdout=output), "bar {n}", wanted(), None)
    reading.join()
    assert reading.lines == lines


def test_no_two_lines_come_at_once(monkeypatch):
    """A step of 0 ns is none, and a recording refuses it."""
    output, clock = Chunks([b"bar 1\nbar 2\nbar 3", b"\nbar 4\n"]), count()
    moments = SimpleNamespace(monotonic_ns=lambda: next(clock))
    monkeypatch.setattr(program_run, "time", moments)
    reading = program_run._Output(SimpleNamespace(stdout=output), "bar {n}", wanted(), None)
    reading.join()
    at_ns = [moment for moment, _ in reading.lines]
    assert at_ns == sorted(set(at_ns))
    assert [line for _, line in reading.lines] == ["bar 1", "bar 2", "bar 3", "bar 4"]


def test_an_output_without_lines_is_not_kept_whole(monkeypatch):
    monkeypatch.setattr(program_run, "_CHUNK_BYTES", 4)
    output = Chunks([b"abcd", b"efgh", b"ij"])
    reading = program_run._Output(SimpleNamespace(stdout=output), None, wanted(), None)
    reading.join()
    assert [line for _, line in reading.lines] == ["abcdefgh", "ij"]


def test_as_many_steps_as_the_protocol_says_are_discarded_where_lines_mark_them(tmp_path):
    source = "for n in range(1, 100): print(f'step {n}: {n} ms', flush=True)"
    program = program_of(tmp_path, source, step_line="step {n}: {ms} ms")
    visit = Command(program, Axis()).visit(8, VisitPlan(replace(SHORT, discarded_steps=20)))
    assert visit.unprofiled[0]["duration_ns"] == 21_000_000


def why_not(tmp_path, source, **how):
    steps = Command(program_of(tmp_path, source, **how), Axis())
    return steps.visit(8, VisitPlan(replace(SHORT, name="one")))


def test_where_no_step_is_found_it_says_what_was_looked_for_and_the_line_that_marks_one(tmp_path):
    found = why_not(tmp_path, "print('hello')")
    assert "no steps were found" in found.detail
    assert "an optimizer of torch" in found.detail
    assert "--step-line 'step {n}'" in found.detail


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ("hello", r"was ended as no step ended for minutes.* no steps were found"),
        ("step 1", "was ended as no step ended for minutes.* after 0 timed steps, found by lines"),
    ],
)
def test_a_program_without_steps_that_runs_on_is_ended(printed, says, monkeypatch, tmp_path):
    monkeypatch.setattr("curvescope.profiling.measure.sites.command.NO_STEP_S", 0.3)
    source = f"import time; print({printed!r}, flush=True); time.sleep(600)"
    found = why_not(tmp_path, source, step_line="step {n}" if "step" in printed else None)
    assert found.why == "failed"
    assert re.search(says, found.detail)


def test_a_program_shows_that_it_has_steps_by_the_time_of_a_file(tmp_path):
    assert program_run._last_sign_ns(tmp_path) == 0
    before_ns = time.monotonic_ns()
    for name, age_s in (("1.seen", 0), ("2.seen", 100)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    assert abs(program_run._last_sign_ns(tmp_path) - before_ns) < 60e9


@pytest.mark.parametrize(
    ("source", "why", "detail"),
    [
        ("raise SystemExit('no data in ./data')", "failed", "exit code 1: no data in ./data"),
        (
            "raise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')",
            "out of memory",
            "CUDA out of memory",
        ),
        ("import os; os.kill(os.getpid(), 9)", "killed", "signal 9"),
        ("print('step 1'); print('step 2')", "failed", "ended after 0 timed steps"),
    ],
)
def test_a_run_without_enough_steps_says_why(tmp_path, source, why, detail):
    found = why_not(tmp_path, source, step_line="step {n}")
    assert found.why == why
    assert detail in found.detail


@pytest.mark.parametrize(
    ("lines", "detail"),
    [
        (["no data"], "train.py ended with exit code 1: no data"),
        (["epoch 1", "no data"], "train.py ended with exit code 1: no data\nepoch 1\nno data"),
        (["curvescope: train.py has no number named bs"], "train.py has no number named bs"),
    ],
)
def test_a_line_that_is_all_of_an_output_is_said_once(printing, lines, detail):
    found = Found(lines=[(0, line) for line in lines], code=1, began_ns=0, seconds=1.0)
    assert Command(printing, Axis("batch"))._why_not(found, ()).detail == detail


@pytest.mark.parametrize("place", ["env", "script"])
def test_a_program_that_sets_its_own_path_of_python_is_followed_or_told(place, tmp_path):
    (tmp_path / "train.py").write_text("import sys; print(sys.path)")
    words = (sys.executable, str(tmp_path / "train.py"), "{batch}")
    if place == "env":
        words = ("env", "PYTHONPATH=/src", *words)
    else:
        words = ("sh", "-c", f"cd . && PYTHONPATH=/src {' '.join(words)}")
    found = Command(Program(words), Axis()).visit(8, VisitPlan(replace(SHORT, name="one")))
    says = "its last line: ['" if place == "env" else "sets PYTHONPATH anew"
    assert says in found.detail.replace("Its", "its")


def test_each_run_gets_a_folder_of_its_own_and_finds_its_files(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import os\nfor n in range(9): print('step', n, os.getcwd(), flush=True)\n"
    )
    command = (sys.executable, "train.py", "{batch}")
    program = Program(command, step_line="step {n}", workdir="runs")
    places = {
        run_program(program, {"batch": 1}, wanted(), tmp_path).lines[0][1].split()[-1]
        for _ in range(2)
    }
    assert places == {str(tmp_path / "runs" / name) for name in ("run0000", "run0001")}


@pytest.mark.parametrize(
    "command", [("python", "train.py"), ("python", "train.py", "--bs", "{size}")]
)
def test_a_command_that_does_not_take_the_batch_size_is_refused(command):
    with pytest.raises(
        CurvescopeError,
        match=r"write \{batch\} there, e.g. `-- python train.py --batch-size \{batch\}",
    ):
        Configuration.of_program(Program(command), "batch", {}).check()


def test_a_command_with_a_secret_is_recorded_without_it_and_runs_again_for_its_user_alone(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("CURVESCOPE_DATA", str(tmp_path / "mine"))
    printing = program_of(tmp_path, PRINTING, str(tmp_path / "end"), step_line="step {n}: {ms} ms")
    program = replace(printing, command=(*printing.command, "--api-key", "sk-0123456789abcdef"))
    configuration = Configuration.of_program(program, "batch", {})
    run_sweep(Command.of(configuration), (2,), SHORT, tmp_path / "r")
    for path in (tmp_path / "r").rglob("*"):
        assert path.is_dir() or b"sk-0123456789abcdef" not in path.read_bytes()
    hidden_commands._kept_here.clear()  # as in another process
    named_code._signed_here.clear()
    recording = open_recording(tmp_path / "r")
    assert recording.meta["program"][-2:] == ["--api-key", "***"]
    check_recorded_code(recording.path, recording.meta, run_its_code=False)
    assert configuration_of(recording.meta) == configuration
    (kept,) = (tmp_path / "mine" / "commands").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    hidden_commands._kept_here.clear()
    monkeypatch.setenv("CURVESCOPE_DATA", str(tmp_path / "of another"))
    for run_its_code in (False, True):
        with pytest.raises(CurvescopeError, match="Give the command again"):
            check_recorded_code(recording.path, recording.meta, run_its_code)


@ask_each(
    ("command", "name"),
    [
        (("python", "-u", "src/train.py", "--batch-size", "{batch}"), "train.py"),
        (("torchrun", "--nproc-per-node=2", "train.py", "{batch}"), "train.py"),
        (("env", "BATCH={batch}", "./bench"), "bench"),
        (("python", "-m", "package.train", "{batch}"), "package.train"),
    ],
)
def test_a_program_is_named_by_its_script(command, name):
    assert Program(command).name == name


def test_lines_tell_steps_by_their_own_time_or_by_the_time_between_them():
    lines = [
        (0, "starts"),
        (10, "step 0: loss 1"),
        (30, "step 10: loss 1"),
        (50, "noise"),
        (70, "step 20: loss 1"),
    ]
    assert steps_of_lines(lines, "step {n}") == [
        {"start_ns": 10, "duration_ns": 2},
        {"start_ns": 30, "duration_ns": 4},
    ]
    timed = [(9_000_000, "it 3 took 0.002 s"), (9_500_000, "it 4 took 3e-3 s")]
    found = steps_of_lines(timed, "it {n} took {s} s")
    assert [row["duration_ns"] for row in found] == [2_000_000, 3_000_000]
    with pytest.raises(CurvescopeError, match=r"\{time\} is unknown"):
        line_pattern("step {time}")


def test_a_run_times_more_steps_than_a_visit_of_other_steps_unless_their_number_is_fixed():
    assert (
        request_steps(VisitPlan(PROTOCOLS["default"]), 8, 1)["steps"][1]
        > PROTOCOLS["default"].steps_per_visit[1]
    )
    assert request_steps(VisitPlan(PROTOCOLS["dlperf"], profile=False), 8, 1) == {
        "discarded": 21,
        "steps": [100, 100],
        "visit_s": 0.0,
        "patience_s": 180.0,
        "profiled": 0,
    }


def called(shapes, name="act", calls=100, has_gradient=False):
    return {"name": name, "calls": calls, "shapes": shapes, "has_gradient": has_gradient}


@ask_each(
    ("by_size", "entry"),
    [
        ([("act", [called("(8, 4)")]), ("act", [called("(16, 4)")])], {}),
        ([("act", [called("(1, 4)")])], {}),  # of a single size
        ([("act", [called(None)]), ("act", [called(None)])], {}),
        ([("act", [called("(1, 4)")]), ("step", [called("(1, 4)", "step")])], {}),
        ([("SGD", []), ("SGD", [])], {}),
        (
            [
                ("act", [called("(1, 4)"), called("(8, 4)", "store"), called("()", "log")]),
                ("act", [called("(1, 4)"), called("(16, 4)", "store"), called("()", "log")]),
            ],
            {"same_shapes": True, "may_be_steps": ["store"]},
        ),
        (
            [("act", [called("(1, 4)"), called(None, "update", 0, has_gradient=True)])] * 2,
            {"same_shapes": True, "may_be_steps": ["update"]},
        ),
    ],
)
def test_a_mark_whose_arguments_do_not_change_with_the_size_is_told(by_size, entry):
    assert mark_entry(by_size) == entry


def test_a_change_that_was_never_made_is_no_change(printing):
    steps = Command(printing, Axis(), changes=["fused_optimizer"])
    found = steps.visit(2, VisitPlan(SHORT))
    assert found.detail == "not made: the program steps no optimizer of torch"


def test_where_the_named_function_was_not_called_those_that_were_are_named(tmp_path):
    program = program_of(tmp_path, PRINTING, step_function="update")
    functions = [called(None), called(None, "unused", 0)]
    run = Found(0, 0, 1.0, was_followed=True, processes=[{"functions": functions}])
    detail = Command(program, Axis())._why_not(run, ()).detail
    assert "no function named update" in detail
    assert detail.endswith("called were act.")


def test_a_program_whose_steps_are_said_in_two_ways_is_refused(tmp_path):
    program = program_of(tmp_path, PRINTING, step_line="step {n}", step_function="update")
    with pytest.raises(CurvescopeError, match="--step-line and --step-function"):
        program.check("batch", {})


TORCH = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = TensorDataset(torch.randn(4096, 8), torch.randint(4, (4096,)))
while True:
    for inputs, labels in DataLoader(data, int(sys.argv[1])):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
"""


SLEEPING = """
import sys, time
import nvtx

for n in range(100_000):
    with nvtx.annotate("step"):
        time.sleep(0.001 * int(sys.argv[1]))
    print(f"\\rstep {n} done", end="", flush=True)
    if n == int(sys.argv[2]):
        time.sleep(2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("step_line", [None, "step {n} done"], ids=["range", "bar"])
@pytest.mark.parametrize("evaluates_after", ["0", "1"])
def test_a_program_that_evaluates_early_is_timed_as_long_as_one_that_does_not(
    tmp_path, step_line, evaluates_after
):
    program = program_of(tmp_path, SLEEPING, evaluates_after, step_line=step_line)
    rows = Command(program, Axis()).visit(20, VisitPlan(PROTOCOLS["default"])).unprofiled
    durations_s = sorted(row["duration_ns"] / 1e9 for row in rows)
    assert sum(durations_s[:-1]) >= 1.5
    assert sum(durations_s) / len(rows) >= 0.015  # a line may be read late
    ends = [row["start_ns"] + row["duration_ns"] for row in rows]
    assert [row["start_ns"] for row in rows[1:]] == ends[:-1]


@pytest.mark.slow
def test_a_training_script_of_torch_is_measured_with_its_layers_and_its_input(tmp_path):
    steps = Command(program_of(tmp_path, TORCH), Axis())
    found = steps.visit(16, VisitPlan(replace(SHORT, profiled_steps=3)))
    assert steps.source == "steps of a torch optimizer (SGD)"
    assert len(found.unprofiled) == 2
    assert {"duration_ns", "cpu_time_ns", "peak_memory_bytes"} <= set(found.unprofiled[0])
    assert 1 <= len(found.profiled) <= 3  # profiling at most doubles the run
    assert {row.get("layer") for row in found.profiled[0].kernels} >= {"0", "2"}
    assert {row.get("phase") for row in found.profiled[0].kernels} >= {
        "forward",
        "backward",
        "optimizer",
        "input",
    }
    assert found.profiled[0].inputs
    assert found.layer_classes["0"] == "Linear"
    assert steps.told["threads"] > 0


def test_steps_that_jax_profiled_follow_the_last_timed_one(tmp_path):
    folder = tmp_path / "jax" / "plugins"
    folder.mkdir(parents=True)
    stored = Path(__file__).parents[3] / "data" / "jax" / "jax_cpu.xplane.pb.gz"
    (folder / "host.xplane.pb").write_bytes(gzip.decompress(stored.read_bytes()))
    steps = steps_after(1_050, tmp_path)
    assert len(steps) == 5
    starts = [step.windows[0][0] for step in steps]
    assert starts[0] == 1_050
    assert starts == sorted(starts)
    assert {"hidden", "out"} <= {row.get("layer") for row in steps[0].kernels}
    assert {row["source"] for row in steps[0].kernels} == {"jax"}
    for step in steps:
        (start_ns, duration_ns), *_ = step.windows
        assert all(start_ns <= row["start_ns"] < start_ns + duration_ns for row in step.kernels)


def test_a_run_that_jax_profiled_nothing_of_has_its_times(tmp_path):
    assert steps_after(0, tmp_path) == []


def test_the_device_that_a_framework_told_is_named_first(tmp_path):
    site = Command(program_of(tmp_path, PRINTING), Axis())
    assert _device_of(site).endswith(" (cpu)")
    site.told = {"accelerator": {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3"}}
    assert _device_of(site) == "NVIDIA H100 80GB HBM3"
