"""Versions of a step measured together."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.processes import InterpreterOfVersion
from curvescope.profiling.measure.versions import (
    PROGRAMS,
    PROTOCOL,
    Version,
    _WithinTime,
    checked_out,
    measure_versions,
)
from curvescope.profiling.measure.visits import Empty, Look, Visit
from curvescope.profiling.recording.store import TOGETHER, open_recording

from ...tables import ask_each
from .fake_measurers import machine
from .test_processes import assert_ends

STEP = Configuration.of_step("step.py:make_step", "cpu")


@ask_each(
    ("text", "version"),
    [
        ("base=main", Version("base", "main")),
        ("base=HEAD@{1}", Version("base", "HEAD@{1}")),
        (f"new=.@{sys.executable}", Version("new", ".", sys.executable)),
        (
            "one=.,OMP_NUM_THREADS=1,A=",
            Version("one", ".", variables=(("OMP_NUM_THREADS", "1"), ("A", ""))),
        ),
    ],
)
def test_a_version_is_a_folder_or_revision_with_its_interpreter_and_variables(text, version):
    assert Version.parse(text) == version


@ask_each("text", ["main", "base=", "=main", "a/b=main", "base=main,threads"])
def test_another_form_is_refused_with_the_right_one(text):
    with pytest.raises(CurvescopeError, match="write NAME=FOLDER or NAME=REVISION"):
        Version.parse(text)


def git(*words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    subprocess.run(["git", *identity, *words], check=True, capture_output=True)


def test_a_revision_is_checked_out_beside_the_working_tree_and_removed(tmp_path, monkeypatch):
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    git("init", "--quiet", "..")
    Path("step.py").write_text("first")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    Path("step.py").write_text("second")
    with checked_out([Version("base", "HEAD"), Version("head", ".")]) as versions:
        base, head = (version.folder for version in versions)
        assert ((base / "step.py").read_text(), (head / "step.py").read_text()) == (
            "first",
            "second",
        )
    assert not base.exists()
    listed = subprocess.run(
        ["git", "worktree", "list"], check=True, capture_output=True, text=True
    ).stdout
    assert len(listed.splitlines()) == 1
    with (
        pytest.raises(CurvescopeError, match="no such folder, and no such revision"),
        checked_out([Version("a", "b")]),
    ):
        pass


class Started:
    """Stands for the processes of a run; their steps take 10 ms, those in the folder
    `slow` 20 ms.
    """

    def __init__(self, files=(), fails=None, losses=()):
        self.calls, self._files, self._fails, self._numbers = [], list(files), fails, count()
        self._losses = losses

    def __call__(self, python, folder, variables, make, configuration):
        return Process(self, next(self._numbers), folder)


class Process:
    def __init__(self, of, number, folder):
        self._of, self._number, self._folder = of, number, folder
        self._of.calls.append((number, "start"))

    def call(self, method, *arguments):
        if method == "describe":
            return machine()
        if method == "files":
            return self._of._files
        if method == "losses":
            return self._of._losses
        if method == "prepare":
            return 5_000_000_000
        batch, how = arguments
        self._of.calls.append(
            (self._number, "profiled" if how.protocol.profiled_steps else "timed")
        )
        if self._of._fails is not None:
            return self._of._fails
        duration_ns = batch * (20 if self._folder.name == "slow" else 10) * 10**6
        return Visit([{"start_ns": 0, "duration_ns": duration_ns}])

    def end(self):
        self._of.calls.append((self._number, "end"))


def measured(
    tmp_path, start, rounds=(8, 8), decided=lambda _, __: False, time_limit_s=600.0, batch=1
):
    versions = [Version(name, name, folder=tmp_path / name) for name in ("base", "slow")]
    protocol = replace(PROTOCOL, rounds=rounds, time_limit_s=time_limit_s)
    place = tmp_path / "run"
    return measure_versions(versions, STEP, (batch,), protocol, place, decided, start=start)


def test_each_version_is_visited_in_every_round_and_gets_fresh_processes_after_four(tmp_path):
    start = Started()
    recordings = [open_recording(path) for path in measured(tmp_path, start)]
    first, second = start.calls[:12], start.calls[12:]
    assert first[:4] == [(0, "start"), (1, "start"), (0, "timed"), (1, "timed")]
    assert sorted(first[8:10]) == [(0, "profiled"), (1, "profiled")]  # the last of four rounds
    assert sorted(first[10:]) == [(0, "end"), (1, "end")]
    assert second[:2] == [(2, "start"), (3, "start")]
    assert len(second) == 12
    base, slow = (recording.frame("steps") for recording in recordings)
    assert base["round"].tolist() == slow["round"].tolist() == list(range(8))
    assert (slow["duration_ns"] == 2 * base["duration_ns"]).all()
    together = [recording.meta[TOGETHER] for recording in recordings]
    assert together[0]["run"] == together[1]["run"]
    assert [one["rounds_of_process"] for one in together] == [4, 4]
    assert [recording.meta["setup_s"] for recording in recordings] == [{"1": 5.0}] * 2


@ask_each(
    ("losses", "recorded"),
    [([0.5, 0.25], [0.5, 0.25]), ([2.0, None], [2.0, None]), (Empty("failed", "x"), [])],
)
def test_each_version_has_the_losses_of_its_first_steps(losses, recorded, tmp_path):
    folder = tmp_path / f"with {len(recorded)} {recorded[-1:]}"
    paths = measured(folder, Started(losses=losses))
    assert [open_recording(path).meta["losses"] for path in paths] == [recorded, recorded]


def test_the_run_ends_between_processes_once_the_answer_is_known(tmp_path):
    start = Started()
    measured(
        tmp_path,
        start,
        (1, 40),
        decided=lambda rows, _: {row["factor"] for row in rows} == {"base", "slow"},
    )
    assert [call for call in start.calls if call[1] == "start"] == [(0, "start"), (1, "start")]
    assert sum(call[1] in ("timed", "profiled") for call in start.calls) == 8


def test_a_time_limit_ends_the_run_in_its_first_processes_which_are_profiled_at_once(tmp_path):
    start = Started()
    measured(tmp_path, start, (1, 160), time_limit_s=0.0)
    expected = ["start", "start", "profiled", "profiled", "end", "end"]
    assert [what for _, what in start.calls] == expected


def test_processes_of_slow_steps_make_as_few_rounds_as_let_six_of_each_fit_the_time(tmp_path):
    """A round of 60 s with its discarded steps, in 900 s: 150 s for each process allow two."""
    start, asked = Started(), []
    recordings = [
        open_recording(path)
        for path in measured(
            tmp_path,
            start,
            (1, 8),
            decided=lambda _, rounds: asked.append(rounds),
            time_limit_s=900.0,
            batch=1000,
        )
    ]
    assert {one.meta[TOGETHER]["rounds_of_process"] for one in recordings} == {2}
    assert set(asked) == {2}
    whats = [what for _, what in start.calls]
    assert whats.count("start") == 8
    # The first round, and the last of three processes of each version.
    assert (whats.count("profiled"), whats.count("timed")) == (8, 8)


@pytest.mark.parametrize(
    ("between_processes", "fits"),
    [(False, True), (True, False)],
)
def test_a_round_that_starts_processes_needs_the_time_of_their_start(between_processes, fits):
    """At 20 s of 60, with 50 s for a start and 2 s for a visit."""
    run = SimpleNamespace(
        between_processes=between_processes, start_s=50.0, visit_s={("a", 1): 2.0}
    )
    rule = _WithinTime(run, replace(PROTOCOL, rounds=(1, 160), time_limit_s=60.0))
    look = Look(round_=4, elapsed_s=20.0, conditions=[("a", 1)], visit_s={}, rows=lambda: ())
    assert bool(rule.next_round(look)) == fits


def test_a_step_that_fails_ends_the_run_and_its_processes(tmp_path):
    start = Started(fails=Empty("failed", "make_step raised KeyError"))
    with pytest.raises(
        CurvescopeError, match=r"--measure base at batch 1: failed \(make_step raised KeyError\)"
    ):
        measured(tmp_path, start)
    assert sorted(start.calls[-2:]) == [(0, "end"), (1, "end")]


def test_a_version_that_imports_code_of_another_is_refused(tmp_path):
    start = Started(files=["/usr/lib/other.py", str(tmp_path / "slow" / "model.py")])
    with pytest.raises(CurvescopeError, match=r"base imports .*model.py, which is of slow"):
        measured(tmp_path, start)


def test_an_interpreter_runs_in_its_folder_with_its_variables_and_ends(tmp_path):
    text = InterpreterOfVersion(
        sys.executable, tmp_path, {"OF_A_VERSION": "value"}, os.getenv, "OF_A_VERSION"
    )
    folder = InterpreterOfVersion(sys.executable, tmp_path, {}, Path, ".")
    assert text.call("upper") == "VALUE"
    assert folder.call("resolve") == tmp_path.resolve()
    for process in (text, folder):
        process.end()
        assert_ends(process._process.pid)


def test_an_interpreter_that_cannot_start_is_an_empty_result(tmp_path):
    # of the folder, which is searched first
    (tmp_path / "msgspec.py").write_text("raise SystemExit(3)")
    (tmp_path / "numpy.py").write_text("raise SystemExit(3)")
    process = InterpreterOfVersion(sys.executable, tmp_path, {}, Path, ".")
    assert process.call("resolve") == Empty("killed", "its process ended with exit code 3")
    process.end()


PRINTING = """
import sys, time
for n in range(100_000):
    time.sleep(0.0005)
    print(f"step {n}: {float(sys.argv[1]) * int(sys.argv[2])} ms", flush=True)
"""


@pytest.mark.slow
def test_programs_are_compared_as_they_are_each_run_a_process(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PRINTING)
    commands = {
        name: f"{sys.executable} {script} {ms} {{batch}}" for name, ms in (("base", 2), ("head", 3))
    }
    found = [
        replace(Version.parse(f"{name}={text}"), step_line="step {n}: {ms} ms")
        for name, text in commands.items()
    ]
    assert [version.program[0] for version in found] == [sys.executable] * 2
    protocol = replace(PROGRAMS, rounds=(2, 2), profiled_steps=0)
    paths = measure_versions(found, None, (4,), protocol, tmp_path / "r")
    recordings = [open_recording(path) for path in paths]
    assert [set(one.frame("steps")["duration_ns"]) for one in recordings] == [
        {8_000_000},
        {12_000_000},
    ]
    assert {one.meta[TOGETHER]["rounds_of_process"] for one in recordings} == {1}
    assert all("lines of its output" in one.meta["steps_by"] for one in recordings)


@pytest.mark.parametrize("text", ["head=main,NAME=two words", "head=."])
def test_a_version_with_blanks_in_a_variable_is_no_program(text):
    assert Version.parse(text).program is None
