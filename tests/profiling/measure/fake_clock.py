"""A clock that stands still until a step advances it, and networks whose steps do."""

from contextlib import nullcontext

import pytest
from torch import nn

from curvescope.profiling.attribution.events import StepRows
from curvescope.profiling.measure import visit
from curvescope.profiling.workload.any_workload import FirstProfiled
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import Network

COLD_NS = 777  # the first step after a change of batch size takes so much longer
WARM_UP_NS = 5_000
SESSION_NS = 300  # besides a profiled step
OVERHEAD_NS = 40  # in a profiled step


class FakeClock:
    """Nanoseconds when called."""

    def __init__(self):
        self.now_ns = 1_000_000_000

    def __call__(self):
        return self.now_ns

    def seconds(self):
        return self.now_ns / 1e9


class FakeWorkload(Workload):
    """A workload whose step takes `step_ns(batch)` on the clock; everything that it ran is in
    `log`.
    """

    def __init__(self, clock, step_ns):
        self.clock, self.step_ns, self.log = clock, step_ns, []
        self._cold = False

        class Model(nn.Module):
            def forward(_, x):  # noqa: N805 - self is the workload
                self._run_model(len(x))
                return x

        super().__init__(
            Network("fake", "a test's", (1,), Model, classes=2), "cpu", "forward", clock_ns=clock
        )

    def _run_model(self, batch):
        took_ns = self.step_ns(batch) + self._cold * COLD_NS
        self.log.append((batch, self.clock.now_ns, took_ns))
        self.clock.now_ns += took_ns
        self._cold = False

    def load(self, batch):
        self._cold = self._batch is None or self._batch[0] != batch
        super().load(batch)


def record_step(workload, count=None, before=lambda: None):
    """Instead of `visit.record_step`: one step of a fake workload, with one kernel."""
    clock = workload.clock
    before()
    start_ns = clock()
    workload.run(lambda _: nullcontext())
    clock.now_ns += OVERHEAD_NS
    duration_ns = clock() - start_ns
    clock.now_ns += SESSION_NS
    kernel = {
        "name": "k",
        "start_ns": start_ns,
        "duration_ns": duration_ns,
        "op": "fake",
        "source": "torch",
    }
    return StepRows([kernel], [(start_ns, duration_ns)], {})


def warm_up_profiler(workload):
    """Instead of `visit.warm_up_profiler`."""
    workload.clock.now_ns += 0 if workload.first_profiled else WARM_UP_NS
    workload.first_profiled.setdefault(0, FirstProfiled([], []))


@pytest.fixture
def clock(monkeypatch):
    """A clock; the steps of fake workloads on it are profiled without torch's profiler, and what
    else runs on the machine disturbs none of them.
    """
    monkeypatch.setattr(visit, "read_host_use", lambda: None)
    monkeypatch.setattr(visit, "record_step", record_step)
    monkeypatch.setattr(visit, "warm_up_profiler", warm_up_profiler)
    return FakeClock()
