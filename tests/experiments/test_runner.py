"""What experiments on terms and on complete steps have in common, on both."""

from dataclasses import replace

import pytest

from curvescope.experiments.replay.run import run_term
from curvescope.experiments.runner import Watch
from curvescope.experiments.step_variants import run_step
from curvescope.profiling.recording.experiments import TIME_IS_UP, experiments_of
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ..profiling.measure.fake_clock import FakeClock
from . import test_step_variants as steps
from .replay import test_run as terms

BATCHES = (2, 4)


class OnTerm:
    """Runs of a linear layer, each of which takes 10 ms of the clock."""

    changes, refuses = "split_batch", "channels_last"

    def __init__(self, path):
        self.path, self.clock = path / "term", FakeClock()
        with RecordingWriter(self.path, {"device": {"kind": "cpu"}}) as writer:
            rows = [terms.row(batch, terms.LINEAR, terms.linear(batch)) for batch in BATCHES]
            writer.write("operators", columns_of(rows))

    def run(self, writer, wanted, watch):
        backend = terms.Backend(durations_ns=(10**7,))
        take = backend.timer.take

        def take_on_clock(*arguments):
            self.clock.now_ns += 10**7
            return take(*arguments)

        backend.timer.take = take_on_clock
        return run_term(open_recording(self.path), wanted, writer, watch, backend)

    def experiment(self, *names, **changed):
        return replace(terms.experiment(*names, batches=BATCHES), **changed)


class OnSteps:
    """Steps of a fake worker, each of which takes 10 ms of the clock."""

    changes, refuses = "one_thread", "cuda_graph"

    def __init__(self, path):
        self.path, self.clock = path / "steps", FakeClock()
        steps.sweep_of(self.path)
        self.workers = steps.Workers(self.clock, ms_per_sample=0)

    def run(self, writer, wanted, watch):
        try:
            return run_step(open_recording(self.path), wanted, writer, watch, self.workers.start)
        finally:
            assert not self.workers.running

    def experiment(self, *names, **changed):
        return replace(steps.experiment(*names, batches=BATCHES), **changed)


@pytest.fixture(params=[OnTerm, OnSteps])
def on(request, tmp_path):
    if request.param is OnTerm:
        pytest.importorskip("torch")
    return request.param(tmp_path)


def run(on, wanted, **watch):
    """Run an experiment: the recorded one, and the visits by factor, batch size and round."""
    with RecordingWriter.extend(on.path) as writer:
        done = on.run(writer, wanted, Watch(clock_s=on.clock.seconds, **watch))
    return done, visits(on)


def visits(on):
    rows = open_recording(on.path).arrow("experiments").to_pylist()
    return {(row["factor"], row["batch"], row["round"]) for row in rows}


def every(on, rounds):
    return {
        (name, batch, round_)
        for name in (None, on.changes)
        for batch in BATCHES
        for round_ in range(rounds)
    }


def test_every_round_visits_every_factor_and_none_at_every_batch_size(on):
    done, made = run(on, on.experiment(on.changes, on.refuses, rounds=(3, 3)))
    assert made == every(on, 3)
    assert (done.done, set(done.untested)) == (True, {on.refuses})
    assert experiments_of(open_recording(on.path).meta) == (done,)


def test_nothing_runs_if_no_factor_can_be_changed(on):
    done, made = run(on, on.experiment(on.refuses))
    assert (done.done, set(done.untested), made) == (True, {on.refuses}, set())


def test_an_experiment_ends_after_the_round_that_decides_it(on):
    asked = []

    def enough(rows):
        asked.append(max(row["round"] for row in rows) + 1)
        return len(asked) == 3

    done, made = run(on, on.experiment(on.changes, rounds=(2, 40)), enough=enough)
    assert (done.done, asked, made) == (True, [2, 3, 4], every(on, 4))


def test_rounds_beyond_the_least_start_only_within_the_time_limit(on):
    done, made = run(on, on.experiment(on.changes, rounds=(2, 99), time_limit_s=1.0))
    assert done.done
    assert 2 < max(round_ for *_, round_ in made) < 98
    assert 0.8 < on.clock.seconds() - 1.0 <= 1.0


def test_no_round_starts_after_the_deadline_and_what_did_not_run_says_so(on):
    done, made = run(on, on.experiment(on.changes, rounds=(99, 99), deadline_s=1.0))
    assert (done.done, done.untested) == (False, {})
    assert len(made) % (2 * len(BATCHES)) == 0
    done, _ = run(on, on.experiment(on.changes, rounds=(99, 99), deadline_s=-0.1, number=9))
    assert (done.done, done.untested) == (False, {on.changes: TIME_IS_UP})


def test_an_interruption_keeps_the_visits(on):
    def interrupt(progress):
        if progress.doing == "round 2, unmodified, batch 4":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(on, on.experiment(on.changes, rounds=(3, 3)), report=interrupt)
    assert every(on, 1) < visits(on)
    assert (None, 4, 1) in visits(on)
    assert not experiments_of(open_recording(on.path).meta)[0].done
