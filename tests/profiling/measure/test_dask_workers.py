"""Sweeps on the workers of a Dask cluster: which are taken, and what the end of one costs."""

import os

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.measure import dask_workers, worker_server
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.dask_workers import DaskWorkers, WorkerLostError
from curvescope.profiling.measure.visits import KILLED, Empty, Visit, VisitPlan

from ...tables import ask_each
from .fake_measurers import CARD, machine
from .killed_worker import TWO_ROUNDS, check_killed_worker, spread_models

__all__ = ["spread_models"]  # a fixture


class FakeCluster(DaskWorkers):
    """Workers by address; an address is gone once it is asked for a visit of batch 13."""

    def __init__(self, machines):
        super().__init__("tcp://fake:1")
        self.machines, self.asked = dict(machines), []

    def addresses(self):
        return set(self.machines)

    def call(self, address, name, *arguments):
        self.asked.append((address, name))
        if address not in self.machines:
            raise WorkerLostError(address)
        if name == "describe":
            return self.machines[address]
        if 13 in arguments:
            del self.machines[address]
            raise WorkerLostError(address)
        return Visit([])


def visit(measurer, batch=1):
    return measurer.visit(Configuration("x"), batch, VisitPlan(TWO_ROUNDS))


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(dask_workers, "_POLL_S", 0.01)


def fake(**kinds):
    return FakeCluster({f"tcp://{name}": machine(name, **kind) for name, kind in kinds.items()})


@pytest.mark.slow
def test_a_worker_that_ends_is_followed_by_a_free_one_of_its_kind():
    cluster = fake(a={}, b={}, c={})
    first, second = cluster.measurers("cuda:0", 2)
    cluster.machines["tcp://d"] = machine("d", device={**CARD, "name": "Fake 200"})  # came later
    del cluster.machines["tcp://a"]
    assert visit(first) == Visit([])
    assert (first.machine.identity, second.machine.identity) == ("c", "b")
    assert ("tcp://d", "visit") not in cluster.asked


def test_a_worker_that_is_done_takes_the_place_of_one_that_ends():
    cluster = fake(a={}, b={})
    first, second = cluster.measurers("cuda:0", 2)
    second.done()
    del cluster.machines["tcp://a"]
    visit(first)
    assert first.machine.identity == "b"


def test_where_no_other_of_its_kind_comes_it_is_said(monkeypatch):
    monkeypatch.setattr(dask_workers, "_SUCCESSOR_S", 0.1)
    cluster = fake(a={}, b={})
    first, _ = cluster.measurers("cuda:0", 2)
    del cluster.machines["tcp://a"]
    with pytest.raises(CurvescopeError, match=r"no other worker of its kind came.*sweep --resume"):
        visit(first)


def test_a_visit_that_ends_every_worker_costs_that_batch_size_alone():
    cluster = fake(a={}, b={}, c={}, d={})
    (first,) = cluster.measurers("cuda:0", 1)
    found = visit(first, 13)
    assert isinstance(found, Empty)
    assert (found.why, len(cluster.machines)) == (KILLED, 1)


@ask_each(
    "odd", [{"device": {**CARD, "name": "Fake 200"}}, {"cpu": "Other CPU"}, {"torch": "2.6.0"}]
)
def test_workers_of_different_kinds_are_refused(odd):
    with pytest.raises(CurvescopeError, match=r"1 × .*; 2 × .*|2 × .*; 1 × .*"):
        fake(a={}, b={}, c=odd).measurers("cuda:0", 3)


def test_workers_that_share_a_gpu_are_refused():
    cluster = FakeCluster({"tcp://a": machine("same"), "tcp://b": machine("same")})
    with pytest.raises(
        CurvescopeError, match="share one GPU: start each with its own CUDA_VISIBLE_DEVICES"
    ):
        cluster.measurers("cuda:0", 2)


def test_a_stopped_sweep_asks_for_no_successor():
    cluster = fake(a={})
    (first,) = cluster.measurers("cuda:0", 1)
    cluster.machines.clear()
    first.stop()
    with pytest.raises(KeyboardInterrupt):
        visit(first)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--workers 2", "--workers needs --scheduler local"),
        ("--scheduler tcp://127.0.0.1:1 --workers 2", "a running scheduler has its own workers"),
        ("--scheduler local --device cpu", "give the number of workers that share its cores"),
        (
            "--scheduler local --device cpu --workers 4096",
            "give the number of workers that share its cores",
        ),
    ],
)
def test_options_that_do_not_go_together(options, said, refusal_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in refusal_of("sweep", "alexnet", *options.split())
    assert not list(tmp_path.iterdir())


@pytest.fixture
def cluster():
    """A scheduler and two workers of the user's own, which ask for keys; their addresses and
    process ids.
    """
    import dask
    from distributed import LocalCluster, Security

    keys = Security.temporary()
    settings = {
        "distributed.comm.tls.ca-file": keys.tls_ca_file,
        "distributed.comm.tls.client.cert": keys.tls_client_cert,
        "distributed.comm.tls.client.key": keys.tls_client_key,
    }
    kind = {
        "host": "127.0.0.1",
        "protocol": "tls://",
        "security": keys,
        "dashboard_address": "127.0.0.1:0",
    }
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, silence_logs=50, **kind) as started,
        dask.config.set(settings),
    ):
        yield started


@pytest.mark.slow
def test_a_worker_killed_in_a_visit_costs_no_visit_and_doubles_none(spread_models, cluster):
    with DaskWorkers(cluster.scheduler_address) as workers:
        assert cluster.scheduler_address.startswith("tls://")
        processes = workers._client.run(os.getpid).values()
        check_killed_worker(spread_models, workers, lambda: processes, moves=1)


@pytest.mark.slow
def test_without_keys_a_cluster_refuses(cluster):
    import dask

    none = {"distributed.comm.tls.client.cert": None, "distributed.comm.tls.client.key": None}
    workers = DaskWorkers(cluster.scheduler_address)
    with (
        dask.config.set(none),
        pytest.raises(CurvescopeError, match="no Dask scheduler answers there"),
        workers,
    ):
        pass


def test_the_question_after_the_end_of_a_server_starts_another(monkeypatch):
    class Server:
        started = 0

        def __init__(self):
            Server.started += 1

        def call(self, name, *arguments):
            if arguments == ("kill",):
                raise worker_server.ServerEnded
            return name, arguments, Server.started

    monkeypatch.setattr(worker_server, "_server", None)
    monkeypatch.setattr(worker_server, "Server", Server)
    assert (
        worker_server.call("pick", "cpu")
        == worker_server.call("pick", "cpu")
        == ("pick", ("cpu",), 1)
    )
    with pytest.raises(worker_server.ServerEnded):
        worker_server.call("visit", "kill")
    assert worker_server.call("pick", "cpu") == ("pick", ("cpu",), 2)


@pytest.mark.slow
def test_a_server_answers_until_it_ends_and_the_next_question_starts_another():
    try:
        assert worker_server.call("pick", "cpu") == "cpu"
        described = worker_server.call("describe", "cpu")
        assert described.device["kind"] == "cpu"
        worker_server._server.process.kill()
        with pytest.raises(worker_server.ServerEnded):
            worker_server.call("describe", "cpu")
        assert worker_server.call("describe", "cpu").kind == described.kind
    finally:
        worker_server.end()
