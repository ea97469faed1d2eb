"""What is said of steps that leak, change or slow down, from visits made by hand; and of real ones."""

from __future__ import annotations

import mmap
import re

import pytest
import torch

from curvescope.profiling.attribution.events import StepRows
from curvescope.profiling.measure import step_checks
from curvescope.profiling.measure.loop import Visit
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.step_checks import StepChecks
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.store import open_recording
from curvescope.profiling.workload.own_step import OwnStep

ROUNDS, BATCHES = 6, (1, 2)
MB = 1_000_000


def warnings(
    monkeypatch, *, held=lambda visit: 900 * MB, ops=lambda visit: [["mm", "relu"]], ms=lambda visit: 5.0, discarded=1
):
    """Visits of two batch sizes in turn, each with discarded, one unprofiled and one profiled step per `ops`."""
    checks = StepChecks(Axis(), "cpu")
    for number in range(ROUNDS * len(BATCHES)):
        monkeypatch.setattr(step_checks, "read_current", lambda _, number=number: held(number))
        profiled = [StepRows([{"layer": None, "op": op} for op in step], [(0, 1)], {}) for step in ops(number)]
        timed = [{"start_ns": 0, "duration_ns": ms(number // 2) * 1e6}]
        checks.note(BATCHES[number % 2], Visit(timed, profiled, discarded_steps=discarded))
    return checks.warnings()


def test_steps_that_do_the_same_have_no_warning(monkeypatch):
    assert warnings(monkeypatch) == []


def test_memory_that_grows_with_every_step_is_a_leak(monkeypatch):
    """Each visit has three steps."""
    (line,) = warnings(monkeypatch, held=lambda visit: 900 * MB + 3 * visit * 7 * MB)
    assert line.startswith("The step leaks memory: about 7 MB more with each step")
    # The steps that bring a GPU to its clocks leak, too.
    (line,) = warnings(monkeypatch, held=lambda visit: 900 * MB + 102 * visit * 7 * MB, discarded=100)
    assert line.startswith("The step leaks memory: about 7 MB more with each step")


@pytest.mark.parametrize(
    "held",
    [
        lambda visit: 900 * MB + min(visit, 6) * 30 * MB,  # the allocator settles
        lambda visit: 900 * MB + visit % 3 * 50 * MB,  # memory comes and goes
        lambda visit: 900 * MB + visit * MB,  # 0.3 MB a step
        lambda visit: None,
    ],
)
def test_memory_that_settles_or_moves_is_no_leak(monkeypatch, held):
    assert warnings(monkeypatch, held=held) == []


def test_operators_that_change_for_good_are_drift(monkeypatch):
    (line,) = warnings(monkeypatch, ops=lambda visit: [["mm", "relu"]] if visit < 6 else [["mm", "relu", "add"]])
    assert line.startswith("The step changes what it does between calls: at batch 1")
    assert "50% differ" in line


def test_operators_that_differ_now_and_then_are_no_whole_cycle(monkeypatch):
    (line,) = warnings(monkeypatch, ops=lambda visit: [["mm"], ["mm", "adam"]])
    assert "6 of 12 profiled steps ran other operators" in line
    assert "Make one call a complete cycle" in line


def test_one_operator_of_a_hundred_is_no_change(monkeypatch):
    assert warnings(monkeypatch, ops=lambda visit: [["mm"] * 100, ["mm"] * 100 + ["item"]]) == []


def test_steps_that_take_longer_with_each_round_are_said_to(monkeypatch):
    (line,) = warnings(monkeypatch, ms=lambda round_: 5.0 + round_)
    assert line.startswith("Steps take longer with each round: 73% from the first third to the last")
    assert warnings(monkeypatch, ms=lambda round_: 5.0 + round_ * (-1) ** round_) == []


def test_a_real_step_that_keeps_its_tensors_and_grows_is_reported(tmp_path):
    def make_step(batch):
        kept = []

        def step():
            # 8 MB from the system: the allocator may have as much left over from other tests.
            kept.append(torch.frombuffer(mmap.mmap(-1, 8_000_000), dtype=torch.float32).fill_(1))
            for _ in kept:
                torch.relu(kept[-1][:10])

        return step

    run_sweep(OwnStep(make_step), (1, 2), Protocol("short", (5, 5), 1, (2, 2), 0.0, 1, None), tmp_path / "r")
    leak, drift, *_ = open_recording(tmp_path / "r").meta["warnings"]
    assert float(re.search(r"leaks memory: about ([0-9.]+) MB", leak)[1]) == pytest.approx(8, abs=2)
    assert drift.startswith("The step changes what it does between calls")
