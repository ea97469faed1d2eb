"""Visits over a stream on a virtual clock report a step: from its first call to the end of its last
kernel.
"""

import pytest

from curvescope.experiments import step_worker
from curvescope.profiling.measure import graphed_steps, visit
from curvescope.profiling.measure.graphed_steps import GraphedSteps
from curvescope.profiling.measure.protocol import EXPERIMENT
from curvescope.profiling.measure.sites import here
from curvescope.profiling.measure.sites.site import STAYS
from curvescope.profiling.measure.visits import VisitPlan
from curvescope.profiling.workload.any_workload import AnyWorkload

from ...kernels.fakes import VirtualStream

CALL_NS = 7_000


class Steps(AnyWorkload):
    """Steps of equal kernels, which the host queues one after the other."""

    device, mode, precision, compiled, model = "cuda:0", "training", "fp32", False, None

    def __init__(self, stream, kernels, kernel_ns):
        self.stream, self.kernels, self.kernel_ns = stream, kernels, kernel_ns
        self.clock_ns, self.steps = lambda: stream.host_ns, 0

    loaded = None

    def load(self, batch):
        self.stream.launch(2_000_000)  # the input of the batch size

    def _run(self, ranges):
        self.steps += 1
        for _ in range(self.kernels):
            self.stream.launch(self.kernel_ns)

    def _synchronize(self, result=None):
        self.stream.synchronize()

    def step_ns(self):
        """What it takes: the host is ahead of long kernels, and short ones wait for their calls."""
        return (
            CALL_NS
            + self.kernels * self.kernel_ns
            + (self.kernels - 1) * max(CALL_NS - self.kernel_ns, 0)
        )


class Clock:
    """Kernels that read the clock before and after a step."""

    def __init__(self, stream):
        self._stream = stream

    def begin(self):
        self._stream.launch(5_000)

    def end(self):
        self._stream.launch(5_000)
        self._stream.synchronize()
        return 10**9


@pytest.fixture
def stream(monkeypatch):
    """Counters of the host take 1 ms; there is no meter and no memory to ask for."""
    stream = VirtualStream(CALL_NS)
    monkeypatch.setattr(visit, "read_host_use", lambda: stream.work_on_host(1_000_000))
    monkeypatch.setattr(visit, "host_use_between", lambda *_: {})
    monkeypatch.setattr(visit, "reset_peak", lambda _: False)
    monkeypatch.setattr(visit, "meter_of", lambda _: None)
    return stream


def close(expected_ns):
    """Within 2 µs."""
    return pytest.approx(expected_ns, abs=2_000)


STEPS = [(1, 5), (10, 20), (300, 3), (300, 50), (3_000, 10)]  # kernels, µs of each


@pytest.mark.parametrize(("kernels", "kernel_us"), STEPS)
def test_a_visit_reports_the_step_and_nothing_that_is_read_around_it(stream, kernels, kernel_us):
    steps = Steps(stream, kernels, 1000 * kernel_us)
    warm_up = visit.discard_steps(steps, 8, 1)
    assert warm_up.steps * steps.step_ns() == pytest.approx(
        max(100_000_000, steps.step_ns()), abs=steps.step_ns()
    )

    def sample_nvml():
        stream.work_on_host(500_000)
        stream.launch(30_000)  # what is still in the stream when the next step begins

    rows = visit.time_steps(steps, 5, sample_nvml, clock=Clock(stream))
    assert [row["duration_ns"] for row in rows] == [close(steps.step_ns())] * 5


@pytest.mark.parametrize(("kernels", "kernel_us"), STEPS)
def test_a_worker_of_an_experiment_reports_the_step_though_it_warms_up_in_each_visit(
    stream, kernels, kernel_us, monkeypatch
):
    monkeypatch.setattr(here, "wait_until_quiet", lambda: stream.work_on_host(2_000_000))
    server = object.__new__(step_worker._Variant)
    server._facts = STAYS
    server._steps = steps = Steps(stream, kernels, 1000 * kernel_us)
    for _ in range(3):
        rows = server.visit(8, VisitPlan(EXPERIMENT)).unprofiled
        durations = [row["duration_ns"] for row in rows]
        assert durations == [close(steps.step_ns())] * len(durations)


@pytest.mark.parametrize(("kernels", "kernel_us"), STEPS)
def test_a_replayed_graph_takes_its_kernels_and_one_call(stream, kernels, kernel_us, monkeypatch):
    steps = Steps(stream, kernels, 1000 * kernel_us)

    class Graph:
        def replay(self):
            stream.launch(steps.kernels * steps.kernel_ns)

    monkeypatch.setattr(graphed_steps, "capture", lambda _: (Graph(), None))
    graphed = GraphedSteps(steps)
    monkeypatch.setattr(graphed, "_synchronize", lambda result=None: stream.synchronize())
    visit.discard_steps(graphed, 8, 1)
    rows = visit.time_steps(graphed, 3, clock=Clock(stream))
    assert [row["duration_ns"] for row in rows] == [close(CALL_NS + kernels * 1000 * kernel_us)] * 3
    assert steps.steps == 0
