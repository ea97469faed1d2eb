"""Workers of this machine: what the end of one costs, and how they are stopped."""

import threading

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.visits import KILLED, Empty, Visit, VisitPlan
from curvescope.profiling.measure.worker_server import ServerEnded
from curvescope.profiling.measure.workers import LocalWorkers

from .fake_measurers import CARD, machine
from .killed_worker import TWO_ROUNDS, check_killed_worker, spread_models

__all__ = ["spread_models"]  # a fixture


class FakeServer:
    """Ends in a visit of batch 13; waits in one of batch 99 until it is ended."""

    def __init__(self, variables):
        self.variables, self._ended = variables, threading.Event()
        self.started.append(self)

    def call(self, name, *arguments):
        if name == "describe":
            return machine(self.variables.get("CUDA_VISIBLE_DEVICES", "here"), device=CARD)
        if 99 in arguments:
            self._ended.wait()
        if 13 in arguments or self._ended.is_set():
            raise ServerEnded
        return Visit([])

    def end(self):
        self._ended.set()


@pytest.fixture
def start():
    return type("Server", (FakeServer,), {"started": []})


def visit(worker, batch=1):
    return worker.visit(Configuration("x"), batch, VisitPlan(TWO_ROUNDS))


def test_each_gpu_has_a_worker_and_each_is_ended(start):
    with LocalWorkers(None, ["2", "5"], start=start) as workers:
        first, second = workers.measurers("cuda:0", 2)
        assert (first.machine.identity, second.machine.identity) == ("2", "5")
        assert visit(first) == visit(second) == Visit([])
    assert all(server._ended.is_set() for server in start.started)


def test_a_visit_that_ends_its_worker_each_time_is_given_up(start):
    with LocalWorkers(1, threads=3, start=start) as workers:
        (worker,) = workers.measurers("cpu", 5)
        found = visit(worker, 13)
        assert isinstance(found, Empty)
        assert found.why == KILLED
        assert visit(worker) == Visit([])
    assert len(start.started) == 4
    assert all(server.variables["OMP_NUM_THREADS"] == "3" for server in start.started)


def test_a_stopped_worker_ends_its_visit_and_starts_no_other(start):
    with LocalWorkers(1, start=start) as workers:
        (worker,) = workers.measurers("cpu", 1)
        soon = threading.Timer(0.05, worker.stop)
        soon.start()
        with pytest.raises(KeyboardInterrupt):
            visit(worker, 99)
        with pytest.raises(KeyboardInterrupt):
            visit(worker)
        soon.join()


def test_gpus_of_different_kinds_are_refused(monkeypatch, start):
    def call(self, name, *arguments):
        return machine(torch=self.variables["CUDA_VISIBLE_DEVICES"])

    monkeypatch.setattr(start, "call", call)
    with (
        LocalWorkers(None, ["0", "1"], start=start) as workers,
        pytest.raises(CurvescopeError, match="different"),
    ):
        workers.measurers("cuda:0", 2)


@pytest.mark.slow
def test_a_worker_killed_in_a_visit_costs_no_visit_and_doubles_none(spread_models):
    with LocalWorkers(2, threads=1) as workers:
        check_killed_worker(
            spread_models,
            workers,
            lambda: [worker.server.process.pid for worker in workers.workers],
            moves=0,
        )
