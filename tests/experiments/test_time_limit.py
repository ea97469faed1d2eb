"""The time limit of experiments is a limit, whatever a step takes, on a clock that only workers
advance.
"""

from functools import partial

import pytest

from curvescope.analysis.diagnosis import explain as explaining
from curvescope.experiments import step_variants
from curvescope.experiments.confirming import confirm
from curvescope.experiments.step_worker import Ready
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.machine import describe_machine
from curvescope.profiling.measure.visits import Visit
from curvescope.profiling.recording.experiments import experiments_of
from curvescope.profiling.recording.store import RecordingWriter, columns_of

from ..profiling.measure.fake_clock import FakeClock

BATCHES = (1, 8, 32)
START_S = 3.0  # until a process has its libraries
TICK_S = 0.5  # between two looks at a worker


class SlowWorkers:
    """Workers whose step takes so many seconds at the largest size.

    A changed step takes `slower` times as long, and each does on a machine that is `busy`.
    """

    def __init__(self, largest_s, slower=1.0, busy=1.0, start_s=START_S):
        self.clock, self.largest_s, self.running = FakeClock(), largest_s, 0
        self.slower, self.busy, self.start_s = slower, busy, start_s

    def swept_s(self, batch):
        return self.largest_s * batch / BATCHES[-1]

    def step_s(self, batch, factor=None):
        return self.swept_s(batch) * self.busy * (1.0 if factor is None else self.slower)

    def start(self, target, factor):
        workers = self
        workers.running += 1

        class Worker:
            def warm_up(self, while_waiting):
                first_s = sum(1.5 * workers.step_s(batch, factor) for batch in target.batches)
                workers.wait(workers.start_s + first_s, while_waiting)
                return Ready({}, draws=False, peak_bytes=10**9)

            def visit(self, batch, how, while_waiting):
                protocol = how.protocol
                ns = round(1e9 * workers.step_s(batch, factor))
                steps = protocol.steps_of_visit(batch, ns)
                workers.wait((protocol.discarded_steps + steps) * ns / 1e9, while_waiting)
                start_ns = workers.clock.now_ns - steps * ns
                starts_ns = [start_ns + n * ns for n in range(steps)]
                return Visit(
                    [{"start_ns": start, "duration_ns": ns, "process": 1} for start in starts_ns]
                )

            def available_bytes(self):
                return 64 * 10**9

            def end(self):
                workers.running -= 1

        return Worker()

    def wait(self, seconds, while_waiting):
        """Let the clock go on, as a process that is looked at twice a second."""
        ends_ns = self.clock.now_ns + round(seconds * 1e9)
        while self.clock.now_ns < ends_ns:
            self.clock.now_ns = min(self.clock.now_ns + round(TICK_S * 1e9), ends_ns)
            while_waiting()


@pytest.fixture(scope="module")
def here():
    """What `recording.json` says of this machine."""
    return describe_machine("cpu").entry


@pytest.fixture
def experiments(tmp_path, here, monkeypatch):
    """Runs the experiments of a sweep of such steps; returns the recording and the
    seconds taken.
    """

    def run(workers, seconds):
        meta = {"recording_type": "sweep", **Configuration("alexnet").entry}
        with RecordingWriter(tmp_path / "r", meta | here) as writer:
            keys = [(batch, round_) for round_ in range(4) for batch in BATCHES]
            times_ns = [round(1e9 * workers.swept_s(batch)) for batch, _ in keys]
            columns = {"index": 0, "start_ns": 0, "mode": "training", "profiled": False}
            rows = [
                {
                    "step": n,
                    "batch": batch,
                    "round": round_,
                    "duration_ns": times_ns[n] + 1000 * n,
                    **columns,
                }
                for n, (batch, round_) in enumerate(keys)
            ]
            writer.write("steps", columns_of(rows))
        run_step = partial(step_variants.run_step, start=workers.start)
        monkeypatch.setattr(step_variants, "run_step", run_step)
        began_s = workers.clock.seconds()
        found = confirm(tmp_path / "r", seconds, clock_s=workers.clock.seconds)
        assert workers.running == 0
        return found, workers.clock.seconds() - began_s

    return run


def squares(first, second):
    """All pairs of values: CI asks a Latin square, which has each value of both, and half of that
    is quick.
    """
    pairs = []
    for row, value in enumerate(first):
        for column, other in enumerate(second):
            is_of_square = (row + column) % len(second) == 0
            marks = [] if is_of_square else [pytest.mark.exhaustive]
            if row % 2 or not is_of_square:
                marks.append(pytest.mark.slow)
            pairs.append(pytest.param(value, other, marks=marks))
    return pairs


@pytest.mark.parametrize(
    ("largest_s", "disturbed"),
    squares(
        [0.001, 0.02, 0.1, 0.5, 1.3, 2.7, 5.0, 9.0, 20.0], [(1.0, 1.0), (3.0, 1.0), (1.0, 4.0)]
    ),
)
def test_experiments_end_within_their_limit_whatever_a_step_takes(
    experiments, largest_s, disturbed
):
    """A change may make steps far slower, and the machine too: the sweep says only what a step took
    then.
    """
    _, took_s = experiments(SlowWorkers(largest_s, *disturbed), 74.0)
    assert took_s <= 1.1 * 74.0


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(("seconds", "start_s"), squares([15.0, 45.0, 180.0], [1.0, 8.0, 30.0]))
def test_a_limit_of_any_length_holds(experiments, seconds, start_s):
    _, took_s = experiments(SlowWorkers(1.0, 2.0, start_s=start_s), seconds)
    assert took_s <= 1.1 * seconds


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("look_s", [1.0, 8.0])
def test_the_answer_after_them_is_part_of_the_time(experiments, monkeypatch, look_s):
    """On a busy machine it takes seconds to explain what was measured."""
    workers = SlowWorkers(1.0)

    def explained(explain):
        def slowly(*arguments, **options):
            workers.wait(look_s, lambda: None)
            return explain(*arguments, **options)

        return slowly

    for name in ("explain", "explain_again"):
        monkeypatch.setattr(explaining, name, explained(getattr(explaining, name)))
    _, took_s = experiments(workers, 74.0)
    assert took_s + look_s <= 74.0


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("largest_s", [0.02, 0.5, 2.0, 4.0])
def test_something_is_tried_in_the_time(experiments, largest_s):
    found, _ = experiments(SlowWorkers(largest_s), 74.0)
    tried = {row["factor"] for row in found.arrow("experiments").to_pylist()} - {None}
    assert tried
    assert any(one.done for one in experiments_of(found.meta))
