"""The loop of experiments on a fake clock: planned and run by fakes, recorded for real."""

import json
from dataclasses import replace

import pytest

import curvescope
from curvescope.analysis.verdicts.outcome import measurements
from curvescope.base.arguments import parse_duration
from curvescope.base.errors import CurvescopeError
from curvescope.experiments import plan, step_variants
from curvescope.experiments.confirming import confirm
from curvescope.experiments.replay import run as term_runner
from curvescope.profiling.measure.loop import Progress
from curvescope.profiling.measure.machine import describe_machine
from curvescope.profiling.recording.experiment_entries import record_experiment
from curvescope.profiling.recording.experiments import Experiment, Scope, Stage, experiments_of
from curvescope.profiling.recording.store import RecordingWriter, Status, open_recording

from .recordings import write_planted

OF_EXCESS = {"functional": ((4, -2.0), (8, 1.0)), "functional_kind": "excess", "batches": (4, 8)}
ALONE = Experiment(
    number=0, stage=Stage.ALONE, scope=Scope.TERM, layer="fc6", phase="forward", **OF_EXCESS
)
SCREEN = replace(ALONE, number=1, stage=Stage.SCREEN, factors=("onednn", "other_layout"))
REMEDY = Experiment(
    number=2, stage=Stage.REMEDY, scope=Scope.STEP, factors=("no_onednn",), **OF_EXCESS
)
PLANNED = (ALONE, SCREEN, REMEDY)


@pytest.fixture(scope="module")
def here():
    """What `recording.json` says of this machine."""
    return describe_machine("cpu").entry


@pytest.fixture
def path(tmp_path, here):
    return write_planted(tmp_path / "run", **here, torch_device="cpu")


class Fakes:
    """Plans `PLANNED` in order; each run takes ten seconds, writes one row, and fails or is
    interrupted as told.
    """

    def __init__(self, monkeypatch):
        self.now_s, self.left_s, self.error = 100.0, [], {}
        monkeypatch.setattr(plan, "next_experiment", self.plan)
        monkeypatch.setattr(term_runner, "run_term", self.run(Scope.TERM))
        monkeypatch.setattr(step_variants, "run_step", self.run(Scope.STEP))

    def clock_s(self):
        return self.now_s

    def plan(self, recording, left_s, diagnosis, _):
        self.left_s.append(left_s)
        assert [one.experiment for one in diagnosis.outcomes] == [
            one.experiment for one in measurements(recording)
        ]
        made = experiments_of(recording.meta)
        assert recording.count_rows("experiments") == len(recording.frame("experiments"))
        return next(
            (one for one in PLANNED if one.number not in {other.number for other in made}), None
        )

    def run(self, scope):
        def runner(recording, experiment, writer, watch):
            assert experiment.scope == scope
            assert watch.clock_s() == self.now_s
            self.now_s += 10
            watch.report(Progress(3.0, 10.0, "round 1, batch 4"))
            run = {
                "experiment": experiment.number,
                "batch": 4,
                "round": 0,
                "index": 0,
                "duration_ns": 5,
            }
            writer.write("experiments", {name: [value] for name, value in run.items()})
            if experiment.number in self.error:
                raise self.error[experiment.number]
            record_experiment(writer, replace(experiment, done=True))

        return runner


@pytest.fixture
def fakes(monkeypatch):
    return Fakes(monkeypatch)


def test_experiments_run_until_none_is_left_and_the_recording_keeps_what_it_had(path, fakes):
    before, reports = open_recording(path), []
    found = confirm(before, 60, reports.append, fakes.clock_s)
    assert [(one.number, one.done) for one in experiments_of(found.meta)] == [
        (0, True),
        (1, True),
        (2, True),
    ]
    assert found.frame("experiments")["experiment"].tolist() == [0, 1, 2]
    assert found.meta["status"] == Status.COMPLETE
    assert found.frame("steps").equals(before.frame("steps"))
    assert fakes.left_s == [60, 50, 40, 30]
    assert Progress(10.0, 60, "fc6 forward, screen: round 1, batch 4") not in reports
    assert Progress(20.0, 60, "fc6 forward, screen: round 1, batch 4") in reports
    assert Progress(30.0, 60, "the step, remedy: round 1, batch 4") in reports


@pytest.mark.slow
def test_no_experiment_starts_after_the_time_limit_and_a_later_call_continues(path, fakes):
    assert len(experiments_of(confirm(path, 15, clock_s=fakes.clock_s).meta)) == 2
    assert [
        one.number for one in experiments_of(confirm(path, 60, clock_s=fakes.clock_s).meta)
    ] == [0, 1, 2]


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    "error", [RuntimeError("no kernel image.\nmore"), CurvescopeError("no kernel image"), OSError()]
)
def test_an_experiment_that_fails_costs_itself_alone_and_says_why(path, fakes, error):
    fakes.error = {1: error}
    entries = experiments_of(confirm(path, 60, clock_s=fakes.clock_s).meta)
    why = "no kernel image" if str(error) else "OSError"
    assert entries[1].untested == {"onednn": why, "other_layout": why}
    assert entries[1].notes == (f"It failed: {why}.",)
    assert entries[1].done
    assert entries[2].done
    assert not entries[2].untested


def test_an_interruption_keeps_finished_experiments_and_the_status(path, fakes):
    fakes.error = {1: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        confirm(path, 60, clock_s=fakes.clock_s)
    found = open_recording(path)
    assert [(one.number, one.done) for one in experiments_of(found.meta)] == [(0, True), (1, False)]
    assert found.meta["status"] == Status.COMPLETE
    with RecordingWriter.extend(path):
        pass  # and no lock stays


@pytest.mark.slow
def test_another_machine_is_refused_and_other_versions_are_noted(tmp_path, path, here, fakes):
    device = {**here["device"], "name": "another CPU", "threads": 64}
    other = write_planted(tmp_path / "other", **{**here, "device": device}, torch_device="cpu")
    with pytest.raises(CurvescopeError, match=r"another device \(name: another CPU there, "):
        confirm(other, 60, clock_s=fakes.clock_s)
    for number, nothing in enumerate((None, {}, {"kind": "cpu"})):
        of_none = write_planted(
            tmp_path / f"{number}", **{**here, "device": nothing}, torch_device="cpu"
        )
        with pytest.raises(CurvescopeError, match="does not say on which device it was made"):
            confirm(of_none, 60, clock_s=fakes.clock_s)
    with RecordingWriter.extend(path) as writer:
        writer.update(versions={**here["versions"], "torch": "1.0"})
    notes = experiments_of(confirm(path, 60, clock_s=fakes.clock_s).meta)[0].notes
    assert notes == (f"This machine differs: torch: 1.0 there, {here['versions']['torch']} here.",)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"recording_type": "model"}, "is modelled: nothing ran"),
        ({"recording_type": "table"}, "is no recording of a sweep"),
        (
            {"imported_from": "nvprof"},
            "was imported from nvprof, which does not name the operators",
        ),
        ({}, "does not say how to run its steps again"),
        (
            {"torch_device": "cuda:0", "device": {"kind": "cuda", "name": "No such GPU"}},
            "another device",
        ),
    ],
)
def test_what_cannot_run_again_is_said(tmp_path, refusal_of, meta, message):
    path = write_planted(tmp_path / "run", **meta)
    before = (path / "recording.json").read_bytes()
    printed = refusal_of("confirm", path)
    assert message in printed
    assert "at most about 3.0 minutes" in printed  # the planted sweep is of a GPU
    assert (path / "recording.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "time"),
    [
        pytest.param(["--experiments", "2m"], "2.0 minutes", marks=pytest.mark.slow),
        ([], "90 s"),
    ],
)
def test_the_command_says_its_time_and_prints_the_diagnosis(path, fakes, capsys, options, time):
    assert curvescope.cli.main(["confirm", str(path), *options, "--json"]) == 0
    printed = capsys.readouterr()
    assert f"at most about {time}" in " ".join(printed.err.split())
    assert json.loads(printed.out)["anomalies"]
    assert len(experiments_of(open_recording(path).meta)) == 3


def test_durations_are_parsed_once():
    for text, seconds in {
        "60s": 60,
        "2m": 120,
        "1.5 min": 90,
        "0": 0,
        "45": 45,
        "1h": 3600,
    }.items():
        assert parse_duration("--x", text) == seconds
    for wrong in ("", "m", "-3s", "3 days", "nan", "1e3"):
        with pytest.raises(CurvescopeError, match="a duration"):
            parse_duration("--experiments", wrong)
