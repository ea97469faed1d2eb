"""Where steps are short, each round after the first runs in a process of its own."""

import os
from dataclasses import replace

import pytest

from curvescope.analysis.diagnosis.explain import explain
from curvescope.analysis.render.notes import TWO_PROCESSES, list_notes
from curvescope.profiling.collect.compilations import Compilations
from curvescope.profiling.measure import visit as visit_module
from curvescope.profiling.measure.protocol import PROTOCOLS
from curvescope.profiling.measure.sites.process import Rounds, starter_of
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.measure.visits import Empty, VisitPlan
from curvescope.profiling.recording.store import open_recording
from curvescope.profiling.workload.own_step import OwnStep

from ..fake_clock import FakeWorkload, clock

__all__ = ["clock"]  # a fixture

BATCHES = (1, 2, 4)
SHORT_NS, LONG_NS = 2_000_000, 2_000_000_000
PROTOCOL = replace(PROTOCOLS["default"], rounds=(6, 6 + 1), time_limit_s=60.0)


class Process:
    """Instead of a `ChildProcess`: its steps take a tenth longer than those of this process."""

    def __init__(self, clock, batches, step_ns, fails, start_ns):
        clock.now_ns += start_ns
        self.batches, self.visits, self.ended = batches, [], False
        self._workload = FakeWorkload(clock, lambda batch: round(1.1 * step_ns * batch))
        self._fails = fails

    def call(self, method, batch, how):
        assert method == "visit"
        assert not self.ended
        self.visits.append(batch)
        if self._fails:
            return Empty("failed", "not here")
        return visit_module.visit(self._workload, batch, how)

    def end(self):
        self.ended = True


@pytest.fixture
def sweep(tmp_path, clock):
    def run(step_ns, *, fails=False, is_users=False, protocol=PROTOCOL, start_ns=0):
        started = []

        def start(batches):
            started.append(Process(clock, batches, step_ns, fails, start_ns))
            return started[-1]

        workload = FakeWorkload(clock, lambda batch: step_ns * batch)
        workload.is_users = is_users
        path = tmp_path / "r"
        site = Rounds(workload, lambda _: start, clock.seconds)
        run_sweep(site, BATCHES, protocol, path, clock_s=clock.seconds)
        return open_recording(path), started

    return run


def times_of(recording):
    """Mean of the timed steps of batch size 4, ms, by round."""
    steps = recording.frame("steps")
    timed = steps[~steps["profiled"] & (steps["batch"] == 4)]
    return (timed.groupby("round")["duration_ns"].mean() / 1e6).round(2).tolist()


def test_each_round_after_the_first_has_a_process_of_its_own(sweep):
    recording, started = sweep(SHORT_NS)
    first, *later = times_of(recording)
    assert later == pytest.approx([1.1 * first] * len(later), rel=0.02)
    assert len(started) == len(later)
    assert recording.meta["processes"] == 1 + len(later)
    assert all(sorted(one.visits) == list(BATCHES) and one.ended for one in started)
    assert sorted(started[0].batches) == list(BATCHES)


def test_a_compiled_step_has_the_same_code_in_every_process(sweep, monkeypatch):
    """Torch compiles the first sizes only: in another order, others ran eagerly there, unsaid."""
    codes = iter([Compilations(2, 0, 1), Compilations(2, 1, 1)])
    latest = [Compilations(1, 0, 1)]

    def read():
        latest[:] = [next(codes, latest[0])]
        return latest[0]

    monkeypatch.setattr("curvescope.profiling.measure.step_checks.read_compilations", read)
    recording, started = sweep(SHORT_NS)
    steps = recording.frame("steps")
    timed = steps[~steps["profiled"]]
    first = timed[timed["round"] == 0].sort_values("start_ns")["batch"].unique().tolist()
    assert {tuple(one.batches) for one in started} == {tuple(first)}
    code = timed.groupby("batch")["compiled_code"].unique().map(list)
    assert code.to_dict() == {first[0]: ["own"], first[1]: ["none"], first[2]: ["none"]}


def test_kernels_are_named_by_two_rounds_of_this_process(sweep):
    steps = sweep(SHORT_NS)[0].frame("steps")
    assert steps.loc[steps["profiled"], "round"].unique().tolist() == [0, 1]


@pytest.mark.slow
def test_a_users_step_is_checked_over_several_rounds_of_this_process(sweep, monkeypatch):
    noted = []
    from curvescope.profiling.measure.step_checks import StepChecks

    note = StepChecks.note
    monkeypatch.setattr(
        StepChecks,
        "note",
        lambda self, batch, visit: (noted.append(batch), note(self, batch, visit)),
    )
    recording, _ = sweep(SHORT_NS, is_users=True)
    assert noted.count(4) == 4
    first, *later = times_of(recording)
    assert later == pytest.approx([1.1 * first] * len(later), rel=0.02)


@pytest.mark.slow
def test_a_limit_holds_where_processes_start_slowly(sweep, clock):
    """Rounds of steps that take nothing are not free where each starts a process."""
    began_s = clock.seconds()
    started = sweep(SHORT_NS, protocol=replace(PROTOCOL, rounds=(40, 41)), start_ns=5_000_000_000)[
        1
    ]
    assert 8 <= len(started) <= 12
    assert clock.seconds() - began_s <= 1.1 * 60


@pytest.mark.slow
def test_rounds_stay_here_where_processes_start_so_slowly_that_few_fit(sweep, clock):
    """A compiled step over ten sizes took 12 s to start, and a sweep of 30 s had two rounds."""
    began_s = clock.seconds()
    recording, started = sweep(
        SHORT_NS, protocol=replace(PROTOCOL, rounds=(6, 20)), start_ns=12_000_000_000
    )
    assert len(started) == 1
    assert sorted(started[0].visits) == list(BATCHES)
    assert started[0].ended
    assert recording.meta["processes"] == 2
    assert TWO_PROCESSES in list_notes(explain(recording))
    assert len(times_of(recording)) == 20
    assert clock.seconds() - began_s <= 1.1 * 60


def test_long_steps_stay_in_this_process(sweep):
    recording, started = sweep(LONG_NS)
    assert not started
    assert recording.meta["processes"] == 1


@pytest.mark.slow
def test_published_protocols_stay_in_this_process(sweep):
    assert not sweep(SHORT_NS, protocol=PROTOCOLS["dell"])[1]


@pytest.mark.slow
def test_a_step_that_fails_there_is_measured_here(sweep):
    recording, started = sweep(SHORT_NS, fails=True)
    assert len(started) == 1
    assert started[0].ended
    assert recording.meta["processes"] == 1
    assert len(set(times_of(recording))) == 1


def test_only_a_step_that_another_process_can_build_has_a_starter():
    assert starter_of(OwnStep(lambda batch: lambda: None, name="here").spec) is None
    assert starter_of({"network": "alexnet", "torch_device": "cuda:0"}) is None


def make_step(batch):
    """A step of a process, for the test below."""
    return lambda: [os.getpid() for _ in range(1000 * batch)]


@pytest.mark.slow
def test_a_process_of_a_round_times_steps():
    configuration = OwnStep(make_step, spec=f"{__name__}:make_step", device="cpu").spec
    process = starter_of(configuration)([1, 2])
    try:
        found = process.call("visit", 2, VisitPlan(PROTOCOL, profile=False))
        assert all(row["duration_ns"] > 0 for row in found.unprofiled)
        assert not found.profiled
    finally:
        process.end()
